//! A file of the corpus.
//!
//! It begins with a comment: the fault in words, and lines of `key: value`.
//!
//! | key | value |
//! | --- | --- |
//! | `kind` | row of the table in the documentation |
//! | `run` | the launch, see [`launch`](super::launch) |
//! | `schedules` | of the simulator's cases: `all` if the fault is found under every schedule, `some` if it depends on it |
//! | `expressible` | of PTX without a kernel: `no`, and why the language cannot say it |
//! | `gap` | of what no net finds: why |
//!
//! Marks stand at the end of a line, behind `//~`; several follow each other.
//!
//! | mark | meaning |
//! | --- | --- |
//! | `KDA3001` | the net reports this code, and the error or the report stands at this line |
//! | `or KDA3005` | under other schedules the simulator reports this code at this line; a race, at its other access |
//! | `also` | the report names this line too |
//! | `fix: text` | the corrected kernel has this text in place of the line |
//! | `fix-insert: text` | the corrected kernel has this text behind the line |
//! | `fix-delete` | the corrected kernel does not have the line |
//!
//! Every key and every mark is used, and every line that the net names is marked.

/// Which net finds the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    Compiler,
    Simulator,
}

/// A wrong kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// File, from the folder of the corpus.
    pub name: String,
    pub net: Net,
    pub kind: String,
    pub run: String,
    /// It is found under every schedule.
    pub always: bool,
    /// Lines of the header.
    pub header: Vec<String>,
    /// Why no kernel of the language has this fault.
    pub only_ptx: Option<String>,
    /// Why no net finds it.
    pub gap: Option<String>,
    pub code: u16,
    /// Line of the code's mark, from 1 on.
    pub line: u32,
    /// Codes and lines of `or`.
    pub or: Vec<(u16, u32)>,
    /// Lines of `also`.
    pub also: Vec<u32>,
    /// The text without marks.
    pub wrong: String,
    /// The corrected text.
    pub right: String,
}

const KEYS: [&str; 5] = ["kind", "run", "schedules", "expressible", "gap"];

impl Case {
    /// The parts of a file.
    pub fn parse(name: &str, net: Net, text: &str) -> Result<Case, String> {
        let mut header: Vec<(&str, String)> = Vec::new();
        let mut fault = String::new();
        for line in text.lines().take_while(|line| line.starts_with("//")) {
            let line = line.trim_start_matches('/').trim();
            match line.split_once(": ").and_then(|(key, value)| Some((KEYS.iter().find(|k| **k == key)?, value))) {
                Some((key, _)) if *key != "run" && header.iter().any(|(k, _)| k == key) => {
                    return Err(format!("`{key}` twice"));
                }
                Some((key, value)) => header.push((key, value.trim().into())),
                None => fault.push_str(line),
            }
        }
        if !fault.ends_with('.') {
            return Err("the header says in a sentence what is wrong".into());
        }
        let mut take = |key: &str| -> Option<String> {
            let found: Vec<String> = header.iter().filter(|(k, _)| *k == key).map(|(_, v)| v.clone()).collect();
            header.retain(|(k, _)| *k != key);
            (!found.is_empty()).then(|| found.join("; "))
        };
        let kind = take("kind").ok_or("no `kind`")?;
        let run = take("run").ok_or("no `run`")?;
        let always = match (net, take("schedules").as_deref()) {
            (Net::Compiler, None) | (Net::Simulator, Some("all")) => true,
            (Net::Simulator, Some("some")) => false,
            (Net::Simulator, _) => return Err("`schedules` is `all` or `some`".into()),
            (Net::Compiler, Some(_)) => return Err("`schedules` is for the simulator".into()),
        };
        let only_ptx = take("expressible");
        if only_ptx.as_ref().is_some_and(|why| !why.starts_with("no, ")) {
            return Err("`expressible` is `no, ` and why".into());
        }
        let mut case = Case {
            name: name.into(),
            net,
            kind,
            run,
            always,
            header: text.lines().take_while(|line| line.starts_with("//")).map(String::from).collect(),
            only_ptx,
            gap: take("gap"),
            code: 0,
            line: 0,
            or: Vec::new(),
            also: Vec::new(),
            wrong: String::new(),
            right: String::new(),
        };
        if case.only_ptx.is_some() && !case.is_ptx() {
            return Err("a kernel is expressible".into());
        }
        for (number, line) in (1..).zip(text.lines()) {
            case.line(number, line).map_err(|e| format!("line {number}: {e}"))?;
        }
        match (case.line, case.right == case.wrong) {
            (0, _) => Err("no line is marked with a code".into()),
            (_, true) => Err("no correction is marked".into()),
            _ => Ok(case),
        }
    }

    fn line(&mut self, number: u32, line: &str) -> Result<(), String> {
        let mut parts = line.split("//~");
        let code = parts.next().unwrap_or_default().trim_end();
        let mut fixed: Option<String> = None;
        let (mut marked, mut after) = (false, String::new());
        for mark in parts.map(str::trim) {
            if let Some(digits) = mark.strip_prefix("KDA") {
                if self.line != 0 {
                    return Err(format!("line {} has a code already", self.line));
                }
                (self.code, self.line) = (self.code_of(digits)?, number);
                marked = true;
            } else if let (Some(digits), Net::Simulator) = (mark.strip_prefix("or KDA"), self.net) {
                let code = self.code_of(digits)?;
                self.or.push((code, number));
                marked = true;
            } else if mark == "also" {
                self.also.push(number);
                if std::mem::replace(&mut marked, true) {
                    return Err("a line is marked once".into());
                }
            } else if let Some(text) = mark.strip_prefix("fix-insert: ") {
                after.push_str(&format!("\n{text}"));
            } else {
                let text = match (mark, mark.strip_prefix("fix: ")) {
                    ("fix-delete", _) => "",
                    (_, Some(text)) => text,
                    _ => return Err(format!("`{mark}` is no mark")),
                };
                if fixed.replace(text.into()).is_some() {
                    return Err("two corrections of a line".into());
                }
            }
        }
        self.wrong.push_str(&format!("{code}\n"));
        self.right.push_str(&format!("{}{after}\n", fixed.as_deref().unwrap_or(code)));
        Ok(())
    }

    /// A code of the case's net.
    fn code_of(&self, digits: &str) -> Result<u16, String> {
        let range = if self.net == Net::Simulator { 3000..4000 } else { 100..3000 };
        let code = digits.parse().ok().filter(|code| range.contains(code));
        code.ok_or_else(|| format!("KDA{digits} is not of this net"))
    }

    /// It is PTX.
    pub fn is_ptx(&self) -> bool {
        self.name.ends_with(".ptx")
    }

    /// The name of the fault.
    pub fn stem(&self) -> &str {
        let file = self.name.rsplit('/').next().unwrap_or(&self.name);
        file.trim_end_matches(".ptx").trim_end_matches(".rs.txt")
    }
}
