//! Fragments: products of a warp, loads and stores, coordinates.

use super::harness::{Random, Run, error_of, try_compile};

/// A number that bf16, f16 and tf32 hold exactly; sums of some hundred products of two are exact in f32.
fn exact(random: &mut Random) -> f32 {
    random.below(33) as f32 - 16.0
}

fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// f16 of a small integer.
fn f16(x: f32) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    ((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff)) as u16
}

fn kernel(arch: &str, params: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = {arch})]
mod family {{
    #[kernel(block = 32, grid = 1)]
    #[requires(pitch % 8 == 0, n <= 1000)]
    fn k({params} #[dims(64:pitch, 64)] unused: Global<f32>, n: u32) {{
        {body}
    }}
}}"
    )
}

/// C = A · Bᵀ for operands that come through shared memory, with and without padding, or straight from global memory.
#[test]
fn products_of_every_type_and_shape() {
    for (elem, stored) in [("bf16", "bf16"), ("f16", "f16"), ("tf32", "f32")] {
        for (m, n, k) in [(16, 8, 16), (16, 16, 32), (32, 24, 48), (8, 8, 16), (24, 8, 16), (16, 40, 64)] {
            for (arch, source) in [("sm_80", "global"), ("sm_90", "row"), ("sm_80", "padded"), ("sm_90", "odd")] {
                // Rows of 16-bit elements that begin at multiples of 16 bytes go by ldmatrix; odd ones do not.
                let pitch = match source {
                    "padded" => k + 8,
                    "odd" => k + 2,
                    _ => k,
                };
                let body = match source {
                    "global" => format!(
                        "let fa = Frag::<{elem}, {m}, {k}>::load(a);
                         let fb = Frag::<{elem}, {n}, {k}>::load(b);"
                    ),
                    _ => format!(
                        "let sa = smem::<{stored}, Shape<{m}, {pitch}>>();
                         let sb = smem::<{stored}, Shape<{n}, {pitch}>>();
                         for i in (lane..{m} * {k}).step_by(32) {{ sa[[i / {k}, i % {k}]] = a.at([i / {k}, i % {k}]).load(); }}
                         for i in (lane..{n} * {k}).step_by(32) {{ sb[[i / {k}, i % {k}]] = b.at([i / {k}, i % {k}]).load(); }}
                         cta_sync();
                         let fa = Frag::<{elem}, {m}, {k}>::load(sa);
                         let fb = Frag::<{elem}, {n}, {k}>::load(sb);"
                    ),
                };
                let body = format!(
                    "{body}
                     let mut c = Frag::<f32, {m}, {n}>::load(c_in);
                     c.mma(fa, fb);
                     c.store(c_out);"
                );
                let params = format!(
                    "#[dims({m}, {k})] a: Global<{stored}>, #[dims({n}, {k})] b: Global<{stored}>,
                     #[dims({m}, {n})] c_in: Global<f32>, #[dims({m}, {n})] c_out: GlobalMut<f32>,"
                );
                let mut random = Random::new((m * n * k) as u64);
                let mut numbers = |count: usize| -> Vec<f32> { (0..count).map(|_| exact(&mut random)).collect() };
                let (a, b, c) = (numbers(m * k), numbers(n * k), numbers(m * n));
                let mut run = Run::new(&kernel(arch, &params, &body));
                let has_matrix = run.compiled.ptx.contains("ldmatrix");
                assert_eq!(has_matrix, elem != "tf32" && matches!(source, "row" | "padded"), "{elem} {source}");
                match elem {
                    "tf32" => run.tensor("a", &a).tensor("b", &b),
                    _ => {
                        let narrow = |v: &[f32]| -> Vec<u16> {
                            v.iter().map(|x| if elem == "bf16" { bf16(*x) } else { f16(*x) }).collect()
                        };
                        run.tensor("a", &narrow(&a)).tensor("b", &narrow(&b))
                    }
                };
                run.tensor("c_in", &c).tensor("c_out", &vec![f32::NAN; m * n]).tensor("unused", &[0.0f32; 64]);
                let got = run.set("pitch", 64u64).launch(1).read::<f32>("c_out");
                for i in 0..m {
                    for j in 0..n {
                        let sum: f32 = (0..k).map(|x| a[i * k + x] * b[j * k + x]).sum();
                        assert_eq!(got[i * n + j], c[i * n + j] + sum, "{elem} {source} [{m}, {n}, {k}] at {i}, {j}");
                    }
                }
            }
        }
    }
}

