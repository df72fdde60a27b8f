//! Compiles a kernel from source text and runs it on the simulator.

use super::record;
use kda_codegen::compiled::{Compiled, ParamKind};
use kda_codegen::diag::Diagnostic;
use kda_codegen::{signature, specialise, syntax, variants};
use kda_core::launch::TensorArg;
use kda_core::tensor_map::{TensorMapArg, TensorMapParam};
use kda_sim::{CtaOrder, Launch, Memory, Options, Program, Report, Schedule};
use std::collections::BTreeMap;

/// A number as bytes.
pub trait Plain: Copy {
    /// Little-endian bytes.
    fn bytes(self) -> Vec<u8>;
    /// From such bytes.
    fn of_bytes(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($ty:ty),*) => {$(impl Plain for $ty {
        fn bytes(self) -> Vec<u8> { self.to_le_bytes().to_vec() }
        fn of_bytes(bytes: &[u8]) -> Self { <$ty>::from_le_bytes(bytes.try_into().expect("as many bytes as the type has")) }
    })*};
}
plain!(u8, u16, u32, u64, i32, i64, f32, f64);

/// A generator of test inputs (splitmix64).
pub struct Random(u64);

impl Random {
    /// Seeded by `KDA_SEED`, or the same every time; `salt` tells runs of one test apart. Prints the seed.
    pub fn new(salt: u64) -> Random {
        let seed = std::env::var("KDA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
        println!("KDA_SEED={seed} (run {salt})");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any 32 bits; often small numbers, and the ends of the range.
    pub fn word(&mut self) -> u32 {
        let bits = self.bits();
        match bits >> 60 {
            0..=5 => (bits % 40) as u32,
            6 => 0u32.wrapping_sub((bits % 5) as u32),
            7 => (1 << 31) - (bits % 3) as u32,
            _ => bits as u32,
        }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        (self.bits() % u64::from(end)) as u32
    }
}

/// Compiles the first variant of every kernel.
pub fn try_compile(source: &str) -> Result<Vec<Compiled>, Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    let mut found = Vec::new();
    for kernel in &family.kernels {
        for variant in &variants::expand(&family, kernel)? {
            let resolved = signature::resolve(&family, kernel, variant)?;
            let compiled = specialise::compile_variant(&family, kernel, variant, &resolved);
            found.push(compiled.map_err(|error| vec![*error])?);
        }
    }
    Ok(found)
}

/// The code of the first error of a source that must not compile.
pub fn error_of(source: &str) -> u16 {
    match try_compile(source) {
        Ok(_) => panic!("this compiles:\n{source}"),
        Err(errors) => errors[0].code.0,
    }
}

/// Assembles what was compiled, where `$PTXAS` names the assembler: no error, no spill, no note on lost optimisations.
pub fn assemble(compiled: &Compiled) {
    let Some(ptxas) = std::env::var_os("PTXAS") else { return };
    let name = format!("{}-{}-{:?}.ptx", compiled.entry, std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, &compiled.ptx).expect("a file");
    let arch = format!("-arch={}", compiled.arch);
    let output = std::process::Command::new(ptxas).args([&arch, "-v", "-o", "/dev/null"]).arg(&path).output();
    let output = output.expect("ptxas runs");
    std::fs::remove_file(&path).expect("the file goes");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains("C75"), "{text}\n{}", compiled.ptx);
    assert!(text.contains(" 0 bytes spill stores"), "{text}");
}

/// Memory of a tensor.
#[derive(Clone)]
struct Held {
    at: u64,
    bytes: u64,
    /// Shape and strides behind a map.
    map: Option<[Vec<u64>; 2]>,
}

/// A compiled variant with its arguments.
pub struct Run {
    /// The variant.
    pub compiled: Compiled,
    memory: Memory,
    params: Vec<u8>,
    tensors: BTreeMap<String, Held>,
    /// Parameters with the memory of a tensor.
    aliases: Vec<(String, String)>,
    /// A tensor map is of the memory of another parameter.
    maps_of_tensors: bool,
}

impl Run {
    /// The first variant in `source`.
    pub fn new(source: &str) -> Run {
        let compiled = match try_compile(source) {
            Ok(mut found) => found.remove(0),
            Err(errors) => panic!("{}\n{source}", errors.iter().map(Diagnostic::text).collect::<Vec<_>>().join("\n")),
        };
        Run::of(compiled)
    }

    /// A variant without arguments.
    pub fn of(compiled: Compiled) -> Run {
        let params = vec![0; compiled.param_bytes as usize];
        Run {
            compiled,
            memory: Memory::new(),
            params,
            tensors: BTreeMap::new(),
            aliases: Vec::new(),
            maps_of_tensors: false,
        }
    }

    /// Assembles the text, see [`assemble`].
    pub fn assemble(&self) {
        assemble(&self.compiled);
    }

