//! Kernels for tests: a body becomes a module with its registers declared.
#![allow(dead_code)]

use kda_core::desc::{DimDesc, StrideDesc};
use kda_core::launch::TensorArg;
use kda_core::tensor_map::{Swizzle, TensorMapArg, TensorMapParam};
use kda_core::{Elem, Expr};
use kda_sim::{Code, Launch, Memory, Options, Program, Report, Schedule, Stats, run};

/// A module of one entry `k` with dynamic shared memory `smem` and 64-bit parameters; those named `map…`, which come first,
/// are tensor maps.
pub fn module(params: &[&str], body: &str) -> String {
    let declare = |p: &&str| match p.starts_with("map") {
        true => format!("    .param .align 64 .b8 {p}[128]"),
        false => format!("    .param .u64 {p}"),
    };
    let params: Vec<String> = params.iter().map(declare).collect();
    let close = if params.is_empty() { ")".to_string() } else { format!("\n{}\n)", params.join(",\n")) };
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\n.extern .shared .align 16 .b8 smem[];\n\n\
         .visible .entry k({close}\n{{\n    .reg .pred %p<32>;\n    .reg .b16 %h<64>;\n    .reg .b32 %r<128>;\n    \
         .reg .b64 %rd<64>;\n{body}\n    ret;\n}}\n\n.file 1 \"src/kernel.rs\"\n"
    )
}

/// Memory and a launch for a kernel.
pub struct Bench {
    pub text: String,
    pub memory: Memory,
    pub params: Vec<u8>,
    pub grid: [u32; 3],
    pub block: u32,
    pub shared_bytes: u32,
    pub cluster: u32,
    pub options: Options,
}

/// A tensor map of a test: element type, sizes and strides (in elements), box and swizzle, outermost first.
#[derive(Clone, Debug)]
pub struct Map {
    pub elem: Elem,
    pub sizes: Vec<u64>,
    pub strides: Vec<u64>,
    pub tile: Vec<u32>,
    pub swizzle: Swizzle,
}

const DIM: DimDesc = DimDesc { size: Expr::Int(0), stride: StrideDesc::Const(1) };

impl Map {
    /// Dense rows of a matrix.
    pub fn matrix(elem: Elem, sizes: [u64; 2], tile: [u32; 2], swizzle: Swizzle) -> Map {
        Map { elem, sizes: sizes.to_vec(), strides: vec![sizes[1], 1], tile: tile.to_vec(), swizzle }
    }

    /// Bytes of a box.
    pub fn box_bytes(&self) -> u32 {
        self.tile.iter().product::<u32>() * self.elem.bytes()
    }

    fn encode(&self, ptr: u64, bytes: u64) -> [u8; 128] {
        let param = TensorMapParam {
            elem: self.elem,
            writes: true,
            optional: false,
            stable: false,
            dims: &[DIM; 5][..self.tile.len()],
            tile: self.tile.clone().leak(),
            swizzle: self.swizzle,
        };
        let tensor = TensorArg::strided(ptr, bytes, self.elem, &self.sizes, &self.strides).unwrap();
        TensorMapArg { param, tensor, offset: 0 }.encode()
    }
}

impl Bench {
    pub fn new(params: &[&str], body: &str) -> Bench {
        Bench {
            text: module(params, body),
            memory: Memory::new(),
            params: Vec::new(),
            grid: [1, 1, 1],
            block: 32,
            shared_bytes: 8192,
            cluster: 1,
            options: Options { step_limit: 1_000_000, ..Options::default() },
        }
    }

    pub fn block(mut self, block: u32) -> Bench {
        self.block = block;
        self
    }

    pub fn shared(mut self, bytes: u32) -> Bench {
        self.shared_bytes = bytes;
        self
    }

    pub fn cluster(mut self, ctas: u32) -> Bench {
        self.cluster = ctas;
        self
    }

    pub fn grid(mut self, ctas: u32) -> Bench {
        self.grid = [ctas, 1, 1];
        self
    }

    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Bench {
        change(&mut self.options);
        self
    }

    /// A buffer that the kernel gets as its next parameter; defined by `bytes`.
    pub fn buffer(&mut self, bytes: &[u8]) -> u64 {
        let ptr = self.memory.allocate(bytes.len() as u64).unwrap();
        self.memory.write(ptr, bytes).unwrap();
        self.params.extend(ptr.to_le_bytes());
        ptr
    }

    /// A tensor that the kernel gets through its next parameter, a map.
    pub fn map(&mut self, map: &Map, bytes: &[u8]) -> u64 {
        let ptr = self.memory.allocate(bytes.len() as u64).unwrap();
        self.memory.write(ptr, bytes).unwrap();
        self.params.extend(map.encode(ptr, bytes.len() as u64));
        ptr
    }

    /// A buffer that nobody has written.
    pub fn undefined(&mut self, bytes: u64) -> u64 {
        let ptr = self.memory.allocate(bytes).unwrap();
        self.params.extend(ptr.to_le_bytes());
        ptr
    }

    pub fn scalar(&mut self, value: u64) {
        self.params.extend(value.to_le_bytes());
    }

