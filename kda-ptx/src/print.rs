//! AST to text.

use crate::modifier::Modifier as _;
use crate::module::{Entry, Module, Param, Statement};
use crate::operand::{Class, Operand as _};
use std::fmt::{self, Write as _};

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        print(self, &mut out);
        f.write_str(&out)
    }
}

/// Appends the module as PTX text.
pub fn print(module: &Module, out: &mut String) {
    let _ = writeln!(out, ".version {}\n.target {}\n.address_size 64\n", module.isa, module.arch);
    if let Some(shared) = &module.shared {
        let _ = writeln!(out, ".extern .shared .align {} .b8 {}[];\n", shared.align, shared.name);
    }
    for entry in &module.entries {
        print_entry(entry, out);
    }
    for (number, path) in &module.files {
        let _ = writeln!(out, ".file {number} \"{path}\"");
    }
}

fn print_entry(entry: &Entry, out: &mut String) {
    let _ = write!(out, ".visible .entry {}(", entry.name);
    for (i, param) in entry.params.iter().enumerate() {
        out.push_str(if i == 0 { "\n    " } else { ",\n    " });
        print_param(param, out);
    }
    out.push_str(if entry.params.is_empty() { ")\n" } else { "\n)\n" });
    let bounds = &entry.bounds;
    let lines = [
        (".maxntid", bounds.max_threads, ", 1, 1"),
        (".reqntid", bounds.exact_threads, ", 1, 1"),
        (".minnctapersm", bounds.min_blocks_per_sm, ""),
        (".maxnreg", bounds.max_registers, ""),
        (".reqnctapercluster", bounds.cluster, ", 1, 1"),
    ];
    for (name, value, rest) in lines {
        if let Some(value) = value {
            let _ = writeln!(out, "{name} {value}{rest}");
        }
    }
    out.push_str("{\n");
    for (class, count) in Class::ALL.into_iter().zip(entry.registers) {
        if count > 0 {
            let _ = writeln!(out, "\t.reg {} {}<{count}>;", class.declaration(), class.prefix());
        }
    }
    for statement in &entry.body {
        print_statement(statement, out);
    }
    out.push_str("}\n\n");
}

fn print_param(param: &Param, out: &mut String) {
    out.push_str(".param ");
    if let Some(align) = param.align {
        let _ = write!(out, ".align {align} ");
    }
    param.ty.print(out);
    let _ = match param.array {
        Some(count) => write!(out, " {}[{count}]", param.name),
        None => write!(out, " {}", param.name),
    };
}

fn print_statement(statement: &Statement, out: &mut String) {
    let _ = match statement {
        Statement::Label(name) => writeln!(out, "{name}:"),
        Statement::Loc { file, line, column } => writeln!(out, "\t.loc {file} {line} {column}"),
        Statement::Comment(text) => writeln!(out, "\t// {text}"),
        Statement::Inst { guard, inst } => {
            out.push('\t');
            if let Some(guard) = guard {
                out.push('@');
                guard.print(out);
                out.push(' ');
            }
            inst.print(out);
            writeln!(out, ";")
        }
    };
}
