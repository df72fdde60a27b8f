//! Lets loads from a stage that bulk copies fill land before the stage is given back.
//!
//! A warp's loads from shared memory stand in line behind its loads from global memory, for microseconds where those miss
//! every cache; its arrival at an mbarrier does not. Neither `ptxas` nor the device holds it back until loads ahead of it have
//! their data, and a bulk copy, which goes by another proxy, writes the stage as soon as it is given. Measured on H200:
//! `ldmatrix` behind 64 loads of a state, then `mbarrier.arrive`; one sequence in a hundred had rows of the next one. With
//! `membar.cta` in between some still had; with a proxy fence, or once the data is there, none.
//!
//! So an arrival that gives a stage depends on everything that was loaded from it: on `x * 0 != 1`, which is true whatever x
//! is, but known only when x is. What instructions that keep their order among memory accesses have taken as an operand has
//! landed: stores, products of a warpgroup, barriers, branches.

use super::{Node, Place, Region, Sync, class_index, when};
use kda_ptx::modifier::{Combine, Compare, Round, Space, Type};
use kda_ptx::operand::{DstAndPred, PredSrc, Role, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Inst, Reg};
use std::collections::{BTreeMap, BTreeSet};

/// Makes arrivals depend on loads from their stages. `filled` tells of each ring whether bulk copies fill it, `next` is the
/// first free register of each class.
pub fn derive(region: &mut Region, filled: &[bool], next: [u32; 5]) {
    if reads_stages(region, filled) {
        let mut landing = Landing { filled, next, defined: BTreeSet::new(), order: Vec::new(), write: true };
        landing.region(region, &mut Flight::default());
    }
}

/// True if anything is loaded from a stage of theirs.
fn reads_stages(region: &Region, filled: &[bool]) -> bool {
    region.iter().any(|node| match node {
        Node::Sync { sync, .. } => matches!(sync, Sync::SharedRead { ring } if filled[*ring]),
        Node::If { then, other, .. } => reads_stages(then, filled) || reads_stages(other, filled),
        Node::Loop { head, body, .. } => reads_stages(head, filled) || reads_stages(body, filled),
        _ => false,
    })
}

/// Loads by number; a load is that of one place in the program.
type Loads = BTreeSet<u32>;

/// What may be in flight at a point of the program.
#[derive(Clone, Default, PartialEq)]
struct Flight {
    /// The loads, each with the ring that it reads from.
    loads: BTreeMap<u32, usize>,
    /// Registers that are known only when these have landed.
    behind: BTreeMap<Reg, Loads>,
    /// The ring whose stage the last step reads.
    reads: Option<usize>,
    /// The ring whose stage the next arrival gives.
    gives: Option<usize>,
}

impl Flight {
    fn of(&self, inst: &Inst, guard: Option<PredSrc>) -> Loads {
        let mut loads = Loads::new();
        let mut take = |reg: Reg| {
            if let Some(behind) = self.behind.get(&reg) {
                loads.extend(behind.iter().filter(|load| self.loads.contains_key(load)));
            }
        };
        inst.registers(&mut |reg, role| {
            if role == Role::Read {
                take(reg);
            }
        });
        if let Some(guard) = guard {
            take(guard.reg);
        }
        loads
    }

    fn land(&mut self, loads: &Loads) {
        self.loads.retain(|load, _| !loads.contains(load));
    }

    /// What may be in flight where two ways meet.
    fn merge(&mut self, other: &Flight) {
        self.loads.extend(&other.loads);
        for (reg, loads) in &other.behind {
            self.behind.entry(*reg).or_default().extend(loads);
        }
        self.reads = None;
        self.gives = None;
    }

    /// A register that is known only when the load has landed.
    fn witness(&self, load: u32) -> Option<Reg> {
        let known = |class: Class| {
            self.behind.iter().find(|(reg, loads)| reg.class == class && loads.contains(&load)).map(|(reg, _)| *reg)
        };
        [Class::B32, Class::B64, Class::B16, Class::Pred].into_iter().find_map(known)
    }
}

struct Landing<'a> {
    filled: &'a [bool],
    /// First free register of each class.
    next: [u32; 5],
    /// Registers that have a value here, whichever way was taken, and the order in which they got their first one.
    defined: BTreeSet<Reg>,
    order: Vec<Reg>,
    /// Otherwise only what is in flight at the end is of interest.
    write: bool,
}

