//! A family with two device libraries, as a user's crate would have it: what the macros expand to.
#![deny(missing_docs, unused, warnings)]

use kda_core::{Arch, Elem, LaunchError, ParamKind, TensorArg};

/// Uses libraries that stand further down, by every kind of path.
#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math, device::deep::tree])]
pub mod scale {
    const K: u32 = 4;

    /// y = scale * x, rows of K.
    #[kernel(block = 128, grid = [n, 1], min_blocks_per_sm = 2)]
    #[roles(load = 0..1, rest = 1..4)]
    #[variants((T, FLAT) in [(1, true), (2, false)], OUT in [bf16, f32], SHIFT in [-1])]
    #[requires(n % T == 0, !twice || n >= 2)]
    fn scale_rows<const T: u32, const FLAT: bool, OUT: Elem, const SHIFT: i32>(
        #[dims(n, K)] x: Global<f32>,
        scale: f32,
        #[dims(n:pitch, K)] y: Option<GlobalMut<OUT>>,
        (twice, offset): (bool, i64),
    ) {
    }

    #[kernel(block = 32, grid = 1)]
    fn nothing() {}
}

/// A kernel whose tensors behind maps may be absent.
#[kda_dsl::kernels(arch = sm_90)]
pub mod absent {
    #[kernel(block = 32, grid = 1)]
    #[requires(rows <= 16)]
    fn copy_rows(
        #[dims(rows, 32)] x: Option<TensorMap<f32, Shape<8, 32>>>,
        #[dims(rows, 32)] y: Option<TensorMapMut<f32, Shape<8, 32>>>,
        #[dims(1)] seen: GlobalMut<u32>,
    ) {
        seen.at([0]).store_if(lane == 0, x.is_present() as u32 + 2 * y.is_present() as u32 + 4 * rows);
    }
}

/// Device libraries.
pub mod device {
    /// Mathematics.
    #[kda_dsl::device_lib]
    pub mod math {
        const ONE: f32 = 1.0;
        fn half(x: f32) -> f32 {
            x * 0.5 * ONE
        }
    }

    /// Below.
    pub mod deep {
        #[kda_dsl::device_lib]
        pub(crate) mod tree {
            fn sum(a: f32, b: f32) -> f32 {
                a + b
            }
        }

        #[kda_dsl::kernels(arch = [sm_90, sm_100f], uses = [super::math, self::tree, tree_two::tree2])]
        pub mod twice {
            #[kernel(block = 32, grid = 1)]
            fn one() {}
        }

        mod tree_two {
            #[kda_dsl::device_lib]
            pub(super) mod tree2 {
                fn sum(a: f32) -> f32 {
                    a
                }
            }
        }
    }

    /// A second library of the same name in another module.
    pub mod other {
        /// Mathematics, again.
        #[kda_dsl::device_lib]
        pub mod math {
            fn third(x: f32) -> f32 {
                x / 3.0
            }
        }
    }
}

/// The other library of that name.
#[kda_dsl::kernels(arch = sm_80, uses = [crate::device::other::math])]
mod private {
    #[kernel(block = 32, grid = 1)]
    fn nothing() {}
}

/// A variant for each of more than 300 values.
#[kda_dsl::kernels(arch = sm_90)]
pub mod many {
    #[kernel(block = 32, grid = 1)]
    #[variants(N in 0..301)]
    fn many<const N: u32>() {}
}

use scale::{DESCS, NOTHING_DESCS, NothingArgs, NothingVariant, SCALE_ROWS_DESCS, ScaleRowsArgs, ScaleRowsVariant};

#[test]
fn variants_have_names_constants_and_descriptions() {
    assert_eq!(DESCS.len(), 5);
    assert_eq!((SCALE_ROWS_DESCS.len(), NOTHING_DESCS.len()), (4, 1));
    assert_eq!(ScaleRowsVariant::ALL.len(), 4);
    let variant = ScaleRowsVariant::T2NoflatF32Shiftm1;
    assert_eq!((variant.t(), variant.flat(), variant.out(), variant.shift()), (2, false, Elem::F32, -1));
    let desc = variant.desc();
    assert_eq!(desc.entry, "scale_rows__t2_noflat_f32_shiftm1");
    assert_eq!(ScaleRowsVariant::find(desc.entry), Some(variant));
    assert_eq!(ScaleRowsVariant::find("scale_rows"), None);
    assert!(std::ptr::eq(desc, &DESCS[variant.index()]));
    assert_eq!((desc.family, desc.kernel, desc.arch, desc.block), ("scale", "scale_rows", Arch::SM_90, 128));
    assert_eq!(desc.constant("OUT"), Some("f32"));
    assert_eq!(desc.hash, kda_core::desc::content_hash(desc.ptx));
    assert_eq!(desc.requires[0].text, "n % T == 0");
    assert_eq!(desc.requires[0].expr.to_string(), "(n % 2) == 0");
    assert_eq!(desc.grid[0].to_string(), "n");
    assert_eq!((desc.roles[1].name, desc.roles[1].first_warp, desc.roles[1].warps), ("rest", 1, 3));
    assert!(desc.source.file.ends_with("tests/family.rs") && desc.source.line > 10, "{:?}", desc.source);
    assert!(matches!(desc.param("pitch").map(|p| p.kind), Some(ParamKind::Stride { tensor: 1, axis: 0 })));
    assert_eq!(NothingVariant::Only.desc().entry, "nothing");
    assert_eq!(NothingArgs {}.args(), []);
    assert!(NothingArgs {}.prepare(NothingVariant::Only, false).is_ok());
    assert_eq!(private::DESCS.len(), 1);
}

