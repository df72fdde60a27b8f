//! Device memory for the inputs of every shape: allocated once, for the largest, and filled once.
//!
//! One pool for each kind of content. The tensors of a shape are taken from the pools' starts, so filling takes no time
//! between shapes. Pools hold a million random elements over and over; their period is no size of a tensor that is reused.

use super::Failure;
use half::bf16;
use kda_core::{Elem, Executor, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::executor::cuda::CudaExecutor;

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// bf16 normals of deviation 1.
    Activation,
    /// f32 normals of deviation 1.
    History,
    /// f32 normals of deviation 0.1: states.
    State,
    /// f32 normals of deviation 0.3: weights and biases.
    Weight,
    /// bf16 normals of deviation 1 in a pool of their own.
    NarrowHistory,
    /// bf16 normals of deviation 0.1: states.
    NarrowState,
    /// bf16 normals of deviation 0.3: weights.
    NarrowWeight,
    /// bf16, uniform within 0.1: keys.
    Keys,
    /// The same in a pool of their own: what keys are projected by.
    Projections,
    /// bf16, uniform within 1: values.
    Values,
    /// f32, uniform from -1 to 0: gates, log2 units.
    Gates,
    /// f32, uniform within 1: states.
    WideState,
    /// Zeros ahead of the first call.
    Zero,
    /// Anything: the operator writes it.
    Output,
    /// What [`Arena::upload`] writes.
    Exact,
}

const CONTENTS: usize = 15;
/// Every tensor starts at a multiple of this many bytes.
const ALIGN: u64 = 512;
/// Bytes up to which a pool is counted: more than any device has, and the sum over all pools is a `u64`.
const COUNTED: u64 = 1 << 56;
/// Random elements in a pool before they repeat.
const DRAWN: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    base: u64,
    capacity: u64,
    used: u64,
}

/// The pools. Without an executor it is an arena that only counts: addresses are made up and nothing is written.
pub struct Arena<'e> {
    executor: Option<&'e CudaExecutor>,
    pools: [Pool; CONTENTS],
}

/// Bytes of each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need([u64; CONTENTS]);

impl Need {
    /// Enough for either.
    pub fn or(self, other: Need) -> Need {
        Need(std::array::from_fn(|i| self.0[i].max(other.0[i])))
    }

    /// All pools together.
    pub fn bytes(self) -> u64 {
        self.0.iter().sum()
    }
}

impl Arena<'static> {
    /// An arena that counts what is taken.
    pub fn counting() -> Arena<'static> {
        // Operators refuse tensors that share memory.
        let pool = |at: usize| Pool { base: (1 + at as u64) * COUNTED, capacity: COUNTED, used: 0 };
        Arena { executor: None, pools: std::array::from_fn(pool) }
    }
}

