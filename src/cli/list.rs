//! `kda list`: the kernels of this build.

use super::table::{Align, Table};
use super::{Stop, Streams, Verdict};
use clap::Args;
use kda::core::KernelDesc;
use serde::Serialize;
use std::io;

/// Options of `kda list`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Write a JSON array of objects instead of a table.
    #[arg(long)]
    json: bool,
}

/// One kernel, as JSON gives it.
#[derive(Serialize)]
struct Entry {
    entry: &'static str,
    op: &'static str,
    kernel: &'static str,
    arch: String,
    ptx_version: String,
    block: u32,
    cluster: u32,
    shared_bytes: u32,
    pdl: bool,
    consts: Vec<String>,
    source: String,
}

impl Entry {
    fn of(desc: &'static KernelDesc) -> Entry {
        Entry {
            entry: desc.entry,
            op: desc.family,
            kernel: desc.kernel,
            arch: desc.arch.to_string(),
            ptx_version: desc.isa.to_string(),
            block: desc.block,
            cluster: desc.cluster,
            shared_bytes: desc.shared_bytes,
            pdl: desc.pdl,
            consts: desc.consts.iter().map(|c| format!("{} = {}", c.name, c.value)).collect(),
            source: format!("{}:{}", desc.source.file, desc.source.line),
        }
    }
}

/// Lists the kernels.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let entries: Vec<Entry> = kernels.iter().copied().map(Entry::of).collect();
    if arguments.json {
        let text = serde_json::to_string_pretty(&entries).map_err(io::Error::from)?;
        writeln!(streams.out, "{text}")?;
        return Ok(Verdict::Passed);
    }
    let mut table = Table::new(&[
        ("entry", Align::Left),
        ("op", Align::Left),
        ("arch", Align::Left),
        ("PTX", Align::Left),
        ("threads", Align::Right),
        ("shared bytes", Align::Right),
        ("constants", Align::Left),
        ("source", Align::Left),
    ]);
    for entry in entries {
        table.row([
            entry.entry.into(),
            entry.op.into(),
            entry.arch,
            entry.ptx_version,
            entry.block.to_string(),
            entry.shared_bytes.to_string(),
            entry.consts.join(", "),
            entry.source,
        ]);
    }
    table.write(streams.out)?;
    Ok(Verdict::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{SCALE_100, VERIFY};

    fn list(json: bool) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams { out: &mut out, err: &mut err };
        assert_eq!(run(&Arguments { json }, &[&VERIFY, &SCALE_100], &mut streams).unwrap(), Verdict::Passed);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_names_entry_op_and_arch() {
        let parsed: serde_json::Value = serde_json::from_str(&list(true)).unwrap();
        let kernels = parsed.as_array().unwrap();
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[0]["entry"], "verify__t4");
        assert_eq!(kernels[0]["op"], "conv_verify");
        assert_eq!(kernels[0]["arch"], "sm_90a");
        assert_eq!(kernels[0]["consts"][0], "T = 4");
        assert_eq!(kernels[1]["arch"], "sm_100f");
    }

    #[test]
    fn the_table_has_a_line_a_kernel() {
        let text = list(false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("entry") && lines[1].starts_with("verify__t4") && lines[2].starts_with("scale"));
        assert!(lines[1].contains("73784") && lines[1].contains("conv_verify.rs:42"));
    }
}