#[test]
fn absent_maps_are_zeros_and_a_flag() {
    use absent::{CopyRowsArgs, CopyRowsVariant};
    let rows = |rows: u64| TensorArg::dense(0x1000, 1 << 20, Elem::F32, &[rows, 32]).expect("a tensor");
    let seen = TensorArg::dense(0x2000, 4, Elem::U32, &[1]).expect("a tensor");
    let desc = CopyRowsVariant::Only.desc();
    let word = |launch: &kda_core::PreparedLaunch, name: &str| {
        let at = desc.param(name).expect("a parameter").offset as usize;
        u32::from_le_bytes(launch.params[at..at + 4].try_into().expect("four bytes"))
    };
    for (x, y) in [(None, None), (Some(rows(8)), None), (None, Some(rows(16))), (Some(rows(3)), Some(rows(3)))] {
        let launch = CopyRowsArgs { x, y, seen }.prepare(CopyRowsVariant::Only, false).expect("a launch");
        assert!(launch.params[..256].iter().all(|byte| *byte == 0));
        assert_eq!(launch.maps.len(), usize::from(x.is_some()) + usize::from(y.is_some()));
        assert!(launch.maps.iter().all(|map| map.param.optional));
        assert_eq!(word(&launch, "x_present"), u32::from(x.is_some()));
        assert_eq!(word(&launch, "y_present"), u32::from(y.is_some()));
        assert_eq!(u64::from(word(&launch, "rows")), x.or(y).map_or(0, |tensor| tensor.shape()[0]));
    }
    // What is there is checked as ever: the sizes agree, none is 0, the memory suffices.
    let eligible = |x, y| CopyRowsArgs { x, y, seen }.eligible(CopyRowsVariant::Only);
    assert!(matches!(eligible(Some(rows(8)), Some(rows(9))), Err(LaunchError::WrongSize { param: "y", .. })));
    assert!(matches!(eligible(None, Some(rows(0))), Err(LaunchError::EmptyMap { param: "y", .. })));
    assert!(matches!(eligible(None, Some(rows(17))), Err(LaunchError::Requirement { .. })));
    let short = TensorArg::dense(0x1000, 1023, Elem::F32, &[8, 32]).expect("a tensor");
    assert!(matches!(eligible(Some(short), None), Err(LaunchError::TooFewBytes { param: "x", .. })));
}

#[test]
fn arguments_are_checked_and_packed() {
    let tensor = |elem, rows: u64| TensorArg::dense(0x1000, 4096, elem, &[rows, 4]).expect("a tensor");
    let mut args =
        ScaleRowsArgs { x: tensor(Elem::F32, 6), scale: 0.5, y: Some(tensor(Elem::BF16, 6)), twice: true, offset: -1 };
    let launch = args.prepare(ScaleRowsVariant::T2NoflatBf16Shiftm1, false).expect("a launch");
    assert_eq!(launch.grid, [6, 1, 1]);
    assert_eq!(launch.params[..8], 0x1000u64.to_le_bytes());
    assert_eq!(launch.params[16..20], 0.5f32.to_le_bytes());
    assert_eq!(launch.params[20], 1);
    assert_eq!(launch.params[24..32], (-1i64).to_le_bytes());
    assert_eq!(launch.params[32..36], 6u32.to_le_bytes());
    assert_eq!(launch.params[40..48], 4u64.to_le_bytes());
    assert!(matches!(
        args.eligible(ScaleRowsVariant::T1FlatF32Shiftm1),
        Err(LaunchError::WrongElem { param: "y", .. })
    ));
    args.x = tensor(Elem::F32, 5);
    args.y = None;
    assert!(matches!(args.eligible(ScaleRowsVariant::T2NoflatBf16Shiftm1), Err(LaunchError::Requirement { .. })));
    assert_eq!(args.eligible(ScaleRowsVariant::T1FlatBf16Shiftm1), Ok(()));
}

#[test]
fn a_family_for_two_architectures() {
    use device::deep::twice::OneVariant;
    assert_eq!(OneVariant::Sm90.desc().entry, "one__sm_90");
    assert_eq!(OneVariant::Sm100f.desc().arch, Arch::SM_100F);
}

#[test]
fn many_variants_are_numbered() {
    assert_eq!(many::ManyVariant::ALL.len(), 301);
    assert_eq!(many::ManyVariant::ALL[300].n(), 300);
    assert_eq!(many::ManyVariant::find("many__n7").map(|v| v.index()), Some(7));
}
