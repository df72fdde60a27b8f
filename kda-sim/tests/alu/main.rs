//! Every arithmetic instruction against a computation in Rust, over edge values and random ones, on both builds.

#[path = "../common/mod.rs"]
mod common;
mod floats;
mod integers;

use half::{bf16, f16};
use kda_sim::{Launch, Memory, Options, Program, run};

pub(crate) const EDGES32: [u32; 28] = [
    0,
    1,
    2,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_1234,
    0x0080_0000,
    0x007f_ffff,
    0x4b00_0001,
    0x3eaa_aaab,
];

/// A generator of test values; its seed stands in every failure.
pub(crate) struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (x >> 29)
    }

    fn u32(&mut self) -> u32 {
        match self.next() % 4 {
            0 => EDGES32[(self.next() % EDGES32.len() as u64) as usize],
            // Floats of moderate size.
            1 => (self.next() as u32 & 0x807f_ffff) | (120 + (self.next() % 16) as u32) << 23,
            2 => (self.next() % 70) as u32,
            _ => self.next() as u32,
        }
    }

    fn u64(&mut self) -> u64 {
        match self.next() % 4 {
            0 => u64::from(self.u32()),
            1 => (self.next() & 0x800f_ffff_ffff_ffff) | (1015 + self.next() % 16) << 52,
            2 => [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7ff0 << 48, 0x3ff0 << 48][(self.next() % 7) as usize],
            _ => self.next(),
        }
    }
}

pub(crate) const SEED: u64 = 20_270_131;
pub(crate) const LANES: usize = 1024;

/// Runs `body` over inputs: 64-bit `%rd10..%rd12` with low halves `%r10..%r12` and low quarters `%h10..%h12`; gives
/// `%rd20`, into which the body or its epilogue has put the result.
pub(crate) fn run_body(body: &str, inputs: &[[u64; 3]], portable: bool) -> Vec<u64> {
    let text = common::module(
        &["input", "output"],
        &format!(
            "    ld.param.u64 %rd0, [input];\n    ld.param.u64 %rd1, [output];\n    mov.u32 %r0, %tid.x;\n    \
             mad.wide.u32 %rd2, %r0, 24, %rd0;\n    mad.wide.u32 %rd3, %r0, 8, %rd1;\n    \
             ld.global.b64 %rd10, [%rd2];\n    ld.global.b64 %rd11, [%rd2+8];\n    ld.global.b64 %rd12, [%rd2+16];\n    \
             cvt.u32.u64 %r10, %rd10;\n    cvt.u32.u64 %r11, %rd11;\n    cvt.u32.u64 %r12, %rd12;\n    \
             cvt.u16.u32 %h10, %r10;\n    cvt.u16.u32 %h11, %r11;\n    cvt.u16.u32 %h12, %r12;\n    \
             mov.b32 %r20, 0;\n    mov.b16 %h20, 0;\n    setp.lt.s32 %p10, %r12, 0;\n    mov.b64 %rd20, 0;\n    {body}\n    \
             st.global.b64 [%rd3], %rd20;"
        ),
    );
    let program = if portable { Program::load_portable(&text) } else { Program::load(&text) };
    let program = program.unwrap_or_else(|e| panic!("{body}: {e}"));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let input = memory.allocate(bytes.len() as u64).unwrap();
    memory.write(input, &bytes).unwrap();
    let output = memory.allocate(inputs.len() as u64 * 8).unwrap();
    let params: Vec<u8> = [input, output].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch::new([1, 1, 1], inputs.len() as u32, &params);
    run(&program, &launch, &mut memory, &Options::default()).unwrap_or_else(|r| panic!("{body}: {r}"));
    let mut out = vec![0; inputs.len() * 8];
    memory.read(output, &mut out).unwrap();
    out.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

pub(crate) fn inputs(values: &mut Values) -> Vec<[u64; 3]> {
    (0..LANES)
        .map(|_| {
            [values.u64(), values.u64(), values.u64()]
                .map(|v| if v % 3 == 0 { v } else { v & !0xffff_ffff | u64::from(Values(v).u32()) })
        })
        .collect()
}

pub(crate) fn check(body: &str, model: impl Fn(u64, u64, u64) -> u64) {
    check_with(body, model, |got, want| got == want);
}

pub(crate) fn check_with(body: &str, model: impl Fn(u64, u64, u64) -> u64, same: impl Fn(u64, u64) -> bool) {
    let inputs = inputs(&mut Values(SEED));
    let fast = run_body(body, &inputs, false);
    assert_eq!(fast, run_body(body, &inputs, true), "{body}: the builds differ");
    for ([a, b, c], got) in inputs.iter().zip(fast) {
        let want = model(*a, *b, *c);
        assert!(same(got, want), "{body} of {a:#x} {b:#x} {c:#x} (seed {SEED}): {got:#x}, not {want:#x}");
    }
}

/// A 32-bit instruction `op %r20, ...`.
pub(crate) fn check32(op: &str, operands: &str, model: impl Fn(u32, u32, u32) -> u32) {
    let body = format!("{op} %r20, {operands};\n    cvt.u64.u32 %rd20, %r20;");
    check(&body, |a, b, c| u64::from(model(a as u32, b as u32, c as u32)));
}

pub(crate) fn check64(op: &str, operands: &str, model: impl Fn(u64, u64, u64) -> u64) {
    check(&format!("{op} %rd20, {operands};"), model);
}

pub(crate) fn check16(op: &str, operands: &str, model: impl Fn(u16, u16, u16) -> u16) {
    let body = format!("{op} %h20, {operands};\n    cvt.u64.u16 %rd20, %h20;");
    check(&body, |a, b, c| u64::from(model(a as u16, b as u16, c as u16)));
}
