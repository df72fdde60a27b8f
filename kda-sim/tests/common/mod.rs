//! Kernels for tests: a body becomes a module with its registers declared.
#![allow(dead_code)]

use kda_sim::{Launch, Memory, Options, Program, Report, Schedule, Stats, run};

/// A module of one entry `k` with 64-bit parameters and dynamic shared memory `smem`.
pub fn module(params: &[&str], body: &str) -> String {
    let params: Vec<String> = params.iter().map(|p| format!("    .param .u64 {p}")).collect();
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
    pub options: Options,
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
            options: Options { step_limit: 1_000_000, ..Options::default() },
        }
    }

    pub fn block(mut self, block: u32) -> Bench {
        self.block = block;
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
        let launch = Launch { shared_bytes: self.shared_bytes, ..Launch::new(self.grid, self.block, &self.params) };
        run(&program, &launch, &mut self.memory, &self.options)
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