    /// Sets a scalar, an axis or a stride.
    pub fn set<T: Plain>(&mut self, name: &str, value: T) -> &mut Run {
        let Some(param) = self.compiled.params.iter().find(|p| p.name == name) else { panic!("no parameter `{name}`") };
        let bytes = value.bytes();
        assert_eq!(bytes.len(), param.bytes as usize, "`{name}`");
        self.params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        self
    }

    /// Allocates a tensor with these contents.
    pub fn tensor<T: Plain>(&mut self, name: &str, values: &[T]) -> &mut Run {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        let at = self.memory.allocate(bytes.len() as u64).expect("memory");
        self.memory.write(at, &bytes).expect("a write");
        self.tensors.insert(name.into(), Held { at, bytes: bytes.len() as u64, map: None });
        self.set(name, at)
    }

    /// Another parameter of the memory of a tensor.
    pub fn same(&mut self, name: &str, other: &str) -> &mut Run {
        let at = self.tensors[other].at;
        self.aliases.push((name.into(), other.into()));
        self.set(name, at)
    }

    /// Allocates a dense tensor of this shape, outermost first, and encodes the tensor map of the parameter for it.
    pub fn map<T: Plain>(&mut self, name: &str, values: &[T], shape: &[u64]) -> &mut Run {
        let stride = |axis: usize| shape[axis + 1..].iter().product();
        let strides: Vec<u64> = (0..shape.len()).map(stride).collect();
        self.map_strided(name, values, shape, &strides)
    }

    /// The same for a tensor of these strides, in elements.
    pub fn map_strided<T: Plain>(&mut self, name: &str, values: &[T], shape: &[u64], strides: &[u64]) -> &mut Run {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        let at = self.memory.allocate(bytes.len() as u64).expect("memory");
        self.memory.write(at, &bytes).expect("a write");
        let bytes = bytes.len() as u64;
        self.tensors.insert(name.into(), Held { at, bytes, map: Some([shape.to_vec(), strides.to_vec()]) });
        self.encode_map(name, at, bytes, shape, strides)
    }

    /// Encodes the tensor map of a parameter for the memory of a tensor. Such a run is not recorded.
    pub fn map_of(&mut self, name: &str, other: &str, shape: &[u64], strides: &[u64]) -> &mut Run {
        let Held { at, bytes, .. } = self.tensors[other];
        self.maps_of_tensors = true;
        self.encode_map(name, at, bytes, shape, strides)
    }

    fn encode_map(&mut self, name: &str, at: u64, bytes: u64, shape: &[u64], strides: &[u64]) -> &mut Run {
        let Some(param) = self.compiled.params.iter().find(|p| p.name == name) else { panic!("no parameter `{name}`") };
        let ParamKind::Tensor { elem, writes, optional, map: Some(map), .. } = &param.kind else {
            panic!("`{name}` is no map")
        };
        let (present, optional) = (format!("{name}_present"), *optional);
        let tile: &'static [u32] = map.copy.clone().leak();
        let (stable, dims) = (false, &[][..]);
        let arg = TensorMapArg {
            param: TensorMapParam { elem: *elem, writes: *writes, optional, stable, dims, tile, swizzle: map.swizzle },
            tensor: TensorArg::strided(at, bytes, *elem, shape, strides).expect("a tensor"),
            offset: param.offset,
        };
        let encoded = arg.encode();
        self.params[param.offset as usize..][..encoded.len()].copy_from_slice(&encoded);
        if optional { self.set(&present, 1u32) } else { self }
    }

    /// Runs the kernel with all checks; a fault fails the test.
    pub fn launch(&mut self, grid: u32) -> &mut Run {
        if let Err(report) = self.try_launch(grid, &Options::default()) {
            panic!("{report}\n{}", self.compiled.ptx);
        }
        self
    }

    /// Runs the kernel under every schedule, from the same memory each time; a fault fails the test, and so do results that
    /// depend on the schedule. The memory is left as a run leaves it.
    pub fn launch_everywhere(&mut self, grid: u32) -> &mut Run {
        let before: Vec<(u64, Vec<u8>)> =
            self.tensors.values().map(|held| (held.at, self.bytes(held.at, held.bytes))).collect();
        let mut results: Option<Vec<Vec<u8>>> = None;
        for (index, schedule) in Schedule::ALL.iter().enumerate() {
            for (at, bytes) in &before {
                self.memory.write(*at, bytes).expect("a write");
            }
            let cta_order = [CtaOrder::Forward, CtaOrder::Reverse, CtaOrder::Random][index % 3];
            let options = Options { schedule: *schedule, cta_order, seed: index as u64, ..Options::default() };
            if let Err(report) = self.try_launch(grid, &options) {
                panic!("{schedule:?}: {report}\n{}", self.compiled.ptx);
            }
            let after = before.iter().map(|(at, bytes)| self.bytes(*at, bytes.len() as u64)).collect();
            assert_eq!(*results.get_or_insert_with(|| Vec::clone(&after)), after, "{schedule:?} gives other results");
        }
        self
    }

