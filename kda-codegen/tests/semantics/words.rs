//! Pairs of 16-bit elements as words, and fragments from what lanes hold.

use super::harness::{Random, Run, error_of};

/// Rounded to bf16, ties to even.
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn kernel(body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 32, grid = 1)]
    #[requires(pitch % 8 == 0)]
    fn k(
        #[dims(rows:pitch, 64)] x: Global<bf16>, #[dims(rows:odd, 64)] z: Global<bf16>,
        #[dims(32, 32)] words: GlobalMut<u32>, #[dims(32, 32)] y: GlobalMut<f32>, n: u32,
    ) {{
        {body}
        y.at([31, lane]).store_if(n == 7, x[[n, lane]] as f32 + z[[n, lane]] as f32);
        words.at([31, lane]).store_if(n == 7, 0);
    }}
}}"
    )
}

fn run(body: &str) -> (Vec<u16>, Run) {
    let mut random = Random::new(1);
    let x: Vec<u16> = (0..4 * 64).map(|_| rounded(random.below(1000) as f32 * 0.37 - 100.0)).collect();
    let mut run = Run::new(&kernel(body));
    let bytes: Vec<u32> = x.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect();
    run.tensor("x", &bytes).tensor("z", &bytes).set("rows", 4u32).set("pitch", 64u64).set("odd", 64u64).set("n", 2u32);
    run.tensor("words", &[0u32; 1024]).tensor("y", &[0.0f32; 1024]).launch(1);
    (x, run)
}

