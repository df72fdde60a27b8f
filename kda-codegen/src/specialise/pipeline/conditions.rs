//! Buffers that are filled under a condition only, `tma_load_if`, are not read without one, and those that are read are filled.
//!
//! Whether it is the same condition is not decided here: the trip to which a stage belongs may be another one.

use crate::consteval::Const;
use crate::diag::{Diagnostic, Place as _, Result};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;

impl Specialiser<'_> {
    /// A bulk copy into a buffer of a slot.
    pub(in crate::specialise) fn note_fill(&mut self, slot: Option<u32>, buffer: usize, condition: Option<&Value>) {
        let Some(id) = slot else { return };
        let holding = &self.holdings[id as usize];
        let always = matches!(condition, None | Some(Value::Const(Const::Bool(true))));
        // What a branch decides may be decided the other way by a further branch.
        self.rings[holding.ring].filled[usize::from(always)].insert(buffer);
    }

    /// A read of a buffer, perhaps of a slot; `conditional` if it depends on a condition of its own.
    pub(in crate::specialise) fn note_read(
        &mut self,
        slot: Option<u32>,
        buffer: usize,
        conditional: bool,
        site: Site<'_>,
    ) -> Result<()> {
        let Some(id) = slot else { return Ok(()) };
        self.check_held(id, site)?;
        let holding = &self.holdings[id as usize];
        if holding.side > 0 {
            self.builder.sync(crate::kir::Sync::SharedRead { ring: holding.ring });
        }
        // A stage that is taken under a condition is read under it.
        if holding.side > 0
            && !conditional
            && holding.branches == self.role_branches
            && self.branches == self.role_branches
        {
            self.rings[holding.ring].reads.push((buffer, id, site.ends()));
        }
        Ok(())
    }

    /// At the end, when all roles are known.
    pub(in crate::specialise) fn check_conditions(&self) -> Result<()> {
        for ring in &self.rings {
            let [sometimes, always] = &ring.filled;
            for (buffer, holding, place) in &ring.reads {
                let stored = ring.written.contains(buffer) || ring.copied.contains(buffer);
                let carried = self.holdings.get(*holding as usize).is_some_and(|holding| holding.carried);
                if sometimes.contains(buffer) && !always.contains(buffer) && !stored && !carried {
                    let name = self.buffers[*buffer].desc.name.clone();
                    return Err(Diagnostic::new(
                        662,
                        *place,
                        format!("`{name}` is read without a condition, and filled only under one"),
                    )
                    .help("read it under the condition of its `tma_load_if`: in an `if`, or with `load_if`"));
                }
                let filled = sometimes.contains(buffer) || always.contains(buffer);
                if !filled && !stored && !ring.rewritten.contains(buffer) {
                    let name = self.buffers[*buffer].desc.name.clone();
                    return Err(Diagnostic::new(662, *place, format!("`{name}` is read, and no role fills it"))
                        .help("fill it between `acquire` and `commit`, or leave the buffer out of the pipeline"));
                }
            }
        }
        Ok(())
    }
}
