//! Mutants of a PTX text: one synchronisation instruction dropped or perturbed.
//!
//! `changes` is the table: from the kind of an instruction to what may go wrong with it. An instruction that is dropped
//! leaves its result behind as if it had succeeded: a wait is over, an election is won. Two operators look at neighbours: a
//! wait that slips behind the arrival which it should precede, and an arrival that slips behind the wait that follows it.

use super::{Level, Mutant, Operator, Text};
use kda_ptx::modifier::{Compare, Ftz, Order, Proxy, ReadOnly, Scope, Type};
use kda_ptx::operand::{Class, DstAndPred, Src};
use kda_ptx::table::*;
use kda_ptx::{Inst, Module, ParseError, Reg, Statement, parse};

/// Bytes by which an announcement is wrong.
const BYTES: i64 = 16;
/// Threads by which a barrier's count is wrong: a warp.
const WARP: i64 = 32;
/// An order that orders nothing; it needs a scope.
const RELAXED: Option<Order> = Some(Order::Relaxed);
const CTA: Option<Scope> = Some(Scope::Cta);

/// What takes the place of an instruction; empty where nothing does.
type Change = (Operator, Vec<Inst>);

/// Every mutant of the kernel in a text.
pub fn mutants(kernel: &'static str, text: &str) -> Result<Vec<Mutant>, ParseError> {
    let module = parse(text)?;
    let mut found = Vec::new();
    let mut line = 0;
    for (at, statement) in module.entries[0].body.iter().enumerate() {
        let (guard, inst) = match statement {
            Statement::Loc { line: here, .. } => {
                line = *here;
                continue;
            }
            Statement::Inst { guard, inst } => (guard, inst),
            _ => continue,
        };
        let mut add = |operator: Operator, change: &dyn Fn(&mut Module)| {
            let mut changed = module.clone();
            change(&mut changed);
            changed.entries[0].registers = changed.entries[0].count_registers();
            let what = show(inst);
            found.push(Mutant {
                kernel,
                level: Level::Ptx,
                operator,
                line,
                what,
                text: Text::Ptx(changed.to_string()),
            });
        };
        let fresh = module.entries[0].registers[2];
        for (operator, instead) in changes(inst, fresh) {
            add(operator, &|changed| {
                let instead = instead.iter().map(|inst| Statement::Inst { guard: *guard, inst: inst.clone() });
                changed.entries[0].body.splice(at..=at, instead);
            });
        }
        if guard.is_some() && gives(inst) {
            add(Operator::EveryLane, &|changed| changed.entries[0].body[at] = Statement::inst(inst.clone()));
        }
        if let Some(wait) = wait_before(&module.entries[0].body, at) {
            add(Operator::Swap, &|changed| {
                let wait = changed.entries[0].body.remove(wait);
                changed.entries[0].body.insert(at, wait);
            });
        }
        if let Some(end) = wait_behind(&module.entries[0].body, at) {
            add(Operator::Swap, &|changed| {
                let arrival = changed.entries[0].body.remove(at);
                changed.entries[0].body.insert(end - 1, arrival);
            });
        }
    }
    Ok(found)
}

