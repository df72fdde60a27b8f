//! The simulator against a GPU: recorded runs, played on the device, give the same bytes.
//!
//! `KDA_RECORD=FOLDER cargo test --release -p kda-codegen --test semantics` records; `KDA_RECORDINGS=FOLDER` names the folder
//! here. Without it, or without a device, the test says so and passes. What is equal bit for bit: everything but results of
//! instructions that PTX calls approximate, for which a few units in the last place are allowed, and products of real
//! numbers, whose sums have another order. Most products of the recordings are of small integers, so that their sums are exact.

use kda::core::desc::{Protocol, SourceLocation, content_hash};
use kda::core::exec::{ExecError, Stream};
use kda::core::{Arch, Elem, Executor, Expr, KernelDesc, ParamDesc, ParamKind, PreparedLaunch};
use kda::core::{IsaVersion, Swizzle, TensorArg, TensorMapArg, TensorMapParam};
use kda::runtime::executor::cuda::CudaExecutor;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Units in the last place of f32 by which approximations may differ.
const ULPS: u32 = 4;
/// Relative error of tensors that come from sums of products of real numbers: a bf16 result rounded the other way, now and then.
const SUMS: f64 = 4e-3;

/// How near a device's results are to the simulator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Equal,
    Ulps,
    Sums,
}

