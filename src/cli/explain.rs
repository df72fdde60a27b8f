//! `kda explain`: what a code means.

use super::select::hint;
use super::{Stop, Streams, Verdict};
use clap::Args;
use kda::core::codes::{self, Entry};

/// Options of `kda explain`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The code: KDA0605, 0605 or 605. Without one, all codes are listed.
    code: Option<String>,
}

/// Prints the entry of a code, or one line for each code.
pub fn run(arguments: &Arguments, streams: &mut Streams) -> Result<Verdict, Stop> {
    match &arguments.code {
        Some(code) => {
            let Entry { code, title, explanation, instead } = entry(code)?;
            writeln!(streams.out, "{code}: {title}\n\n{}\n\n{}", wrapped(explanation), wrapped(instead))?;
        }
        None => {
            for entry in codes::all() {
                writeln!(streams.out, "{}  {}", entry.code, entry.title)?;
            }
        }
    }
    Ok(Verdict::Passed)
}

fn entry(code: &str) -> Result<&'static Entry, Stop> {
    codes::find(code).ok_or_else(|| {
        let known: Vec<String> = codes::all().map(|entry| entry.code.to_string()).collect();
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        Stop::Input(format!("there is no code `{code}`{}", hint(code, &names, "kda explain")))
    })
}

/// The text in lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= 100);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(code: Option<&str>) -> Result<String, String> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let arguments = Arguments { code: code.map(str::to_string) };
        let verdict = run(&arguments, &mut Streams { out: &mut out, err: &mut err });
        assert!(err.is_empty());
        verdict.map(|_| String::from_utf8(out).unwrap()).map_err(|stop| stop.to_string())
    }

    #[test]
    fn every_code_is_explained_in_whole_sentences() {
        let list = explain(None).unwrap();
        assert_eq!(list.lines().count(), codes::all().count());
        for entry in codes::all() {
            let text = explain(Some(&entry.code.to_string())).unwrap();
            let (title, rest) = text.split_once("\n\n").expect("a title and a text");
            assert_eq!(title, format!("{}: {}", entry.code, entry.title));
            assert_eq!(rest.split_whitespace().collect::<Vec<_>>().join(" "), {
                let words = format!("{} {}", entry.explanation, entry.instead);
                words.split_whitespace().collect::<Vec<_>>().join(" ")
            });
            assert!(text.lines().all(|line| line.len() <= 100 || !line.contains(' ')), "{text}");
            assert!(list.contains(title.split(':').next().unwrap()));
        }
    }

    #[test]
    fn unknown_codes_bring_near_ones() {
        let error = explain(Some("KDA0699")).unwrap_err();
        assert!(error.starts_with("there is no code `KDA0699`") && error.contains("KDA06"), "{error}");
        assert!(explain(Some("")).is_err() && explain(Some("all")).is_err());
    }
}
