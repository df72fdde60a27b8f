//! Every code block of `docs/language.md` compiles, or fails with the code that it names.

use kda_codegen::diag::Diagnostic;
use kda_codegen::{signature, specialise, syntax, variants};

const PAGE: &str = include_str!("../../docs/language.md");

fn compile(source: &str) -> Result<(), Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    for kernel in &family.kernels {
        for variant in &variants::expand(&family, kernel)? {
            let resolved = signature::resolve(&family, kernel, variant)?;
            specialise::compile_variant(&family, kernel, variant, &resolved).map_err(|error| vec![*error])?;
        }
    }
    Ok(())
}

/// Statements in the kernel that the page describes.
fn in_kernel(body: &str) -> String {
    let parameters = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the parameters");
    format!(
        "#[kernels(arch = sm_90)] mod page {{ #[kernel(block = 64, grid = rows)] #[roles(load = 0..1, math = 1..2)]
        #[requires(pitch % 4 == 0)] fn k({parameters}) {{\n{body}\n}} }}"
    )
}

#[test]
fn code_on_the_page_compiles() {
    let mut seen = 0;
    for block in PAGE.split("\n```").filter_map(|piece| piece.strip_prefix("rust,")) {
        let (mark, code) = block.split_once('\n').expect("a block has lines");
        let (source, error) = match mark.split_once(' ') {
            None if mark == "kernel" => (code.to_string(), None),
            None if mark == "kernel-body" => (in_kernel(code), None),
            Some(("kernel-error", error)) => (in_kernel(code), Some(error)),
            _ => panic!("a block is marked `{mark}`"),
        };
        match (compile(&source), error) {
            (Ok(()), None) => {}
            (Err(errors), Some(code)) => assert_eq!(errors[0].code.to_string(), code, "{source}"),
            (Ok(()), Some(code)) => panic!("no {code}:\n{source}"),
            (Err(errors), None) => panic!("{}:\n{source}", errors[0]),
        }
        seen += 1;
    }
    assert!(seen > 10, "{seen} blocks found");
}

#[test]
fn the_page_links_to_its_own_headings() {
    let slug = |heading: &str| heading.to_lowercase().replace(' ', "-").replace(',', "");
    let headings: Vec<String> = PAGE.lines().filter_map(|line| line.strip_prefix("## ")).map(slug).collect();
    let targets: Vec<&str> = PAGE.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(targets.len() > headings.len());
    for target in targets {
        assert!(headings.iter().any(|heading| heading == target), "#{target}: {headings:?}");
    }
}
