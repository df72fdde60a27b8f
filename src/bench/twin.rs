//! Hand-written CUDA C++ beside our kernels: compiled by nvcc when a run starts, launched by the same code.
//!
//! A source has one kernel for each configuration, with C linkage; the macro `TOKENS` is the number of tokens, the
//! constant `NAME_shared` the dynamic shared memory that the kernel `NAME` needs. The parameter of a kernel is one structure,
//! which may begin with tensor maps. nvcc makes PTX of it once for each number
//! of tokens; the text of one kernel is then a module of its own, so that the driver compiles what is launched and no more.

use super::{Failure, shape::Shape};
use kda_core::desc::{KernelDesc, ParamDesc, ParamKind, Protocol, SourceLocation, content_hash};
use kda_core::{Arch, Elem, Expr, IsaVersion};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A configuration of a hand-written kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name of the configuration.
    pub name: &'static str,
    /// Tokens that it is compiled for.
    pub tokens: u64,
    /// What the launcher needs.
    pub desc: &'static KernelDesc,
    /// The same of the kernel that a call launches ahead of it.
    pub ahead: Option<&'static KernelDesc>,
}

/// The hand-written twin of an operator.
pub trait Twin: Sync {
    /// The contracts that it runs.
    fn contracts(&self) -> &'static [&'static str];

    /// Its source, relative to the repository.
    fn source(&self) -> &'static str;

    /// Most tokens that it can be compiled for; the least is 1.
    fn most_tokens(&self) -> u64;

    /// Tokens that it is compiled for to run a shape.
    fn tokens(&self, shape: Shape) -> u64 {
        shape.t
    }

    /// Shapes of one key are checked once.
    fn check_key(&self, shape: Shape) -> [u64; 3] {
        [shape.t, 0, 0]
    }

    /// The kernel that a call launches ahead of that of a configuration.
    fn ahead(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// CTAs of a cluster of a kernel.
    fn cluster(&self, _name: &str) -> u32 {
        1
    }

    /// Threads of a CTA.
    fn block(&self) -> u32;

    /// Bytes of its one parameter, a structure.
    fn argument_bytes(&self) -> u32;

    /// Configurations worth timing at a shape.
    fn configurations(&self, shape: Shape) -> &'static [&'static str];
}

/// Kernels of a twin for some numbers of tokens.
///
/// # Errors
/// There is no source, no nvcc, or nvcc refuses the source: in words.
pub fn build(twin: &dyn Twin, shapes: &[Shape]) -> Result<Vec<Kernel>, Failure> {
    let source = locate(twin.source());
    let text = std::fs::read_to_string(&source).map_err(|cause| format!("{}: {cause}", source.display()))?;
    let mut tokens: Vec<u64> =
        shapes.iter().map(|shape| twin.tokens(*shape)).filter(|t| *t <= twin.most_tokens()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let compile = |t: u64| compile(&source, &text, t).map_err(|failure| failure.to_string());
    let texts: Vec<Result<String, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = tokens.iter().map(|t| scope.spawn(move || compile(*t))).collect();
        let lost = |_| Err("a thread that ran nvcc ended early".to_string());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    let mut kernels = Vec::new();
    for (t, text) in tokens.into_iter().zip(texts) {
        let text = text?;
        let mut names: Vec<&'static str> = Vec::new();
        for shape in shapes.iter().filter(|shape| twin.tokens(**shape) == t) {
            names.extend(twin.configurations(*shape));
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            let ahead = twin.ahead(name).map(|ahead| describe(twin, &text, ahead)).transpose()?;
            kernels.push(Kernel { name, tokens: t, desc: describe(twin, &text, name)?, ahead });
        }
    }
    Ok(kernels)
}

/// A path of the repository: from the current folder, or from where this was built.
pub fn locate(path: &str) -> PathBuf {
    let near = Path::new(path);
    if near.exists() { near.into() } else { Path::new(env!("CARGO_MANIFEST_DIR")).join(path) }
}

/// `$NVCC`, the one on the path, or that of the usual folder.
fn nvcc() -> PathBuf {
    if let Some(named) = std::env::var_os("NVCC") {
        return named.into();
    }
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("nvcc").is_file()));
    let usual = Path::new("/usr/local/cuda/bin/nvcc");
    if !on_path && usual.is_file() { usual.into() } else { "nvcc".into() }
}

