//! Loads a kernel's PTX text through the driver's JIT, once per context.

use super::context::{Context, DeviceFacts};
use super::release::{cuda_release_of, release_name};
use super::result::{Failure, checked};
use cudarc::driver::sys::{self, CUfunction_attribute, CUjit_option, CUresult};
use kda_core::exec::ExecError;
use kda_core::{KernelDesc, LaunchError, desc::content_hash};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Mutex, PoisonError, RwLock};

/// Dynamic shared memory that a CTA gets without opting in, bytes.
const SHARED_WITHOUT_OPT_IN: u32 = 48 << 10;
/// CTAs of a cluster that every device with clusters supports.
const PORTABLE_CLUSTER: u32 = 8;
/// Bytes of each JIT log.
const LOG_BYTES: usize = 16 << 10;

/// What the driver says about a loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Registers a thread. For kernels that move registers between warpgroups, the count at launch.
    pub registers: u32,
    /// Local memory a thread, bytes; more than 0 means spills or a stack.
    pub local_bytes: u32,
    /// Static shared memory of a CTA, bytes.
    pub static_shared_bytes: u32,
    /// Largest number of threads a CTA may have.
    pub max_threads: u32,
    /// What the JIT said; empty where the driver took the code from its cache.
    pub log: String,
}

struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
    info: FunctionInfo,
}

/// The kernels loaded in one context, by content hash and entry.
#[derive(Default)]
pub(super) struct Modules {
    loaded: RwLock<HashMap<(u64, &'static str), Loaded>>,
    /// Held while a text is compiled, so that no kernel is compiled twice; lookups do not wait for it.
    loading: Mutex<()>,
}

impl Modules {
    /// The function of a kernel that is already loaded. It stays valid as long as the context.
    pub fn find(&self, desc: &KernelDesc) -> Option<sys::CUfunction> {
        self.with(desc, |loaded| loaded.function)
    }

    /// The function of a kernel, loaded if need be. The context must be current.
    pub fn load(&self, context: &Context, desc: &'static KernelDesc) -> Result<sys::CUfunction, ExecError> {
        if let Some(function) = self.find(desc) {
            return Ok(function);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = self.find(desc) {
            return Ok(function);
        }
        let loaded = Loaded::new(&context.facts, desc)?;
        let function = loaded.function;
        self.loaded.write().unwrap_or_else(PoisonError::into_inner).insert((desc.hash, desc.entry), loaded);
        Ok(function)
    }

    /// What the driver says about a kernel that is already loaded.
    pub fn info(&self, desc: &KernelDesc) -> Option<FunctionInfo> {
        self.with(desc, |loaded| loaded.info.clone())
    }

    fn with<T>(&self, desc: &KernelDesc, get: impl FnOnce(&Loaded) -> T) -> Option<T> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).get(&(desc.hash, desc.entry)).map(get)
    }

    /// Unloads everything. The context must be current and nothing of it in use.
    pub fn unload(&self) {
        for (_, loaded) in self.loaded.write().unwrap_or_else(PoisonError::into_inner).drain() {
            // SAFETY: the module was loaded in this context and is gone from the map. A failure has nowhere to go.
            let _ = unsafe { sys::cuModuleUnload(loaded.module) };
        }
    }
}

