//! Values as texts, to tell whether two are the same.
//!
//! A text is an expression over launch parameters, coordinates of the CTA, elements of tensors that nothing writes, and
//! counters of loops. The counters of two loops over the same range are the same in the same trip.

use crate::specialise::Specialiser;
use crate::specialise::value::Value;
use kda_ptx::operand::{Special, Src};
use kda_ptx::{Inst, Reg};

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
        if let Some(clusters) = self.clusters_text(inst) {
            return clusters;
        }
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
        let operands = operands.split_once(", ").map_or("", |(_, rest)| rest);
        let mut out = format!("{}{mnemonic} ", self.list_text(reg));
        let mut rest = operands;
        while let Some(at) = rest.find('%') {
            let end = rest[at + 1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(rest.len(), |n| at + 1 + n);
            let name = &rest[at..end];
            out.push_str(&rest[..at]);
            match sources.iter().find(|reg| format!("{}{}", reg.class.prefix(), reg.index) == name) {
                Some(reg) => out.push_str(&format!("({})", self.register_text(*reg, depth + 1))),
                None => out.push_str(name),
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    /// The text of `ctaid.x / n` where n is a multiple of the CTAs of a cluster: neighbours along x have the same.
    fn clusters_text(&self, inst: &Inst) -> Option<String> {
        let (a, divisor) = match inst {
            Inst::Shr(shr) => match shr.b {
                Src::Imm(bits @ 0..32) => (&shr.a, 1u64 << bits),
                _ => return None,
            },
            Inst::Div(div) => match div.b {
                Src::Imm(divisor) => (&div.a, u64::try_from(divisor).ok()?),
                _ => return None,
            },
            _ => return None,
        };
        let cluster = u64::from(self.resolved.cluster);
        let is_ctaid = |reg: Reg| matches!(self.builder.definition(reg), Some(Inst::Mov(mov)) if mov.src == Src::Special(Special::CtaidX));
        let whole = divisor > 0 && divisor.is_multiple_of(cluster);
        matches!(a, Src::Reg(reg) if whole && is_ctaid(*reg))
            .then(|| format!("(cluster of the grid / {})", divisor / cluster))
    }
}
