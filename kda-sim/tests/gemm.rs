//! The matrix product of the kernel library: right under every schedule, free of races, and every dropped synchronisation
//! is found.

mod common;
use kda_core::desc::{DimDesc, StrideDesc};
use kda_core::launch::TensorArg;
use kda_core::tensor_map::{Swizzle, TensorMapArg, TensorMapParam};
use kda_core::{Elem, Expr};
use kda_sim::{Code, Launch, Memory, Options, Program, Report, Schedule, Stats, run};

const M: usize = 256;
const N: usize = 256;
const DIM: DimDesc = DimDesc { size: Expr::Int(0), stride: StrideDesc::Const(1) };

/// A value of one byte of noise: exact in bf16.
fn noise(seed: u32, i: usize) -> f32 {
    let x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
    let x = (x ^ x >> 15).wrapping_mul(0x2c1b_3c6d);
    ((x >> 20) as i32 % 256 - 128) as f32 / 64.0
}

fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

struct Gemm {
    text: String,
    bn: usize,
    shared_bytes: u32,
}

fn variants() -> Vec<Gemm> {
    kda_kernels::all()
        .filter(|desc| desc.entry.starts_with("gemm_ws"))
        .map(|desc| {
            let bn = if desc.entry.contains("bn256") { 256 } else { 128 };
            Gemm { text: desc.ptx.to_string(), bn, shared_bytes: desc.shared_bytes }
        })
        .collect()
}

impl Gemm {
    /// Runs a text of the kernel; gives C.
    fn run(&self, text: &str, k: usize, options: &Options) -> Result<(Vec<f32>, Stats), Box<Report>> {
        let a: Vec<f32> = (0..M * k).map(|i| noise(1, i)).collect();
        let b: Vec<f32> = (0..N * k).map(|i| noise(2, i)).collect();
        let mut memory = Memory::new();
        let mut params = Vec::new();
        for (values, rows, tile) in [(&a, M, &[128, 64]), (&b, N, if self.bn == 256 { &[256, 64] } else { &[128, 64] })]
        {
            let bytes = bf16_bytes(values);
            let ptr = memory.allocate(bytes.len() as u64).unwrap();
            memory.write(ptr, &bytes).unwrap();
            let param = TensorMapParam {
                elem: Elem::BF16,
                writes: false,
                stable: false,
                dims: &[DIM, DIM],
                tile,
                swizzle: Swizzle::B128,
            };
            let tensor =
                TensorArg::strided(ptr, bytes.len() as u64, Elem::BF16, &[rows as u64, k as u64], &[k as u64, 1]);
            params.extend(TensorMapArg { param, tensor: tensor.unwrap(), offset: 0 }.encode());
        }
        let c = memory.allocate((M * N * 2) as u64).unwrap();
        params.extend(c.to_le_bytes());
        for value in [M, k, N] {
            params.extend((value as u32).to_le_bytes());
        }
        params.resize(params.len().next_multiple_of(8), 0);
        params.extend((N as u64).to_le_bytes());
        let program = Program::load(text).unwrap_or_else(|e| panic!("{e}"));
        let grid = [(N / self.bn) as u32, (M / 128) as u32, 1];
        let launch = Launch { shared_bytes: self.shared_bytes, ..Launch::new(grid, 384, &params) };
        let stats = run(&program, &launch, &mut memory, options)?;
        let mut bytes = vec![0; M * N * 2];
        memory.read(c, &mut bytes).unwrap();
        let values = bytes.as_chunks::<2>().0.iter().map(|h| f32::from_bits(u32::from(u16::from_le_bytes(*h)) << 16));
        Ok((values.collect(), stats))
    }
}

fn expected(k: usize) -> Vec<f64> {
    let mut out = vec![0f64; M * N];
    for i in 0..M {
        for j in 0..N {
            let terms = (0..k).map(|l| f64::from(noise(1, i * k + l)) * f64::from(noise(2, j * k + l)));
            out[i * N + j] = terms.sum();
        }
    }
    out
}

#[test]
fn the_product_is_right_and_free_of_races_under_every_schedule() {
    let k = 192;
    let expected = expected(k);
    assert_eq!(variants().len(), 2);
    for gemm in variants() {
        for (schedule, seed) in common::schedules() {
            let options = Options { schedule, seed, ..Options::default() };
            let (c, stats) =
                gemm.run(&gemm.text, k, &options).unwrap_or_else(|r| panic!("{schedule:?} seed {seed}: {r}"));
            // Two warpgroups a CTA, four products of depth 16 a stage.
            assert_eq!(stats.products as usize, M / 128 * (N / gemm.bn) * 2 * k / 16);
            for (i, (c, e)) in c.iter().zip(&expected).enumerate() {
                // Half a unit in the last of the 8 bits of bf16; the sums themselves are exact in f32.
                assert!((f64::from(*c) - e).abs() <= e.abs() / 256.0, "{schedule:?} seed {seed} element {i}: {c} {e}");
            }
        }
    }
}

#[test]
fn every_dropped_synchronisation_of_the_product_is_found() {
    const SYNC: [&str; 9] = [
        "bar.",
        "mbarrier.",
        "fence",
        "wait_group",
        "commit_group",
        "bra.uni $L9_loop",
        "bra.uni $L15_loop",
        "setmaxnreg",
        "elect",
    ];
    // Nine stages, so that the ring of four wraps twice.
    let gemm = &variants()[0];
    let mut survivors = Vec::new();
    let mut dropped = 0;
    for (number, line) in gemm.text.lines().enumerate() {
        if !SYNC.iter().any(|s| line.contains(s)) || line.ends_with(':') {
            continue;
        }
        dropped += 1;
        let mutant: String =
            gemm.text.lines().enumerate().filter(|(n, _)| *n != number).map(|(_, l)| format!("{l}\n")).collect();
        let schedules = [
            (Schedule::RoundRobin, 0),
            (Schedule::LateAsync, 0),
            (Schedule::EarlyAsync, 0),
            (Schedule::Random, 1),
            (Schedule::ReverseWarps, 0),
        ];
        let mut codes: Vec<Code> = Vec::new();
        for (schedule, seed) in schedules {
            let options = Options { schedule, seed, step_limit: 200_000, ..Options::default() };
            codes.extend(gemm.run(&mutant, 576, &options).err().map(|r| r.code));
        }
        println!("{:70} {codes:?}", line.trim());
        if codes.is_empty() {
            survivors.push(line.trim().to_string());
        }
    }
    assert_eq!(dropped, 22);
    // Registers are taken for speed alone.
    assert_eq!(survivors, ["setmaxnreg.inc.sync.aligned.u32 232;"]);
}
