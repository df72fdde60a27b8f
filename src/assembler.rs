//! What `ptxas` says of a kernel, at the lines of its Rust source.
//!
//! `ptxas` belongs to the CUDA toolkit and is an extra: kernels run without it. It is looked for in `$PTXAS` and then in
//! `PATH`. Its notes on spills and lost optimisations come with success; here they are findings like errors.

use kda_core::KernelDesc;
use kda_core::codes::Code;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// KDA20xx.
    pub code: Code,
    /// Source file.
    pub file: String,
    /// Line, from 1: that of the instruction if the assembler names one, of the kernel otherwise.
    pub line: u32,
    /// What the assembler says.
    pub message: String,
}

/// What the assembler says of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Registers a thread, where it assembled.
    pub registers: Option<u32>,
    /// Everything that is wrong; empty for a clean kernel.
    pub findings: Vec<Finding>,
}

/// Path of `ptxas`: `$PTXAS`, or the first in `PATH`.
pub fn find() -> Option<PathBuf> {
    std::env::var_os("PTXAS").map(PathBuf::from).or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("ptxas")).find(|file| file.is_file())
    })
}

/// Assembles a kernel for the target that its text names.
///
/// # Errors
/// The assembler cannot be run. What it finds wrong with the kernel is in the report.
pub fn assemble(ptxas: &Path, desc: &KernelDesc) -> io::Result<Report> {
    let (assembled, text) = output(ptxas, desc.ptx, &desc.arch.to_string())?;
    Ok(read(desc, desc.ptx, assembled, &text))
}

