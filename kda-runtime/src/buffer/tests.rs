//! Buffers over host memory that stands in for a device.

use super::*;
use kda_core::PreparedLaunch;
use kda_core::exec::Stream;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Allocations by base address.
#[derive(Default)]
struct HostMemory {
    allocations: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl HostMemory {
    fn at<T>(&self, ptr: u64, bytes: u64, act: impl FnOnce(&mut [u8]) -> T) -> Result<T, ExecError> {
        let mut allocations = self.allocations.borrow_mut();
        let bad = ExecError::BadPointer { ptr, bytes };
        let (base, memory) = allocations.range_mut(..=ptr).next_back().ok_or(bad.clone())?;
        let start = (ptr - base) as usize;
        memory.get_mut(start..start + bytes as usize).map(act).ok_or(bad)
    }
}

impl Executor for HostMemory {
    fn describe(&self) -> String {
        "host memory".into()
    }

    fn compute_capability(&self) -> (u8, u8) {
        (9, 0)
    }

    fn multiprocessors(&self) -> u32 {
        1
    }

    fn allocate(&self, bytes: u64) -> Result<u64, ExecError> {
        let mut allocations = self.allocations.borrow_mut();
        let next = allocations.last_key_value().map_or(0, |(base, memory)| base + memory.len() as u64);
        let base = (next + 1).next_multiple_of(ALIGN);
        allocations.insert(base, vec![0x77; bytes as usize]);
        Ok(base)
    }

    fn free(&self, ptr: u64) -> Result<(), ExecError> {
        self.allocations.borrow_mut().remove(&ptr).map(drop).ok_or(ExecError::BadPointer { ptr, bytes: 0 })
    }

    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.at(ptr, bytes.len() as u64, |memory| memory.copy_from_slice(bytes))
    }

    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.at(ptr, bytes.len() as u64, |memory| bytes.copy_from_slice(memory))
    }

    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        self.at(ptr, bytes, |memory| memory.fill(byte))
    }

    unsafe fn launch(&self, _launch: &PreparedLaunch, _stream: Stream) -> Result<(), ExecError> {
        Err(ExecError::Unsupported("host memory runs no kernels".into()))
    }

    fn synchronize(&self, _stream: Stream) -> Result<(), ExecError> {
        Ok(())
    }
}

#[test]
fn values_come_back_as_they_went() {
    let host = HostMemory::default();
    let floats = [0.0f32, -1.5, f32::MAX, f32::MIN_POSITIVE];
    let halves = [bf16::from_f32(-2.5), bf16::MAX, bf16::ZERO];
    let ints = [i32::MIN, -1, 0, 7];
    for guarding in [Guarding::BANDS, Guarding::NONE] {
        let buffer = DeviceBuffer::of(&host, "floats", &floats, guarding).unwrap();
        assert_eq!(buffer.download::<f32>().unwrap(), floats);
        assert!(buffer.ptr().is_multiple_of(ALIGN));
        let buffer = DeviceBuffer::of(&host, "halves", &halves, guarding).unwrap();
        assert_eq!(buffer.download::<bf16>().unwrap(), halves);
        let buffer = DeviceBuffer::of(&host, "ints", &ints, guarding).unwrap();
        buffer.upload_at(1, &[5i32, 6]).unwrap();
        assert_eq!(buffer.download::<i32>().unwrap(), [i32::MIN, 5, 6, 7]);
        buffer.check_canaries().unwrap();
    }
}

#[test]
fn a_new_buffer_is_poisoned_or_left_alone() {
    let host = HostMemory::default();
    let poisoned = DeviceBuffer::new(&host, "out", 12, Guarding::BANDS).unwrap();
    assert!(poisoned.download::<f32>().unwrap().iter().all(|x| x.is_nan()));
    assert!(poisoned.download::<bf16>().unwrap().iter().all(|x| x.is_nan()));
    assert_eq!(poisoned.download::<i32>().unwrap(), [-1; 3]);
    let bare = DeviceBuffer::new(&host, "out", 12, Guarding::NONE).unwrap();
    assert_eq!(bare.download::<u8>().unwrap(), [0x77; 12]);
}

#[test]
fn every_byte_round_a_buffer_is_watched() {
    let host = HostMemory::default();
    for bytes in [0u64, 1, 255, 256, 1000] {
        let check = |offset: i64, side: &str, distance: u64| {
            let buffer = DeviceBuffer::new(&host, "state", bytes, Guarding::BANDS).unwrap();
            buffer.check_canaries().unwrap();
            let address = buffer.ptr().wrapping_add_signed(offset);
            for stray in [0u8, 0xFF, !canary(address)] {
                host.write(address, &[stray]).unwrap();
                let error = buffer.check_canaries().unwrap_err();
                let expected = (side, 1, distance);
                assert!(
                    matches!(&error, BufferError::Canary { side, changed, distance, .. } if (*side, *changed, *distance) == expected),
                    "{bytes} bytes, offset {offset}: {error}"
                );
            }
            host.write(address, &[canary(address)]).unwrap();
            buffer.check_canaries().unwrap();
        };
        check(-1, "before", 0);
        check(-4096, "before", 4095);
        check(bytes as i64, "after", 0);
        check(bytes as i64 + 4095, "after", 4095);
    }
}

#[test]
fn misuse_is_told_with_both_sizes() {
    let host = HostMemory::default();
    let buffer = DeviceBuffer::new(&host, "beta", 10, Guarding::BANDS).unwrap();
    let length = |at, given| BufferError::Length { name: "beta".into(), at, given, needed: 10 };
    assert_eq!(buffer.upload(&[1.0f32; 2]), Err(length(0, 8)));
    assert_eq!(buffer.upload_at(2, &[1.0f32]), Err(length(8, 4)));
    assert_eq!(buffer.upload_at(u64::MAX, &[1.0f32]), Err(length(u64::MAX, 4)));
    let error = buffer.download::<f32>().unwrap_err();
    assert_eq!(error, BufferError::Type { name: "beta".into(), given: 10, elem: Elem::F32 });
    assert!(matches!(
        DeviceBuffer::new(&host, "huge", u64::MAX - 300, Guarding::BANDS),
        Err(BufferError::Exec { source: ExecError::Unsupported(_), .. })
    ));
}

#[test]
fn memory_is_freed_with_the_buffer() {
    let host = HostMemory::default();
    drop(DeviceBuffer::of(&host, "q", &[1u8, 2], Guarding::BANDS).unwrap());
    assert!(host.allocations.borrow().is_empty());
}

#[test]
fn a_tensor_of_a_buffer_ends_where_the_buffer_ends() {
    let host = HostMemory::default();
    let buffer = DeviceBuffer::new(&host, "q", 48, Guarding::BANDS).unwrap();
    let tensor = buffer.dense(Elem::F32, &[3, 4]).unwrap();
    assert_eq!((tensor.ptr, tensor.bytes, tensor.strides()), (buffer.ptr(), 48, [4u64, 1].as_slice()));
    assert_eq!(buffer.strided(Elem::F32, &[3, 2], &[4, 1]).unwrap().extent_bytes(), 40);
}
