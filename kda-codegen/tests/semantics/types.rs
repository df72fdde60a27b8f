//! Narrow types, conversions, bits.

use super::harness::{Random, Run, check, error_of, source};

#[test]
fn casts_to_narrow_types_drop_bits() {
    check("let x = a as u8; let y = b as u16; let r = x as u32 + (y as u32) * 1000;", |i| {
        u32::from(i.a as u8) + u32::from(i.b as u16) * 1000
    });
    check("let x = m as u8; let r = (x as i32) as u32;", |i| u32::from(i.m as u8));
    check("let x = (a % 2000) as f32 as u8; let r = x as u32;", |i| u32::from((i.a % 2000) as f32 as u8));
    check("let x = (m % 1000) as f32 * 1.5; let r = x as u32 + (x as i32) as u32;", |i| {
        let x = (i.m % 1000) as f32 * 1.5;
        (x as u32).wrapping_add(x as i32 as u32)
    });
}

#[test]
fn narrow_values_join_and_select() {
    check(
        "let x = a as u8; let y = b as u8; let z = select(a < b, x, y); let mut w = z; if n > 1 { w = y; } for i in 0..n { w = (w as u32 + i) as u8; } let r = w as u32;",
        |i| {
            let (x, y) = (i.a as u8, i.b as u8);
            let mut w = if i.a < i.b { x } else { y };
            if i.n > 1 {
                w = y;
            }
            for k in 0..i.n {
                w = w.wrapping_add(k as u8);
            }
            u32::from(w)
        },
    );
    check("let x = bf16::rn(a as f32); let y = select(a < b, x, bf16::ZERO); let r = y.to_bits() as u32;", |i| {
        let bits = (i.a as f32).to_bits();
        let rounded = (u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16;
        if i.a < i.b { rounded as u32 } else { 0 }
    });
}

#[test]
fn bits_keep_their_width() {
    check("let f = f32::from_bits(a); let r = f.to_bits() + u32::from_bits(b as i32);", |i| i.a.wrapping_add(i.b));
    assert_eq!(error_of(&source("", "let x = a as u8; let y = u16::from_bits(x); let r = y as u32;")), 156);
    for body in [
        "let x = a as u8; let r = !x as u32;",
        "let x = (a as u8) + 1; let r = a;",
        "let x = (a as u16) << 1; let r = a;",
    ] {
        assert_eq!(error_of(&source("", body)), 156, "{body}");
    }
}

#[test]
fn half_constants() {
    check("let x: f16 = 1.5; let y = x as f32; let z: f16 = 0.1; let r = y.to_bits() ^ z.to_bits() as u32;", |_| {
        1.5f32.to_bits() ^ 0x2e66
    });
}

#[test]
fn tensors_of_every_element() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(
        #[dims(n)] bytes: Global<u8>, #[dims(n)] words: GlobalMut<u16>, #[dims(n)] longs: GlobalMut<i64>,
        #[dims(n)] to: GlobalMut<u8>, #[dims(n)] absent: Option<GlobalMut<u8>>, flag: bool, wide: u64, signed: i64,
    ) {
        let tile = smem::<u8, Shape<64>>();
        let x = bytes.at([tid]).load_if(tid < n);
        tile[[63 - tid]] = x;
        cta_sync();
        let y = tile[[tid]];
        let z = select(flag, y, absent.at([tid]).load());
        to.at([tid]).store_if(tid < n, z);
        absent.at([tid]).store(z);
        words.at([tid]).store_if(tid < n, (y as u32 * 257) as u16);
        longs.at([tid]).store_if(tid < n, (wide >> 3) as i64 - signed * (y as i64));
    }
}";
    let mut random = Random::new(0);
    let bytes: Vec<u8> = (0..64).map(|_| random.bits() as u8).collect();
    let (wide, signed) = (random.bits(), -(random.below(1000) as i64));
    let mut run = Run::new(source);
    run.tensor("bytes", &bytes).tensor("words", &[0u16; 64]).tensor("longs", &[0i64; 64]).tensor("to", &[0u8; 64]);
    run.set("n", 64u32).set("flag", 1u8).set("wide", wide).set("signed", signed).launch(1);
    for i in 0..64usize {
        let y = bytes[63 - i];
        assert_eq!(run.read::<u8>("to")[i], y);
        assert_eq!(run.read::<u16>("words")[i], u16::from(y) * 257);
        assert_eq!(run.read::<i64>("longs")[i], (wide >> 3) as i64 - signed * i64::from(y));
    }
    run.set("flag", 0u8).launch(1);
    assert_eq!(run.read::<u8>("to"), [0; 64]);
}

#[test]
fn impossible_vectors_are_errors() {
    let kernel = |body: &str| {
        format!(
            "#[kernels(arch = sm_90)] mod family {{
            #[kernel(block = 32, grid = 1)]
            fn k(#[dims(64)] x: Global<u8>, #[dims(64)] y: GlobalMut<u32>) {{ {body} }} }}"
        )
    };
    assert_eq!(error_of(&kernel("let v = x.at([0]).load_v::<8>();")), 451);
    assert_eq!(error_of(&kernel("let t = smem::<u8, Shape<64>>(); let v = t.at([0]).load_v::<8>();")), 451);
    assert_eq!(error_of(&kernel("let t = smem::<bool, Shape<64>>();")), 402);
    let nothing = "from_fn::<0>(|i| i as u32)";
    for place in
        ["y.at([0])", "smem::<u32, Shape<64>>().at([0])", "smem::<u32, Shape<8, 32>, Swizzle<128>>().at([0, 0])"]
    {
        for store in
            [format!("store_v({nothing})"), format!("store({nothing})"), format!("store_v_if(tid == 0, {nothing})")]
        {
            assert_eq!(error_of(&kernel(&format!("let t = {place}; t.{store};"))), 451, "{place}.{store}");
        }
    }
}
