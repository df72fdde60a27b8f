//! What the options ask for, without a device.

use super::*;
use clap::Parser;
use kda::bench::shape::Shape;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn parse(words: &[&str]) -> Result<Request, String> {
    let line = Line::try_parse_from([&["bench"][..], words].concat()).map_err(|error| error.to_string())?;
    let subject = find(&line.arguments.op, &kda::bench::subjects()).map_err(|stop| stop.to_string())?;
    request(&line.arguments, subject).map_err(|stop| stop.to_string())
}

#[test]
fn the_help_names_every_operator() {
    let help = <Line as clap::CommandFactory>::command().render_help().to_string();
    for subject in kda::bench::subjects() {
        assert!(help.contains(subject.name()), "{help}");
    }
}

#[test]
fn the_default_is_the_table_with_dispatchs_choice() {
    let request = parse(&["conv_verify"]).unwrap();
    assert_eq!((request.shapes.len(), request.contracts.len(), request.launches.len()), (10, 2, 3));
    assert_eq!((request.variants, request.samples), (Variants::Auto, 15));
    assert!(!request.warm && !request.twin && !request.peers);
}

#[test]
fn options_narrow_and_widen() {
    let words = ["conv_verify", "--shapes", "4:8:1,6:64:2", "--launch", "plain,pdl", "--contract", "bf16", "--warm"];
    let request =
        parse(&[&words[..], &["--twin", "--peers", "--variants", "all", "--samples", "31"]].concat()).unwrap();
    assert_eq!(request.shapes, [Shape { t: 4, h: 8, n: 1 }, Shape { t: 6, h: 64, n: 2 }]);
    assert_eq!(request.launches, [Launch::Plain, Launch::Pdl]);
    assert_eq!(request.contracts[0].name, "bf16");
    assert!(request.warm && request.twin && request.peers);
    assert_eq!((request.variants, request.samples), (Variants::All, 31));
    assert_eq!(parse(&["conv_verify", "--shapes", "all"]).unwrap().shapes.len(), 96);
}

#[test]
fn tuning_times_every_variant_and_launch_in_the_contracts_of_the_tables() {
    for words in [&["conv_verify", "--tune"][..], &["--tune=there.rs", "conv_verify"]] {
        let request = parse(words).unwrap();
        assert_eq!((request.variants, request.launches.len(), request.contracts.len()), (Variants::EachName, 3, 2));
        assert!(request.shapes.len() > 50);
    }
    assert_eq!(parse(&["decode", "--tune"]).unwrap().contracts.len(), 4);
    let request = parse(&["delta_h", "--tune"]).unwrap();
    assert_eq!((request.launches, request.contracts.len()), (vec![Launch::Plain, Launch::Pdl], 1));
    let error = parse(&["tc_verify", "--tune"]).unwrap_err();
    assert!(error.contains("tc_verify has no preference tables"), "{error}");
    let error = parse(&["decode", "--tune", "--contract", "fp32,bf16"]).unwrap_err();
    assert!(error.contains("the tables of decode need times with fp32, fp32-kv, bf16, bf16-kv"), "{error}");
    for other in ["--twin", "--peers", "--variants=all", "--launch=plain"] {
        assert!(parse(&["conv_verify", "--tune", other]).is_err(), "{other}");
    }
}

#[test]
fn what_is_not_known_is_named_with_what_is() {
    for (words, expected) in [
        (&["conv_verifi"][..], "one of conv_verify, decode, delta_h, tc_verify, tc_commit is needed"),
        (&["conv_verify", "--shapes", "tiny"], "T:H:N"),
        (&["decode", "--shapes", "1:8:1,4:8:1"], "4:8:1 has T = 4"),
        (&["conv_verify", "--shapes", "65536:65536:65536"], "bytes are needed"),
        (&["conv_verify", "--launch", "eager"], "plain, pdl, pdl-stable are known"),
        (&["delta_h", "--launch", "pdl-stable"], "delta_h has the launch modes plain, pdl; one of them is needed"),
        (&["conv_verify", "--contract", "fp8"], "one of fp32, bf16 is needed"),
        (&["conv_verify", "--variants", "bv7"], "an entry's suffix without the number of tokens"),
        (&["conv_verify", "--samples", "0"], "1..=10000"),
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    let entry = kda::bench::subjects()[0].kernels()[0].entry;
    assert_eq!(parse(&["conv_verify", "--variants", entry]).unwrap().variants, Variants::Named(entry.into()));
}

#[test]
fn files_are_written_whole() {
    let folder = std::env::temp_dir().join(format!("kda-bench-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let environment = Environment::of("a device".into());
    let (csv, json) = (folder.join("a.csv"), folder.join("a.json"));
    let mut files = Files::create(Some(&csv), Some(&json), &environment).unwrap();
    files.note("two\nlines").unwrap();
    let report = Report { environment, bandwidth: None, notes: Vec::new(), rows: Vec::new() };
    files.report(&report).unwrap();
    let text = std::fs::read_to_string(&csv).unwrap();
    assert!(text.starts_with("# a device; ") && text.ends_with("\n# two lines\n"), "{text}");
    assert_eq!(text.lines().count(), 3);
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["environment"]["device"], "a device");
    let nowhere = folder.join("no/such/a.csv");
    let error = Files::create(Some(&nowhere), None, &report.environment).err().expect("an error").to_string();
    assert!(error.contains("a.csv cannot be written"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
