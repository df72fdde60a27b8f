//! Descriptors of operands in shared memory.

use super::Specialiser;
use crate::diag::Result;
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Base, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

/// Fixed bits of a descriptor: 128-byte swizzle, rows of eight 1024 bytes apart.
const DESCRIPTOR: i64 = 0x4000_0040_0001_0000;

impl Specialiser<'_> {
    /// Descriptor of a tile's stage; with `group`, of the part of this warpgroup.
    pub(in crate::specialise) fn descriptor(
        &mut self,
        view: &TileView,
        group: Option<(u32, i64)>,
        site: Site<'_>,
    ) -> Result<Reg> {
        let (base, offset) = self.stage_address(view, site)?;
        let base: Src = match base {
            Base::Reg(reg) => reg.into(),
            Base::Symbol(_) => self.shared_base().into(),
        };
        let mut address = self.builder.pure(Class::B32, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::U32, dst, a: base.clone(), b: Src::Imm(offset) }.into()
        });
        if let Some((first, bytes)) = group {
            let warp = self.warp();
            let group =
                self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: warp.src(), b: Src::Imm(2) }.into());
            let start = -i64::from(first / 4) * bytes;
            let a = address;
            let moved = self.builder.pure(Class::B32, |dst| {
                Mad { half: Half::Lo, ty: Type::U32, dst, a: group.into(), b: Src::Imm(bytes), c: a.into() }.into()
            });
            address = moved;
            if start != 0 {
                address = self.builder.pure(Class::B32, |dst| {
                    let (round, ftz, sat) = (None, Default::default(), Default::default());
                    Add { round, ftz, sat, ty: Type::S32, dst, a: moved.into(), b: Src::Imm(start) }.into()
                });
            }
        }
        // Shared addresses carry the CTA's rank in the cluster above bit 24: mask before shifting.
        let masked = self
            .builder
            .pure(Class::B32, |dst| And { ty: Type::B32, dst, a: address.into(), b: Src::Imm(0x3_FFFF) }.into());
        let shifted =
            self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: masked.into(), b: Src::Imm(4) }.into());
        let wide = self.builder.pure(Class::B64, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            let relu = Default::default();
            Cvt { round: None, relu, ftz, sat, to: Type::U64, from: Type::U32, dst, a: shifted.into(), b: None }.into()
        });
        Ok(self
            .builder
            .pure(Class::B64, |dst| Or { ty: Type::B64, dst, a: wide.into(), b: Src::Imm(DESCRIPTOR) }.into()))
    }

    pub(in crate::specialise) fn plus(&mut self, base: Reg, step: i64) -> Src {
        if step == 0 {
            return base.into();
        }
        let reg = self.builder.pure(Class::B64, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::S64, dst, a: base.into(), b: Src::Imm(step) }.into()
        });
        reg.into()
    }
}
