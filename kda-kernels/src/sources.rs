//! The text of every family, and of the device libraries that it uses: for tools that compile changed kernels.

/// A kernel module as its author wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Family: the name of the module.
    pub family: &'static str,
    /// Text of its file.
    pub text: &'static str,
    /// Texts of the device libraries in `uses`.
    pub libraries: &'static [&'static str],
}

const DRAFT: &str = include_str!("device/draft.rs");
const HALVES: &str = include_str!("device/halves.rs");
const MATH: &str = include_str!("device/math.rs");
const SOLVE: &str = include_str!("device/solve.rs");
const STATES: &str = include_str!("device/states.rs");
const STEP: &str = include_str!("device/step.rs");
const WORK: &str = include_str!("device/work.rs");

const fn plain(family: &'static str, text: &'static str) -> Source {
    Source { family, text, libraries: &[] }
}

/// One source a family, in the order of [`crate::all`].
pub const SOURCES: [Source; 19] = [
    plain("scale_add", include_str!("families/scale_add.rs")),
    plain("add", include_str!("ladder/rung1_add.rs")),
    plain("tile_copy", include_str!("ladder/rung2_tile_copy.rs")),
    plain("ring_sum", include_str!("ladder/rung3_ring_sum.rs")),
    plain("role_silu", include_str!("ladder/rung4_role_silu.rs")),
    plain("product", include_str!("ladder/rung5_product.rs")),
    plain("chained_product", include_str!("ladder/rung6_chained_product.rs")),
    plain("cluster_sum", include_str!("ladder/rung7_cluster_sum.rs")),
    plain("blackwell_product", include_str!("ladder/rung8_blackwell_product.rs")),
    Source { family: "gemm", text: include_str!("families/gemm.rs"), libraries: &[MATH] },
    Source { family: "conv_verify", text: include_str!("families/conv_verify.rs"), libraries: &[MATH, STEP] },
    Source { family: "decode", text: include_str!("families/decode.rs"), libraries: &[MATH, STEP] },
    Source { family: "delta_h_schedule", text: include_str!("families/delta_h/schedule.rs"), libraries: &[WORK] },
    Source { family: "delta_h", text: include_str!("families/delta_h/recurrence.rs"), libraries: &[WORK, STATES] },
    Source {
        family: "delta_h_narrow",
        text: include_str!("families/delta_h/narrow.rs"),
        libraries: &[WORK, STATES, HALVES],
    },
    Source {
        family: "delta_h_portable",
        text: include_str!("families/delta_h/portable.rs"),
        libraries: &[WORK, STATES],
    },
    Source { family: "tc_verify", text: include_str!("families/tc_verify/hopper.rs"), libraries: &[DRAFT, SOLVE] },
    Source {
        family: "tc_verify_portable",
        text: include_str!("families/tc_verify/portable.rs"),
        libraries: &[DRAFT, SOLVE],
    },
    Source { family: "tc_commit", text: include_str!("families/tc_commit.rs"), libraries: &[MATH, STEP] },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_family_has_its_text() {
        let mut families: Vec<&str> = crate::all().map(|desc| desc.family).collect();
        families.dedup();
        assert_eq!(super::SOURCES.map(|source| source.family).to_vec(), families);
        for source in super::SOURCES {
            assert!(source.text.contains(&format!("pub mod {} {{", source.family)), "{}", source.family);
        }
    }

    #[test]
    fn every_library_in_use_is_given() {
        for source in super::SOURCES {
            for (name, library) in [
                ("draft", super::DRAFT),
                ("halves", super::HALVES),
                ("math", super::MATH),
                ("solve", super::SOLVE),
                ("states", super::STATES),
                ("step", super::STEP),
                ("work", super::WORK),
            ] {
                let used = source.text.contains(&format!("crate::device::{name}"));
                assert_eq!(used, source.libraries.contains(&library), "`{name}` of {}", source.family);
            }
        }
    }
}
