//! Optional tensor maps: presence, copies that it guards, and a copy through one that is not there.

use super::harness::{Run, error_of, try_compile};
use kda_sim::Options;

/// Adds 1 to the tile of `x`, or takes 7 where there is none; `out` gets it as a tile, `y` element by element.
fn source(guard: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 0..1, math = 1..2)]
    fn k(
        #[dims(rows, 32)] x: Option<TensorMap<f32, Shape<8, 32>>>,
        #[dims(rows_out, 32)] out: Option<TensorMapMut<f32, Shape<8, 32>>>,
        #[dims(8, 32)] y: GlobalMut<f32>,
    ) {{
        let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, 1>() }};
        let held = smem::<f32, Shape<8, 32>>();
        let here = {guard};
        #[role(load)]
        #[elect_one]
        for i in 0..1 {{
            let slot = ring.acquire();
            slot.v.tma_load_if(here, x, [0, 0]);
            slot.commit();
        }}
        #[role(math)]
        {{
        let slot = ring.wait();
        for r in 0..8 {{
            let mut v = 7.0;
            if here {{
                v = slot.v[[r, lane]] + 1.0;
            }}
            held.at([r, lane]).store(v);
            y.at([r, lane]).store(v + rows as f32);
        }}
        slot.release();
        warp_sync();
        if out.is_present() {{
            #[elect_one]
            {{
                tma::store(out, [0, 0], held);
                bulk::commit();
                bulk::wait::<0>();
            }}
        }}
        }}
    }}
}}"
    )
}

#[test]
fn presence_guards_copies() {
    let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    for (has_x, has_out) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut run = Run::new(&source("x.is_present()"));
        run.assemble();
        run.tensor("y", &[0f32; 256]);
        if has_x {
            run.map("x", &x, &[8, 32]).set("rows", 8u32);
        }
        if has_out {
            run.map("out", &[-1f32; 256], &[8, 32]).set("rows_out", 8u32);
        }
        run.launch_everywhere(1);
        let (y, rows) = (run.read::<f32>("y"), if has_x { 8.0 } else { 0.0 });
        let expected: Vec<f32> = x.iter().map(|v| if has_x { v + 1.0 } else { 7.0 }).collect();
        assert_eq!(y, expected.iter().map(|v| v + rows).collect::<Vec<_>>());
        if has_out {
            assert_eq!(run.read::<f32>("out"), expected);
        }
    }
}

#[test]
fn copies_through_an_absent_map_are_faults() {
    let mut run = Run::new(&source("true"));
    let report = run.tensor("y", &[0f32; 256]).try_launch(1, &Options::default()).expect_err("a fault");
    assert!(report.to_string().contains("the tensor map at byte 0 of the parameters is absent"), "{report}");
    let mut run = Run::new(&source("x.is_present()").replace("if out.is_present() {", "if true {"));
    let report = run.tensor("y", &[0f32; 256]).try_launch(1, &Options::default()).expect_err("a fault");
    assert!(report.to_string().contains("the tensor map at byte 128 of the parameters is absent"), "{report}");
}

#[test]
fn presence_costs_nothing_where_nobody_asks() {
    let kernel = |ty: &str| {
        let text = source("true").replace("if out.is_present() {", "if true {");
        let text = text.replace("Option<TensorMap<f32, Shape<8, 32>>>", ty);
        let compiled = try_compile(&text).expect("a kernel").remove(0);
        compiled.ptx.lines().filter(|line| line.contains("ld.param")).map(str::to_string).collect::<Vec<_>>()
    };
    let (optional, plain) = (kernel("Option<TensorMap<f32, Shape<8, 32>>>"), kernel("TensorMap<f32, Shape<8, 32>>"));
    assert_eq!(optional, plain);
    assert!(!optional.iter().any(|line| line.contains("_present")), "{optional:?}");
}

/// Flags of bytes that may be absent, indices of 64 bits.
#[test]
fn absent_bytes_and_long_integers() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(n)] flags: Option<Global<u8>>, #[dims(33)] ends: Global<i64>, #[dims(32)] y: GlobalMut<u32>) {
        let length = ends.at([lane + 1]).load() - ends.at([lane]).load();
        let flag = flags.at([lane]).load() as u32;
        let good = length >= 0 && length <= 4096;
        let mut r = 0;
        if good {
            r = length as u32;
        }
        y.at([lane]).store(r + 10000 * flag + 100000 * flags.is_present() as u32);
    }
}";
    let ends: Vec<i64> = (0..33).map(|i| if i == 7 { -5 } else { i * i + (i64::from(i == 20) << 40) }).collect();
    let flags: Vec<u8> = (0..32).map(|i| (i * 9) as u8).collect();
    for present in [false, true] {
        let mut run = Run::new(source);
        run.tensor("ends", &ends).tensor("y", &[0u32; 32]).set("n", 32u32);
        if present {
            run.tensor("flags", &flags);
        }
        let y = run.launch_everywhere(1).read::<u32>("y");
        for lane in 0..32 {
            let length = ends[lane + 1] - ends[lane];
            let length = if (0..=4096).contains(&length) { length as u32 } else { 0 };
            let flag = if present { 100_000 + 10_000 * u32::from(flags[lane]) } else { 0 };
            assert_eq!(y[lane], length + flag, "{lane}");
        }
    }
}

#[test]
fn options_hold_one_tensor() {
    let nested =
        source("true").replace("Option<TensorMap<f32, Shape<8, 32>>>", "Option<Option<TensorMap<f32, Shape<8, 32>>>>");
    assert_eq!(error_of(&nested), 111);
}

/// A selected view has one address, and a map has none that could be selected.
#[test]
fn maps_are_not_selected_between() {
    let text = source("true").replace("let here", "let either = select(rows == 8, x, z);\n        let here").replace(
        "Option<TensorMap<f32, Shape<8, 32>>>,",
        "TensorMap<f32, Shape<8, 32>>,\n        #[dims(rows, 32)] z: TensorMap<f32, Shape<8, 32>>,",
    );
    assert!(try_compile(&text.replace("select(rows == 8, x, z)", "x")).is_ok());
    assert_eq!(error_of(&text), 156);
}