    pub fn run(&mut self) -> Result<Stats, Box<Report>> {
        let program = Program::load(&self.text).unwrap_or_else(|e| panic!("{e}\n{}", numbered(&self.text)));
        let launch = Launch {
            shared_bytes: self.shared_bytes,
            cluster: self.cluster,
            ..Launch::new(self.grid, self.block, &self.params)
        };
        run(&program, &launch, &mut self.memory, &self.options)
    }

    pub fn bytes(&self, ptr: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.memory.read(ptr, &mut bytes).unwrap();
        bytes
    }

    /// Address of the parameter at a byte.
    pub fn pointer(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.params[at..at + 8].try_into().unwrap())
    }

    pub fn read_f32(&self, ptr: u64, count: usize) -> Vec<f32> {
        self.read_u32(ptr, count).into_iter().map(f32::from_bits).collect()
    }

    pub fn read_u32(&self, ptr: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        self.memory.read(ptr, &mut bytes).unwrap();
        bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    /// Line of the text on which a piece stands.
    pub fn line_of(&self, piece: &str) -> u32 {
        let line = self.text.lines().position(|l| l.contains(piece));
        line.unwrap_or_else(|| panic!("`{piece}` is not in\n{}", self.text)) as u32 + 1
    }
}

/// Text with line numbers, for failures.
pub fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(i, l)| format!("{:4} {l}\n", i + 1)).collect()
}

/// Every schedule, with several seeds where it is random.
pub fn schedules() -> Vec<(Schedule, u64)> {
    let mut all = Vec::new();
    for schedule in Schedule::ALL {
        let seeds = match schedule {
            Schedule::Random | Schedule::Pct { .. } => 1..=8,
            _ => 0..=0,
        };
        all.extend(seeds.map(|seed| (schedule, seed)));
    }
    all
}

/// The kernel runs clean under every schedule and order of CTAs; `check` looks at its memory each time.
pub fn clean(make: impl Fn() -> Bench, check: impl Fn(&Bench)) {
    for (schedule, seed) in schedules() {
        for cta_order in [kda_sim::CtaOrder::Forward, kda_sim::CtaOrder::Reverse, kda_sim::CtaOrder::Random] {
            let mut bench = make();
            bench.options.schedule = schedule;
            bench.options.seed = seed;
            bench.options.cta_order = cta_order;
            if let Err(report) = bench.run() {
                panic!("{schedule:?} seed {seed} {cta_order:?}: {report}\n{}", numbered(&bench.text));
            }
            check(&bench);
        }
    }
}

/// The fault is found under every schedule, with this code, at one of the lines that hold `piece` (the place noticed, or the
/// other one that the report names).
#[track_caller]
pub fn faulty(make: impl Fn() -> Bench, code: Code, piece: &str) {
    for (schedule, seed) in schedules() {
        let mut bench = make();
        (bench.options.schedule, bench.options.seed) = (schedule, seed);
        expect_fault(&mut bench, code, piece, &format!("{schedule:?} seed {seed}"));
    }
}

/// The same under the schedules that are asked for.
#[track_caller]
pub fn faulty_under(which: &[Schedule], make: impl Fn() -> Bench, code: Code, piece: &str) {
    for schedule in which {
        let mut bench = make();
        bench.options.schedule = *schedule;
        expect_fault(&mut bench, code, piece, &format!("{schedule:?}"));
    }
}

#[track_caller]
fn expect_fault(bench: &mut Bench, code: Code, piece: &str, when: &str) {
    let report = match bench.run() {
        Err(report) => report,
        Ok(_) => panic!("{when}: no fault found\n{}", numbered(&bench.text)),
    };
    assert_eq!(report.code, code, "{when}: {report}");
    let sites = report.site.iter().chain(&report.others);
    let lines: Vec<u32> = sites.map(|s| s.at.ptx_line).collect();
    let wanted = bench.text.lines().enumerate().filter(|(_, l)| l.contains(piece)).map(|(i, _)| i as u32 + 1);
    assert!(wanted.into_iter().any(|l| lines.contains(&l)), "{when}: `{piece}` is not named\n{report}");
}

/// Small whole numbers, exact in every format.
pub fn noise(seed: u32, i: usize) -> f32 {
    let x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
    let x = (x ^ x >> 15).wrapping_mul(0x2c1b_3c6d);
    ((x >> 20) % 17) as f32 - 8.0
}

/// Values as bytes of a format.
pub fn encode(elem: Elem, values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|v| match elem {
            Elem::BF16 => half::bf16::from_f32(*v).to_le_bytes().to_vec(),
            Elem::F16 => half::f16::from_f32(*v).to_le_bytes().to_vec(),
            _ => v.to_le_bytes().to_vec(),
        })
        .collect()
}

/// Initialises the mbarrier at a shared offset with one arrival, by thread 0 (`%p0` is false for it alone), and makes `%r1` the
/// start of shared memory.
pub fn one_barrier(offset: u32) -> String {
    format!(
        "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1+{offset}], 1;
    @!%p0 fence.mbarrier_init.release.cluster;
    bar.sync 0;
"
    )
}

/// Waits for a phase of the mbarrier at a shared offset.
pub fn wait(label: &str, offset: u32, parity: u32) -> String {
    format!(
        "{label}:
    mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r1+{offset}], {parity};
    @!%p7 bra {label};
"
    )
}