#[test]
fn recorded_runs_give_the_same_bytes_on_a_device() {
    let Some(folder) = std::env::var_os("KDA_RECORDINGS").map(PathBuf::from) else {
        eprintln!("skipped: KDA_RECORDINGS names no folder");
        return;
    };
    let executor = match CudaExecutor::open(0) {
        Ok(executor) => executor,
        Err(ExecError::NoDevice(why)) => {
            eprintln!("skipped: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (major, minor) = executor.compute_capability();
    let (mut played, mut close, mut elsewhere, mut wrong) = (0, [0; 3], 0, Vec::new());
    for path in recordings(&folder) {
        let recording = Recording::read(&path);
        if !recording.desc.arch.runs_on(major, minor) {
            elsewhere += 1;
            continue;
        }
        played += 1;
        match recording.play(&executor) {
            Ok(closeness) => close[closeness as usize] += 1,
            Err(cause) => wrong.push(format!("{} ({}): {cause}", path.display(), recording.desc.entry)),
        }
    }
    let [equal, ulps, sums] = close;
    println!(
        "{played} played: {equal} equal bit for bit, {ulps} within {ULPS} ulp, {sums} sums within {SUMS}; \
         {elsewhere} for other devices"
    );
    assert!(played > 0, "no recordings in {}", folder.display());
    assert!(wrong.is_empty(), "{} of {played}:\n{}", wrong.len(), wrong.join("\n"));
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap_or_else(|cause| panic!("{}: {cause}", folder.display()));
    let mut paths: Vec<PathBuf> = files.flatten().map(|f| f.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    paths
}

struct Recording {
    desc: &'static KernelDesc,
    grid: u32,
    params: Vec<u8>,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    offset: u32,
    also: Vec<u32>,
    elem: Elem,
    map: Option<([Vec<u64>; 2], TensorMapParam)>,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Recording {
    fn read(path: &Path) -> Recording {
        let text = std::fs::read_to_string(path).expect("a recording is text");
        let value: Value = serde_json::from_str(&text).expect("a recording is JSON");
        let number = |value: &Value| value.as_u64().expect("a number") as u32;
        let string = |value: &Value| -> &'static str { value.as_str().expect("a text").to_string().leak() };
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let tensors = list(&value["tensors"]).iter().map(Tensor::read).collect();
        let place = |parameter: &Value| ParamDesc {
            name: "",
            kind: ParamKind::Dim,
            offset: number(&parameter["offset"]),
            bytes: number(&parameter["bytes"]),
        };
        let params: Vec<ParamDesc> = list(&value["parameters"]).iter().map(place).collect();
        let ptx = string(&value["ptx"]);
        let desc = KernelDesc {
            entry: string(&value["entry"]),
            family: "recording",
            kernel: "recording",
            arch: Arch::from_name(string(&value["arch"])).expect("a target"),
            isa: IsaVersion::new(8, 0),
            ptx,
            block: number(&value["block"]),
            cluster: number(&value["cluster"]),
            grid: [Expr::Int(1), Expr::Int(1), Expr::Int(1)],
            min_blocks_per_sm: 1,
            shared_bytes: number(&value["shared_bytes"]),
            shared: &[],
            roles: &[],
            barriers: &[],
            protocol: Protocol::Nothing,
            params: params.leak(),
            param_bytes: 0,
            consts: &[],
            requires: &[],
            pdl: false,
            source: SourceLocation { file: "", line: 0 },
            hash: content_hash(ptx),
        };
        Recording {
            desc: Box::leak(Box::new(desc)),
            grid: number(&value["grid"]),
            params: bytes(&value["params"]),
            tensors,
        }
    }

    /// Runs it on the device and compares every tensor.
    fn play(&self, executor: &CudaExecutor) -> Result<Closeness, String> {
        let failed = |cause: ExecError| cause.to_string();
        let mut launch = PreparedLaunch {
            desc: self.desc,
            grid: [self.grid, 1, 1],
            params: self.params.clone(),
            maps: Vec::new(),
            pdl: false,
        };
        let mut places = Vec::new();
        for tensor in &self.tensors {
            let length = tensor.before.len() as u64;
            let at = executor.allocate(length.max(16)).map_err(failed)?;
            places.push(at);
            executor.write(at, &tensor.before).map_err(failed)?;
            for offset in &tensor.also {
                launch.params[*offset as usize..][..8].copy_from_slice(&at.to_le_bytes());
            }
            match &tensor.map {
                Some(([shape, strides], param)) => launch.maps.push(TensorMapArg {
                    param: *param,
                    tensor: TensorArg::strided(at, length, tensor.elem, shape, strides).map_err(|e| e.to_string())?,
                    offset: tensor.offset,
                }),
                None => launch.params[tensor.offset as usize..][..8].copy_from_slice(&at.to_le_bytes()),
            }
        }
        // SAFETY: the tensors are freed behind the wait; the text ran in the simulator without a stray access.
        unsafe { executor.launch(&launch, Stream::default()) }.map_err(failed)?;
        executor.synchronize(Stream::default()).map_err(failed)?;
        let (mut worst, mut wrong) = (Closeness::Equal, Vec::new());
        for (tensor, at) in self.tensors.iter().zip(places) {
            let mut got = vec![0; tensor.before.len()];
            executor.read(at, &mut got).map_err(failed)?;
            executor.free(at).map_err(failed)?;
            if got != tensor.after {
                match self.compare(tensor, &got) {
                    Ok(closeness) => worst = worst.max(closeness),
                    Err(cause) => wrong.push(cause),
                }
            }
        }
        if wrong.is_empty() { Ok(worst) } else { Err(wrong.join("\n    ")) }
    }

    /// Whether a result that is not equal is as near as its instructions allow.
    fn compare(&self, tensor: &Tensor, got: &[u8]) -> Result<Closeness, String> {
        let numbers = |bytes: &[u8]| tensor.numbers(bytes);
        let (got, want) = (numbers(got), numbers(&tensor.after));
        let places: Vec<usize> = (0..got.len()).filter(|at| got[*at].to_bits() != want[*at].to_bits()).collect();
        let pairs: Vec<_> = places.iter().take(4).map(|at| (at, got[*at], want[*at])).collect();
        let different = format!(
            "`{}`: {} of {} elements differ (place, device, simulator): {pairs:?}",
            tensor.name,
            places.len(),
            got.len()
        );
        let float = matches!(tensor.elem, Elem::F32 | Elem::BF16 | Elem::F16);
        let text = self.desc.ptx;
        let ordered = |x: f64| {
            let bits = (x as f32).to_bits() as i32;
            if bits < 0 { i32::MIN - bits } else { bits }
        };
        let ulps = got.iter().zip(&want).map(|(a, b)| ordered(*a).abs_diff(ordered(*b))).max().unwrap_or(0);
        if tensor.elem == Elem::F32 && text.contains(".approx") && ulps <= ULPS {
            return Ok(Closeness::Ulps);
        }
        // Sums of products in another order, of numbers that are not exact.
        let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        // What neither of them writes may be anything.
        let pairs = || got.iter().zip(&want).filter(|(a, b)| a.to_bits() != b.to_bits() || a.is_finite());
        let error = square(&mut pairs().map(|(a, b)| a - b)) / square(&mut pairs().map(|(_, b)| *b));
        if float && text.contains("mma") && error <= SUMS {
            return Ok(Closeness::Sums);
        }
        Err(format!("{different}, relative error {error:.1e}"))
    }
}

impl Tensor {
    /// Its elements as numbers.
    fn numbers(&self, bytes: &[u8]) -> Vec<f64> {
        let element = |chunk: &[u8]| -> f64 {
            let word = chunk.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            match self.elem {
                Elem::F32 => f32::from_bits(word as u32).into(),
                Elem::F64 => f64::from_bits(word),
                Elem::BF16 => half::bf16::from_bits(word as u16).into(),
                Elem::F16 => half::f16::from_bits(word as u16).into(),
                _ => word as f64,
            }
        };
        bytes.chunks_exact(self.elem.bytes() as usize).map(element).collect()
    }

    fn read(value: &Value) -> Tensor {
        let text = |value: &Value| value.as_str().expect("a text").to_string();
        let elem_name = text(&value["elem"]);
        let elem = Elem::ALL.into_iter().find(|e| e.to_string() == elem_name).expect("an element type");
        let numbers = |value: &Value| -> Vec<u64> {
            value.as_array().expect("a list").iter().map(|n| n.as_u64().expect("a number")).collect()
        };
        let map = value["map"].as_object().map(|map| {
            let tile: Vec<u32> = numbers(&map["tile"]).into_iter().map(|n| n as u32).collect();
            let swizzle = Swizzle::of_span(map["swizzle"].as_u64().expect("a number") as u32).expect("a swizzle");
            let param = TensorMapParam {
                elem,
                writes: true,
                optional: false,
                stable: false,
                dims: &[],
                tile: tile.leak(),
                swizzle,
            };
            ([numbers(&map["shape"]), numbers(&map["strides"])], param)
        });
        Tensor {
            name: text(&value["name"]),
            offset: value["offset"].as_u64().expect("a number") as u32,
            also: numbers(&value["also"]).into_iter().map(|n| n as u32).collect(),
            elem,
            map,
            before: bytes(&value["before"]),
            after: bytes(&value["after"]),
        }
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("bytes are a text");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}