impl Loaded {
    fn new(facts: &DeviceFacts, desc: &'static KernelDesc) -> Result<Loaded, ExecError> {
        check_fits(facts, desc)?;
        let (module, log) = compile(facts, desc)?;
        let loaded = function_of(module, desc).and_then(|function| {
            opt_in(function, desc)?;
            Ok(Loaded { module, function, info: info_of(function, log)? })
        });
        if loaded.is_err() {
            // SAFETY: the module was just loaded and no function of it is kept.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
        loaded
    }
}

/// Refuses what this device cannot run, before the driver sees it.
fn check_fits(facts: &DeviceFacts, desc: &'static KernelDesc) -> Result<(), ExecError> {
    let entry = desc.entry;
    let (major, minor) = facts.capability;
    if !desc.arch.runs_on(major, minor) {
        let error = LaunchError::WrongDevice { entry, given: facts.capability, needed: desc.arch };
        return Err(ExecError::Unsupported(error.to_string()));
    }
    if desc.shared_bytes > facts.shared_limit {
        return Err(ExecError::Unsupported(format!(
            "{entry} needs {} bytes of shared memory a CTA; the device has {}",
            desc.shared_bytes, facts.shared_limit
        )));
    }
    let hash = content_hash(desc.ptx);
    if hash != desc.hash {
        return Err(ExecError::Unsupported(format!(
            "{entry}: its description names the hash {:016x}, its text has {hash:016x}; build it again",
            desc.hash
        )));
    }
    Ok(())
}

/// Compiles the text; gives the module and what the JIT said.
fn compile(facts: &DeviceFacts, desc: &'static KernelDesc) -> Result<(sys::CUmodule, String), ExecError> {
    const CALL: &str = "cuModuleLoadDataEx";
    let Ok(text) = CString::new(desc.ptx) else {
        return Err(ExecError::Driver { call: CALL, message: format!("the text of {} holds a NUL byte", desc.entry) });
    };
    let (mut info_log, mut error_log) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
    let mut options = [
        CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_LOG_VERBOSE,
    ];
    // Integers are passed as if they were pointers.
    let mut values: [*mut c_void; 5] = [
        info_log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG_BYTES),
        error_log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG_BYTES),
        std::ptr::without_provenance_mut(1),
    ];
    let mut module: sys::CUmodule = std::ptr::null_mut();
    // SAFETY: `text` ends with NUL; both logs are valid for LOG_BYTES; there is one value for each option; the context
    // is current.
    let result = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            text.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    match checked(CALL, result) {
        Ok(()) => Ok((module, log_text(&info_log))),
        Err(failure) => Err(refusal(facts, desc, failure, &log_text(&error_log))),
    }
}

/// Why the driver refused a text.
fn refusal(facts: &DeviceFacts, desc: &'static KernelDesc, failure: Failure, log: &str) -> ExecError {
    if failure.code == CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION {
        return ExecError::OldDriver {
            entry: desc.entry,
            needed: desc.isa,
            cuda: cuda_release_of(desc.isa).unwrap_or("of a later date").to_string(),
            driver: release_name(facts.driver),
        };
    }
    let log = if log.is_empty() { "the JIT left no log" } else { log };
    failure.with(&format!("entry {}, target {}: {log}", desc.entry, desc.arch))
}

/// The text of a log up to its NUL.
fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim().to_string()
}

fn function_of(module: sys::CUmodule, desc: &KernelDesc) -> Result<sys::CUfunction, ExecError> {
    const CALL: &str = "cuModuleGetFunction";
    let Ok(name) = CString::new(desc.entry) else {
        return Err(ExecError::Driver { call: CALL, message: format!("the name {:?} holds a NUL byte", desc.entry) });
    };
    let mut function: sys::CUfunction = std::ptr::null_mut();
    // SAFETY: `function` is valid for one handle, the module is loaded, the name ends with NUL.
    let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
    checked(CALL, result).map_err(|failure| failure.with(&format!("entry {}", desc.entry)))?;
    Ok(function)
}

/// Asks for what a launch does not get by default.
fn opt_in(function: sys::CUfunction, desc: &KernelDesc) -> Result<(), ExecError> {
    let set = |which: CUfunction_attribute, value: u32| -> Result<(), ExecError> {
        // SAFETY: the function belongs to a module loaded in the current context.
        let result = unsafe { sys::cuFuncSetAttribute(function, which, value as c_int) };
        checked("cuFuncSetAttribute", result)
            .map_err(|failure| failure.with(&format!("entry {}, {which:?} = {value}", desc.entry)))
    };
    if desc.shared_bytes > SHARED_WITHOUT_OPT_IN {
        set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, desc.shared_bytes)?;
    }
    if desc.cluster > PORTABLE_CLUSTER {
        set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
    }
    Ok(())
}

