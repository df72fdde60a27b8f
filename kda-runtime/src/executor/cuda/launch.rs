//! One launch: from a prepared launch to `cuLaunchKernelEx`.

use super::context::Context;
use super::result::checked;
use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue};
use kda_core::exec::{ExecError, Stream};
use kda_core::{KernelDesc, PreparedLaunch};
use std::ffi::c_void;

/// Ends the list of extra launch parameters.
const PARAM_END: usize = sys::CU_LAUNCH_PARAM_END_AS_INT as usize;
/// Announces a pointer to the packed parameter block.
const PARAM_BUFFER_POINTER: usize = sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize;
/// Announces a pointer to the size of the parameter block.
const PARAM_BUFFER_SIZE: usize = sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize;

/// Attributes of a launch; at most two are in use.
struct Attributes {
    list: [CUlaunchAttribute; 2],
    count: u32,
}

impl Attributes {
    fn of(launch: &PreparedLaunch) -> Attributes {
        // SAFETY: the all-zero bit pattern is a valid attribute: CU_LAUNCH_ATTRIBUTE_IGNORE and zero bytes.
        let mut attributes = Attributes { list: unsafe { std::mem::zeroed() }, count: 0 };
        if launch.pdl {
            attributes.push(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            );
        }
        if launch.desc.cluster > 1 {
            let cluster = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: launch.desc.cluster, y: 1, z: 1 };
            attributes.push(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CUlaunchAttributeValue { clusterDim: cluster },
            );
        }
        attributes
    }

    fn push(&mut self, id: CUlaunchAttributeID, value: CUlaunchAttributeValue) {
        let slot = &mut self.list[self.count as usize];
        slot.id = id;
        slot.value = value;
        self.count += 1;
    }
}

/// Loads the kernel unless it is loaded. While `stream` is captured nothing can be loaded, so that is an error.
fn function_for(
    context: &Context,
    desc: &'static KernelDesc,
    stream: sys::CUstream,
) -> Result<sys::CUfunction, ExecError> {
    if let Some(function) = context.modules.find(desc) {
        return Ok(function);
    }
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: `status` is valid for one value; the stream is the executor's own or a live one of the caller.
    checked("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(stream, &mut status) })?;
    if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return Err(ExecError::Unsupported(format!(
            "{} is not loaded, and a stream that is being captured cannot load it; warm it before the capture",
            desc.entry
        )));
    }
    context.modules.load(context, desc)
}

/// Enqueues a launch. Neither allocates device memory nor waits.
///
/// # Safety
/// As [`kda_core::Executor::launch`]; a stream other than 0 must be a live `CUstream` of this context.
pub(super) unsafe fn launch(context: &Context, launch: &PreparedLaunch, stream: Stream) -> Result<(), ExecError> {
    if launch.is_empty() {
        return Ok(());
    }
    let desc = launch.desc;
    let _current = context.enter()?;
    let stream = context.stream(stream);
    let function = function_for(context, desc, stream)?;
    let mut attributes = Attributes::of(launch);
    let config = sys::CUlaunchConfig {
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: desc.block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: desc.shared_bytes,
        hStream: stream,
        attrs: attributes.list.as_mut_ptr(),
        numAttrs: attributes.count,
    };
    let mut size = launch.params.len();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(PARAM_BUFFER_POINTER),
        launch.params.as_ptr().cast_mut().cast(),
        std::ptr::without_provenance_mut(PARAM_BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::without_provenance_mut(PARAM_END),
    ];
    let extra = if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() };
    // SAFETY: `config`, its attributes, the parameter block and its size outlive the call, which copies them; the
    // driver does not write the block. The function belongs to the current context. The caller vouches for the stream
    // and for every pointer in the block.
    let result = unsafe { sys::cuLaunchKernelEx(&config, function, std::ptr::null_mut(), extra) };
    checked("cuLaunchKernelEx", result).map_err(|failure| {
        failure.with(&format!(
            "entry {}, grid {:?}, {} threads, {} bytes of shared memory, cluster of {}",
            desc.entry, launch.grid, desc.block, desc.shared_bytes, desc.cluster
        ))
    })
}
