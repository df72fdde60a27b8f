//! Barriers of the CTA and the warp, bulk copies, dependent launch.

use super::Specialiser;
use super::site::Site;
use super::value::{GlobalView, OpenAxis, SharedView, Stride, Value};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Sync, Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::{CacheHint, ReadOnly};
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use syn::Expr;

impl Specialiser<'_> {
    /// Functions that concern more than one thread; `None` if `name` is not one.
    pub(super) fn synchronisation(
        &mut self,
        name: &str,
        generics: &[syn::GenericArgument],
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Option<Value>> {
        match name {
            "cta_sync" => {
                let [] = self.arguments(name, args, site)?;
                if self.roles.is_some() {
                    return Err(Diagnostic::new(353, site, "`cta_sync()` inside a role: the other roles never arrive")
                        .help("move it out of the role, or use a `NamedBarrier` between the roles that meet"));
                }
                if self.control() > Uniform::Cta {
                    return Err(Diagnostic::new(
                        350,
                        site,
                        "`cta_sync()` needs all threads of the CTA, but they may differ in the branch around it",
                    ));
                }
                self.cta_barrier(site)?;
            }
            "cluster_sync" | "cluster_arrive" | "cluster_wait" => self.cluster_barrier(name, args, site)?,
            "warp_sync" => {
                let [] = self.arguments(name, args, site)?;
                if self.control() > Uniform::Warp {
                    return Err(Diagnostic::new(
                        350,
                        site,
                        "`warp_sync()` needs all lanes of the warp, but they may differ in the branch around it",
                    ));
                }
                self.place(site);
                self.builder.sync(Sync::Warp);
            }
            "role_sync" => {
                let [] = self.arguments(name, args, site)?;
                self.role_sync(site)?;
            }
            "pdl::wait" => {
                let [] = self.arguments(name, args, site)?;
                self.place(site);
                // Lanes that were not elected come here first. The wait holds their warp, and the elected lane in its loop with it
                // (measured: it stood still from its first wait for a barrier until the grid ahead had ended).
                if self.elections && !self.elected && self.control() <= Uniform::Warp {
                    self.builder.sync(Sync::Warp);
                }
                self.builder.inst(DependencyWait {});
                self.waited = true;
                self.dependent = Some(site.ends());
            }
            "pdl::launch_dependents" => {
                let [] = self.arguments(name, args, site)?;
                self.place(site);
                self.builder.inst(LaunchDependents {});
            }
            "bulk::commit" => {
                let [] = self.arguments(name, args, site)?;
                self.place(site);
                self.builder.inst(BulkCommit {});
                self.close_stores();
            }
            "bulk::wait" | "bulk::wait_read" => {
                let [] = self.arguments(name, args, site)?;
                let pending = match generics {
                    [pending] => self.generic_value(pending)?.as_int().filter(|n| (0..8).contains(n)),
                    _ => None,
                };
                let Some(pending) = pending else {
                    let message = format!("`{name}` needs the number of groups that may be pending, 0 to 7");
                    return Err(Diagnostic::new(155, site, message).help(format!("write `{name}::<0>()`")));
                };
                self.place(site);
                self.builder
                    .inst(BulkWait { read: ReadOnly(name == "bulk::wait_read"), pending: Src::Imm(pending as i64) });
            }
            "bulk::store" => self.bulk_store(args, site)?,
            "tma::store" | "tma::reduce_add" => self.tma_store(name, args, site)?,
            "tma::prefetch" => self.tma_prefetch(args, site)?,
            "l2::prefetch" => self.l2_prefetch(args, site)?,
            "wgmma::commit" => {
                let [] = self.arguments(name, args, site)?;
                self.wgmma_commit(site)?;
            }
            "wgmma::wait" => {
                let [] = self.arguments(name, args, site)?;
                let pending = match generics {
                    [pending] => self.generic_value(pending)?.as_int().filter(|n| (0..8).contains(n)),
                    _ => None,
                };
                let Some(pending) = pending else {
                    let message = "`wgmma::wait` needs the number of groups that may be pending, 0 to 7";
                    return Err(Diagnostic::new(155, site, message).help("write `wgmma::wait::<0>()`"));
                };
                self.wgmma_wait(pending as usize, site)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Value::Unit))
    }

    /// `bulk::store(to, from)`: as many bytes as both views hold; `bulk::store(to, from, bytes)` copies that many.
    fn bulk_store(&mut self, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let ([to, from], bytes) = match args {
            [to, from] => ([*to, *from], None),
            [to, from, bytes] => ([*to, *from], Some(*bytes)),
            _ => {
                return Err(Diagnostic::new(
                    157,
                    site,
                    "`bulk::store` takes a global view, a shared view and perhaps the bytes",
                ));
            }
        };
        let (to_site, from_site) = (Site::Expr(to), Site::Expr(from));
        let (Value::Global(to), Value::Shared(from)) = (self.expr(to)?, self.expr(from)?) else {
            return Err(Diagnostic::new(156, site, "`bulk::store` copies from a shared view to a global view"));
        };
        self.own(&from, from_site)?;
        let bytes = match bytes {
            Some(bytes) => self.expr(bytes)?,
            None => self.copied_bytes(&to, to_site, &from, from_site, site)?,
        };
        let param = self.resolved.params[to.param].clone();
        if !matches!(param.kind, crate::compiled::ParamKind::Tensor { writes: true, .. }) {
            return Err(Diagnostic::new(454, to_site, format!("`{}` is read-only", param.name))
                .help("declare it `GlobalMut<…>`"));
        }
        self.check_bulk(&to, to_site, &from, from_site, &bytes, site)?;
        self.note_access(to.param, true, site);
        let bytes = self.operand(&bytes, Elem::U32, site)?;
        self.place(site);
        let dst = self.global_address(&to);
        let src = self.shared_address(&from);
        let guard = to.present.map(when);
        let inst = BulkStore {
            hint: CacheHint(to.hint.policy.is_some()),
            dst,
            src,
            bytes,
            policy: to.hint.policy.map(Src::Reg),
        };
        self.note_bulk_store(from.slot, from.buffer, site)?;
        self.builder.sync(Sync::BulkStore { buffer: from.buffer, destination: to.param, inst: inst.into(), guard });
        Ok(())
    }

    /// A bulk copy moves a multiple of 16 bytes between addresses that are multiples of 16.
    pub(super) fn check_bulk(
        &mut self,
        global: &GlobalView,
        global_site: Site<'_>,
        shared: &SharedView,
        shared_site: Site<'_>,
        bytes: &Value,
        site: Site<'_>,
    ) -> Result<()> {
        if let Some(n) = bytes.as_int()
            && (n <= 0 || n % 16 != 0)
        {
            return Err(Diagnostic::new(453, site, format!("a bulk copy of {n} bytes"))
                .help("bulk copies move a positive multiple of 16 bytes"));
        }
        // Where the offset is known: the rest is a multiple of it, and the launcher checks the base.
        let misaligned = |multiple: u64, offset: u64, elem: Elem| {
            multiple == 0 && !(u128::from(offset) * u128::from(elem.bytes())).is_multiple_of(16)
        };
        if misaligned(global.multiple, global.offset.unsigned_abs() as u64, global.elem) {
            return Err(Diagnostic::new(450, global_site, "a bulk copy begins at a multiple of 16 bytes"));
        }
        if misaligned(u64::from(shared.runtime.is_some()), shared.offset, shared.elem) {
            return Err(Diagnostic::new(450, shared_site, "a bulk copy begins at a multiple of 16 bytes"));
        }
        let state = &mut self.params[global.param];
        state.align = state.align.max(16);
        Ok(())
    }

    /// The bytes that both views hold, if they are the same elements in a row.
    pub(super) fn copied_bytes(
        &self,
        to: &GlobalView,
        to_site: Site<'_>,
        from: &SharedView,
        from_site: Site<'_>,
        site: Site<'_>,
    ) -> Result<Value> {
        let unknown = |site| {
            Diagnostic::new(453, site, "the number of elements of this view is not known while compiling")
                .help("give the bytes as the last argument")
        };
        let scattered = |site| {
            Diagnostic::new(453, site, "the elements of this view are no single run")
                .help("copy row by row, or give the bytes as the last argument")
        };
        let axes: Option<Vec<_>> = from.axes.iter().map(|(size, stride)| size.map(|n| (n, Some(*stride)))).collect();
        let axes = axes.ok_or_else(|| unknown(from_site))?;
        if !dense(&axes) {
            return Err(scattered(from_site));
        }
        let elements: u64 = axes.iter().map(|(n, _)| n).product();
        let known = |a: &OpenAxis| match a.stride {
            Stride::Const(stride) => Some(stride),
            Stride::Reg(..) => None,
        };
        let target: Option<Vec<_>> = to.axes.iter().map(|a| a.size.map(|n| (n, known(a)))).collect();
        let target = target.ok_or_else(|| unknown(to_site))?;
        if !dense(&target) {
            return Err(scattered(to_site));
        }
        let room: u64 = target.iter().map(|(n, _)| n).product();
        if room != elements || to.elem != from.elem {
            let message = format!("{elements} elements of {} go to {room} elements of {}", from.elem, to.elem);
            return Err(Diagnostic::new(453, site, message).help("both views must hold the same elements"));
        }
        // A buffer has less than 2^32 bytes.
        Ok(Value::u32((elements * u64::from(from.elem.bytes())) as u32))
    }
}

/// True if elements of these axes, sizes and known strides, follow each other without a gap.
pub(super) fn dense(axes: &[(u64, Option<u64>)]) -> bool {
    let mut expected = 1;
    axes.iter().rev().all(|(size, stride)| {
        let fits = *size == 1 || *stride == Some(expected);
        expected *= size;
        fits
    })
}
