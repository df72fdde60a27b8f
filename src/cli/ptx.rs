//! `kda ptx`: the text that goes to the driver.

use super::select::{Arguments, select};
use super::{Stop, Streams, Verdict};
use kda::core::KernelDesc;

/// Prints the PTX text of a kernel, ending with a newline.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let text = select(kernels, arguments)?.ptx;
    streams.out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        writeln!(streams.out)?;
    }
    Ok(Verdict::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::VERIFY;

    #[test]
    fn the_text_comes_out_as_it_is() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams { out: &mut out, err: &mut err };
        let arguments = Arguments { entry: "verify__t4".into(), arch: Some("sm_90a".into()) };
        assert_eq!(run(&arguments, &[&VERIFY], &mut streams).unwrap(), Verdict::Passed);
        assert_eq!(String::from_utf8(out).unwrap(), VERIFY.ptx);
    }
}