/// PTX of a source for a number of tokens, from the folder `target/twin` if it is there already.
fn compile(source: &Path, text: &str, tokens: u64) -> Result<String, Failure> {
    let stem = source.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("twin");
    let folder = Path::new("target/twin");
    let kept = folder.join(format!("{stem}-t{tokens}-{:016x}.ptx", content_hash(text)));
    if let Ok(text) = std::fs::read_to_string(&kept) {
        return Ok(text);
    }
    std::fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
    let fresh = folder.join(format!("{stem}-t{tokens}-{}.ptx", std::process::id()));
    let nvcc = nvcc();
    let output = Command::new(&nvcc)
        .args(["-ptx", "-arch=sm_90a", "-O3", "-std=c++17", &format!("-DTOKENS={tokens}"), "-o"])
        .arg(&fresh)
        .arg(source)
        .output()
        .map_err(|cause| format!("{} cannot be run: {cause}", nvcc.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    // Whole files alone have the name that is looked for.
    std::fs::rename(&fresh, &kept)?;
    Ok(std::fs::read_to_string(&kept)?)
}

const ENTRY: &str = ".visible .entry ";

/// The module of one kernel: what stands ahead of all of them, and its own text.
fn module<'t>(text: &'t str, entry: &str) -> Option<(&'t str, &'t str)> {
    let mut parts = text.split(ENTRY);
    let head = parts.next()?;
    let own = parts.find(|part| part.split_once('(').is_some_and(|(name, _)| name.trim() == entry))?;
    Some((head, own))
}

/// The initial value of a constant of a module.
fn constant(head: &str, name: &str) -> Option<u32> {
    let (_, rest) = head.split_once(&format!(" {name} = "))?;
    rest.split_once(';')?.0.trim().parse().ok()
}

fn describe(twin: &dyn Twin, text: &str, entry: &'static str) -> Result<&'static KernelDesc, Failure> {
    let missing = |what: &str| format!("{}: there is no {what} `{entry}`", twin.source());
    let (head, own) = module(text, entry).ok_or_else(|| missing("kernel"))?;
    let shared_bytes =
        constant(head, &format!("{entry}_shared")).ok_or_else(|| missing("size of shared memory for"))?;
    let ptx: &'static str = format!("{head}{ENTRY}{own}").leak();
    // The launcher reads the offset alone: a structure is one parameter.
    let params: &'static [ParamDesc] = vec![ParamDesc {
        name: "arguments",
        kind: ParamKind::Scalar(Elem::U32),
        offset: 0,
        bytes: twin.argument_bytes(),
    }]
    .leak();
    Ok(Box::leak(Box::new(KernelDesc {
        entry,
        family: "twin",
        kernel: entry,
        arch: Arch::SM_90A,
        isa: IsaVersion::new(9, 0),
        ptx,
        block: twin.block(),
        cluster: twin.cluster(entry),
        grid: [Expr::Int(1); 3],
        min_blocks_per_sm: 1,
        shared_bytes,
        shared: &[],
        roles: &[],
        barriers: &[],
        protocol: Protocol::Nothing,
        params,
        param_bytes: twin.argument_bytes(),
        consts: &[],
        requires: &[],
        pdl: true,
        source: SourceLocation { file: "", line: 1 },
        hash: content_hash(ptx),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 9.0\n.target sm_90a\n.visible .const .align 4 .u32 a_shared = 1024;\n\
        .visible .const .align 4 .u32 b_shared = 77;\n.visible .entry a(\n.param .b8 x)\n{ ret; }\n\
        .visible .entry b(\n)\n{ exit; }\n";

    #[test]
    fn a_kernel_becomes_a_module_of_its_own() {
        let (head, own) = module(TEXT, "b").unwrap();
        assert!(head.starts_with(".version") && !head.contains(".entry"));
        assert!(own.starts_with("b(") && own.contains("exit") && !own.contains("ret"));
        assert_eq!([constant(head, "a_shared"), constant(head, "b_shared")], [Some(1024), Some(77)]);
        assert!(module(TEXT, "c").is_none() && constant(head, "c_shared").is_none());
    }
}