/// What may go wrong with one instruction. `fresh` is the number of a 32-bit register that nobody uses.
pub(super) fn changes(inst: &Inst, fresh: u32) -> Vec<Change> {
    use Operator::*;
    let dropped = || (Drop, Vec::new());
    let count = |src: &Src, step: i64, with: &dyn Fn(Src) -> Inst| -> Vec<Change> {
        let shifted = |by: i64| match src {
            Src::Imm(n) if n + by > 0 => Some(vec![with(Src::Imm(n + by))]),
            _ => None,
        };
        [(CountUp, step), (CountDown, -step)].into_iter().filter_map(|(o, by)| Some((o, shifted(by)?))).collect()
    };
    let bytes = |src: &Src, with: &dyn Fn(Src) -> Inst| -> Vec<Change> {
        [(BytesUp, BYTES), (BytesDown, -BYTES)].map(|(o, by)| (o, shifted(src, by, fresh, with))).into()
    };
    let pending = |src: &Src, with: &dyn Fn(Src) -> Inst| match src {
        Src::Imm(n) => vec![(Pending, vec![with(Src::Imm(n + 1))])],
        _ => Vec::new(),
    };
    match inst {
        Inst::BarWarp(_)
        | Inst::FenceMbarrierInit(_)
        | Inst::BulkCommit(_)
        | Inst::CpAsyncCommit(_)
        | Inst::CpAsyncArrive(_)
        | Inst::WgmmaFence(_)
        | Inst::WgmmaCommit(_)
        | Inst::TmemAlloc(_)
        | Inst::TmemDealloc(_)
        | Inst::Tcgen05Commit(_)
        | Inst::TmemWait(_)
        | Inst::Tcgen05Fence(_)
        | Inst::DependencyWait(_)
        | Inst::ClusterWait(_)
        | Inst::MbarrierInval(_) => vec![dropped()],
        Inst::BarSync(i) => {
            let with = |threads| BarSync { threads: Some(threads), ..i.clone() }.into();
            let counts = i.threads.as_ref().map(|threads| count(threads, WARP, &with));
            [vec![dropped()], counts.unwrap_or_default()].concat()
        }
        Inst::BarArrive(i) => {
            let with = |threads| BarArrive { threads, ..i.clone() }.into();
            [vec![dropped()], count(&i.threads, WARP, &with)].concat()
        }
        Inst::ClusterArrive(i) => {
            let relaxed = ClusterArrive { order: Some(Order::Relaxed), ..i.clone() };
            vec![dropped(), (Narrow, vec![relaxed.into()])]
        }
        Inst::Fence(i) => {
            let narrow = narrower(i.scope).map(|scope| (Narrow, vec![Fence { scope, ..i.clone() }.into()]));
            [vec![dropped()], narrow.into_iter().collect()].concat()
        }
        Inst::FenceProxy(i) => {
            let halves: &[Proxy] = match i.proxy {
                Proxy::Async => &[Proxy::AsyncGlobal, Proxy::AsyncSharedCta],
                Proxy::AsyncSharedCluster => &[Proxy::AsyncSharedCta],
                _ => &[],
            };
            let narrow = halves.iter().map(|proxy| (Narrow, vec![FenceProxy { proxy: *proxy }.into()]));
            [vec![dropped()], narrow.collect()].concat()
        }
        Inst::MbarrierInit(i) => {
            let with = |count| MbarrierInit { count, ..i.clone() }.into();
            [vec![dropped()], count(&i.count, 1, &with)].concat()
        }
        Inst::MbarrierArrive(i) => {
            let with = |count| MbarrierArrive { count: Some(count), ..i.clone() }.into();
            let relaxed = MbarrierArrive { order: RELAXED, scope: i.scope.or(CTA), ..i.clone() };
            let counts = count(&i.count.clone().unwrap_or(Src::Imm(1)), 1, &with);
            [vec![dropped()], counts, vec![(Narrow, vec![relaxed.into()])]].concat()
        }
        Inst::MbarrierArriveExpectTx(i) => {
            let with = |bytes| MbarrierArriveExpectTx { bytes, ..i.clone() }.into();
            [vec![dropped()], bytes(&i.bytes, &with)].concat()
        }
        Inst::MbarrierExpectTx(i) => {
            let with = |bytes| MbarrierExpectTx { bytes, ..i.clone() }.into();
            [vec![dropped()], bytes(&i.bytes, &with)].concat()
        }
        Inst::MbarrierTryWait(i) => {
            let with = |parity| MbarrierTryWait { parity, ..i.clone() }.into();
            let relaxed = MbarrierTryWait { order: RELAXED, scope: i.scope.or(CTA), ..i.clone() };
            let flipped = flipped(&i.parity, fresh, &with);
            vec![(Drop, vec![holds(i.done)]), (Phase, flipped), (Narrow, vec![relaxed.into()])]
        }
        Inst::MbarrierTestWait(i) => {
            let with = |parity| MbarrierTestWait { parity, ..i.clone() }.into();
            let relaxed = MbarrierTestWait { order: RELAXED, scope: i.scope.or(CTA), ..i.clone() };
            let flipped = flipped(&i.parity, fresh, &with);
            vec![(Drop, vec![holds(i.done)]), (Phase, flipped), (Narrow, vec![relaxed.into()])]
        }
        Inst::BulkWait(i) => {
            let read = BulkWait { read: ReadOnly(true), ..i.clone() };
            let narrow = (!i.read.0).then(|| (Narrow, vec![read.into()]));
            let more = pending(&i.pending, &|pending| BulkWait { pending, ..i.clone() }.into());
            [vec![dropped()], more, narrow.into_iter().collect()].concat()
        }
        Inst::CpAsyncWait(i) => {
            let more = pending(&i.pending, &|pending| CpAsyncWait { pending }.into());
            [vec![dropped()], more].concat()
        }
        Inst::WgmmaWait(i) => [vec![dropped()], pending(&i.pending, &|pending| WgmmaWait { pending }.into())].concat(),
        Inst::Elect(i) => i.dst.pred.map(|pred| (EveryLane, vec![holds(pred)])).into_iter().collect(),
        Inst::Atom(i) if i.order.is_some_and(|order| order != Order::Relaxed) => {
            let zero = Mov { ty: i.ty, dst: i.dst, src: Src::Imm(0) };
            let relaxed = Atom { order: Some(Order::Relaxed), ..i.clone() };
            let scope = i.scope.and_then(narrower).map(|scope| Atom { scope: Some(scope), ..i.clone() });
            let narrow = [Some(relaxed), scope].into_iter().flatten().map(|atom| (Narrow, vec![atom.into()]));
            [vec![(Drop, vec![zero.into()])], narrow.collect()].concat()
        }
        Inst::Red(i) if i.order.is_some_and(|order| order != Order::Relaxed) => {
            let relaxed = Red { order: Some(Order::Relaxed), ..i.clone() };
            let scope = i.scope.and_then(narrower).map(|scope| Red { scope: Some(scope), ..i.clone() });
            let narrow = [Some(relaxed), scope].into_iter().flatten().map(|red| (Narrow, vec![red.into()]));
            [vec![dropped()], narrow.collect()].concat()
        }
        _ => Vec::new(),
    }
}

