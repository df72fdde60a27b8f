//! Addresses, views, vectors, atomics, bulk copies.

use super::harness::{Random, Run, check, error_of, source};

#[test]
fn indices_that_wrap_on_the_way() {
    // Below zero in between, in range at the end.
    check("let r = table.at([tid % 4 - (n + 4) + 8]).load();", |i| i.table[(i.tid % 4 + 4 - i.n) as usize]);
    check("let p = tid % 8 - 4; let r = table.at([p + 7]).load();", |i| i.table[(i.tid % 8 + 3) as usize]);
    check("let p = tid as i32 % 8 - 4; let r = table.at([(p + 5) as u32]).load() + table.at([p + 5]).load();", |i| {
        i.table[(i.tid % 8 + 1) as usize].wrapping_mul(2)
    });
    check("let p = a + 4294967290; let q = p - a; let r = table.at([q + 10]).load();", |i| i.table[4]);
    check("let s = (tid % 4 - 2) << 2; let r = table.at([s + 8]).load();", |i| i.table[(i.tid % 4 * 4) as usize]);
    check("let s = n / 9 - 1; let r = table.at([s + 5]).load();", |i| i.table[4]);
    check("let p = (tid as u64) - 70; let r = table.at([p + 72 - tid as u64]).load();", |i| i.table[2]);
    check("let p = table.at([tid]).load() / 4294967295; let q = p - 1; let r = table.at([q + 3]).load();", |i| {
        i.table[if i.table[i.tid as usize] == u32::MAX { 3 } else { 2 }]
    });
}

#[test]
fn negative_indices() {
    check("let late = table.at([32..]); let r = late.at([tid as i32 % 32 - 32]).load();", |i| {
        i.table[(i.tid % 32) as usize]
    });
}

#[test]
fn guarded_indices_below_zero() {
    check("let p = tid - 1; let r = table.at([p]).load_if(tid > 0) + table.at([tid + 1]).load_if(tid < 63);", |i| {
        let at = |i: &super::harness::Inputs, k: i64| i.table.get(k as usize).copied().unwrap_or(0);
        at(&i, i64::from(i.tid) - 1).wrapping_add(at(&i, i64::from(i.tid) + 1))
    });
}

#[test]
fn shared_indices() {
    check(
        "let t = smem::<u32, Shape<2, 36>>();
         t[[tid / 32, tid % 32 + 1]] = a;
         t.at([tid / 32, 0]).store_if(tid % 32 == 0, 5);
         t.at([1, 33..]).at([tid % 3]).store_if(tid < 3, 9);
         cta_sync();
         let i = tid % 32 - 1;
         let j = tid as i32 % 32 - 3;
         let r = t[[tid / 32, i + 1]] + t[[0, (j + 4) as u32]] * 3 + t[[1, 33 + tid % 3]];",
        |i| {
            let left = if i.tid % 32 == 0 { 5 } else { i.all[i.tid as usize - 1] };
            left.wrapping_add(i.all[(i.tid % 32) as usize].wrapping_mul(3)).wrapping_add(9)
        },
    );
}

#[test]
fn slices_stay_inside_their_axis() {
    for body in [
        "let t = smem::<u32, Shape<8>>(); let s = t.at([0..9]); let r = a;",
        "let t = smem::<u32, Shape<8>>(); let s = t.at([5..4]); let r = a;",
        "let t = smem::<u32, Shape<8, 8>>(); let r = t[[0, 8]];",
        "let t = smem::<u32, Shape<8, 8>>(); let r = t.at([0, 2..4]).at([2]).load();",
        "let s = table.at([60..65]); let r = a;",
        "let s = table.at([60..64]).at([4]).load(); let r = a;",
        "let s = table.at([1000000000000000000000000000]).load(); let r = a;",
    ] {
        assert_eq!(error_of(&source("", body)), 154, "{body}");
    }
}