    /// Runs the kernel; gives the fault that stopped it.
    pub fn try_launch(&mut self, grid: u32, options: &Options) -> Result<(), Box<Report>> {
        let program = Program::load(&self.compiled.ptx).unwrap_or_else(|e| panic!("{e}\n{}", self.compiled.ptx));
        let launch = Launch {
            shared_bytes: self.compiled.shared_bytes,
            cluster: self.compiled.cluster,
            ..Launch::new([grid, 1, 1], self.compiled.block, &self.params)
        };
        let Some(folder) = record::folder().filter(|_| !self.maps_of_tensors) else {
            return kda_sim::run(&program, &launch, &mut self.memory, options).map(|_| ());
        };
        let contents =
            |run: &Run| -> Vec<Vec<u8>> { run.tensors.values().map(|held| run.bytes(held.at, held.bytes)).collect() };
        let before = contents(self);
        kda_sim::run(&program, &launch, &mut self.memory, options)?;
        let places = self.tensors.iter().map(|(name, held)| {
            let param = self.compiled.params.iter().find(|p| p.name == *name).expect("a parameter of that name");
            let tile = |shape: &[Vec<u64>; 2]| match &param.kind {
                ParamKind::Tensor { map: Some(map), .. } => (shape.clone(), map.copy.clone()),
                _ => panic!("`{name}` is no map"),
            };
            let also = self
                .aliases
                .iter()
                .filter(|(_, other)| other == name)
                .filter_map(|(alias, _)| self.compiled.params.iter().find(|p| p.name == *alias).map(|p| p.offset));
            (param.offset, also.collect(), held.map.as_ref().map(tile))
        });
        let tensors: Vec<record::Tensor> = places
            .zip(before)
            .zip(contents(self))
            .map(|(((offset, also, map), before), after)| record::Tensor { offset, also, map, before, after })
            .collect();
        record::write(&folder, &self.compiled, grid, &self.params, &tensors);
        Ok(())
    }

    fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.memory.read(at, &mut bytes).expect("a read");
        bytes
    }

    /// The contents of a tensor.
    pub fn read<T: Plain>(&self, name: &str) -> Vec<T> {
        let Held { at, bytes: length, .. } = self.tensors[name].clone();
        self.bytes(at, length).chunks(size_of::<T>()).map(T::of_bytes).collect()
    }
}

/// Threads of the kernels of [`check`].
pub const THREADS: usize = 64;

/// What one thread of [`check`] sees.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Thread.
    pub tid: u32,
    /// `a`, random.
    pub a: u32,
    /// `b`, random.
    pub b: u32,
    /// `n`, small, the same in all threads.
    pub n: u32,
    /// `m`, any, the same in all threads.
    pub m: i32,
    /// All of `table`: 64 words.
    pub table: [u32; THREADS],
    /// `a` of all threads.
    pub all: [u32; THREADS],
}

/// The source of a kernel whose `body` computes `r: u32` from `a: u32`, `b: u32`, `n: u32`, `m: i32`, `tid` and
/// `table: Global<u32>`; `items` are further items of the module.
pub fn source(items: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    {items}
    #[kernel(block = 64, grid = 1)]
    #[roles(first = 0..1, second = 1..2)]
    fn k(
        #[dims(64)] table: Global<u32>, #[dims(64)] a_in: Global<u32>, #[dims(64)] b_in: Global<u32>,
        #[dims(64)] out: GlobalMut<u32>, n: u32, m: i32,
    ) {{
        let a = a_in.at([tid]).load();
        let b = b_in.at([tid]).load();
        {body}
        out.at([tid]).store(r);
    }}
}}"
    )
}

/// Runs `body` on random inputs and compares `r` in every thread with `expected`.
pub fn check(body: &str, expected: impl Fn(Inputs) -> u32) {
    check_with("", body, expected);
}

/// As [`check`], with further items in the module.
pub fn check_with(items: &str, body: &str, expected: impl Fn(Inputs) -> u32) {
    let source = source(items, body);
    for run in 0..6 {
        let mut random = Random::new(run);
        let mut words = || -> [u32; THREADS] { std::array::from_fn(|_| random.word()) };
        let (table, a, b) = (words(), words(), words());
        // Trip counts of 0 and 1 among them.
        let (n, m) = (run as u32 % 4 * 3 / 2, random.word() as i32);
        let mut kernel = Run::new(&source);
        kernel.tensor("table", &table).tensor("a_in", &a).tensor("b_in", &b).tensor("out", &[0u32; THREADS]);
        let got = kernel.set("n", n).set("m", m).launch(1).read::<u32>("out");
        for tid in 0..THREADS {
            let inputs = Inputs { tid: tid as u32, a: a[tid], b: b[tid], n, m, table, all: a };
            let want = expected(inputs);
            assert_eq!(
                got[tid],
                want,
                "{body}\n{:?}\n{}",
                Inputs { table: [0; 64], all: [0; 64], ..inputs },
                kernel.compiled.ptx
            );
        }
    }
}