/// Asking also makes the driver place the code on the device now, not at the first launch, which may be captured.
fn info_of(function: sys::CUfunction, log: String) -> Result<FunctionInfo, ExecError> {
    let get = |which: CUfunction_attribute| -> Result<u32, ExecError> {
        let mut value: c_int = 0;
        // SAFETY: `value` is valid for one integer; the function belongs to a module loaded in the current context.
        checked("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, which, function) })?;
        Ok(value.max(0) as u32)
    };
    Ok(FunctionInfo {
        registers: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        local_bytes: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        static_shared_bytes: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        max_threads: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        log,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_core::desc::{Protocol, SourceLocation};
    use kda_core::{Arch, Expr, IsaVersion};

    const PTX: &str = ".version 8.0\n.target sm_90a\n";

    const fn desc(shared_bytes: u32, hash: u64) -> KernelDesc {
        KernelDesc {
            entry: "scale__w4",
            family: "scale",
            kernel: "scale",
            arch: Arch::SM_90A,
            isa: IsaVersion::new(8, 0),
            ptx: PTX,
            block: 128,
            cluster: 1,
            grid: [Expr::Int(1); 3],
            min_blocks_per_sm: 1,
            shared_bytes,
            shared: &[],
            roles: &[],
            barriers: &[],
            protocol: Protocol::Nothing,
            params: &[],
            param_bytes: 0,
            consts: &[],
            requires: &[],
            pdl: false,
            source: SourceLocation { file: "scale.rs", line: 1 },
            hash,
        }
    }

    static RIGHT: KernelDesc = desc(1024, content_hash(PTX));
    static GREEDY: KernelDesc = desc(300_000, content_hash(PTX));
    static STALE: KernelDesc = desc(1024, 7);

    fn hopper() -> DeviceFacts {
        let name = "a Hopper GPU".to_string();
        DeviceFacts { name, capability: (9, 0), multiprocessors: 132, shared_limit: 232_448, driver: 12040 }
    }

    fn unsupported(facts: &DeviceFacts, desc: &'static KernelDesc) -> String {
        match check_fits(facts, desc) {
            Err(ExecError::Unsupported(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_device_cannot_run_is_refused_before_the_driver_sees_it() {
        assert_eq!(check_fits(&hopper(), &RIGHT), Ok(()));
        let blackwell = DeviceFacts { capability: (10, 0), ..hopper() };
        let why = unsupported(&blackwell, &RIGHT);
        assert!(why.contains("sm_90a") && why.contains("10.0"), "{why}");
        let why = unsupported(&hopper(), &GREEDY);
        assert!(why.contains("300000") && why.contains("232448"), "{why}");
        assert!(unsupported(&hopper(), &STALE).contains("0000000000000007"));
    }

    #[test]
    fn an_old_driver_is_named_with_what_is_needed() {
        let failure = |code| Failure { call: "cuModuleLoadDataEx", code };
        let error = refusal(&hopper(), &RIGHT, failure(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION), "");
        let needed = IsaVersion::new(8, 0);
        let (cuda, driver) = ("12.0".to_string(), "12.4".to_string());
        assert_eq!(error, ExecError::OldDriver { entry: "scale__w4", needed, cuda, driver });
        let words = error.to_string();
        for word in ["PTX 8.0", "entry scale__w4", "a driver for CUDA 12.0 or newer", "this one is for CUDA 12.4"] {
            assert!(words.contains(word), "`{word}` is not in: {words}");
        }
    }

    #[test]
    fn logs_end_at_their_nul() {
        assert_eq!(log_text(b"ptxas info : 34 registers\n\0\0left over"), "ptxas info : 34 registers");
        assert_eq!(log_text(b"no end"), "no end");
        assert_eq!(log_text(b"\0"), "");
    }
}