/// Strides and pitches as launch parameters, far offsets, vectors.
#[test]
fn strided_tensors() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    #[requires(pitch % 4 == 0)]
    fn k(#[dims(rows:pitch, cols)] x: Global<f32>, #[dims(rows, cols:step)] y: GlobalMut<f32>, first: i32) {
        let row = lane / 8;
        let at = lane % 8 * 4;
        let v = x.at([row + 1, at]).load_v::<4>();
        let w = x.at([row as i32 + first, at + 4]).load_v_if::<4>(at < 28);
        #[unroll]
        for i in 0..4 {
            y.at([row, at + i]).store(v[i] + 2.0 * w[i]);
        }
    }
}";
    let (rows, cols, pitch, step) = (5u32, 32u32, 40u64, 3u64);
    let x: Vec<f32> = (0..rows as usize * pitch as usize).map(|i| i as f32).collect();
    let mut run = Run::new(source);
    run.tensor("x", &x).tensor("y", &vec![0f32; 4 * 3 * 32]);
    run.set("rows", rows).set("cols", cols).set("pitch", pitch).set("step", step).set("first", 1i32);
    // The outer stride of `y` is a parameter of the compiler's naming.
    let name = run.compiled.params.iter().map(|p| p.name.clone()).find(|n| n.starts_with("y") && n != "y");
    run.set(&name.expect("a stride of y"), 96u64).launch(1);
    let y = run.read::<f32>("y");
    for row in 0..4usize {
        for c in 0..32usize {
            let at = |c: usize| x[(row + 1) * pitch as usize + c];
            assert_eq!(y[row * 96 + c * 3], at(c) + if c < 28 { 2.0 * at(c + 4) } else { 0.0 }, "{row} {c}");
        }
    }
}

#[test]
fn offsets_past_32_bits() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(4, 1073741824)] x: Global<f32>, #[dims(32)] y: GlobalMut<u32>) {
        let here = x.at([3, lane]);
        y.at([lane]).store(here.is_present() as u32 + here.load_if(lane > 40).to_bits());
    }
}";
    let run = Run::new(source);
    // An access has a 32-bit immediate at most.
    assert!(!run.compiled.ptx.contains("12884901888]"), "{}", run.compiled.ptx);
}

/// Hints need PTX 7.4, on every architecture.
#[test]
fn hints_have_their_version() {
    for (hint, version) in [
        ("l2::prefetch_256()", "7.4"),
        ("NO_ALLOCATE", "7.4"),
        ("l2::evict_first()", "7.4"),
        ("l2::evict_first_if(n == 7)", "7.4"),
        ("", "7.0"),
    ] {
        let hint = if hint.is_empty() { String::new() } else { format!(".hint({hint})") };
        let source = format!(
            "#[kernels(arch = sm_80)]
mod family {{
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(32)] x: Global<u32>, #[dims(32)] y: GlobalMut<u32>, n: u32) {{
        y.at([lane]).store(x.at([lane]){hint}.load() + n);
    }}
}}"
        );
        let mut run = Run::new(&source);
        assert!(run.compiled.ptx.contains(&format!(".version {version}\n")), "{}", run.compiled.ptx);
        run.assemble();
        let y = run.tensor("x", &[5u32; 32]).tensor("y", &[0u32; 32]).set("n", 7u32).launch(1).read::<u32>("y");
        assert_eq!(y, [12; 32]);
    }
}

#[test]
fn vectors_of_sixteen_bits() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(256)] x: Global<bf16>, #[dims(512)] y: GlobalMut<bf16>) {
        let v = x.at([lane * 8]).load_v::<8>();
        let turned = from_fn::<8>(|i| v[7 - i]);
        y.at([lane * 8]).store_v(turned);
        y.at([256 + lane * 8]).store_v([v[0], bf16::ZERO, 1.0, v[3], bf16::ZERO, -2.0, v[6], v[7]]);
    }
}";
    let x: Vec<u16> = (0..256).map(|i| i * 3 + 1).collect();
    let mut run = Run::new(source);
    let y = run.tensor("x", &x).tensor("y", &[0u16; 512]).launch(1).read::<u16>("y");
    for lane in 0..32usize {
        let v = &x[lane * 8..][..8];
        let second = [v[0], 0, 0x3f80, v[3], 0, 0xc000, v[6], v[7]];
        for i in 0..8 {
            assert_eq!((y[lane * 8 + i], y[256 + lane * 8 + i]), (v[7 - i], second[i]));
        }
    }
}

