//! Results of an earlier run, read back from its CSV.

use kda::bench::report::{CSV_HEAD, Row, Who};
use kda::bench::shape::Shape;
use kda::bench::{Launch, Subject};

/// What a table is made of.
#[derive(Debug)]
pub struct Earlier {
    /// The environment line of the run.
    pub environment: String,
    /// Multiprocessors of its device.
    pub multiprocessors: u32,
    /// Times of our variants.
    pub rows: Vec<Row>,
}

/// Reads a CSV that `kda bench` has written for this operator.
///
/// # Errors
/// What of the text is no such CSV, and on which line.
pub fn read(text: &str, subject: &dyn Subject) -> Result<Earlier, String> {
    let environment = text.lines().next().and_then(|line| line.strip_prefix("# "));
    let environment = environment.ok_or("the first line is no environment, `# device; …`")?;
    let mut facts = environment.split([',', ';']);
    let multiprocessors = facts.find_map(|fact| fact.trim().strip_suffix(" multiprocessors")?.parse().ok());
    let multiprocessors = multiprocessors.ok_or("the environment names no multiprocessors, `132 multiprocessors`")?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    if lines.next().map(|(_, line)| line) != Some(CSV_HEAD) {
        return Err(format!("the columns are not {CSV_HEAD}"));
    }
    let rows = lines.map(|(at, line)| row(line, subject).map_err(|what| format!("line {}: {what}", at + 1)));
    Ok(Earlier { environment: environment.into(), multiprocessors, rows: rows.collect::<Result<_, _>>()? })
}

fn row(line: &str, subject: &dyn Subject) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let columns = CSV_HEAD.split(',').count();
    if fields.len() != columns {
        return Err(format!("{} fields; {columns} are needed", fields.len()));
    }
    let field = |name: &str| fields[CSV_HEAD.split(',').position(|column| column == name).unwrap_or(0)];
    let whole = |name: &str| field(name).parse::<u64>().map_err(|_| format!("{name} is `{}`, no number", field(name)));
    let real = |name: &str| {
        let value = field(name).parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| format!("{name} is `{}`, no number", field(name)))
    };
    let maybe = |name: &str| if field(name).is_empty() { Ok(None) } else { real(name).map(Some) };
    if field("op") != subject.name() {
        return Err(format!("a time of {}; times of {} are needed", field("op"), subject.name()));
    }
    let contract = subject.contracts().iter().find(|contract| contract.name == field("contract"));
    let who = [Who::Ours, Who::Twin, Who::Peer, Who::Ahead].into_iter().find(|who| who.name() == field("who"));
    let unknown = |name: &str| format!("there is no {name} `{}`", field(name));
    Ok(Row {
        op: subject.name(),
        contract: contract.ok_or_else(|| unknown("contract"))?.name,
        shape: Shape { t: whole("T")?, h: whole("H")?, n: whole("N")? },
        launch: Launch::find(field("launch")).ok_or_else(|| unknown("launch"))?.name(),
        who: who.ok_or_else(|| unknown("who"))?,
        kernel: field("kernel").into(),
        chosen: field("chosen") == "1",
        us: real("us")?,
        p10: real("p10")?,
        p90: real("p90")?,
        warm_us: maybe("warm_us")?,
        bytes: real("bytes")?,
        floor_us: real("floor_us")?,
        of_floor: real("of_floor")?,
        of_copy: maybe("of_copy")?,
        of_fill: maybe("of_fill")?,
        ratio: maybe("ratio")?,
        samples: whole("samples")? as usize,
        calls: whole("calls")? as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> &'static dyn Subject {
        kda::bench::subjects().into_iter().find(|subject| subject.name() == "conv_verify").expect("an operator")
    }

    #[test]
    fn what_is_written_is_read() {
        let row = Row {
            op: "conv_verify",
            contract: subject().contracts()[0].name,
            shape: Shape { t: 4, h: 8, n: 2 },
            launch: Launch::Plain.name(),
            who: Who::Ours,
            kernel: "conv_verify__bv8".into(),
            chosen: true,
            us: 4.25,
            p10: 4.0,
            p90: 4.5,
            warm_us: None,
            bytes: 1e6,
            floor_us: 0.25,
            of_floor: 5.0,
            of_copy: Some(5.5),
            of_fill: None,
            ratio: Some(1.0),
            samples: 15,
            calls: 24,
        };
        let text = format!("# H200, 132 multiprocessors; now\n{CSV_HEAD}\n{}\n# a note\n", row.csv());
        let read = read(&text, subject()).expect("it is whole");
        assert_eq!((read.environment.as_str(), read.multiprocessors), ("H200, 132 multiprocessors; now", 132));
        assert_eq!(read.rows, [row]);
    }

    #[test]
    fn what_is_no_such_csv_is_refused_with_its_line() {
        let head = format!("# H200, 132 multiprocessors\n{CSV_HEAD}\n");
        let line = |text: &str| read(&format!("{head}{text}\n"), subject()).unwrap_err();
        assert!(read("", subject()).unwrap_err().contains("no environment"));
        assert!(read("# H200\n", subject()).unwrap_err().contains("no multiprocessors"));
        assert!(read("# H200, 132 multiprocessors\nT,H\n", subject()).unwrap_err().contains("the columns are not"));
        assert!(line("conv_verify,fp32").contains("line 3: 2 fields; 22 are needed"));
        let good = "conv_verify,fp32,4,8,1,8,plain,ours,k,1,4.0,4.0,4.0,,1,1,1,,,,15,24";
        assert!(read(&format!("{head}{good}\n"), subject()).is_ok());
        assert!(line(&good.replace("fp32", "fp8")).contains("there is no contract `fp8`"));
        assert!(line(&good.replace("plain", "fast")).contains("there is no launch `fast`"));
        assert!(line(&good.replace("k,1,4.0", "k,1,NaN")).contains("us is `NaN`, no number"));
        assert!(line(&good.replace("conv_verify", "decode")).contains("times of conv_verify are needed"));
    }
}