impl Landing<'_> {
    fn region(&mut self, region: &mut Region, flight: &mut Flight) {
        let mut out = Region::with_capacity(region.len());
        for mut node in region.drain(..) {
            match &mut node {
                Node::Inst { inst, guard, place } => self.inst(inst, guard, *place, flight, &mut out),
                Node::Sync { sync, .. } => match sync {
                    Sync::SharedRead { ring } => flight.reads = self.filled[*ring].then_some(*ring),
                    Sync::Give { ring, .. } => flight.gives = Some(*ring),
                    Sync::ProductRead { .. } | Sync::BulkStore { .. } | Sync::Take { .. } => flight.reads = None,
                    _ => {}
                },
                Node::If { condition, then, other, .. } => {
                    self.asked(*condition, flight);
                    let mut elsewhere = flight.clone();
                    let first = self.inside(then, flight);
                    let second = self.inside(other, &mut elsewhere);
                    let both: Vec<Reg> = first.intersection(&second).copied().collect();
                    self.leave(&first, &both, flight);
                    self.leave(&second, &both, &mut elsewhere);
                    both.into_iter().for_each(|reg| self.define(reg));
                    flight.merge(&elsewhere);
                }
                Node::Loop { head, condition, body, .. } => {
                    // What a trip leaves in flight is so at the head, too. A load is one load in every trip.
                    let mut entry = flight.clone();
                    let write = std::mem::replace(&mut self.write, false);
                    loop {
                        let mut end = entry.clone();
                        self.trip(&mut head.clone(), *condition, &mut body.clone(), &mut end);
                        let before = entry.clone();
                        entry.merge(&end);
                        if entry == before {
                            break;
                        }
                    }
                    self.write = write;
                    *flight = entry;
                    self.region(head, flight);
                    self.asked(*condition, flight);
                    self.inside(body, &mut flight.clone());
                }
                Node::Return(_) | Node::Comment(_) => {}
            }
            out.push(node);
        }
        *region = out;
    }

    /// Head and body of a loop. What the head defines stays defined.
    fn trip(&mut self, head: &mut Region, condition: PredSrc, body: &mut Region, flight: &mut Flight) {
        self.region(head, flight);
        self.asked(condition, flight);
        let own = self.inside(body, flight);
        self.leave(&own, &[], flight);
    }

    /// A region that may not run; gives the registers that got their first value in it.
    fn inside(&mut self, region: &mut Region, flight: &mut Flight) -> BTreeSet<Reg> {
        let before = self.order.len();
        self.region(region, flight);
        let own: BTreeSet<Reg> = self.order.drain(before..).collect();
        own.iter().for_each(|reg| {
            self.defined.remove(reg);
        });
        own
    }

    /// Registers that have no value behind a region are no witnesses there.
    fn leave(&self, own: &BTreeSet<Reg>, kept: &[Reg], flight: &mut Flight) {
        flight.behind.retain(|reg, _| !own.contains(reg) || kept.contains(reg));
    }

    fn define(&mut self, reg: Reg) {
        if self.defined.insert(reg) {
            self.order.push(reg);
        }
    }

    /// A branch takes what it asks for.
    fn asked(&self, condition: PredSrc, flight: &mut Flight) {
        let loads = flight.behind.get(&condition.reg).cloned().unwrap_or_default();
        flight.land(&loads);
    }

    fn inst(&mut self, inst: &Inst, guard: &mut Option<PredSrc>, place: Place, flight: &mut Flight, out: &mut Region) {
        let mut behind = flight.of(inst, *guard);
        if !computes(inst) {
            flight.land(&std::mem::take(&mut behind));
        }
        if arrives(inst)
            && let Some(ring) = flight.gives.take()
        {
            let given: Vec<u32> = flight.loads.iter().filter(|(_, of)| **of == ring).map(|(load, _)| *load).collect();
            self.wait_for(&given, guard, place, flight, out);
        }
        let mut written = Vec::new();
        inst.registers(&mut |reg, role| {
            if role == Role::Write {
                written.push(reg);
            }
        });
        if let (true, Some(ring), Some(first)) = (loads_shared(inst), flight.reads, written.first()) {
            // Registers are assigned once, but for variables, which no load writes.
            let load = first.index * 8 + class_index(first.class) as u32;
            flight.loads.insert(load, ring);
            behind.insert(load);
        }
        for reg in written {
            self.define(reg);
            match behind.is_empty() && guard.is_none() {
                true => drop(flight.behind.remove(&reg)),
                false if guard.is_some() => flight.behind.entry(reg).or_default().extend(&behind),
                false => drop(flight.behind.insert(reg, behind.clone())),
            }
        }
    }

    /// Makes an arrival wait until these loads have landed.
    fn wait_for(
        &mut self,
        loads: &[u32],
        guard: &mut Option<PredSrc>,
        place: Place,
        flight: &mut Flight,
        out: &mut Region,
    ) {
        let mut waited = Loads::new();
        let mut sum = None;
        for load in loads {
            if waited.contains(load) {
                continue;
            }
            // Without one nothing behind the load uses it.
            let Some(witness) = flight.witness(*load) else { continue };
            waited.extend(&flight.behind[&witness]);
            if self.write {
                sum = Some(self.add(witness, sum, place, out));
            }
        }
        flight.land(&loads.iter().copied().collect());
        let Some(sum) = sum else { return };
        let known = self.fresh(Class::Pred);
        let (compare, ftz, ty) = (Compare::Neu, Default::default(), Type::F32);
        let (dst, a, b) = (DstAndPred { dst: Some(known), pred: None }, Src::Reg(sum), Src::F32(1f32.to_bits()));
        let inst = match *guard {
            Some(c) => SetpCombine { compare, combine: Combine::And, ftz, ty, dst, a, b, c }.into(),
            None => Setp { compare, ftz, ty, dst, a, b }.into(),
        };
        out.push(Node::Inst { inst, guard: None, place });
        *guard = Some(when(known));
    }

    /// `witness * 0 + sum`: zero or NaN.
    fn add(&mut self, witness: Reg, sum: Option<Reg>, place: Place, out: &mut Region) -> Reg {
        let mut push = |inst: Inst| out.push(Node::Inst { inst, guard: None, place });
        let (ftz, sat, round) = (Default::default(), Default::default(), Round::Rn);
        let a = match witness.class {
            Class::B32 => witness,
            Class::Pred => {
                let dst = self.fresh(Class::B32);
                let (a, b) = (Src::Imm(1), Src::Imm(0));
                push(Selp { ty: Type::B32, dst, a, b, pred: when(witness) }.into());
                dst
            }
            class => {
                let from = if class == Class::B64 { Type::U64 } else { Type::U16 };
                let (dst, a) = (self.fresh(Class::B32), Src::Reg(witness));
                push(
                    Cvt { round: None, relu: Default::default(), ftz, sat, to: Type::U32, from, dst, a, b: None }
                        .into(),
                );
                dst
            }
        };
        let (dst, a, b, ty) = (self.fresh(Class::B32), Src::Reg(a), Src::F32(0), Type::F32);
        push(match sum {
            Some(sum) => Fma { round, ftz, sat, ty, dst, a, b, c: Src::Reg(sum) }.into(),
            None => Mul { half: None, round: Some(round), ftz, sat, ty, dst, a, b }.into(),
        });
        dst
    }

    fn fresh(&mut self, class: Class) -> Reg {
        let slot = &mut self.next[class_index(class)];
        *slot += 1;
        Reg::new(class, *slot - 1)
    }
}

