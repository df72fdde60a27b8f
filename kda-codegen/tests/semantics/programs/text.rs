//! Programs as source.

use super::tree::{Number, Step, Truth};
use std::fmt::Write as _;

fn number(out: &mut String, value: &Number) {
    let two = |out: &mut String, (before, x, middle, y, after): (&str, &Number, &str, &Number, &str)| {
        out.push_str(before);
        number(out, x);
        out.push_str(middle);
        number(out, y);
        out.push_str(after);
    };
    match value {
        // With its type: without, constants are exact beyond 32 bits.
        Number::Literal(v) => write!(out, "{v}u32").expect("a string"),
        Number::Variable(v) => write!(out, "v{v}").expect("a string"),
        Number::Element(v) => write!(out, "s[{v}]").expect("a string"),
        Number::Memory => out.push_str("mem[[tid]]"),
        Number::Counter(v) => write!(out, "i{v}").expect("a string"),
        Number::Input(v) => out.push_str(v),
        Number::Binary(op, x, y) => two(out, ("(", x, op, y, ")")),
        Number::Signed(op, x, y) => two(out, ("(((", x, &format!(" as i32) {op} ("), y, " as i32)) as u32)")),
        Number::Extremum(small, x, y) => two(out, (if *small { "min(" } else { "max(" }, x, ", ", y, ")")),
        Number::Select(c, x, y) => {
            out.push_str("select(");
            truth(out, c);
            two(out, (", ", x, ", ", y, ")"));
        }
        Number::If(c, x, y) => {
            out.push_str("(if ");
            truth(out, c);
            two(out, (" { ", x, " } else { ", y, " })"));
        }
        Number::Load(x, add) => {
            out.push_str("table.at([");
            number(out, x);
            write!(out, " % 60 + {add}]).load()").expect("a string");
        }
        Number::Narrow(x) => {
            out.push('(');
            number(out, x);
            out.push_str(" as u8 as u32)");
        }
    }
}

fn truth(out: &mut String, value: &Truth) {
    let mut two = |before: &str, x: &dyn Fn(&mut String), middle: &str, y: &dyn Fn(&mut String), after: &str| {
        out.push_str(before);
        x(out);
        out.push_str(middle);
        y(out);
        out.push_str(after);
    };
    match value {
        Truth::Compare(op, x, y) => {
            two("((", &|o| number(o, x), &format!(") {op} ("), &|o| number(o, y), "))");
        }
        Truth::Signed(op, x, y) => {
            two("((", &|o| number(o, x), &format!(" as i32) {op} ("), &|o| number(o, y), " as i32))");
        }
        Truth::And(x, y) => two("(", &|o| truth(o, x), " && ", &|o| truth(o, y), ")"),
        Truth::Or(x, y) => two("(", &|o| truth(o, x), " || ", &|o| truth(o, y), ")"),
        Truth::Not(x) => two("(!", &|o| truth(o, x), "", &|_| {}, ")"),
        Truth::Flag => out.push_str("flag"),
    }
}

/// Writes statements; `counters` loops are around them.
pub fn steps(out: &mut String, list: &[Step], counters: usize) {
    let text = |value: &Number| {
        let mut text = String::new();
        number(&mut text, value);
        text
    };
    let condition = |value: &Truth| {
        let mut text = String::new();
        truth(&mut text, value);
        text
    };
    let block = |list: &[Step], counters: usize| {
        let mut text = String::from("{ ");
        steps(&mut text, list, counters);
        text + "}"
    };
    for step in list {
        let line = match step {
            Step::Assign(v, None, x) => format!("v{v} = {};", text(x)),
            Step::Assign(v, Some(op), x) => format!("v{v} {op}= {};", text(x)),
            Step::Element(v, x) => format!("s[{v}] = {};", text(x)),
            Step::Memory(x) => format!("mem[[tid]] = {};", text(x)),
            Step::Flag(c) => format!("flag = {};", condition(c)),
            Step::Swap(x, y) => format!("(v{x}, v{y}) = (v{y}, v{x});"),
            Step::If(c, then, other) if other.is_empty() => format!("if {} {}", condition(c), block(then, counters)),
            Step::If(c, then, other) => {
                format!("if {} {} else {}", condition(c), block(then, counters), block(other, counters))
            }
            Step::For(start, end, step, body) => {
                let range = format!("{}..{}", text(start), text(end));
                let range = if *step == 1 { range } else { format!("({range}).step_by({step})") };
                format!("for i{counters} in {range} {}", block(body, counters + 1))
            }
            Step::While(most, body) => {
                let i = format!("i{counters}");
                let body = block(body, counters + 1);
                format!("let mut {i} = n - n; while {i} < {most} {{ {body} {i} += 1; }}")
            }
            Step::Unrolled(trips, body) => {
                format!("#[unroll] for i{counters} in 0..{trips} {}", block(body, counters + 1))
            }
            Step::Call(x, y, by) => format!("v{y} = mix(&mut v{x}, {});", text(by)),
            Step::Block(body) => block(body, counters),
        };
        out.push_str(&line);
        out.push('\n');
    }
}
