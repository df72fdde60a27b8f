//! One executor in front of two: whatever is done to a device is done to the simulator as well, and after each launch the
//! contents of the tensors that the kernel writes are compared.
//!
//! Reads give the device's bytes. Where the two differ, the simulator goes on with the device's, so that a difference counts once.

use super::distance::{Difference, compare};
use kda_core::exec::{ExecError, Executor, Stream};
use kda_core::{Elem, ParamKind, PreparedLaunch};
use kda_runtime::executor::sim::SimExecutor;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device and the simulator beside it.
pub struct PairExecutor<'d> {
    device: &'d dyn Executor,
    simulator: &'d SimExecutor,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Allocations by their address on the device: bytes, and address in the simulator.
    twins: BTreeMap<u64, Twin>,
    differences: Vec<Difference>,
}

#[derive(Clone, Copy)]
struct Twin {
    bytes: u64,
    at: u64,
}

impl State {
    /// The allocation of a device address: where it begins, and its twin.
    fn find(&self, ptr: u64) -> Result<(u64, Twin), ExecError> {
        let below = self.twins.range(..=ptr).next_back();
        match below {
            Some((start, twin)) if ptr <= start + twin.bytes => Ok((*start, *twin)),
            _ => Err(ExecError::BadPointer { ptr, bytes: 0 }),
        }
    }

    /// The same place in the simulator; an absent tensor stays absent.
    fn translate(&self, ptr: u64) -> Result<u64, ExecError> {
        if ptr == 0 {
            return Ok(0);
        }
        self.find(ptr).map(|(start, twin)| ptr - start + twin.at)
    }
}

/// A tensor that a launch writes: its allocation on the device, and what it held.
struct Written {
    tensor: &'static str,
    elem: Elem,
    start: u64,
    twin: Twin,
    before: Vec<u8>,
}

impl<'d> PairExecutor<'d> {
    /// Both, without memory.
    pub fn new(device: &'d dyn Executor, simulator: &'d SimExecutor) -> PairExecutor<'d> {
        PairExecutor { device, simulator, state: Mutex::new(State::default()) }
    }

    /// What the launches so far left, one entry a launch and tensor.
    pub fn differences(&self) -> Vec<Difference> {
        self.state().differences.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launch with the simulator's addresses.
    fn translated(&self, launch: &PreparedLaunch) -> Result<PreparedLaunch, ExecError> {
        let state = self.state();
        let mut translated = launch.clone();
        for param in launch.desc.params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor(_))) {
            let place = param.offset as usize..param.offset as usize + 8;
            let ptr = state.translate(pointer(&launch.params[place.clone()]))?;
            translated.params[place].copy_from_slice(&ptr.to_le_bytes());
        }
        for map in &mut translated.maps {
            map.tensor.ptr = state.translate(map.tensor.ptr)?;
        }
        Ok(translated)
    }

    /// The tensors that a launch writes, each allocation once, with their contents.
    fn written(&self, launch: &PreparedLaunch) -> Result<Vec<Written>, ExecError> {
        let mut places = Vec::new();
        for param in launch.desc.params {
            match &param.kind {
                ParamKind::Tensor(tensor) if tensor.writes => {
                    places.push((param.name, tensor.elem, pointer(&launch.params[param.offset as usize..][..8])));
                }
                ParamKind::TensorMap(map) if map.writes => {
                    let found = launch.maps.iter().find(|m| m.offset == param.offset);
                    places.extend(found.map(|m| (param.name, map.elem, m.tensor.ptr)));
                }
                _ => {}
            }
        }
        let mut written: Vec<Written> = Vec::new();
        for (tensor, elem, ptr) in places.into_iter().filter(|(_, _, ptr)| *ptr != 0) {
            let (start, twin) = self.state().find(ptr)?;
            if written.iter().any(|w| w.start == start) {
                continue;
            }
            let mut before = vec![0; twin.bytes as usize];
            self.device.read(start, &mut before)?;
            written.push(Written { tensor, elem, start, twin, before });
        }
        Ok(written)
    }
}

fn pointer(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Executor for PairExecutor<'_> {
    fn describe(&self) -> String {
        format!("{}, beside it the {}", self.device.describe(), self.simulator.describe())
    }

    fn compute_capability(&self) -> (u8, u8) {
        self.device.compute_capability()
    }

    fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors()
    }

    fn allocate(&self, bytes: u64) -> Result<u64, ExecError> {
        let ptr = self.device.allocate(bytes)?;
        // What nobody has written reads as zeros from the simulator.
        self.device.fill(ptr, 0, bytes)?;
        let at = self.simulator.allocate(bytes)?;
        self.state().twins.insert(ptr, Twin { bytes, at });
        Ok(ptr)
    }

    fn free(&self, ptr: u64) -> Result<(), ExecError> {
        let twin = self.state().twins.remove(&ptr).ok_or(ExecError::BadPointer { ptr, bytes: 0 })?;
        self.device.free(ptr)?;
        self.simulator.free(twin.at)
    }

    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        let at = self.state().translate(ptr)?;
        self.device.write(ptr, bytes)?;
        self.simulator.write(at, bytes)
    }

    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.device.read(ptr, bytes)
    }

    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        let at = self.state().translate(ptr)?;
        self.device.fill(ptr, byte, bytes)?;
        self.simulator.fill(at, byte, bytes)
    }

    unsafe fn launch(&self, launch: &PreparedLaunch, stream: Stream) -> Result<(), ExecError> {
        let translated = self.translated(launch)?;
        let written = self.written(launch)?;
        // The simulator first: it reports a stray access that would take the device down.
        // SAFETY: the simulator touches no host memory.
        unsafe { self.simulator.launch(&translated, Stream::default())? };
        // SAFETY: the caller's promise, for the same launch.
        unsafe { self.device.launch(launch, stream)? };
        self.device.synchronize(stream)?;
        for Written { tensor, elem, start, twin, before } in written {
            let (mut device, mut simulator) = (vec![0; before.len()], vec![0; before.len()]);
            self.device.read(start, &mut device)?;
            self.simulator.read(twin.at, &mut simulator)?;
            if device != simulator {
                self.simulator.write(twin.at, &device)?;
            }
            let difference = compare(tensor, elem, &before, &device, &simulator);
            self.state().differences.push(difference);
        }
        Ok(())
    }

    fn synchronize(&self, stream: Stream) -> Result<(), ExecError> {
        self.device.synchronize(stream)
    }
}