fn loads_shared(inst: &Inst) -> bool {
    match inst {
        Inst::LdMatrix(_) => true,
        Inst::Ld(ld) => matches!(ld.space, Some(Space::Shared | Space::SharedCta | Space::SharedCluster)),
        _ => false,
    }
}

fn arrives(inst: &Inst) -> bool {
    matches!(inst, Inst::MbarrierArrive(_) | Inst::MbarrierArriveExpectTx(_))
}

/// True if the instruction may be executed behind an arrival that follows it: it only computes.
fn computes(inst: &Inst) -> bool {
    use Inst::*;
    matches!(
        inst,
        Mov(_)
            | Unpack(_)
            | Pack(_)
            | Cvt(_)
            | Cvta(_)
            | Selp(_)
            | Prmt(_)
            | Add(_)
            | Sub(_)
            | Mul(_)
            | Mad(_)
            | Fma(_)
    ) || matches!(
        inst,
        Div(_) | Rem(_) | Neg(_) | Abs(_) | Min(_) | Max(_) | Rcp(_) | Sqrt(_) | Rsqrt(_) | Ex2(_) | Lg2(_) | Tanh(_)
    ) || matches!(
        inst,
        And(_) | Or(_) | Xor(_) | Not(_) | Shl(_) | Shr(_) | Shf(_) | Lop3(_) | Bfe(_) | Bfi(_) | Popc(_) | Clz(_)
    ) || matches!(inst, Brev(_) | Setp(_) | SetpCombine(_) | Mma(_) | MovMatrix(_))
}
