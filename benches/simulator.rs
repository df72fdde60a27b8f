//! Speed of the simulator with all its checks on: warp instructions a second, of every variant of `conv_verify` for four
//! tokens on its sample problem. Best of several runs on one thread.

use kda::checks::{Device, Measured, conv_verify};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_runtime::executor::sim::SimExecutor;

const RUNS: u64 = 8;

fn main() -> Result<(), String> {
    println!("{:<55} {:>18} {:>8}", "variant", "warp instructions", "M/s");
    for variant in ConvVerifyVariant::ALL.into_iter().filter(|v| v.t() == 4 && !v.long()) {
        let (mut best, mut instructions) = (0.0f64, 0);
        for seed in 0..RUNS {
            let executor = SimExecutor::default();
            let mut right = true;
            let mut take = |measured: Measured, _: f64| right &= measured.passes();
            conv_verify::sample(Device::simulator(&executor), variant.desc(), seed, &mut take)?;
            if !right {
                return Err(format!("{}: a result is out of its budget", variant.desc().entry));
            }
            let (Some(stats), Some(elapsed)) = (executor.last_stats(), executor.last_elapsed()) else { continue };
            instructions = stats.warp_instructions;
            best = best.max(stats.warp_instructions as f64 / elapsed.as_secs_f64() / 1e6);
        }
        println!("{:<55} {instructions:>18} {best:>8.1}", variant.desc().entry);
    }
    Ok(())
}