impl<'e> Arena<'e> {
    /// Allocates and fills the pools.
    ///
    /// # Errors
    /// The device has too little memory.
    pub fn new(executor: &'e CudaExecutor, need: Need, seed: u64) -> Result<Arena<'e>, Failure> {
        let mut arena = Arena { executor: Some(executor), pools: [Pool::default(); CONTENTS] };
        for (pool, bytes) in arena.pools.iter_mut().zip(need.0) {
            pool.base = executor.allocate(bytes.max(1))?;
            pool.capacity = bytes;
        }
        let rng = &mut Rng::new(seed);
        for (content, sigma) in [(Content::History, 1.0), (Content::State, 0.1), (Content::Weight, 0.3)] {
            let drawn = rng.normals_f32(DRAWN as usize, sigma);
            arena.fill(executor, content, &drawn.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
        }
        for (content, sigma) in [
            (Content::Activation, 1.0),
            (Content::NarrowHistory, 1.0),
            (Content::NarrowState, 0.1),
            (Content::NarrowWeight, 0.3),
        ] {
            let drawn = rng.normals_bf16(DRAWN as usize, sigma);
            arena.fill(executor, content, &drawn.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
        }
        let mut uniform =
            |low: f64, high: f64| -> Vec<f64> { (0..DRAWN).map(|_| low + (high - low) * rng.uniform()).collect() };
        for (content, most) in [(Content::Keys, 0.1), (Content::Projections, 0.1), (Content::Values, 1.0)] {
            let drawn = uniform(-most, most).into_iter().flat_map(|v| bf16::from_f64(v).to_le_bytes());
            arena.fill(executor, content, &drawn.collect::<Vec<u8>>())?;
        }
        for (content, low, high) in [(Content::Gates, -1.0, 0.0), (Content::WideState, -1.0, 1.0)] {
            let drawn = uniform(low, high).into_iter().flat_map(|v| (v as f32).to_le_bytes());
            arena.fill(executor, content, &drawn.collect::<Vec<u8>>())?;
        }
        for content in [Content::Zero, Content::Output, Content::Exact] {
            let pool = arena.pools[content as usize];
            executor.fill(pool.base, 0, pool.capacity)?;
        }
        Ok(arena)
    }

    /// Repeats bytes over a pool, by copies of twice the length each.
    fn fill(&self, executor: &CudaExecutor, content: Content, bytes: &[u8]) -> Result<(), Failure> {
        let pool = self.pools[content as usize];
        let mut done = pool.capacity.min(bytes.len() as u64);
        executor.write(pool.base, &bytes[..done as usize])?;
        while done < pool.capacity {
            let part = done.min(pool.capacity - done);
            // SAFETY: both ranges lie in the pool and do not overlap; nothing else uses it yet.
            unsafe { executor.enqueue_copy(pool.base + done, pool.base, part) }?;
            done += part;
        }
        Ok(())
    }

    /// What was taken since the last reset.
    pub fn used(&self) -> Need {
        Need(std::array::from_fn(|i| self.pools[i].used))
    }

    /// Gives everything back; contents stay.
    pub fn reset(&mut self) {
        for pool in &mut self.pools {
            pool.used = 0;
        }
    }

    fn take(&mut self, content: Content, bytes: u64) -> Result<u64, Failure> {
        let pool = &mut self.pools[content as usize];
        let next = bytes.checked_next_multiple_of(ALIGN).and_then(|bytes| pool.used.checked_add(bytes));
        let Some(next) = next.filter(|next| *next <= pool.capacity) else {
            let (used, capacity) = (pool.used, pool.capacity);
            return Err(format!("{content:?}: {bytes} bytes are needed, {used} of {capacity} are taken").into());
        };
        let ptr = pool.base + pool.used;
        pool.used = next;
        Ok(ptr)
    }

    /// A dense tensor.
    ///
    /// # Errors
    /// The pool was counted with other shapes, or no memory holds as much.
    pub fn tensor(&mut self, content: Content, elem: Elem, shape: &[u64]) -> Result<TensorArg, Failure> {
        let bytes = shape.iter().try_fold(u64::from(elem.bytes()), |bytes, size| bytes.checked_mul(*size));
        let bytes = bytes.ok_or_else(|| format!("{content:?}: {shape:?} of {elem} is more than a memory has"))?;
        Ok(TensorArg::dense(self.take(content, bytes)?, bytes, elem, shape)?)
    }

    /// A dense tensor of i32 with these values.
    ///
    /// # Errors
    /// As [`Arena::tensor`], or the device refuses the copy.
    pub fn upload(&mut self, values: &[i32]) -> Result<TensorArg, Failure> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Ok(TensorArg::dense(self.exact(&bytes)?, bytes.len() as u64, Elem::I32, &[values.len() as u64])?)
    }

    /// A dense table of addresses, a row a layer.
    ///
    /// # Errors
    /// As [`Arena::upload`].
    pub fn addresses<const N: usize>(&mut self, rows: &[[u64; N]]) -> Result<TensorArg, Failure> {
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
        Ok(TensorArg::dense(self.exact(&bytes)?, bytes.len() as u64, Elem::U64, &[rows.len() as u64, N as u64])?)
    }

    fn exact(&mut self, bytes: &[u8]) -> Result<u64, Failure> {
        let ptr = self.take(Content::Exact, bytes.len() as u64)?;
        if let Some(executor) = self.executor {
            executor.write(ptr, bytes)?;
        }
        Ok(ptr)
    }
}

impl Drop for Arena<'_> {
    fn drop(&mut self) {
        let Some(executor) = self.executor else { return };
        for pool in self.pools.iter().filter(|pool| pool.base != 0) {
            // A failure to free shows in the next call on this context.
            let _ = executor.free(pool.base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counting_arena_gives_aligned_tensors_that_do_not_overlap() {
        let mut arena = Arena::counting();
        let first = arena.tensor(Content::State, Elem::F32, &[3, 5]).unwrap();
        let second = arena.tensor(Content::State, Elem::F32, &[1]).unwrap();
        assert!(first.ptr.is_multiple_of(ALIGN) && second.ptr == first.ptr + ALIGN);
        let other = arena.tensor(Content::Output, Elem::BF16, &[7]).unwrap();
        assert_eq!(other.bytes, 14);
        let used = arena.used();
        assert_eq!(used.bytes(), 3 * ALIGN);
        arena.reset();
        // Past 64 bits, and past what is counted.
        for length in [1 << 62, 1 << 58] {
            assert!(arena.tensor(Content::State, Elem::F32, &[length, 2]).is_err());
        }
        assert_eq!(arena.tensor(Content::State, Elem::F32, &[1]).unwrap().ptr, first.ptr);
        assert_eq!(arena.used().or(used), used);
    }
}
