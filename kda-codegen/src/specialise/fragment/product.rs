//! `c.mma(a, b)`: c += A · Bᵀ by `mma.sync`, for A `[M, K]`, B `[N, K]`, C `[M, N]`.

use super::super::Specialiser;
use super::super::site::Site;
use super::super::value::{Scalar, Value};
use super::{Fragment, Kind};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::modifier::MmaKind;
use kda_ptx::operand::{OutList, RegList};
use kda_ptx::table::Mma;
use kda_ptx::{Class, Reg};

impl Specialiser<'_> {
    /// The sum; nothing is changed in place.
    pub(super) fn fragment_product(&mut self, c: &Fragment, a: &Value, b: &Value, site: Site<'_>) -> Result<Fragment> {
        let (Value::Frag(a), Value::Frag(b)) = (a, b) else {
            let message = format!("a product of {} and {}", a.describe(), b.describe());
            return Err(Diagnostic::new(906, site, message).help("a fragment is multiplied by fragments"));
        };
        let fits = c.kind == Kind::F32 && a.kind == b.kind && a.kind != Kind::F32;
        if !fits || a.rows != c.rows || b.rows != c.columns || a.columns != b.columns {
            let name = |f: &Fragment| format!("{} [{}, {}]", f.kind.name(), f.rows, f.columns);
            let message = format!("{} += {} · {}ᵀ", name(c), name(a), name(b));
            return Err(Diagnostic::new(906, site, message).help(
                "f32 [M, N] += [M, K] · [N, K]ᵀ, both of bf16, of f16, or of tf32; round f32 first: `round::<tf32>()`",
            ));
        }
        self.lanes_together("a product of fragments", site)?;
        let steps = match a.kind {
            // 16 columns at once, and 8 for what is left.
            Kind::Half(elem) => {
                let (wide, narrow) = match elem {
                    Elem::BF16 => (MmaKind::Bf16K16, Some(MmaKind::Bf16K8)),
                    _ => (MmaKind::F16K16, None),
                };
                let mut steps: Vec<_> = (0..a.columns / 16).map(|k| (wide, 2 * k, 2)).collect();
                if a.columns % 16 != 0 {
                    let Some(narrow) = narrow else {
                        let message = format!("a product over {} columns of f16", a.columns);
                        return Err(Diagnostic::new(906, site, message).help("columns are a multiple of 16"));
                    };
                    steps.push((narrow, a.columns / 8 - 1, 1));
                }
                steps
            }
            _ => (0..a.columns / 8).map(|k| (MmaKind::Tf32K8, k, 1)).collect(),
        };
        let mut blocks = c.blocks.clone();
        // Rows that are missing in the lower half of 16 are zero, and what they give is dropped.
        let zero = |this: &mut Self| this.scalar(&Value::u32(0), Some(Elem::U32), site).map(|s| s.reg);
        for (kind, first, width) in steps {
            for i in (0..c.rows / 8).step_by(2) {
                let lower = i + 1 < c.rows / 8;
                let mut a_regs = Vec::with_capacity(4);
                for element in 0..(if kind == MmaKind::Tf32K8 { 2 } else { 1 }) {
                    for k in first..first + width {
                        a_regs.push(self.operand_register(a.block(i, k), element, site)?);
                        a_regs.push(match lower {
                            true => self.operand_register(a.block(i + 1, k), element, site)?,
                            false => zero(self)?,
                        });
                    }
                }
                for j in 0..c.width() {
                    let mut b_regs = Vec::with_capacity(2);
                    for element in 0..(if kind == MmaKind::Tf32K8 { 2 } else { 1 }) {
                        for k in first..first + width {
                            b_regs.push(self.operand_register(b.block(j, k), element, site)?);
                        }
                    }
                    let place = |i: u32| (i * c.width() + j) as usize;
                    let mut c_regs = Vec::with_capacity(4);
                    for half in 0..2 {
                        for element in 0..2 {
                            c_regs.push(match half == 0 || lower {
                                true => self.operand_register(&blocks[place(i + half)], element, site)?,
                                false => zero(self)?,
                            });
                        }
                    }
                    let d: Vec<Reg> = (0..4).map(|_| self.builder.fresh(Class::B32)).collect();
                    let pair = |regs: &[Reg]| {
                        let make = |reg: &Reg| Value::Scalar(Scalar::new(Elem::F32, *reg, Uniform::Thread));
                        Value::Array(regs.iter().map(make).collect())
                    };
                    blocks[place(i)] = pair(&d[..2]);
                    if lower {
                        blocks[place(i + 1)] = pair(&d[2..]);
                    }
                    self.builder.inst(Mma {
                        kind,
                        d: OutList(d),
                        a: RegList(a_regs.clone()),
                        b: RegList(b_regs),
                        c: RegList(c_regs),
                    });
                }
            }
        }
        Ok(c.with(Kind::F32, blocks))
    }

    /// The register of a block: of two packed elements, or of element 0 or 1.
    fn operand_register(&mut self, block: &Value, element: usize, site: Site<'_>) -> Result<Reg> {
        match block {
            Value::Array(pair) => self.scalar(&pair[element], Some(Elem::F32), site).map(|s| s.reg),
            packed => self.scalar(packed, Some(Elem::U32), site).map(|s| s.reg),
        }
    }
}