/// Eight elements of 16 bits at once, in shared memory with a swizzle or none: one access of 16 bytes.
#[test]
fn vectors_of_sixteen_bits_in_shared_memory() {
    for layout in ["_", "Swizzle<128>", "Swizzle<64>", "Swizzle<32>"] {
        let source = format!(
            "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(16, 64)] x: Global<bf16>, #[dims(3, 16, 64)] y: GlobalMut<bf16>) {{
        let t = smem::<bf16, Shape<16, 64>, {layout}>();
        for i in (tid..128).step_by(64) {{
            let (row, column) = (i / 8, 8 * (i % 8));
            t.at([row, column]).store_v(x.at([row, column]).load_v::<8>());
        }}
        cta_sync();
        for i in (tid..128).step_by(64) {{
            let (row, column) = (i / 8, 8 * (i % 8));
            let v = t.at([15 - row, column]).load_v::<8>();
            y.at([0, row, column]).store_v(from_fn::<8>(|i| v[7 - i]));
            y.at([1, row, column]).store_v(t.at([row, column]).load_v_if::<8>(row % 3 == 0));
        }}
        cta_sync();
        t.at([tid / 8, 8 * (tid % 8)]).store_v_if(tid % 2 == 0, [bf16::ZERO; 8]);
        cta_sync();
        for i in (tid..1024).step_by(64) {{
            y.at([2, i / 64, i % 64]).store(t[[i / 64, i % 64]]);
        }}
    }}
}}"
        );
        let x: Vec<u16> = (0..1024).map(|i| i * 3 + 1).collect();
        let mut run = Run::new(&source);
        let y = run.tensor("x", &x).tensor("y", &[9u16; 3072]).launch_everywhere(1).read::<u16>("y");
        for (at, got) in y.iter().enumerate() {
            let (which, row, column) = (at / 1024, at / 64 % 16, at % 64);
            let here = x[64 * row + column];
            let want = match which {
                0 => x[64 * (15 - row) + column / 8 * 8 + 7 - column % 8],
                1 if row % 3 != 0 => 0,
                2 if row < 8 && column / 8 % 2 == 0 => 0,
                _ => here,
            };
            assert_eq!(*got, want, "{layout}: {which}, {row}, {column}");
        }
        let wide = run.compiled.ptx.matches("shared.v4.b32").count();
        assert_eq!(wide, 4, "{}", run.compiled.ptx);
    }
}

#[test]
fn atomics_of_an_absent_tensor_do_nothing() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(n)] counts: Option<GlobalMut<u32>>, #[dims(32)] out: GlobalMut<u32>) {
        out.at([lane]).store(counts.at([lane % 4]).fetch_add(2, RELAXED) % 2 + counts.at([4]).inc_wrap(30, ACQ_REL) * 0);
    }
}";
    let mut run = Run::new(source);
    let present = run.tensor("counts", &[1u32; 5]).set("n", 5u32).tensor("out", &[9u32; 32]).launch(1);
    assert_eq!(present.read::<u32>("counts"), [17, 17, 17, 17, 2]);
    assert_eq!(present.read::<u32>("out"), [1; 32]);
    let mut run = Run::new(source);
    assert_eq!(run.tensor("out", &[9u32; 32]).launch(1).read::<u32>("out"), [0; 32]);
}

/// A bulk copy of `from` to `to` by one lane.
fn bulk(before: &str, copy: &str, after: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 64, grid = 1)]
    #[roles(first = 0..1, second = 1..2)]
    fn k(#[dims(4, 32)] x: Global<f32>, #[dims(4, 32)] y: GlobalMut<f32>, n: u32) {{
        let tile = smem::<f32, Shape<4, 32>>();
        {before}
        {copy}
        {after}
    }}
}}"
    )
}

const FILL: &str = "#[unroll] for i in 0..2 { tile[[warp + 2 * i, lane]] = x.at([warp + 2 * i, lane]).load() * 2.0; }";
const DRAIN: &str = "bulk::commit(); bulk::wait::<0>();";

fn run_bulk(source: &str, n: u32) -> (Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let mut run = Run::new(source);
    let y = run.tensor("x", &x).tensor("y", &[-1f32; 128]).set("n", n).launch(1).read("y");
    (x, y)
}

