//! mbarriers by themselves, for what no pipeline expresses.
//!
//! The author counts arrivals, bytes and phases. Nothing is checked here but the form; the simulator finds what is wrong.

use super::Specialiser;
use super::site::Site;
use super::value::Value;
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Result};
use crate::kir::Sync;
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Sink, Src};
use kda_ptx::table::*;
use syn::Expr;

/// Largest number of arrivals of a phase.
const MOST_ARRIVALS: i128 = (1 << 20) - 1;

impl Specialiser<'_> {
    /// `Mbarrier::new(count)`: completes a phase after that many arrivals.
    pub(super) fn mbarrier_new(&mut self, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let name = self.naming.take().unwrap_or_else(|| "mbarrier".into());
        let [count] = self.arguments("Mbarrier::new", args, site)?;
        let Some(count) = count.as_int().filter(|n| (1..=MOST_ARRIVALS).contains(n)) else {
            return Err(Diagnostic::new(155, site, "the number of arrivals is a constant from 1 to 1048575"));
        };
        if !self.control.is_empty() || self.frames.len() > 1 || self.roles.is_some() {
            return Err(Diagnostic::new(
                652,
                site,
                "an mbarrier is declared in the kernel, ahead of the roles and outside branches",
            ));
        }
        let desc = SharedBuffer { name, offset: 0, bytes: 8, align: 8, elem: Elem::U64, shape: vec![1] };
        let buffer = self.place_buffer(desc, site);
        self.buffers[buffer].used = true;
        self.place(site);
        let first = self.first_thread();
        let address = self.mbarrier_address(buffer);
        let inst =
            MbarrierInit { space: Some(Space::SharedCta), ty: Type::B64, address, count: Src::Imm(count as i64) };
        self.builder.guarded(Some(first), inst);
        self.fresh_barriers = Some(first);
        self.raw_barriers = true;
        Ok(Value::Mbarrier(buffer))
    }

    /// Address of an mbarrier.
    pub(super) fn mbarrier_address(&self, buffer: usize) -> Address {
        let offset = self.buffers[buffer].desc.offset.into();
        Address { base: Base::Symbol(crate::lower::SHARED.into()), offset }
    }

    /// `bar.arrive()`, `bar.arrive_expect(bytes)`, in each thread that comes here; `bar.wait(parity)`.
    pub(super) fn mbarrier(&mut self, buffer: usize, name: &str, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        if self.fresh_barriers.is_some() {
            self.publish_barriers(site)?;
        }
        let address = self.mbarrier_address(buffer);
        let (order, scope, space, ty, state) = (None, None, Some(Space::SharedCta), Type::B64, Sink);
        match name {
            "arrive" => {
                let [] = self.arguments(name, args, site)?;
                self.place(site);
                self.builder.sync(Sync::MbarrierArrive);
                self.builder.inst(MbarrierArrive { order, scope, space, ty, state, address, count: None });
            }
            "arrive_expect" => {
                let [bytes] = self.arguments(name, args, site)?;
                let bytes = self.operand(&bytes, Elem::U32, site)?;
                self.place(site);
                self.builder.sync(Sync::MbarrierArrive);
                self.builder.inst(MbarrierArriveExpectTx { order, scope, space, ty, state, address, bytes });
            }
            _ => {
                let [parity] = self.arguments(name, args, site)?;
                let parity = self.operand(&parity, Elem::U32, site)?;
                self.place(site);
                self.spin(address, parity);
            }
        }
        Ok(Value::Unit)
    }
}
