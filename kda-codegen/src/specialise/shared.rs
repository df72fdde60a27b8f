//! Shared buffers and their views.
//!
//! A buffer is row-major, outermost axis first, at a 16-byte boundary or more. Addresses are 32-bit; constant parts become
//! the immediate of the access. A buffer that no code of the variant touches takes no memory.

use super::params::memory_bits;
use super::range::power_of_two;
use super::shared_access::items;
use super::site::Site;
use super::value::{Scalar, SharedView, Value, class, gcd};
use super::views::Index;
use super::{Buffer, MAX_SHARED_BYTES, Specialiser};
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Sync, Uniform};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Src};
use kda_ptx::table::*;

/// Alignment of every buffer: that of the widest access, and of a bulk copy at full speed.
const ALIGN: u32 = 128;

impl Specialiser<'_> {
    /// `smem::<elem, (shape…)>()`
    pub(super) fn shared_buffer(&mut self, name: String, elem: Elem, shape: Vec<u32>, site: Site<'_>) -> Result<Value> {
        let elements = shape.iter().try_fold(1u32, |n, d| n.checked_mul(*d));
        let bytes = elements.and_then(|n| n.checked_mul(elem.bytes())).filter(|b| *b > 0 && *b <= MAX_SHARED_BYTES);
        let Some(bytes) = bytes else {
            let message = format!("`{name}` of shape {shape:?} does not fit shared memory");
            return Err(Diagnostic::new(550, site, message).help(format!("a CTA has {MAX_SHARED_BYTES} bytes")));
        };
        let axes = strides(&shape);
        let desc = SharedBuffer { name, offset: 0, bytes, align: ALIGN, elem, shape };
        let buffer = self.place_buffer(desc, site);
        Ok(Value::Shared(Box::new(SharedView {
            buffer,
            elem,
            runtime: None,
            offset: 0,
            axes,
            remote: None,
            slot: None,
        })))
    }

    /// Gives a buffer its place in shared memory.
    pub(super) fn place_buffer(&mut self, mut desc: SharedBuffer, site: Site<'_>) -> usize {
        let keep = self.keep.as_ref().is_none_or(|keep| keep.get(self.declared).copied().unwrap_or(true));
        self.declared += 1;
        desc.offset = self.shared_end.next_multiple_of(desc.align);
        if keep {
            self.shared_end = desc.offset + desc.bytes;
        }
        self.buffers.push(Buffer { desc, used: false, multiplied: false, declared: site.ends() });
        self.buffers.len() - 1
    }

    /// The buffers that are used must fit together.
    pub(super) fn check_shared_size(&self) -> Result<()> {
        if self.shared_end <= MAX_SHARED_BYTES {
            return Ok(());
        }
        let used: Vec<_> = self.buffers.iter().filter(|b| b.used).collect();
        let past = used.iter().find(|b| b.desc.offset + b.desc.bytes > MAX_SHARED_BYTES);
        let place = past.map_or((self.kernel.name.span(), self.kernel.name.span()), |b| b.declared);
        let list = used.iter().map(|b| format!("{} {}", b.desc.name, b.desc.bytes)).collect::<Vec<_>>().join(", ");
        let message = format!("{} bytes of shared memory; a CTA has {MAX_SHARED_BYTES}", self.shared_end);
        Err(Diagnostic::new(550, place, message).help(format!("buffers in bytes: {list}")))
    }

    /// `view.at([…])` and `view[[…]]`
    pub(super) fn shared_at(
        &mut self,
        mut view: SharedView,
        indices: Vec<(Index, Site<'_>)>,
        site: Site<'_>,
    ) -> Result<SharedView> {
        if indices.len() > view.axes.len() {
            let message = format!("{} indices for {} axes", indices.len(), view.axes.len());
            return Err(Diagnostic::new(452, site, message));
        }
        let axes = std::mem::take(&mut view.axes);
        let given = indices.len();
        let mut open = Vec::new();
        for ((index, at), (size, stride)) in indices.into_iter().zip(axes.iter().copied()) {
            let start = match index {
                Index::At(value) => Some(value),
                Index::Open(start, end) => {
                    let left = match (&start, &end) {
                        (None, None) => size,
                        (start, Some(end)) => self.slice_size(start.as_ref(), end, size, at)?,
                        (Some(start), None) => match (size, start.as_int()) {
                            (Some(size), Some(first)) => u64::try_from(i128::from(size) - first).ok(),
                            _ => None,
                        },
                    };
                    open.push((left, stride));
                    start
                }
            };
            if let Some(start) = start {
                self.shared_advance(&mut view, &start, size, stride, at)?;
            }
        }
        open.extend_from_slice(&axes[given..]);
        view.axes = open;
        Ok(view)
    }

    fn shared_advance(
        &mut self,
        view: &mut SharedView,
        index: &Value,
        size: Option<u64>,
        stride: u64,
        site: Site<'_>,
    ) -> Result<()> {
        if let Some(value) = index.as_int() {
            let message = match size {
                Some(size) => format!("index {value} on an axis of {size}"),
                None => format!("index {value}"),
            };
            // No axis is longer than shared memory.
            let most = size.unwrap_or(MAX_SHARED_BYTES.into());
            return match u64::try_from(value).ok().filter(|value| *value < most) {
                Some(value) => {
                    view.offset += value * stride;
                    Ok(())
                }
                None => Err(Diagnostic::new(154, site, message)),
            };
        }
        let scalar = match index {
            Value::Scalar(s) if matches!(s.elem, Elem::U32 | Elem::I32) => *s,
            other => {
                let message = format!("{} is no index of shared memory", other.describe());
                return Err(Diagnostic::new(156, site, message).help("an index of shared memory is a u32"));
            }
        };
        let (base, add) = self.split(scalar);
        // A negative constant part stays with the register, and so does one past shared memory.
        let (scalar, add) = match u64::try_from(add) {
            Ok(add) if add > 0 && add < MAX_SHARED_BYTES.into() => {
                let multiple = gcd(power_of_two(scalar.multiple), add).max(1);
                (Scalar { multiple, ..Scalar::new(Elem::U32, base, scalar.uniform) }, add)
            }
            _ if scalar.elem == Elem::U32 => (scalar, 0),
            _ => {
                let multiple = power_of_two(scalar.multiple);
                (Scalar { multiple, ..Scalar::new(Elem::U32, scalar.reg, scalar.uniform) }, 0)
            }
        };
        view.offset += add * stride;
        let stride = Value::u32(stride as u32);
        let term = self.binary(&syn::BinOp::Mul(Default::default()), Value::Scalar(scalar), stride, site)?;
        let sum = match view.runtime {
            None => term,
            Some(before) => self.binary(&syn::BinOp::Add(Default::default()), Value::Scalar(before), term, site)?,
        };
        view.runtime = Some(self.scalar(&sum, Some(Elem::U32), site)?);
        Ok(())
    }

    /// The address of a view's first element, for an access.
    pub(super) fn shared_address(&mut self, view: &SharedView) -> Address {
        self.buffers[view.buffer].used = true;
        let bytes = u64::from(view.elem.bytes());
        let offset = i64::from(self.buffers[view.buffer].desc.offset) + (view.offset * bytes) as i64;
        match view.runtime {
            None => Address { base: Base::Symbol(crate::lower::SHARED.into()), offset },
            Some(scalar) => {
                let base = self.shared_base();
                let (reg, add) = self.split(scalar);
                let shift = bytes.trailing_zeros();
                let scaled = if shift == 0 {
                    reg
                } else {
                    self.builder.pure(Class::B32, |dst| {
                        Shl { ty: Type::B32, dst, a: reg.into(), b: Src::Imm(shift.into()) }.into()
                    })
                };
                let sum = self.builder.pure(Class::B32, |dst| {
                    let (round, ftz, sat) = (None, Default::default(), Default::default());
                    Add { round, ftz, sat, ty: Type::U32, dst, a: base.into(), b: scaled.into() }.into()
                });
                // Addresses in shared memory have 32 bits, and wrap as an index does.
                let offset = (offset as i32).wrapping_add((add as i32).wrapping_mul(bytes as i32));
                Address { base: Base::Reg(sum), offset: offset.into() }
            }
        }
    }

    fn check_shared(&mut self, view: &SharedView, lanes: u64, site: Site<'_>) -> Result<()> {
        if !view.axes.is_empty() {
            let message = format!("{} axes are open; an access needs one element", view.axes.len());
            return Err(Diagnostic::new(455, site, message).help("give an index for every axis"));
        }
        let bytes = lanes.saturating_mul(view.elem.bytes().into());
        if lanes > 1 && (!matches!(lanes, 2 | 4 | 8) || bytes > 16 || (lanes == 8 && view.elem.bytes() != 2)) {
            return Err(Diagnostic::new(451, site, format!("a vector of {lanes} {}", view.elem))
                .help("2 or 4 elements of at most 16 bytes in all are possible, and 8 of 16 bits"));
        }
        let multiple = view.runtime.map_or(0, |s| s.multiple);
        if lanes > 1 && (!multiple.is_multiple_of(lanes) || !view.offset.is_multiple_of(lanes)) {
            let known = gcd(multiple, view.offset);
            let message =
                format!("the offset is known to be a multiple of {known} elements; a vector access needs {lanes}");
            return Err(Diagnostic::new(450, site, message));
        }
        Ok(())
    }

    /// Loads `lanes` elements; 0 where the condition is false.
    pub(super) fn shared_load(
        &mut self,
        view: &SharedView,
        lanes: u64,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Value> {
        self.check_shared(view, lanes, site)?;
        self.note_read(view.slot, view.buffer, condition.is_some(), site)?;
        let place =
            view.runtime.map_or(Uniform::Cta, |s| s.uniform).max(view.remote.as_ref().map_or(Uniform::Cta, |r| r.1));
        self.read_shared(view.elem, lanes, condition, place, site, |this, always| {
            let (space, address) = this.reach(view);
            if let Some(reg) = always {
                this.note_list_load(view, reg, memory_bits(view.elem), &address);
            }
            Ok((space, address))
        })
    }

    /// Stores an element or a vector; nothing where the condition is false.
    pub(super) fn shared_store(
        &mut self,
        view: &SharedView,
        value: &Value,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<()> {
        let items = items(value);
        self.check_shared(view, items.len() as u64, site)?;
        self.write_shared(view.elem, items, condition, site, |this| {
            let place = this.reach(view);
            this.cluster.writes |= view.remote.is_some();
            this.note_write(view.slot, view.buffer, site)?;
            this.builder.sync(Sync::SharedWrite { buffer: view.buffer });
            Ok(place)
        })
    }

    /// Adds to an element, or counts it up to a limit; gives the old value. Others of the cluster may do so too.
    pub(super) fn shared_atomic(
        &mut self,
        view: &SharedView,
        op: AtomicOp,
        order: Order,
        value: &Value,
        site: Site<'_>,
    ) -> Result<Value> {
        let known = match op {
            AtomicOp::Inc => view.elem == Elem::U32,
            _ => matches!(view.elem, Elem::U32 | Elem::I32 | Elem::U64 | Elem::F32),
        };
        if !known {
            let message = format!("there is no such atomic on a buffer of {}", view.elem);
            return Err(
                Diagnostic::new(156, site, message).help("`inc_wrap` takes u32; `fetch_add` u32, i32, u64, f32")
            );
        }
        self.check_shared(view, 1, site)?;
        let b = self.operand(value, view.elem, site)?;
        let dst = self.builder.fresh(class(view.elem));
        let (space, address) = self.reach(view);
        let scope = if self.resolved.cluster > 1 { Scope::Cluster } else { Scope::Cta };
        self.cluster.writes |= view.remote.is_some();
        self.note_write(view.slot, view.buffer, site)?;
        self.builder.sync(Sync::SharedWrite { buffer: view.buffer });
        self.builder.inst(Atom {
            order: Some(order),
            scope: Some(scope),
            space,
            op,
            ty: super::params::arithmetic(view.elem),
            dst,
            address,
            b,
            c: None,
        });
        Ok(Value::Scalar(Scalar::new(view.elem, dst, Uniform::Thread)))
    }

    /// The buffer's bytes as elements of another type, one axis.
    pub(super) fn shared_cast(&mut self, view: &SharedView, elem: Elem, site: Site<'_>) -> Result<SharedView> {
        if view.runtime.is_some() || view.offset != 0 {
            return Err(Diagnostic::new(453, site, "only a whole buffer can be seen as another type"));
        }
        let count = u64::from(self.buffers[view.buffer].desc.bytes / elem.bytes());
        Ok(SharedView { elem, axes: vec![(Some(count), 1)], ..view.clone() })
    }
}

/// Axes of a row-major buffer: sizes and strides.
fn strides(shape: &[u32]) -> Vec<(Option<u64>, u64)> {
    let mut stride = 1;
    let mut axes = Vec::with_capacity(shape.len());
    for size in shape.iter().rev() {
        axes.push((Some(u64::from(*size)), stride));
        stride *= u64::from(*size);
    }
    axes.reverse();
    axes
}