#[test]
fn a_bulk_copy_moves_what_both_views_hold() {
    let source = bulk(FILL, &format!("cta_sync(); if tid == 0 {{ bulk::store(y, tile); {DRAIN} }}"), "");
    let (x, y) = run_bulk(&source, 1);
    assert!(x.iter().zip(&y).all(|(x, y)| 2.0 * x == *y), "{y:?}");
    // A slice whose start is known at run time.
    let copy = format!(
        "cta_sync(); if tid == 0 {{ bulk::store(y.at([n, 4 * n..4 * n + 8]), tile.at([n, 4 * n..4 * n + 8])); {DRAIN} }}"
    );
    let (x, y) = run_bulk(&bulk(FILL, &copy, ""), 2);
    for i in 0..128 {
        assert_eq!(y[i], if (72..80).contains(&i) { 2.0 * x[i] } else { -1.0 }, "{i}");
    }
}

#[test]
fn a_bulk_copy_of_scattered_views_is_an_error() {
    for copy in [
        "bulk::store(y.at([0..2, 0..8]), tile.at([0..2, 0..8]));",
        "bulk::store(y.at([0..2, ..]), tile.at([.., 0..16]));",
        "bulk::store(y.at([0, n..]), tile.at([0, n..]));",
        "bulk::store(y.at([0, 1..5]), tile.at([0, 1..5]));",
        "bulk::store(y.at([0]), tile.at([0, 0]), 20);",
    ] {
        let code = error_of(&bulk("", copy, ""));
        assert!(matches!(code, 453 | 450), "{code}: {copy}");
    }
}

#[test]
fn fences_stand_where_writes_meet_copies() {
    // The writing thread copies itself; a loop that may run no trip; a write in the loop's last trip.
    let own = format!(
        "if warp == 0 {{ #[unroll] for i in 0..4 {{ tile[[i, lane]] = 3.0; }} warp_sync(); if lane == 0 {{ bulk::store(y, tile); {DRAIN} }} }}"
    );
    assert_eq!(run_bulk(&bulk("", &own, ""), 1).1, [3.0; 128]);
    let one = format!(
        "if tid == 0 {{ for i in 0..128 {{ tile[[0, 0]] = 1.0; tile.at([i / 32, i % 32]).store(4.0); }} bulk::store(y, tile); {DRAIN} }}"
    );
    assert_eq!(run_bulk(&bulk("", &one, ""), 1).1[1..], [4.0; 127]);
    let none = format!("for i in 0..n {{ cta_sync(); }} cta_sync(); if tid == 0 {{ bulk::store(y, tile); {DRAIN} }}");
    for n in [0, 1, 2] {
        let (x, y) = run_bulk(&bulk(FILL, &none, ""), n);
        assert!(x.iter().zip(&y).all(|(x, y)| 2.0 * x == *y), "{n}: {y:?}");
    }
    let rounds =
        format!("for i in 0..n {{ {FILL} cta_sync(); if tid == 0 {{ bulk::store(y, tile); {DRAIN} }} cta_sync(); }}");
    for n in [1, 3] {
        let (x, y) = run_bulk(&bulk("", &rounds, ""), n);
        assert!(x.iter().zip(&y).all(|(x, y)| 2.0 * x == *y), "{n}: {y:?}");
    }
}

#[test]
fn an_ordinary_access_behind_the_copy_counts() {
    // The read stands after the copy in the text, and runs before it in the second trip.
    let copy = format!(
        "for i in 0..n {{ cta_sync(); if tid == 0 {{ bulk::store(y, tile); {DRAIN} }} cta_sync(); let z = y.at([warp, lane]).load(); y.at([warp + 2, lane]).store(z); }}"
    );
    let run = Run::new(&bulk(FILL, &copy, ""));
    assert!(run.compiled.ptx.contains("fence.proxy.async.global"), "{}", run.compiled.ptx);
    let alone = format!("cta_sync(); if tid == 0 {{ bulk::store(y, tile); {DRAIN} }}");
    assert!(!Run::new(&bulk(FILL, &alone, "")).compiled.ptx.contains("fence.proxy.async.global"));
}

#[test]
fn buffers_that_nothing_touches_take_no_memory() {
    let body = "let big = smem::<f32, Shape<50000>>(); let other = smem::<f32, Shape<50000>>(); let t = smem::<u32, Shape<64>>();
        if const { ARCH < sm_90 } { big[[tid]] = 1.0; }
        t[[tid]] = a; cta_sync(); let r = t[[63 - tid]] + if const { ARCH < sm_90 } { other[[0]] as u32 } else { 0 };";
    check(body, |i| i.all[63 - i.tid as usize]);
    assert_eq!(Run::new(&source("", body)).compiled.shared_bytes, 256);
    let both = "let big = smem::<f32, Shape<50000>>(); let other = smem::<f32, Shape<50000>>(); big[[tid]] = 1.0; other[[tid]] = 2.0; let r = a;";
    assert_eq!(error_of(&source("", both)), 550);
}