/// Halves of two words make a word in one instruction, whichever they are; those of one word in their order are the word.
#[test]
fn halves_of_two_words_are_picked() {
    let (x, run) = run("
        let (a, b) = (x.at([0]).cast::<u32>().at([lane]).load(), x.at([1]).cast::<u32>().at([lane]).load());
        let (p, q) = (bf16::from_bits(a), bf16::from_bits(b));
        words.at([0, lane]).store([p[0], q[0]].to_bits());
        words.at([1, lane]).store([p[0], q[1]].to_bits());
        words.at([2, lane]).store([p[1], q[0]].to_bits());
        words.at([3, lane]).store([p[1], q[1]].to_bits());
        words.at([4, lane]).store([p[1], p[0]].to_bits());
        words.at([5, lane]).store([p[0], p[0]].to_bits());
        words.at([6, lane]).store([p[0], p[1]].to_bits());");
    let words = run.read::<u32>("words");
    for lane in 0..32 {
        let half = |row: usize, at: usize| u32::from(x[64 * row + 2 * lane + at]);
        let pairs = [
            (half(0, 0), half(1, 0)),
            (half(0, 0), half(1, 1)),
            (half(0, 1), half(1, 0)),
            (half(0, 1), half(1, 1)),
            (half(0, 1), half(0, 0)),
            (half(0, 0), half(0, 0)),
            (half(0, 0), half(0, 1)),
        ];
        for (row, (low, high)) in pairs.into_iter().enumerate() {
            assert_eq!(words[32 * row + lane], low | high << 16, "{row}, lane {lane}");
        }
    }
    assert_eq!(run.compiled.ptx.matches("prmt.b32").count(), 6, "{}", run.compiled.ptx);
}

/// Neighbours of a row as one word, whole vectors of them, and back; rounding by twos.
#[test]
fn pairs_are_words() {
    let (x, run) = run("
        words.at([0, lane]).store(x.at([n]).cast::<u32>().at([lane]).load_if(lane != 3));
        let row = x.at([1]).cast::<u32>();
        let four = row.at([4 * (lane % 8)]).load_v::<4>();
        words.at([1, lane]).store(four[3] ^ four[0]);
        words.at([2, lane]).store(x.at([3, 2 * lane..]).cast::<u32>().at([0]).load());
        words.at([3, lane]).store(bf16::from_bits(row.at([lane]).load()).to_bits());
        let half = bf16::from_bits(row.at([lane]).load());
        y.at([0, lane]).store(half[0] as f32 - half[1] as f32);
        let value = [0.1 + lane as f32, lane as f32 * 1.37, 3.3, n as f32 * 0.3];
        let low = bf16::rn(value);
        words.at([4, lane]).store([low[0], low[1]].to_bits());
        words.at([5, lane]).store([low[2], low[3]].to_bits());
        words.at([6, lane]).store(f16::rn([value[0], value[1]]).to_bits());
        words.at([7, lane]).store([f16::rn(value[0]), f16::rn(value[1])].to_bits());");
    let words = run.read::<u32>("words");
    let word = |row: usize, at: usize| u32::from(x[64 * row + 2 * at]) | u32::from(x[64 * row + 2 * at + 1]) << 16;
    let wide = |half: u16| f32::from_bits(u32::from(half) << 16);
    for lane in 0..32 {
        assert_eq!(words[lane], if lane == 3 { 0 } else { word(2, lane) });
        assert_eq!(words[32 + lane], word(1, lane % 8 * 4 + 3) ^ word(1, lane % 8 * 4));
        assert_eq!(words[64 + lane], word(3, lane));
        assert_eq!(words[96 + lane], word(1, lane));
        assert_eq!(run.read::<f32>("y")[lane], wide(x[64 + 2 * lane]) - wide(x[64 + 2 * lane + 1]));
        let pair = |a: f32, b: f32| u32::from(rounded(a)) | u32::from(rounded(b)) << 16;
        assert_eq!(words[128 + lane], pair(0.1 + lane as f32, lane as f32 * 1.37));
        assert_eq!(words[160 + lane], pair(3.3, 2.0 * 0.3));
        assert_eq!(words[192 + lane], words[224 + lane]);
    }
    for (body, code) in [
        ("let a = x.cast::<u32>();", 455),
        ("let a = z.at([n]).cast::<u32>();", 450),
        ("let a = x.at([n, lane..]).cast::<u32>();", 450),
        ("let a = x.at([n]).cast::<u8>();", 453),
        ("let a = words.at([n]).cast::<bf16>();", 453),
        ("let a = x.at([n]).cast();", 157),
        ("let a = [1.0, 2.0].to_bits();", 156),
        ("let a = [x[[0, 0]]; 3].to_bits();", 156),
    ] {
        assert_eq!(error_of(&kernel(body)), code, "{body}");
    }
}

/// What lanes hold, and fragments at runtime places of views.
#[test]
fn fragments_of_pairs_and_at_places() {
    let (x, run) = run("
        let t = smem::<bf16, Shape<16, 64>, Swizzle<128>>();
        let plain = smem::<f32, Shape<16, 36>>();
        #[unroll]
        for i in 0..16 {
            t[[i, lane]] = x.at([i / 4, (lane + 4 * (i % 4)) % 64]).load();
            t[[i, lane + 32]] = x.at([i / 4, (lane + 32 + 4 * (i % 4)) % 64]).load();
        }
        cta_sync();
        let f = Frag::<bf16, 8, 16>::load(t, [8, 16 * n]);
        let g = Frag::<f32, 8, 16>::from_pairs(f.widen().pairs().map(|p| [p[1], p[0]]));
        g.store(plain, [8 * (n - 1), 16]);
        Frag::<f32, 8, 16>::from_pairs(f.pairs().map(|p| p as f32)).store(plain, [n - 2, 0]);
        Frag::<bf16, 8, 8>::from_pairs([f.pairs()[0]]).t().store_t(t, [0, 8 * n]);
        cta_sync();
        #[unroll]
        for i in 0..16 {
            y.at([i, lane]).store_if((i < 8) == (lane < 16), plain.at([i, lane]).load_if((i < 8) == (lane < 16)));
        }
        #[unroll]
        for i in 0..8 {
            y.at([16 + i, lane]).store(t[[i, 16 + lane % 8]] as f32);
        }");
    let wide = |i: usize, column: usize| f32::from_bits(u32::from(x[i / 4 * 64 + (column + 4 * (i % 4)) % 64]) << 16);
    let y = run.read::<f32>("y");
    for i in 0..8 {
        for j in 0..16 {
            assert_eq!(y[(8 + i) * 32 + 16 + j], wide(8 + i, 32 + (j ^ 1)), "{i} {j}");
            assert_eq!(y[i * 32 + j], wide(8 + i, 32 + j), "{i} {j}");
        }
        (0..8).for_each(|j| assert_eq!(y[(16 + i) * 32 + j], wide(8 + i, 32 + j), "{i} {j}"));
    }
    for (body, code) in [
        ("let f = Frag::<f32, 8, 8>::from_pairs([[1.0, 2.0]; 2]);", 906),
        ("let f = Frag::<f32, 8, 8>::from_pairs(3.0);", 906),
        ("let t = smem::<f32, Shape<16, 16>>(); let f = Frag::<f32, 16, 8>::load(t, [8, 0]);", 154),
        ("let t = smem::<f32, Shape<16, 16>>(); let f = Frag::<f32, 16, 8>::load(t, 8);", 157),
    ] {
        assert_eq!(error_of(&kernel(body)), code, "{body}");
    }
}

/// Products of 16-bit floats are rounded once: of one, of two neighbours, of a known one.
#[test]
fn products_of_halves() {
    let (x, run) = run("
        let (a, b) = (x.at([0]).cast::<u32>().at([lane]).load(), x.at([1]).cast::<u32>().at([lane]).load());
        words.at([0, lane]).store((bf16::from_bits(a) * bf16::from_bits(b)).to_bits());
        let product = bf16::from_bits(a)[0] * bf16::from_bits(b)[1];
        words.at([1, lane]).store(product.to_bits() as u32);
        let four = [bf16::from_bits(a)[0], bf16::from_bits(a)[1], bf16::from_bits(b)[0], bf16::from_bits(b)[1]];
        let squares = four * four;
        words.at([2, lane]).store([squares[1], squares[2]].to_bits());
        words.at([3, lane]).store((bf16::from_bits(a) * bf16::rn(0.7)).to_bits());
        let f = f16::rn([bf16::from_bits(a)[0] as f32, 0.3]) * f16::rn([0.1, 0.7]);
        y.at([0, lane]).store(f[0] as f32);");
    let words = run.read::<u32>("words");
    let wide = |half: u16| f32::from_bits(u32::from(half) << 16);
    for lane in 0..32 {
        let (a, b) = ([x[2 * lane], x[2 * lane + 1]].map(wide), [x[64 + 2 * lane], x[64 + 2 * lane + 1]].map(wide));
        let pair = |low: f32, high: f32| u32::from(rounded(low)) | u32::from(rounded(high)) << 16;
        assert_eq!(words[lane], pair(a[0] * b[0], a[1] * b[1]));
        assert_eq!(words[32 + lane], u32::from(rounded(a[0] * b[1])));
        assert_eq!(words[64 + lane], pair(a[1] * a[1], b[0] * b[0]));
        let known = wide(rounded(0.7));
        assert_eq!(words[96 + lane], pair(a[0] * known, a[1] * known));
        let near = f64::from(a[0]) * 0.1;
        assert!((f64::from(run.read::<f32>("y")[lane]) - near).abs() <= near.abs() / 500.0);
    }
    let pair = "let a = bf16::from_bits(n);";
    assert_eq!(error_of(&kernel(&format!("{pair} let b = a + a;"))), 156);
    assert_eq!(error_of(&kernel(&format!("{pair} let b = a * 2.0;")).replace("sm_90a", "sm_80")), 156);
    assert_eq!(error_of(&kernel(&format!("{pair} let b = a * a;")).replace("sm_90a", "sm_80")), 156);
}