/// A result becomes an operand: rounded, split into two terms, transposed, cut.
#[test]
fn results_become_operands() {
    let body = "
        let x = Frag::<f32, 16, 16>::from_fn(|row, column| x_in.at([row, column]).load());
        let identity = Frag::<f32, 16, 16>::from_fn(|row, column| select(row == column, 1.0, 0.0));
        let one = identity.round::<bf16>();
        let mut same = Frag::<f32, 16, 16>::zero();
        same.mma(x.round::<bf16>(), one);
        same.store(out.at([0, .., ..]));
        let mut turned = Frag::<f32, 16, 16>::zero();
        turned.mma(one, x.round::<bf16>());
        turned.store(out.at([1, .., ..]));
        let mut back = Frag::<f32, 16, 16>::zero();
        back.mma(one, x.round::<bf16>().t());
        back.store(out.at([2, .., ..]));
        let (high, low) = x.split::<bf16>();
        let mut whole = high.widen() * 0.0 + 1.0;
        whole.mma(high, one);
        whole.mma(low, one);
        (whole - 1.0).store(out.at([3, .., ..]));
        let (high, low) = x.split::<tf32>();
        let mut exact = Frag::<f32, 16, 16>::zero();
        exact.mma(high, identity.round::<tf32>());
        exact.mma(low, identity.round::<tf32>());
        exact.store(out.at([4, .., ..]));
        let mut part = Frag::<f32, 8, 16>::zero();
        part.mma(x.rows(8..16).round::<bf16>(), one);
        part.columns(8..16).store(out.at([5, 0..8, 0..8]));
        let mapped = (-(-x)).map(|row, column, e| e * 2.0 + (row * 16 + column) as f32);
        mapped.for_each(|row, column, pair| out.at([6, row, column]).store_v(pair));";
    let params = "#[dims(16, 16)] x_in: Global<f32>, #[dims(7, 16, 16)] out: GlobalMut<f32>,";
    let mut random = Random::new(7);
    // 16 significant bits: two bf16 hold them, and so do two tf32.
    let x: Vec<f32> = (0..256).map(|_| random.below(65536) as f32 - 32768.0).collect();
    let mut run = Run::new(&kernel("sm_80", params, body));
    run.tensor("x_in", &x).tensor("out", &vec![f32::NAN; 7 * 256]).tensor("unused", &[0.0f32; 64]);
    let got = run.set("pitch", 64u64).launch(1).read::<f32>("out");
    let rounded = |x: f32| {
        let bits = x.to_bits();
        f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    for i in 0..16 {
        for j in 0..16 {
            let at = |plane: usize, i: usize, j: usize| got[plane * 256 + i * 16 + j];
            let (mine, other) = (x[i * 16 + j], x[j * 16 + i]);
            assert_eq!(at(0, i, j), rounded(mine), "as A, {i}, {j}");
            assert_eq!(at(1, i, j), rounded(other), "as B, {i}, {j}");
            assert_eq!(at(2, i, j), rounded(mine), "transposed as B, {i}, {j}");
            assert_eq!(at(3, i, j), mine, "two bf16 terms, {i}, {j}");
            assert_eq!(at(4, i, j), mine, "two tf32 terms, {i}, {j}");
            if i < 8 && j < 8 {
                assert_eq!(at(5, i, j), rounded(x[(i + 8) * 16 + j + 8]), "a part, {i}, {j}");
            }
            assert_eq!(at(6, i, j), 2.0 * mine + (i * 16 + j) as f32, "mapped, {i}, {j}");
        }
    }
}

/// Two terms of tf32 are the leading 11 bits and the leading 11 of the rest, without an instruction that rounds.
#[test]
fn terms_of_tf32_are_cut() {
    let body = "
        let x = Frag::<f32, 16, 16>::from_fn(|row, column| x_in.at([row, column]).load());
        let (high, low) = x.split::<tf32>();
        high.widen().store(out.at([0, .., ..]));
        low.widen().store(out.at([1, .., ..]));";
    let params = "#[dims(16, 16)] x_in: Global<f32>, #[dims(2, 16, 16)] out: GlobalMut<f32>,";
    let mut random = Random::new(11);
    let x: Vec<f32> = (0..256).map(|i| (random.below(1 << 24) as f32 - 8_388_608.0) * 0.1f32.powi(i % 40)).collect();
    let mut run = Run::new(&kernel("sm_80", params, body));
    run.tensor("x_in", &x).tensor("out", &vec![f32::NAN; 512]).tensor("unused", &[0.0f32; 64]);
    let got = run.set("pitch", 64u64).launch(1).read::<f32>("out");
    let cut = |x: f32| f32::from_bits(x.to_bits() & 0xffff_e000);
    for (i, x) in x.iter().enumerate() {
        let (high, low) = (got[i], got[256 + i]);
        assert_eq!((high, low), (cut(*x), cut(x - cut(*x))), "{x}");
        assert!((f64::from(high) + f64::from(low) - f64::from(*x)).abs() <= f64::from(x.abs()) * 2f64.powi(-20), "{x}");
    }
    assert!(!run.compiled.ptx.contains("cvt.rna"), "{}", run.compiled.ptx);
}

/// Loads and stores by matrix instructions, both orientations, from rows and from every swizzle, against plain indexing.
#[test]
fn matrices_in_shared_memory() {
    let layouts = ["", ", Swizzle<128>", ", Swizzle<64>", ", Swizzle<32>"];
    for (rows, columns) in [(16, 32), (8, 64), (64, 64), (32, 16), (8, 16), (24, 64)] {
        for layout in layouts {
            // Rows of a swizzled tile fill the span.
            let span: u32 = layout.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(2);
            let buffer = |r: u32, c: u32| -> Option<String> {
                (c * 2).is_multiple_of(span).then(|| format!("smem::<bf16, Shape<{r}, {c}>{layout}>()"))
            };
            let (Some(plain), Some(turned)) = (buffer(rows, columns), buffer(columns, rows)) else { continue };
            let size = rows * columns;
            let body = format!(
                "let t = {plain};
                 let u = {turned};
                 let v = {turned};
                 for i in (lane..{size}).step_by(32) {{
                     t[[i / {columns}, i % {columns}]] = x.at([i]).load();
                     v[[i % {columns}, i / {columns}]] = x.at([i]).load();
                 }}
                 cta_sync();
                 let f = Frag::<bf16, {rows}, {columns}>::load(t);
                 let g = Frag::<bf16, {rows}, {columns}>::load_t(v);
                 f.store_t(u);
                 cta_sync();
                 g.store(t);
                 cta_sync();
                 for i in (lane..{size}).step_by(32) {{
                     y.at([0, i]).store(u[[i % {columns}, i / {columns}]]);
                     y.at([1, i]).store(t[[i / {columns}, i % {columns}]]);
                 }}"
            );
            let params = format!("#[dims({size})] x: Global<bf16>, #[dims(2, {size})] y: GlobalMut<bf16>,");
            for arch in ["sm_90", "sm_80"] {
                let mut run = Run::new(&kernel(arch, &params, &body));
                assert!(run.compiled.ptx.contains("ldmatrix") && run.compiled.ptx.contains(".trans"));
                assert_eq!(run.compiled.ptx.contains("stmatrix"), arch == "sm_90");
                let x: Vec<u16> = (0..size as u16).collect();
                run.tensor("x", &x).tensor("y", &vec![0xffffu16; 2 * size as usize]).tensor("unused", &[0.0f32; 64]);
                let got = run.set("pitch", 64u64).launch_everywhere(1).read::<u16>("y");
                assert_eq!(got, [x.clone(), x].concat(), "[{rows}, {columns}]{layout} {arch}");
            }
        }
    }
}

/// Loads under a condition that the warp shares: zeros where it does not hold, from any element of a tile on.
#[test]
fn loads_under_a_condition() {
    let body = "
        let t = smem::<bf16, Shape<32, 64>, Swizzle<128>>();
        for i in (lane..32 * 64).step_by(32) { t[[i / 64, i % 64]] = x.at([i]).load(); }
        cta_sync();
        for i in 0..4 {
            let f = Frag::<bf16, 16, 32>::load_if(i < n, t, [4 * i / 8 * 8, 8 * i]);
            let g = Frag::<bf16, 16, 32>::load_t_if(i + 1 < n, t, [0, 16 * i]);
            let whole = Frag::<bf16, 32, 64>::load_if(i == n, t);
            f.for_each(|row, column, pair| y.at([i, 0, row * 32 + column]).store_v(pair));
            g.for_each(|row, column, pair| y.at([i, 1, row * 32 + column]).store_v(pair));
            whole.for_each(|row, column, pair| z.at([i, row * 64 + column]).store_v(pair));
        }";
    let params =
        "#[dims(2048)] x: Global<bf16>, #[dims(4, 2, 512)] y: GlobalMut<bf16>, #[dims(4, 2048)] z: GlobalMut<bf16>,";
    let x: Vec<u16> = (1..=2048).collect();
    for arch in ["sm_80", "sm_90"] {
        for n in [0u32, 1, 3, 9] {
            let mut run = Run::new(&kernel(arch, params, body));
            assert!(run.compiled.ptx.contains("ldmatrix"));
            run.tensor("x", &x).tensor("y", &[0xffffu16; 4096]).tensor("z", &[0xffffu16; 8192]);
            run.tensor("unused", &[0.0f32; 64]).set("pitch", 64u64).set("n", n).launch_everywhere(1);
            let (y, z) = (run.read::<u16>("y"), run.read::<u16>("z"));
            for i in 0..4usize {
                for at in 0..512 {
                    let (row, column) = (at / 32, at % 32);
                    let plain = x[(4 * i / 8 * 8 + row) * 64 + 8 * i + column];
                    let turned = x[column * 64 + 16 * i + row];
                    let (holds, next) = ((i as u32) < n, (i as u32) + 1 < n);
                    assert_eq!(y[i * 1024 + at], if holds { plain } else { 0 }, "{i} of {n}, {row}, {column}");
                    assert_eq!(
                        y[i * 1024 + 512 + at],
                        if next { turned } else { 0 },
                        "turned {i} of {n}, {row}, {column}"
                    );
                }
                let whole = if i as u32 == n { x.clone() } else { vec![0; 2048] };
                assert_eq!(z[i * 2048..][..2048], whole, "{i} of {n}");
            }
        }
    }
    // By ldmatrix alone, and with a condition that all lanes share.
    for (load, code) in [
        ("Frag::<f32, 16, 32>::load_if(n > 0, unused, [0, 0])", 906),
        ("Frag::<bf16, 16, 32>::load_if(lane < n, t, [0, 0])", 350),
    ] {
        let body = format!("let t = smem::<bf16, Shape<32, 64>, Swizzle<128>>(); let f = {load};");
        assert_eq!(error_of(&kernel("sm_90", params, &body)), code, "{load}");
    }
}

/// The inverse of I + L for a strictly lower triangular L of small integers, column by column: exact.
#[test]
fn rows_and_columns_spread_out() {
    let body = "
        let l = Frag::<f32, 8, 8>::from_fn(|row, column| select(column < row, x.at([row, column]).load(), 0.0));
        let mut inverse = Frag::<f32, 8, 8>::from_fn(|row, column| select(row == column, 1.0, 0.0));
        #[unroll]
        for i in 0..7 {
            inverse = fma(-l.column(i), inverse.row(i), inverse);
        }
        inverse.store(y);";
    let params = "#[dims(8, 8)] x: Global<f32>, #[dims(8, 8)] y: GlobalMut<f32>,";
    let mut random = Random::new(3);
    let x: Vec<f32> = (0..64).map(|_| random.below(5) as f32 - 2.0).collect();
    let mut run = Run::new(&kernel("sm_80", params, body));
    run.tensor("x", &x).tensor("y", &[f32::NAN; 64]).tensor("unused", &[0.0f32; 64]).set("pitch", 64u64);
    let got = run.launch(1).read::<f32>("y");
    for i in 0..8 {
        for j in 0..8 {
            let product: f32 = got[i * 8 + j] + (0..i).map(|k| x[i * 8 + k] * got[k * 8 + j]).sum::<f32>();
            assert_eq!(product, if i == j { 1.0 } else { 0.0 }, "{i}, {j}: {got:?}");
        }
    }
}

/// A fragment that changes in a runtime loop, and one that two branches give.
#[test]
fn fragments_in_loops_and_branches() {
    let body = "
        let one = Frag::<bf16, 8, 16>::from_fn(|row, column| bf16::rn(select(row == column, 1.0, 0.0)));
        let mut sum = Frag::<f32, 16, 8>::zero();
        for i in 0..n {
            let step = Frag::<f32, 16, 16>::from_fn(|row, column| (row + i) as f32);
            sum.mma(step.round::<bf16>(), one);
        }
        let other = if n > 2 { sum + 1.0 } else { sum * 2.0 };
        other.store(out);";
    for n in [0u32, 1, 2, 3, 5] {
        let mut run = Run::new(&kernel("sm_80", "#[dims(16, 8)] out: GlobalMut<f32>,", body));
        run.tensor("out", &[f32::NAN; 128]).tensor("unused", &[0.0f32; 64]).set("pitch", 64u64).set("n", n);
        let got = run.launch(1).read::<f32>("out");
        for (place, got) in got.iter().enumerate() {
            let sum: f32 = (0..n).map(|i| (place as u32 / 8 + i) as f32).sum();
            assert_eq!(*got, if n > 2 { sum + 1.0 } else { sum * 2.0 }, "{n} trips, at {place}");
        }
    }
}

#[test]
fn wrong_fragments_are_errors() {
    let x = "let f = Frag::<f32, 16, 16>::zero(); let h = f.round::<bf16>(); ";
    for (body, code) in [
        ("let f = Frag::<f32, 12, 8>::zero();", 906),
        ("let f = Frag::<u32, 8, 8>::zero();", 906),
        ("let f = Frag::<f32, 8>::zero();", 906),
        ("let f = Frag::<f32, 8, 8>::one();", 167),
        ("let mut c = f; c.mma(f, f);", 906),
        ("let mut c = f; c.mma(h, f.round::<f16>());", 906),
        ("let mut c = f; c.mma(h, f.columns(0..8).round::<bf16>());", 906),
        ("let mut c = f.rows(0..8); c.mma(h, h);", 906),
        ("let g = h.round::<bf16>();", 906),
        ("let g = f.t();", 906),
        ("let g = f.rows(0..4);", 154),
        ("let g = f.rows(8..24);", 154),
        ("let g = f + h;", 156),
        ("let g = f.row(16);", 154),
        ("let g = h.column(0);", 154),
        ("let g = fma(f, f.rows(0..8), 1.0);", 156),
        ("f.store(unused);", 454),
        ("h.store(out);", 906),
        ("let t = smem::<bf16, Shape<8, 16>>(); h.store(t);", 154),
        ("let t = smem::<bf16, Shape<2, 16, 16>>(); h.store(t);", 455),
        ("let g = Frag::<bf16, 16, 16>::load(unused);", 906),
        ("if lane < n { let mut c = f; c.mma(h, h); }", 350),
        ("f.spin();", 158),
        ("let g = f.map(|x| x);", 168),
    ] {
        let source = kernel("sm_90", "#[dims(64, 64)] out: GlobalMut<f32>,", &format!("{x}{body}"));
        assert_eq!(error_of(&source), code, "{body}");
    }
    assert!(
        try_compile(&kernel("sm_90", "#[dims(64, 64)] out: GlobalMut<f32>,", &format!("{x} f.store(out);"))).is_ok()
    );
}
