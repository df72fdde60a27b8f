//! Values as texts, to tell whether two are the same.
//!
//! A text is an expression over launch parameters, coordinates of the CTA, elements of tensors that nothing writes, and
//! counters of loops. The counters of two loops over the same range are the same in the same trip.

use crate::specialise::Specialiser;
use crate::specialise::value::Value;

impl Specialiser<'_> {
    /// The value as a text over launch parameters: equal texts are equal values. Values that are no pure function of them
    /// have a text of their own.
    pub(in crate::specialise) fn text_of(&self, value: &Value) -> String {
        match value {
            Value::Scalar(s) => self.register_text(s.reg, 0),
            other => other.as_int().map_or_else(|| other.describe(), |v| v.to_string()),
        }
    }

    pub(in crate::specialise) fn register_text(&self, reg: kda_ptx::Reg, depth: u32) -> String {
        if let Some(text) = self.counters.get(&reg) {
            return text.clone();
        }
        let Some(inst) = self.builder.definition(reg).filter(|_| depth < 32) else {
            return format!("{}{}", reg.class.prefix(), reg.index);
        };
        let mut text = String::new();
        inst.print(&mut text);
        // Operands by their own texts; the destination and its register number do not matter.
        let mut sources = Vec::new();
        inst.registers(&mut |reg, role| {
            if role == kda_ptx::Role::Read {
                sources.push(reg);
            }
        });
        let (mnemonic, operands) = text.split_once(' ').unwrap_or((&text, ""));
        let mut operands = operands.split_once(", ").map_or("", |(_, rest)| rest).to_string();
        sources.sort_by_key(|reg| std::cmp::Reverse(reg.index));
        for source in sources {
            let name = format!("{}{}", source.class.prefix(), source.index);
            operands = operands.replace(&name, &format!("({})", self.register_text(source, depth + 1)));
        }
        format!("{}{mnemonic} {operands}", self.list_text(reg))
    }
}
