//! Device memory for tests and tools: typed copies, poisoned contents, and guard bands that tell of stray writes.

use half::bf16;
use kda_core::exec::ExecError;
use kda_core::{Elem, Executor, LaunchError, TensorArg};

/// What surrounds a buffer and what it holds before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarding {
    /// Bytes of each of the two guard bands, a multiple of 256.
    pub band: u64,
    /// Byte that fills a new buffer; `None` leaves its contents undefined.
    pub poison: Option<u8>,
}

impl Guarding {
    /// Bands of 4 KiB, and contents of 0xFF bytes: NaN as any float, -1 as a signed integer.
    pub const BANDS: Guarding = Guarding { band: 4096, poison: Some(0xFF) };
    /// Nothing round the buffer and nothing in it: for executors that find stray accesses and reads of memory never
    /// written by themselves.
    pub const NONE: Guarding = Guarding { band: 0, poison: None };
}

/// A value that can be copied to and from the device, little-endian.
pub trait Element: Copy {
    /// Its element type.
    const ELEM: Elem;

    /// Appends its bytes.
    fn put(self, out: &mut Vec<u8>);

    /// The value of exactly [`Elem::bytes`] bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($type:ty => $elem:ident),* $(,)?) => {
        $(impl Element for $type {
            const ELEM: Elem = Elem::$elem;

            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> Self {
                let mut fixed = [0u8; size_of::<$type>()];
                fixed.copy_from_slice(bytes);
                <$type>::from_le_bytes(fixed)
            }
        })*
    };
}

element!(u8 => U8, u32 => U32, u64 => U64, i32 => I32, i64 => I64, bf16 => BF16, f32 => F32, f64 => F64);

/// Why a buffer could not be used, or what it found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The executor failed.
    #[error("buffer `{name}`: {source}")]
    Exec {
        /// Name of the buffer.
        name: String,
        /// The cause.
        #[source]
        source: ExecError,
    },
    /// Values that do not fit the buffer.
    #[error("buffer `{name}` holds {needed} bytes; given are {given} at byte {at}")]
    Length {
        /// Name of the buffer.
        name: String,
        /// First byte.
        at: u64,
        /// Given bytes.
        given: u64,
        /// Size of the buffer.
        needed: u64,
    },
    /// The buffer does not hold whole elements of the type asked for.
    #[error("buffer `{name}` holds {given} bytes, which is not a whole number of {elem}")]
    Type {
        /// Name of the buffer.
        name: String,
        /// Size of the buffer.
        given: u64,
        /// Type asked for.
        elem: Elem,
    },
    /// Something wrote outside the buffer.
    #[error(
        "buffer `{name}` of {bytes} bytes: {changed} guard bytes {side} it were written, the nearest {distance} bytes {side} it"
    )]
    Canary {
        /// Name of the buffer.
        name: String,
        /// Size of the buffer.
        bytes: u64,
        /// `before` or `after`.
        side: &'static str,
        /// Guard bytes that changed.
        changed: u64,
        /// Bytes between the buffer and the nearest of them; 0 is the neighbour.
        distance: u64,
    },
}

/// Memory of an executor, freed on drop.
///
/// ```text
/// allocation: [ band | the buffer, `bytes` long | rest to a multiple of 256, then band ]
/// ```
/// The buffer starts at a multiple of 256 bytes, and the trailing band starts right after its last byte.
pub struct DeviceBuffer<'e> {
    executor: &'e dyn Executor,
    name: String,
    base: u64,
    bytes: u64,
    guarding: Guarding,
}

