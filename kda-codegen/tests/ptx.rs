//! The PTX of two kernels, so that a change of the lowering is seen. `INSTA_UPDATE=always cargo test --test ptx` writes the
//! snapshots anew; read the difference before keeping it.

use kda_codegen::{signature, specialise, syntax, variants};

/// The text of the first variant, without the name of the source file.
fn ptx(source: &str) -> String {
    let family = syntax::parse_family(&source.replace("//!", "//")).expect("a kernel module");
    let kernel = &family.kernels[0];
    let variant = &variants::expand(&family, kernel).expect("variants")[0];
    let resolved = signature::resolve(&family, kernel, variant).expect("a signature");
    let compiled = specialise::compile_variant(&family, kernel, variant, &resolved).expect("a text");
    compiled.ptx.lines().filter(|line| !line.starts_with(".file")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn scale_add() {
    let text = ptx(include_str!("../../kda-kernels/src/families/scale_add.rs"));
    insta::assert_snapshot!("scale_add", text);
}

#[test]
fn roles_with_a_named_barrier_and_a_bulk_store() {
    let text = ptx("#[kernels(arch = sm_90)]
mod family {
    /// Doubles rows of 64 and hands them to a bulk copy.
    #[kernel(block = 96, grid = rows)]
    #[roles(math = 0..2, store = 2..3)]
    #[requires(pitch % 4 == 0)]
    fn double(#[dims(rows:pitch, 64)] x: Global<f32>, #[dims(rows, 64)] y: GlobalMut<f32>, trips: u32) {
        let row = smem::<f32, Shape<64>>();
        let full = NamedBarrier { between: (math, store) };
        #[role(math)]
        {
            let mut sum = 0.0;
            for i in 0..trips {
                sum += x.at([ctaid.x, tid]).load();
            }
            row[[tid]] = sum;
            full.arrive();
        }
        #[role(store)]
        {
            full.sync();
            if lane == 0 {
                bulk::store(y.at([ctaid.x]), row);
                bulk::commit();
                bulk::wait_read::<0>();
            }
        }
    }
}");
    insta::assert_snapshot!("roles", text);
}
