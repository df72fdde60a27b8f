//! Numbers at the edges of their types, wherever a text may have them: an error or a program, never a panic.

use kda_sim::{Launch, Memory, Options, Program, run};

fn module(params: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\n.extern .shared .align 16 .b8 smem[];\n\n.visible .entry k(\n{params}\n)\n{{\n    \
         .reg .pred %p<4>;\n    .reg .b16 %h<4>;\n    .reg .b32 %r<4>;\n    .reg .b64 %rd<4>;\n{body}\n    ret;\n}}\n"
    )
}

/// Every place of a number in an instruction.
const PLACES: [&str; 12] = [
    "ld.param.u64 %rd0, [x+N];",
    "ld.param.v2.u32 {%r0, %r1}, [x+N];",
    "ld.global.u32 %r0, [%rd0+N];",
    "st.shared.u32 [%r0+N], %r1;",
    "mov.u32 %r0, N;",
    "mov.u64 %rd0, N;",
    "add.u16 %h0, %h1, N;",
    "shl.b32 %r0, %r1, N;",
    "bfi.b32 %r0, %r1, %r2, N, N;",
    "bar.sync N, N;",
    "cp.async.bulk.wait_group N;",
    "shfl.sync.idx.b32 %r0, %r1, N, N, N;",
];

#[test]
fn numbers_of_any_size_are_decoded_or_refused() {
    let mut loaded = 0;
    for place in PLACES {
        for number in [
            i64::MIN,
            i64::MIN + 1,
            -(1 << 31),
            -1,
            0,
            1,
            255,
            256,
            1 << 31,
            (1 << 32) - 1,
            1 << 32,
            i64::MAX - 7,
            i64::MAX,
        ] {
            let text = module("    .param .u64 y,\n    .param .u64 x", &place.replace('N', &number.to_string()));
            match Program::load(&text) {
                Ok(_) => loaded += 1,
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    assert!(loaded > 50, "{loaded}");
}

#[test]
fn parameters_past_32_bits_are_decoded_or_refused() {
    let params = |count: usize| {
        let one = |index| format!("    .param .align 65536 .b128 p{index}[1048576]");
        (0..count).map(one).collect::<Vec<_>>().join(",\n")
    };
    for count in [1, 255, 256, 257, 300] {
        let program = Program::load(&module(&params(count), "    ld.param.u64 %rd0, [p0];")).expect("a program");
        assert_eq!(u64::from(program.param_bytes), (count as u64 * (16 << 20)).min(u64::from(u32::MAX)), "{count}");
    }
}

/// A warp holds the registers that are used, however many are declared.
#[test]
fn declared_registers_cost_nothing() {
    let text = module(
        "    .param .u64 x",
        "    mov.u32 %r3, %tid.x;\n    setp.ge.u32 %p3, %r3, 5;\n    cvt.u64.u32 %rd3, %r3;",
    );
    let mut many = text.replace("<4>", "<1048576>");
    many = many.replace(".reg .pred", ".reg .b128 %rq<1048576>;\n    .reg .pred");
    let start = std::time::Instant::now();
    let launch = Launch::new([8, 1, 1], 1024, &[0; 8]);
    let stats =
        |text: &str| run(&Program::load(text).unwrap(), &launch, &mut Memory::new(), &Options::default()).unwrap();
    assert_eq!(stats(&text), stats(&many));
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    // One past what is declared, and the last that a name can have.
    for register in ["%r4", "%r4294967295", "%p4294967295", "%rd4294967295"] {
        let body = text.replace("%r3, 5", &format!("{register}, 5"));
        assert!(Program::load(&body).is_err(), "{register}");
    }
    assert!(Program::load(&many.replace("%r3", "%r1048575")).is_err());
}