impl<'e> DeviceBuffer<'e> {
    /// Allocates `bytes` bytes. The name appears in errors.
    ///
    /// # Errors
    /// [`BufferError::Exec`] if the executor cannot allocate or fill.
    pub fn new(
        executor: &'e dyn Executor,
        name: &str,
        bytes: u64,
        guarding: Guarding,
    ) -> Result<DeviceBuffer<'e>, BufferError> {
        let failed = |source| BufferError::Exec { name: name.to_string(), source };
        let too_large = || failed(ExecError::Unsupported(format!("{bytes} bytes with guard bands are too many")));
        let guarding = Guarding { band: guarding.band.next_multiple_of(ALIGN), ..guarding };
        let size = if guarding.band == 0 {
            bytes
        } else {
            let body = bytes.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
            body.checked_add(2 * guarding.band).ok_or_else(too_large)?
        };
        let base = executor.allocate(size).map_err(failed)?;
        // From here on `Drop` frees the memory.
        let buffer = DeviceBuffer { executor, name: name.to_string(), base, bytes, guarding };
        for (address, length) in buffer.bands() {
            let pattern: Vec<u8> = (0..length).map(|i| canary(address + i)).collect();
            executor.write(address, &pattern).map_err(failed)?;
        }
        if let Some(byte) = guarding.poison {
            executor.fill(buffer.ptr(), byte, bytes).map_err(failed)?;
        }
        Ok(buffer)
    }

    /// Allocates memory for these values and copies them.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`].
    pub fn of<T: Element>(
        executor: &'e dyn Executor,
        name: &str,
        values: &[T],
        guarding: Guarding,
    ) -> Result<DeviceBuffer<'e>, BufferError> {
        let buffer = DeviceBuffer::new(executor, name, size_of_val(values) as u64, guarding)?;
        buffer.upload(values)?;
        Ok(buffer)
    }

    /// Address of the first byte; a multiple of 256.
    pub fn ptr(&self) -> u64 {
        self.base + self.guarding.band
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The buffer as a dense row-major tensor.
    ///
    /// # Errors
    /// [`LaunchError::BadTensor`] past the highest rank. Whether the shape fits the buffer is checked at the launch.
    pub fn dense(&self, elem: Elem, shape: &[u64]) -> Result<TensorArg, LaunchError> {
        TensorArg::dense(self.ptr(), self.bytes, elem, shape)
    }

    /// The buffer as a tensor with these element strides. Errors as [`DeviceBuffer::dense`].
    pub fn strided(&self, elem: Elem, shape: &[u64], strides: &[u64]) -> Result<TensorArg, LaunchError> {
        TensorArg::strided(self.ptr(), self.bytes, elem, shape, strides)
    }

    /// Copies values that fill the whole buffer.
    ///
    /// # Errors
    /// [`BufferError::Length`] unless they fill it exactly.
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<(), BufferError> {
        if size_of_val(values) as u64 != self.bytes {
            return Err(self.length(0, size_of_val(values) as u64));
        }
        self.upload_at(0, values)
    }

    /// Copies values to the element positions from `first` on.
    ///
    /// # Errors
    /// [`BufferError::Length`] if they reach past the end.
    pub fn upload_at<T: Element>(&self, first: u64, values: &[T]) -> Result<(), BufferError> {
        let (at, given) = (first.saturating_mul(u64::from(T::ELEM.bytes())), size_of_val(values) as u64);
        if at.checked_add(given).is_none_or(|end| end > self.bytes) {
            return Err(self.length(at, given));
        }
        let mut bytes = Vec::with_capacity(size_of_val(values));
        values.iter().for_each(|value| value.put(&mut bytes));
        self.executor.write(self.ptr() + at, &bytes).map_err(|source| self.exec(source))
    }

    /// Waits for all work and copies the whole buffer to the host.
    ///
    /// # Errors
    /// [`BufferError::Type`] if the size is not a whole number of elements.
    pub fn download<T: Element>(&self) -> Result<Vec<T>, BufferError> {
        let size = T::ELEM.bytes();
        if !self.bytes.is_multiple_of(u64::from(size)) {
            return Err(BufferError::Type { name: self.name.clone(), given: self.bytes, elem: T::ELEM });
        }
        let bytes = self.read(self.ptr(), self.bytes)?;
        Ok(bytes.chunks_exact(size as usize).map(T::get).collect())
    }

    /// Waits for all work and copies `count` elements from position `first` on.
    ///
    /// # Errors
    /// [`BufferError::Length`] if they reach past the end.
    pub fn download_at<T: Element>(&self, first: u64, count: u64) -> Result<Vec<T>, BufferError> {
        let size = u64::from(T::ELEM.bytes());
        let (at, given) = (first.saturating_mul(size), count.saturating_mul(size));
        if at.checked_add(given).is_none_or(|end| end > self.bytes) {
            return Err(self.length(at, given));
        }
        Ok(self.read(self.ptr() + at, given)?.chunks_exact(size as usize).map(T::get).collect())
    }

    /// Fills the whole buffer with a byte.
    ///
    /// # Errors
    /// [`BufferError::Exec`] if the executor fails.
    pub fn fill(&self, byte: u8) -> Result<(), BufferError> {
        self.executor.fill(self.ptr(), byte, self.bytes).map_err(|source| self.exec(source))
    }

    /// Waits for all work and compares the guard bands with what was written there. Nothing to do without bands.
    ///
    /// # Errors
    /// [`BufferError::Canary`] if a byte of them changed.
    pub fn check_canaries(&self) -> Result<(), BufferError> {
        for (band, (address, length)) in self.bands().into_iter().enumerate() {
            let found = self.read(address, length)?;
            let changed: Vec<u64> =
                (0..length).zip(&found).filter(|&(i, &byte)| byte != canary(address + i)).map(|(i, _)| i).collect();
            let (Some(&first), Some(&last)) = (changed.first(), changed.last()) else { continue };
            let (side, distance) = if band == 0 { ("before", length - 1 - last) } else { ("after", first) };
            return Err(BufferError::Canary {
                name: self.name.clone(),
                bytes: self.bytes,
                side,
                changed: changed.len() as u64,
                distance,
            });
        }
        Ok(())
    }

    /// Address and length of the band before and the band after; none without bands.
    fn bands(&self) -> Vec<(u64, u64)> {
        let band = self.guarding.band;
        if band == 0 {
            return Vec::new();
        }
        let rest = self.bytes.next_multiple_of(ALIGN) - self.bytes;
        vec![(self.base, band), (self.ptr() + self.bytes, rest + band)]
    }

    fn read(&self, address: u64, length: u64) -> Result<Vec<u8>, BufferError> {
        let mut bytes = vec![0u8; length as usize];
        self.executor.read(address, &mut bytes).map_err(|source| self.exec(source))?;
        Ok(bytes)
    }

    fn exec(&self, source: ExecError) -> BufferError {
        BufferError::Exec { name: self.name.clone(), source }
    }

    fn length(&self, at: u64, given: u64) -> BufferError {
        BufferError::Length { name: self.name.clone(), at, given, needed: self.bytes }
    }
}

impl Drop for DeviceBuffer<'_> {
    fn drop(&mut self) {
        // A failure has nowhere to go; after a device fault every call fails.
        let _ = self.executor.free(self.base);
    }
}

/// Alignment of allocations, bytes.
const ALIGN: u64 = 256;

/// The guard byte at an address. It changes from byte to byte, so a kernel that writes one value everywhere is seen,
/// and is never 0x00 or 0xFF, which zero fills, NaNs and small integers are made of.
fn canary(address: u64) -> u8 {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 % 254 + 1
}

#[cfg(test)]
mod tests;
