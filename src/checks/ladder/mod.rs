//! The ladder: every rung against its formula, on any device, under every schedule, and device against simulator.
//!
//! Rungs whose arithmetic is prescribed give their bits, everywhere. The others stay within a budget that comes from the
//! emulation of their roundings; where the device is a GPU, the simulator runs the same text on the same inputs and the two are
//! compared.

mod elementwise;
mod problem;
mod products;

pub use problem::{Expected, Problem, Rung};

use super::{Device, Extent, Measured, Operator, Request, Sink};
use kda_core::KernelDesc;
use kda_ref::budget::{Budget, Stored};
use kda_runtime::Backend;
use kda_runtime::executor::sim::{CTA_ORDERS, Options, Schedule, SimExecutor, schedule_name};

/// The rungs, from the bottom.
pub const RUNGS: [Rung; 8] = [
    elementwise::ADD,
    elementwise::TILE_COPY,
    elementwise::RING_SUM,
    elementwise::ROLE_SILU,
    products::PRODUCT,
    products::CHAINED_PRODUCT,
    elementwise::CLUSTER_SUM,
    products::BLACKWELL_PRODUCT,
];

/// One operator a rung.
pub fn operators() -> Vec<Operator> {
    vec![
        operator::<0>(),
        operator::<1>(),
        operator::<2>(),
        operator::<3>(),
        operator::<4>(),
        operator::<5>(),
        operator::<6>(),
        operator::<7>(),
    ]
}

fn operator<const RUNG: usize>() -> Operator {
    Operator { name: RUNGS[RUNG].name, run: run::<RUNG>, sample: sample::<RUNG>, replay: |_, _| Ok(None) }
}

fn run<const RUNG: usize>(request: &Request, sink: Sink) -> Result<(), String> {
    let rung = &RUNGS[RUNG];
    let (major, minor) = request.device.executor.compute_capability();
    let count = (rung.sizes.len() * rung.descs().count()) as f64;
    for (done, (desc, size)) in rung.descs().flat_map(|desc| rung.sizes.iter().map(move |s| (desc, *s))).enumerate() {
        let share = (done + 1) as f64 / count;
        let failed = |cause: problem::Failure| format!("{} {size:?}: {cause}", desc.entry);
        let executor = SimExecutor::for_kernel(Options::default(), desc);
        let simulator = Device::simulator(&executor);
        // What the device cannot run, the simulator does.
        let runs = desc.arch.runs_on(major, minor);
        let device = if runs { Device::of(request.device) } else { simulator };
        let values = rung.values(device, desc, size, request.seed).map_err(failed)?;
        let expected = rung.expected(device, desc, size, request.seed).map_err(failed)?;
        sink(judge(rung, desc, size, &values, &expected), share);
        if runs && request.device.backend == Backend::Cuda {
            let simulated = rung.values(simulator, desc, size, request.seed).map_err(failed)?;
            sink(against_simulator(rung, desc, size, &values, &simulated, &expected), share);
        } else if request.extent == Extent::Full || done == 0 {
            sink(schedules(rung, desc, size, request.seed, &values).map_err(failed)?, share);
        }
    }
    Ok(())
}

fn sample<const RUNG: usize>(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let (rung, size) = (&RUNGS[RUNG], RUNGS[RUNG].sizes[RUNGS[RUNG].sizes.len() - 1]);
    let failed = |cause: problem::Failure| format!("{} {size:?}: {cause}", desc.entry);
    let values = rung.values(device, desc, size, seed).map_err(failed)?;
    let expected = rung.expected(device, desc, size, seed).map_err(failed)?;
    sink(judge(rung, desc, size, &values, &expected), 1.0);
    Ok(())
}

fn case(desc: &KernelDesc, size: [u64; 3]) -> String {
    format!("{} {size:?}", desc.entry)
}

/// Number of values whose bits differ; all of them if there are not as many.
fn differing(a: &[f32], b: &[f32]) -> f64 {
    match a.len() == b.len() {
        true => a.iter().zip(b).filter(|(x, y)| x.to_bits() != y.to_bits()).count() as f64,
        false => f64::INFINITY,
    }
}

/// Against the formula.
fn judge(rung: &Rung, desc: &KernelDesc, size: [u64; 3], values: &[f32], expected: &Expected) -> Measured {
    let case = case(desc, size);
    if rung.bitwise {
        let wanted: Vec<f32> = expected.emulated.iter().map(|x| *x as f32).collect();
        let output = "elements that differ".to_string();
        return Measured { case, output, error: differing(values, &wanted), budget: 0.0 };
    }
    let wide: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
    let judgement = Budget::derive(&expected.exact, &[&expected.emulated], Stored::F32).judge(&expected.exact, &wide);
    let error = if judgement.error.max <= judgement.limit.max { judgement.error.rms } else { f64::INFINITY };
    Measured { case, output: "error".into(), error, budget: judgement.limit.rms }
}

/// The device against the simulator: the same bits, or two results within one budget of each other.
fn against_simulator(
    rung: &Rung,
    desc: &KernelDesc,
    size: [u64; 3],
    device: &[f32],
    simulator: &[f32],
    expected: &Expected,
) -> Measured {
    let case = case(desc, size);
    if rung.bitwise {
        let output = "elements that differ from the simulator's".to_string();
        return Measured { case, output, error: differing(device, simulator), budget: 0.0 };
    }
    let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let limit = Budget::derive(&expected.exact, &[&expected.emulated], Stored::F32).judge(&expected.exact, &[]).limit;
    let error = kda_ref::budget::ErrorMeasure::between(&wide(simulator), &wide(device));
    let error = if error.max <= limit.max { error.rms } else { f64::INFINITY };
    Measured { case, output: "distance to the simulator".into(), error, budget: limit.rms }
}

/// Every schedule and every order of CTAs gives the bits of the first.
fn schedules(
    rung: &Rung,
    desc: &'static KernelDesc,
    size: [u64; 3],
    seed: u64,
    first: &[f32],
) -> Result<Measured, problem::Failure> {
    let mut wrong = 0.0;
    for (schedule, cta_order) in Schedule::ALL.into_iter().flat_map(|s| CTA_ORDERS.map(|order| (s, order))) {
        let executor = SimExecutor::for_kernel(
            Options { schedule, cta_order, seed, resident_ctas: 3, ..Options::default() },
            desc,
        );
        let values = rung
            .values(Device::simulator(&executor), desc, size, seed)
            .map_err(|cause| format!("schedule {}: {cause}", schedule_name(schedule)))?;
        wrong += differing(first, &values);
    }
    let output = "elements that differ between schedules".to_string();
    Ok(Measured { case: case(desc, size), output, error: wrong, budget: 0.0 })
}