#[test]
fn random_gathers() {
    let mut random = Random::new(77);
    for _ in 0..20 {
        let (p, q, c, d) = (random.below(9), random.below(9), random.below(30), 1 << random.below(4));
        let body = format!(
            "let i = (tid * {p} + (a % 16) * {q} - {c}) / {d}; let k = i % 61; let r = table.at([k + 3]).load() - table.at([k]).load();"
        );
        check(&body, move |i| {
            let at = i.tid.wrapping_mul(p).wrapping_add((i.a % 16).wrapping_mul(q)).wrapping_sub(c) / d % 61;
            i.table[at as usize + 3].wrapping_sub(i.table[at as usize])
        });
    }
}

#[test]
fn divisibility_survives_wrapping_or_is_forgotten() {
    let vector = |index: &str| source("", &format!("let v = table.at([{index}]).load_v::<4>(); let r = v[0];"));
    for index in ["tid * 12 / 3 % 16", "(tid * 4 + 8 * n) % 64", "(n * 12 - tid * 8) % 32", "min(tid * 4, 60)"] {
        let _ = Run::new(&vector(index));
    }
    // A difference of multiples of 12 may wrap, and is then a multiple of 4 alone.
    for index in ["(n * 12 - tid * 12) / 3 % 16", "(12 * n + 12 * a) / 3", "(m * 12) as u32 / 3", "(tid * 4 + n) % 64"]
    {
        assert_eq!(error_of(&vector(index)), 450, "{index}");
    }
}

/// One of two views of the same strides: of other tensors, other rows; loads, vectors, stores.
#[test]
fn views_are_selected() {
    check("let v = select(a > b, table, a_in); let r = v.at([tid]).load();", |i| {
        if i.a > i.b { i.table[i.tid as usize] } else { i.a }
    });
    check(
        "let v = select(tid < 32, table.at([4..]), table.at([n..])); let r = v.at([1 + tid % 32]).load_if(a > 3);",
        |i| {
            let first = if i.tid < 32 { 4 } else { i.n };
            if i.a > 3 { i.table[(first + 1 + i.tid % 32) as usize] } else { 0 }
        },
    );
    check(
        "let v = select(tid < 32, table.at([4..]), a_in.at([8..])).at([4 * (tid % 8)]).load_v::<4>(); let r = v[3];",
        |i| {
            let at = i.tid as usize % 8 * 4 + 3;
            if i.tid < 32 { i.table[at + 4] } else { i.all[at + 8] }
        },
    );
    check(
        "let v = select(tid < 32, out.at([32..]), out.at([0..])); v.at([tid % 32]).store(a); cta_sync(); let r = out.at([tid]).load();",
        |i| i.all[(i.tid as usize + 32) % 64],
    );
    for (views, access, code) in [
        ("out, table", "v.at([tid]).store(1)", 454),
        ("table, out", "v.at([tid]).store(1)", 454),
        ("table, out.at([n])", "v.load()", 156),
        ("table, 3", "v", 156),
        ("table.at([n..]), a_in", "v.at([4 * tid]).load_v::<4>()", 450),
    ] {
        let body = format!("let v = select(a > b, {views}); {access}; let r = a;");
        assert_eq!(error_of(&source("", &body)), code, "{body}");
    }
    // A tensor that the kernel may read ahead of the wait, or may not.
    let early = |stable: &str| {
        format!(
            "#[kernels(arch = sm_90)] mod family {{ #[kernel(block = 32, grid = 1)]
             fn k(#[dims(32; stable)] x: Global<u32>, #[dims(32{stable})] z: Global<u32>, #[dims(32)] y: GlobalMut<u32>, n: u32) {{
                 let v = select(n > 3, x, z).at([lane]).load(); pdl::wait(); y.at([lane]).store(v); }} }}"
        )
    };
    let _ = Run::new(&early("; stable"));
    assert_eq!(error_of(&early("")), 651);
}
