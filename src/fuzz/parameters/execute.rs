//! Runs an accepted launch in the simulator, on memory of exactly the bytes that its tensors span.
//!
//! The simulator reports every access outside an allocation. A tensor is placed at the start of its own, at the same distance
//! from a multiple of 256 as the address that was validated.

use kda_core::exec::Stream;
use kda_core::{Executor, PreparedLaunch, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;

/// Most bytes of one tensor, and most CTAs, of a launch that is executed.
pub const MOST_BYTES: u128 = 1 << 21;
pub const MOST_CTAS: u64 = 32;

/// Memory of the tensors of one launch.
pub struct Memory<'e> {
    executor: &'e SimExecutor,
    /// Tensors that the kernel only reads: address and contents.
    constant: Vec<(u64, Vec<u8>)>,
}

impl<'e> Memory<'e> {
    /// No memory yet.
    pub fn new(executor: &'e SimExecutor) -> Memory<'e> {
        Memory { executor, constant: Vec::new() }
    }

    /// The tensor in memory of its own, filled with `contents` of that length.
    pub fn place(
        &mut self,
        tensor: &TensorArg,
        written: bool,
        contents: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<TensorArg, String> {
        let offset = tensor.ptr % 256;
        let length = tensor.extent_bytes() as u64;
        let failed = |error: kda_core::exec::ExecError| format!("memory: {error}");
        let base = self.executor.allocate(offset + length).map_err(failed)?;
        let bytes = contents(length as usize);
        self.executor.write(base + offset, &bytes).map_err(failed)?;
        if !written {
            self.constant.push((base + offset, bytes));
        }
        // An empty tensor may have no address.
        let ptr = if tensor.ptr == 0 { 0 } else { base + offset };
        let mut placed = *tensor;
        (placed.ptr, placed.bytes) = (ptr, length);
        Ok(placed)
    }

    /// Runs the launch. A report is an error, and so is a tensor that changed although the kernel only reads it.
    pub fn run(&self, launch: &PreparedLaunch) -> Result<(), String> {
        // SAFETY: the simulator touches no host memory, and the memory lives as long as the executor.
        unsafe { self.executor.launch(launch, Stream::default()) }
            .map_err(|error| format!("accepted, and then: {error}"))?;
        for (at, before) in &self.constant {
            let mut now = vec![0; before.len()];
            self.executor.read(*at, &mut now).map_err(|error| format!("memory: {error}"))?;
            if now != *before {
                return Err(format!("{}: a tensor that is only read has changed", launch.desc.entry));
            }
        }
        Ok(())
    }
}

/// Numbers of the element type of a tensor, as bytes: small ones, and now and then any bits.
pub fn numbers(elem: kda_core::Elem, bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let wild = rng.below(8) == 0;
    let one = match elem {
        kda_core::Elem::BF16 => [0x80, 0x3F, 0x00, 0xBF],
        kda_core::Elem::F16 => [0x00, 0x3C, 0x00, 0xB8],
        _ => [0, 0, 0x80, 0x3E],
    };
    let mut state = rng.next_u64() | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        match wild {
            true => out.extend_from_slice(&state.to_le_bytes()),
            // A bit of the mantissa and the sign differ.
            false => {
                let mut four = one;
                four[1] ^= (state >> 40) as u8 & 0x80;
                four[3] ^= (state >> 48) as u8 & 0x80;
                four[0] ^= (state >> 56) as u8 & 0x70;
                out.extend_from_slice(&four);
            }
        }
    }
    out.truncate(bytes);
    out
}

/// Whether no two elements of a tensor share an address: what a kernel writes twice races with itself, which a kernel's
/// arguments do not exclude.
pub fn distinct(tensor: &TensorArg) -> bool {
    let mut axes: Vec<(u128, u128)> =
        tensor.shape().iter().zip(tensor.strides()).map(|(n, s)| ((*s).into(), (*n).into())).collect();
    axes.retain(|(_, size)| *size > 1);
    axes.sort_unstable();
    let mut span = 1u128;
    axes.into_iter().all(|(stride, size)| {
        let apart = stride >= span;
        span = span.saturating_add((size - 1) * stride);
        apart
    })
}