/// Runs the assembler over a text; gives whether it succeeded and what it printed.
///
/// # Errors
/// The assembler cannot be run.
pub fn output(ptxas: &Path, ptx: &str, arch: &str) -> io::Result<(bool, String)> {
    let mut child = Command::new(ptxas)
        .args(["-v", "--warn-on-spills", &format!("-arch={arch}"), "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(ptx.as_bytes()) {
            // It has said why it stopped reading.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    let output = child.wait_with_output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// Reads what the assembler printed for the text `ptx` of a kernel.
pub fn read(desc: &KernelDesc, ptx: &str, assembled: bool, text: &str) -> Report {
    let kernel = || (desc.source.file.to_string(), desc.source.line);
    let place =
        |line: &str| number_behind(line, " line ").and_then(|ptx_line| rust_line(ptx, ptx_line)).unwrap_or_else(kernel);
    let mut report = Report::default();
    let mut add = |code: u16, (file, line): (String, u32), message: String| {
        let finding = Finding { code: Code(code), file, line, message };
        if !report.findings.contains(&finding) {
            report.findings.push(finding);
        }
    };
    for line in text.lines().map(str::trim) {
        // The kind of a message stands ahead of its first colon.
        let kind = line.split(':').next().unwrap_or_default();
        if kind.contains("error") || kind.contains("fatal") {
            let message = line.split_once(':').map_or(line, |(_, rest)| rest.trim());
            add(2001, place(line), message.to_string());
        } else if line.contains("(C75") {
            let message = line.find("(C75").map_or(line, |at| &line[at..]);
            add(2003, place(line), message.to_string());
        } else if line.contains("bytes stack frame") {
            let bytes = |what: &str| number_ahead(line, what).unwrap_or(0);
            let (frame, stores, loads) =
                (bytes(" bytes stack frame"), bytes(" bytes spill stores"), bytes(" bytes spill loads"));
            if stores + loads > 0 {
                add(2002, kernel(), format!("{stores} bytes are spilled a thread, {loads} bytes are loaded again"));
            } else if frame > 0 {
                add(2004, kernel(), format!("a stack frame of {frame} bytes a thread"));
            }
        }
    }
    report.registers =
        text.lines().find_map(|line| number_behind(line, "Used ").filter(|_| line.contains("registers")));
    if let Some(registers) = report.registers {
        let threads = desc.block.max(1) * desc.min_blocks_per_sm.max(1);
        let most = (65_536 / threads / 8 * 8).min(255);
        if registers > most {
            let (file, line) = kernel();
            let message = format!("{registers} registers a thread; {threads} threads of an SM leave {most}");
            report.findings.push(Finding { code: Code(2005), file, line, message });
        }
    }
    if !assembled && report.findings.is_empty() {
        let (file, line) = kernel();
        report.findings.push(Finding { code: Code(2001), file, line, message: text.trim().to_string() });
    }
    report
}

/// The number that follows `mark`.
fn number_behind(line: &str, mark: &str) -> Option<u32> {
    let rest = &line[line.find(mark)? + mark.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The number that ends at `mark`.
fn number_ahead(line: &str, mark: &str) -> Option<u32> {
    let rest = &line[..line.find(mark)?];
    let start = rest.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    rest[start..].parse().ok()
}

/// The source of a line of PTX, from 1: that of the last `.loc` ahead of it.
fn rust_line(ptx: &str, line: u32) -> Option<(String, u32)> {
    let numbers = |rest: &str| -> Vec<u32> { rest.split_whitespace().map_while(|n| n.parse().ok()).collect() };
    let loc = ptx.lines().take(line as usize).filter_map(|l| l.trim().strip_prefix(".loc ")).last()?;
    let [file, line, ..] = numbers(loc)[..] else { return None };
    let name = ptx.lines().find_map(|l| {
        let (number, name) = l.trim().strip_prefix(".file ")?.split_once(' ')?;
        (number.parse() == Ok(file)).then(|| name.trim().trim_matches('"').to_string())
    })?;
    Some((name, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc() -> &'static KernelDesc {
        crate::registry::kernels()[0]
    }

    #[test]
    fn clean_reports_have_no_findings() {
        let text = "ptxas info    : Compiling entry function 'error_k' for 'sm_90a'\n\
            ptxas info    : Function properties for error_k\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 24 registers, used 1 barriers\n";
        assert_eq!(read(desc(), desc().ptx, true, text), Report { registers: Some(24), findings: vec![] });
    }

    #[test]
    fn notes_are_findings() {
        let (file, line) = (desc().source.file.to_string(), desc().source.line);
        for (text, code, message) in [
            (
                "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads",
                2002,
                "12 bytes are spilled a thread, 16 bytes are loaded again",
            ),
            (
                "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
                2004,
                "a stack frame of 8 bytes a thread",
            ),
            (
                "ptxas info    : (C7510) Potential Performance Loss: serialized in the function 'k'",
                2003,
                "(C7510) Potential Performance Loss: serialized in the function 'k'",
            ),
        ] {
            let found = read(desc(), desc().ptx, true, text).findings;
            let expected = Finding { code: Code(code), file: file.clone(), line, message: message.into() };
            assert_eq!(found, [expected]);
        }
        let wide = read(desc(), desc().ptx, true, "ptxas info    : Used 999 registers, used 1 barriers");
        assert_eq!(wide.findings.iter().map(|f| f.code).collect::<Vec<_>>(), [Code(2005)]);
        let lost = read(desc(), desc().ptx, false, "Segmentation fault");
        assert_eq!((lost.findings[0].code, lost.findings[0].message.as_str()), (Code(2001), "Segmentation fault"));
    }

    #[test]
    fn errors_stand_at_the_rust_line_of_their_instruction() {
        let ptx =
            ".version 8.0\n.file 1 \"a.rs\"\n.file 2 \"b.rs\"\n.loc 1 7 3\nmov.u32 %r0, 1;\n.loc 2 90 1\nbar.sink 0;\n";
        for (line, place) in [(5, ("a.rs", 7)), (7, ("b.rs", 90))] {
            let text = format!("ptxas -, line {line}; error   : Not a name of any known instruction: 'bar'\n");
            let found = read(desc(), ptx, false, &text).findings;
            assert_eq!((found[0].file.as_str(), found[0].line), place);
            assert_eq!(found[0].message, "Not a name of any known instruction: 'bar'");
        }
        let note = "ptxas info    : (C7519) warpgroup.arrive is injected in around line 7 by compiler";
        assert_eq!(read(desc(), ptx, true, note).findings[0].line, 90);
        let found = read(desc(), ptx, false, "ptxas -, line 1; error   : too new").findings;
        assert_eq!(found[0].line, desc().source.line, "ahead of every place");
    }
}