/// The next scope inside.
fn narrower(scope: Scope) -> Option<Scope> {
    match scope {
        Scope::Sys => Some(Scope::Gpu),
        Scope::Gpu | Scope::Cluster => Some(Scope::Cta),
        Scope::Cta => None,
    }
}

/// A predicate that is true.
fn holds(pred: Reg) -> Inst {
    let (dst, zero) = (DstAndPred { dst: Some(pred), pred: None }, Src::Imm(0));
    Setp { compare: Compare::Eq, ftz: Ftz::default(), ty: Type::U32, dst, a: zero.clone(), b: zero }.into()
}

fn flipped(src: &Src, fresh: u32, with: &dyn Fn(Src) -> Inst) -> Vec<Inst> {
    match src {
        Src::Imm(parity) => vec![with(Src::Imm(parity ^ 1))],
        other => {
            let dst = Reg::new(Class::B32, fresh);
            vec![Xor { ty: Type::B32, dst, a: other.clone(), b: Src::Imm(1) }.into(), with(dst.into())]
        }
    }
}

fn shifted(src: &Src, by: i64, fresh: u32, with: &dyn Fn(Src) -> Inst) -> Vec<Inst> {
    match src {
        Src::Imm(n) => vec![with(Src::Imm(n + by))],
        other => {
            let dst = Reg::new(Class::B32, fresh);
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            let sum = Add { round, ftz, sat, ty: Type::U32, dst, a: other.clone(), b: Src::Imm(by) };
            vec![sum.into(), with(dst.into())]
        }
    }
}

/// An instruction that tells others something.
fn gives(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::MbarrierArrive(_)
            | Inst::MbarrierArriveExpectTx(_)
            | Inst::MbarrierExpectTx(_)
            | Inst::MbarrierInit(_)
            | Inst::BarArrive(_)
            | Inst::BulkCommit(_)
            | Inst::WgmmaCommit(_)
            | Inst::Tcgen05Commit(_)
            | Inst::CpAsyncArrive(_)
            | Inst::ClusterArrive(_)
    )
}

/// An instruction that what follows relies on.
fn waits(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::BarSync(_)
            | Inst::BarWarp(_)
            | Inst::FenceProxy(_)
            | Inst::Fence(_)
            | Inst::BulkWait(_)
            | Inst::CpAsyncWait(_)
            | Inst::WgmmaWait(_)
            | Inst::TmemWait(_)
            | Inst::Tcgen05Fence(_)
            | Inst::ClusterWait(_)
            | Inst::DependencyWait(_)
    )
}

fn branches(statement: &Statement) -> bool {
    match statement {
        Statement::Label(_) => true,
        Statement::Inst { inst, .. } => matches!(inst, Inst::Bra(_) | Inst::Ret(_) | Inst::Exit(_) | Inst::Trap(_)),
        _ => false,
    }
}

/// The last wait before an arrival, without a branch or another arrival between.
fn wait_before(body: &[Statement], at: usize) -> Option<usize> {
    let Statement::Inst { inst, .. } = &body[at] else { return None };
    if !gives(inst) || matches!(inst, Inst::MbarrierInit(_)) {
        return None;
    }
    let between = body[..at].iter().enumerate().rev().take_while(|(_, statement)| !branches(statement));
    for (index, statement) in between {
        match statement {
            Statement::Inst { guard: None, inst } if waits(inst) => return Some(index),
            Statement::Inst { inst, .. } if gives(inst) => return None,
            _ => {}
        }
    }
    None
}

/// The end of a loop that waits on an mbarrier, if one follows an arrival without a branch between.
fn wait_behind(body: &[Statement], at: usize) -> Option<usize> {
    let Statement::Inst { inst: Inst::MbarrierArrive(_), .. } = &body[at] else { return None };
    let label = at + 1 + body[at + 1..].iter().position(branches)?;
    let Statement::Label(start) = &body[label] else { return None };
    let mut rest = body[label + 1..].iter().enumerate().filter(|(_, s)| !matches!(s, Statement::Loc { .. }));
    let (_, Statement::Inst { inst: Inst::MbarrierTryWait(_) | Inst::MbarrierTestWait(_), .. }) = rest.next()? else {
        return None;
    };
    let (_, Statement::Inst { inst: Inst::Bra(_), .. }) = rest.next()? else { return None };
    let (_, Statement::Inst { inst: Inst::Bra(back), .. }) = rest.next()? else { return None };
    let (end, Statement::Label(_)) = rest.next()? else { return None };
    (back.target.0 == *start).then_some(label + 1 + end + 1)
}

/// An instruction as text.
fn show(inst: &Inst) -> String {
    let mut text = String::new();
    inst.print(&mut text);
    text
}

#[cfg(test)]
#[path = "ptx_tests.rs"]
mod tests;
