//! The kernels that are changed: one variant a design, with its source and with what it gives unchanged.

use super::run::{self, Sample};
use super::{Mutant, ptx, source};
use crate::checks::{self, operators};
use kda_codegen::compiled::Compiled;
use kda_codegen::diag::Diagnostic;
use kda_codegen::specialise::{self, Arrivals};
use kda_codegen::{signature, syntax, variants};
use kda_core::KernelDesc;
use kda_kernels::{SOURCES, Source};

/// The variant that stands for a kernel with several. `conv_verify` has two designs: rows over 32 lanes with an output
/// that is staged, and rows over 8 lanes, here in several passes; each with one of the pools of engines. `decode` has two: sums by shuffles with a warp that does nothing
/// but roll, and sums through shared memory.
const CHOSEN: [&str; 8] = [
    "scale_add__block128",
    "cluster_sum__ctas2",
    "gemm_ws__bn256_stages4_ctas2_bf16_silu",
    "conv_verify__bv64_lanes32_ctas2_f32_noinner_t2_nolong",
    "conv_verify__bv32_lanes8_ctas1_bf16_inner_t8_long",
    "decode__bv32_lanes8_threads128_extra1_ctas4_f32_nok_first",
    "decode__bv32_lanes1_threads128_extra0_ctas4_bf16_k_first",
    "tc_commit__rows32_bf16_most8_boundary_sm_90",
];

/// One variant of every shipped design.
pub fn chosen(kernels: &[&'static KernelDesc]) -> Vec<&'static KernelDesc> {
    let alone = |desc: &KernelDesc| kernels.iter().filter(|d| d.kernel == desc.kernel).count() == 1;
    kernels.iter().copied().filter(|desc| alone(desc) || CHOSEN.contains(&desc.entry)).collect()
}

/// A kernel to be changed.
pub struct Subject {
    /// The shipped kernel.
    pub desc: &'static KernelDesc,
    /// Its operator, which makes its sample problem and judges the results.
    pub operator: checks::Operator,
    /// Its source.
    pub source: &'static Source,
    /// Seed of inputs and schedules.
    pub seed: u64,
    /// What it gives on each problem.
    pub right: Vec<Sample>,
}

impl Subject {
    /// Runs the unchanged kernel under every schedule. An error is one line: what it lacks, or what is wrong with it.
    pub fn new(desc: &'static KernelDesc, seed: u64) -> Result<Subject, String> {
        let missing = |what: &str| format!("{}: this build has no {what} for the family {}", desc.entry, desc.family);
        let operator = operators().into_iter().find(|o| o.name == desc.family).ok_or_else(|| missing("operator"))?;
        let source = SOURCES.iter().find(|s| s.family == desc.family).ok_or_else(|| missing("source"))?;
        let right = (seed..seed.wrapping_add(run::PROBLEMS)).map(|seed| run::right(desc, &operator, seed));
        let right = right.collect::<Result<Vec<_>, _>>()?;
        Ok(Subject { desc, operator, source, seed, right })
    }

    /// Its mutants, of both levels.
    pub fn mutants(&self) -> Result<Vec<Mutant>, String> {
        let failed = |cause: String| format!("{}: {cause}", self.desc.entry);
        let mut found = ptx::mutants(self.desc.entry, self.desc.ptx).map_err(|cause| failed(cause.to_string()))?;
        found.extend(source::mutants(self.desc.entry, self.source.text).map_err(failed)?);
        Ok(found)
    }

    /// True if the shipped text names a place on a line of the source.
    pub fn has_line(&self, line: u32) -> bool {
        let mut places = self.desc.ptx.lines().filter_map(|text| text.trim_start().strip_prefix(".loc "));
        places.any(|place| place.split(' ').nth(1).and_then(|text| text.parse().ok()) == Some(line))
    }

    /// Compiles this variant from a text of its family.
    pub fn compile(&self, text: &str) -> Result<Compiled, Vec<Diagnostic>> {
        compile(self.desc, self.source, text)
    }
}

/// Compiles a variant from a text of its family.
pub fn compile(desc: &KernelDesc, source: &Source, text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    compile_with_arrivals(desc, source, text, Arrivals::Warp)
}

/// The same; stages are handed over as `arrivals` says.
pub fn compile_with_arrivals(
    desc: &KernelDesc,
    source: &Source,
    text: &str,
    arrivals: Arrivals,
) -> Result<Compiled, Vec<Diagnostic>> {
    // Documentation of the file stands behind the libraries here.
    let whole: String = source.libraries.iter().chain([&text]).map(|text| text.replace("//!", "//")).collect();
    let family = syntax::parse_family(&whole)?;
    for kernel in &family.kernels {
        for variant in variants::expand(&family, kernel)? {
            if variant.entry == desc.entry && variant.arch == desc.arch {
                let resolved = signature::resolve(&family, kernel, &variant)?;
                let compiled = specialise::compile_with_arrivals(&family, kernel, &variant, &resolved, arrivals);
                return compiled.map_err(|error| vec![*error]);
            }
        }
    }
    let message = format!("the text has no variant `{}`", desc.entry);
    Err(vec![*Diagnostic::new(114, proc_macro2::Span::call_site(), message)])
}

/// A text without the names of its files, and without places in them.
pub fn code(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter(|line| !line.starts_with(".file") && !line.trim_start().starts_with(".loc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels that are not changed at random: what is wrong with changed ones is in `tests/wrong_delta_h.rs`.
    const UNCHANGED: [&str; 8] = [
        "schedule__i32",
        "delta_h__nov_first_noscalar",
        "delta_h_narrow__nomaps_nosplit_vs16_nov_first_scalar",
        "delta_h_narrow__maps_nosplit_vs32_nov_first_noscalar",
        "delta_h_narrow__nomaps_split_vs32_v_first_noscalar",
        "delta_h_portable__vs32_nov_first_scalar",
        "tc_verify__heads0_conv_nochannel_major_bf16_noboxes_noearly_nosoftplus",
        "tc_verify_portable__tokens8_conv_nochannel_major_bf16_nosoftplus_bf16",
    ];

    #[test]
    fn sources_give_the_shipped_text() {
        let all: Vec<_> = kda_kernels::all().collect();
        let mut chosen = chosen(&all);
        chosen.extend(all.iter().filter(|desc| UNCHANGED.contains(&desc.entry)));
        for family in SOURCES {
            assert!(chosen.iter().any(|desc| desc.family == family.family), "{}", family.family);
            for desc in chosen.iter().filter(|desc| desc.family == family.family) {
                let compiled = compile(desc, &family, family.text).expect("a shipped kernel compiles");
                assert!(code(&compiled.ptx).eq(code(desc.ptx)), "{}", desc.entry);
                assert_eq!((compiled.shared_bytes, compiled.param_bytes), (desc.shared_bytes, desc.param_bytes));
            }
        }
        let named: Vec<_> = CHOSEN.iter().chain(&UNCHANGED).collect();
        assert!(named.iter().all(|entry| chosen.iter().any(|desc| desc.entry == **entry)), "{named:?}");
    }
}
