//! Warp instructions a second, on one core: `cargo bench -p kda-sim`.

use kda_sim::{Checks, Launch, Memory, Options, Program, run};
use std::time::Instant;

/// Seconds that this thread has run; the clock on the wall where the system does not tell.
fn seconds(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ran.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

/// A loop of shared loads and stores, shuffles and fused multiply-adds, as a reduction over a tile has them.
fn mixed() -> String {
    let mut body = String::new();
    for k in 0..4 {
        body += &format!("ld.shared.f32 %r{}, [%r2+{}];\n", 10 + k, k * 1024);
        body += &format!("ld.shared.f32 %r{}, [%r3+{}];\n", 20 + k, k * 4);
        for j in 0..4 {
            body += &format!("fma.rn.f32 %r{}, %r{}, %r{}, %r{};\n", 30 + j, 10 + k, 20 + k, 30 + j);
        }
        body += &format!("shfl.sync.bfly.b32 %r{}, %r{}, {}, 31, -1;\n", 40, 30 + k, 1 << k);
        body += &format!("fma.rn.f32 %r{}, %r40, 0f3F000000, %r{};\n", 30 + k, 30 + k);
        body += &format!("st.shared.f32 [%r2+{}], %r{};\n", 8192 + k * 1024, 30 + k);
    }
    body
}

/// Vector accesses to global and shared memory.
fn vectors() -> String {
    let mut body = String::new();
    for k in 0..4 {
        body += &format!("ld.global.v4.f32 {{%r10, %r11, %r12, %r13}}, [%rd1+{}];\n", k * 4096);
        for j in 0..4 {
            body += &format!("fma.rn.f32 %r{}, %r{}, 0f3F000000, %r{};\n", 30 + j, 10 + j, 30 + j);
        }
        body += &format!("st.global.v4.f32 [%rd1+{}], {{%r30, %r31, %r32, %r33}};\n", k * 4096);
    }
    body
}

/// Accesses that are not one run of words: halves of words, a stride, lanes switched off, one lane alone.
fn awkward() -> String {
    let mut body = String::new();
    for k in 0..2 {
        body += &format!("ld.global.b16 %h0, [%rd2+{}];\n", k * 512);
        body += "cvt.f32.bf16 %r10, %h0;\nfma.rn.f32 %r30, %r10, 0f3F000000, %r30;\ncvt.rn.bf16.f32 %h0, %r30;\n";
        body += &format!("st.global.b16 [%rd2+{}], %h0;\n", k * 512);
        body += &format!("ld.shared.f32 %r11, [%r5+{}];\nfma.rn.f32 %r31, %r11, 0f3F000000, %r31;\n", k * 4);
        body += &format!("@%p1 ld.shared.f32 %r12, [%r2+{}];\n", k * 1024);
        body += &format!("@%p1 st.shared.f32 [%r2+{}], %r31;\n", 8192 + k * 1024);
    }
    body
}

/// Arithmetic alone.
fn arithmetic() -> String {
    (0..16)
        .map(|k| format!("fma.rn.f32 %r{}, %r{}, %r{}, %r{};\n", 30 + k % 4, 30 + (k + 1) % 4, 32, 30 + k % 4))
        .collect()
}

fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n\
         .visible .entry k(\n.param .u64 data\n)\n{{\n.reg .pred %p<2>;\n.reg .b16 %h<4>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<4>;\n\
         mov.u32 %r0, %tid.x;\nmov.u32 %r1, smem;\nmad.lo.u32 %r2, %r0, 4, %r1;\nmov.u32 %r3, %r1;\n\
         ld.param.u64 %rd0, [data];\nmul.wide.u32 %rd2, %r0, 2;\nadd.u64 %rd2, %rd0, %rd2;\nmad.lo.u32 %r5, %r0, 8, %r1;\n\
         setp.lt.u32 %p1, %r0, 250;\nmul.wide.u32 %rd1, %r0, 16;\nadd.u64 %rd1, %rd0, %rd1;\n\
         mov.f32 %r30, 0f3F800000;\nmov.f32 %r31, 0f3F000000;\nmov.f32 %r32, 0f3E800000;\nmov.f32 %r33, 0f00000000;\n\
         st.shared.f32 [%r2], %r30;\nst.shared.f32 [%r2+1024], %r30;\nst.shared.f32 [%r2+2048], %r30;\n\
         st.shared.f32 [%r2+3072], %r30;\nmov.u32 %r4, 0;\nbar.sync 0;\nLOOP:\n{body}\
         add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p0, %r4, 40000;\n@%p0 bra LOOP;\nret;\n}}\n"
    )
}

fn main() {
    for (name, body) in
        [("mixed", mixed()), ("vectors", vectors()), ("awkward", awkward()), ("arithmetic", arithmetic())]
    {
        let program = Program::load(&kernel(&body)).expect("the kernel is in the dialect");
        for (what, checks) in [
            ("all checks", Checks::default()),
            ("no checks", Checks { races: false, undefined: false, ..Checks::default() }),
        ] {
            let mut memory = Memory::new();
            let data = memory.allocate(1 << 20).expect("memory");
            memory.fill(data, 0, 1 << 20).expect("memory");
            let params = data.to_le_bytes();
            let launch = Launch { shared_bytes: 16384, ..Launch::new([1, 1, 1], 256, &params) };
            let options = Options { checks, ..Options::default() };
            let start = Instant::now();
            let before = seconds(start);
            let stats = run(&program, &launch, &mut memory, &options).unwrap_or_else(|r| panic!("{r}"));
            let seconds = seconds(start) - before;
            let million = stats.warp_instructions as f64 / 1e6;
            println!("{name:11} {what:11} {million:7.2} M warp instructions, {:7.1} M/s", million / seconds);
        }
    }
}
