//! Prints how far the state of a stream of verifies and commits drifts from float64, with an fp32 and with a bf16 pool:
//! `cargo run --release -p kda-ref --example tc_drift -- [STEPS [SEED]]`.

use kda_ref::tc_commit::drift::{MARKS, WINDOW, curve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: usize = arguments.next().map_or(Ok(MARKS[MARKS.len() - 1]), |steps| steps.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let marks: Vec<usize> = MARKS.into_iter().filter(|mark| *mark < steps).chain([steps]).collect();
    let [fp32, bf16] = [false, true].map(|bf16_pool| curve(seed, bf16_pool, &marks));
    println!(
        "windows of {WINDOW}, seed {seed}: relative Frobenius error of the state\n\n| steps | fp32 | bf16 |\n| --- | --- | --- |"
    );
    for ((mark, fp32), bf16) in marks.iter().zip(fp32?).zip(bf16?) {
        println!("| {mark} | {fp32:.2e} | {bf16:.2e} |");
    }
    Ok(())
}
