//! Runs an accepted launch in the simulator, on memory of exactly the bytes that its tensors span.
//!
//! The simulator reports every access outside an allocation. A tensor is placed at the start of its own, at the same distance
//! from a multiple of 256 as the address that was validated. What lies between the elements of a tensor belongs to somebody else:
//! it must not change.

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
    placed: Vec<Placed>,
}

/// A tensor as it was ahead of the launch.
struct Placed {
    at: u64,
    bytes: Vec<u8>,
    elem: usize,
    /// Elements of the memory that the kernel may write; none of a tensor that it only reads.
    own: Option<Vec<bool>>,
}

impl<'e> Memory<'e> {
    /// No memory yet.
    pub fn new(executor: &'e SimExecutor) -> Memory<'e> {
        Memory { executor, placed: Vec::new() }
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
        let own = written.then(|| elements(tensor));
        self.placed.push(Placed { at: base + offset, bytes, elem: tensor.elem.bytes() as usize, own });
        // An empty tensor may have no address.
        let ptr = if tensor.ptr == 0 { 0 } else { base + offset };
        let mut placed = *tensor;
        (placed.ptr, placed.bytes) = (ptr, length);
        Ok(placed)
    }

    /// Runs the launch. A report is an error, and so is a byte that changed and is of no tensor that the kernel may write.
    pub fn run(&self, launch: &PreparedLaunch) -> Result<(), String> {
        // SAFETY: the simulator touches no host memory, and the memory lives as long as the executor.
        unsafe { self.executor.launch(launch, Stream::default()) }
            .map_err(|error| format!("accepted, and then: {error}"))?;
        for placed in &self.placed {
            let mut now = vec![0; placed.bytes.len()];
            self.executor.read(placed.at, &mut now).map_err(|error| format!("memory: {error}"))?;
            let changed = |at: usize| now[at] != placed.bytes[at];
            match &placed.own {
                None if now != placed.bytes => {
                    return Err(format!("{}: a tensor that is only read has changed", launch.desc.entry));
                }
                Some(own) if (0..now.len()).any(|at| changed(at) && !own[at / placed.elem]) => {
                    return Err(format!(
                        "{}: what lies between the elements of a tensor has changed",
                        launch.desc.entry
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Which elements of the memory that a tensor spans are its own.
fn elements(tensor: &TensorArg) -> Vec<bool> {
    let mut own = vec![false; (tensor.extent_bytes() / u128::from(tensor.elem.bytes().max(1))) as usize];
    if let Some(first) = own.first_mut() {
        *first = true;
    }
    for (&size, &stride) in tensor.shape().iter().zip(tensor.strides()) {
        if size < 2 || stride == 0 {
            continue;
        }
        // Steps of this axis since the last element that the axes before it have.
        let mut since: Vec<u64> = vec![u64::MAX; own.len()];
        for at in 0..own.len() {
            since[at] = match at.checked_sub(stride as usize) {
                _ if own[at] => 0,
                Some(before) => since[before].saturating_add(1),
                None => u64::MAX,
            };
            own[at] = since[at] < size;
        }
    }
    own
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

#[cfg(test)]
mod tests {
    use super::*;
    use kda_core::Elem;

    #[test]
    fn elements_are_those_that_strides_reach() {
        let mut rng = Rng::new(3);
        for _ in 0..500 {
            let shape: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(5) as u64).collect();
            let strides: Vec<u64> = shape.iter().map(|_| rng.below(30) as u64).collect();
            let tensor = TensorArg::strided(256, 0, Elem::BF16, &shape, &strides).expect("a tensor");
            let mut at = vec![0u64];
            for (size, stride) in shape.iter().zip(&strides) {
                at = at.iter().flat_map(|at| (0..*size).map(move |step| at + step * stride)).collect();
            }
            let mut own = vec![false; (tensor.extent_bytes() / 2) as usize];
            at.iter().for_each(|at| own[*at as usize] = true);
            assert_eq!(elements(&tensor), own, "{tensor:?}");
        }
        let many = TensorArg::strided(256, 0, Elem::U8, &[1 << 40, 3], &[0, 2]).expect("a tensor");
        assert_eq!(elements(&many), [true, false, true, false, true]);
    }
}
