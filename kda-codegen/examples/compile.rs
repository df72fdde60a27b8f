//! Compiles kernel files and writes one PTX file a variant: `compile OUT_DIR FILE…`, libraries first.

use kda_codegen::{signature, specialise, syntax, variants};

fn main() {
    let mut args = std::env::args().skip(1);
    let out = args.next().expect("an output folder");
    let source: String =
        args.map(|f| std::fs::read_to_string(f).expect("a readable file").replace("//!", "//")).collect();
    let family = match syntax::parse_family(&source) {
        Ok(family) => family,
        Err(errors) => return report(&errors),
    };
    for kernel in &family.kernels {
        let variants = match variants::expand(&family, kernel) {
            Ok(v) => v,
            Err(errors) => return report(&errors),
        };
        let start = std::time::Instant::now();
        let mut bytes = 0;
        for variant in &variants {
            let resolved = match signature::resolve(&family, kernel, variant) {
                Ok(r) => r,
                Err(errors) => return report(&errors),
            };
            match specialise::compile_variant(&family, kernel, variant, &resolved) {
                Ok(compiled) => {
                    bytes += compiled.ptx.len();
                    std::fs::write(format!("{out}/{}.ptx", compiled.entry), &compiled.ptx).expect("a writable folder");
                }
                Err(error) => return report(&[*error]),
            }
        }
        println!("{}: {} variants, {} bytes of PTX, {:?}", kernel.name, variants.len(), bytes, start.elapsed());
    }
}

fn report(errors: &[kda_codegen::diag::Diagnostic]) {
    for error in errors {
        let at = error.span.start();
        eprintln!("{}:{}: {}", at.line, at.column + 1, error.text());
        for (span, note) in &error.notes {
            eprintln!("  note {}:{}: {note}", span.start().line, span.start().column + 1);
        }
    }
    std::process::exit(1);
}
