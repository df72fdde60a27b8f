//! Programs that are right by construction, and whose results do not depend on who runs when.
//!
//! Every thread reads its registers from an input, computes, and stores each result to a slot of its own. Branches and loops
//! diverge; what a warp or a CTA does together stands only where all its threads pass. Shared memory is exchanged between
//! barriers, and atomics are such that their order does not show.

use super::forms::{Closeness, FORMS, Form, Kind};
use super::input::{input, word};
use super::together;
use kda_ref::rng::Rng;

/// Threads of a CTA at most; the input has rows for so many threads of [`GRID`] CTAs.
pub const BLOCK: u32 = 128;
/// CTAs.
pub const GRID: u32 = 3;
/// Words of 8 bytes that a thread reads its registers from.
pub const WORDS: usize = 64;
/// Bytes behind the slots of the output that atomics of all CTAs combine.
pub const COMBINED: u64 = 512;

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// What it holds.
    pub kind: Kind,
    /// How near results are.
    pub closeness: Closeness,
    /// What computed it.
    pub text: String,
}

/// A program and what it runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// PTX of one entry `fuzz`.
    pub text: String,
    /// Threads of a CTA.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Results of a thread; slot `s` of thread `t` of all is 8 bytes at `8 * (s * threads + t)`.
    pub slots: Vec<Slot>,
    /// What it reads.
    pub input: Vec<u8>,
}

impl Program {
    /// Threads of the grid.
    pub fn threads(&self) -> usize {
        (self.block * GRID) as usize
    }

    /// Bytes of the output: slots, then what atomics combine.
    pub fn output_bytes(&self) -> u64 {
        (8 * self.slots.len() * self.threads()) as u64 + COMBINED
    }
}

/// A program while it is written.
pub(super) struct Writer<'r> {
    pub rng: &'r mut Rng,
    lines: Vec<String>,
    pub slots: Vec<Slot>,
    labels: usize,
    /// Nesting of branches and loops.
    depth: usize,
    /// All threads of the CTA pass here together.
    pub together: bool,
    pub block: u32,
}

/// The program of these random numbers, of about so many statements.
pub fn generate(rng: &mut Rng, statements: usize) -> Program {
    let block = rng.choose(&[64, BLOCK]);
    let mut writer = Writer { rng, lines: Vec::new(), slots: Vec::new(), labels: 0, depth: 0, together: true, block };
    together::prepare(&mut writer);
    writer.statements(statements);
    // What the registers hold in the end.
    for kind in Kind::ALL {
        for index in 0..kind.registers().2 {
            writer.keep(kind, &register(kind, index), Closeness::Bits, "at the end");
        }
    }
    let Writer { lines, slots, rng, .. } = writer;
    let input = input(rng);
    Program {
        text: module(&lines, slots.len(), block),
        block,
        shared_bytes: together::shared_bytes(block),
        slots,
        input,
    }
}

/// A program of these forms, one after the other. No result is an operand, so that each form is judged by itself.
pub fn of_forms<'f>(forms: impl Iterator<Item = &'f Form>, rng: &mut Rng) -> Program {
    let block = BLOCK;
    let mut writer = Writer { rng, lines: Vec::new(), slots: Vec::new(), labels: 0, depth: 0, together: true, block };
    for form in forms {
        let destinations: Vec<String> = form.dst.iter().enumerate().map(|(index, kind)| aside(*kind, index)).collect();
        let text = writer.fill(form, &destinations);
        text.lines().for_each(|line| writer.line(line));
        for (kind, destination) in form.dst.iter().zip(&destinations) {
            writer.keep(*kind, destination, form.closeness, &text.replace('\n', " "));
        }
    }
    let Writer { lines, slots, rng, .. } = writer;
    let input = input(rng);
    Program { text: module(&lines, slots.len(), block), block, shared_bytes: 0, slots, input }
}

/// A register that no form reads.
fn aside(kind: Kind, index: usize) -> String {
    match kind {
        Kind::P => format!("%p{}", 6 + index),
        Kind::H | Kind::F16 | Kind::Bf16 => format!("%h{}", 24 + index),
        Kind::D | Kind::F64 => format!("%rd{}", 32 + index),
        _ => format!("%r{}", 44 + index),
    }
}

/// Registers that a thread reads from the input, in the order of its words.
pub fn pool() -> impl Iterator<Item = (Kind, String)> {
    Kind::ALL.into_iter().flat_map(|kind| (0..kind.registers().2).map(move |index| (kind, register(kind, index))))
}

/// Name of a register of a kind.
pub fn register(kind: Kind, index: usize) -> String {
    let (prefix, first, count) = kind.registers();
    format!("{prefix}{}", first + index % count)
}

impl Writer<'_> {
    /// Appends a line.
    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// A register of a kind.
    pub fn any(&mut self, kind: Kind) -> String {
        register(kind, self.rng.below(kind.registers().2))
    }

    /// Different registers of the kinds.
    fn destinations(&mut self, kinds: &[Kind]) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for kind in kinds {
            let mut next = self.any(*kind);
            while found.contains(&next) {
                next = self.any(*kind);
            }
            found.push(next);
        }
        found
    }

    fn statements(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let inner = 1 + self.rng.below(6);
            match self.rng.below(24) {
                0 if self.depth < 3 => self.branch(inner),
                1 if self.depth < 3 => self.repeat(inner),
                2 => self.load(),
                3..7 if self.together => together::statement(self),
                _ => self.compute(),
            }
            left -= 1;
        }
    }

    /// One form, perhaps under a guard; its results are stored.
    fn compute(&mut self) {
        let form = &FORMS[self.rng.below(FORMS.len())];
        let destinations = match form.closeness {
            Closeness::Bits => self.destinations(&form.dst),
            Closeness::Within(..) => vec!["%r42".to_string()],
        };
        let text = self.fill(form, &destinations);
        let terminal = form.closeness != Closeness::Bits;
        let guard = match self.rng.below(6) {
            0 if !terminal => Some(format!("@{}{} ", if self.rng.coin() { "!" } else { "" }, self.any(Kind::P))),
            _ => None,
        };
        // A destination that is the guard of the lines behind it would change who executes them.
        let own = |guard: &String| destinations.iter().any(|d| guard.trim_end().ends_with(d.as_str()));
        let guard = guard.filter(|guard| !own(guard)).unwrap_or_default();
        for line in text.lines() {
            self.line(format!("{guard}{line}"));
        }
        for (kind, destination) in form.dst.iter().zip(&destinations) {
            self.keep(*kind, destination, form.closeness, &format!("{guard}{}", text.replace('\n', " ")));
        }
    }

    /// The text of a form with registers in place of its operands.
    fn fill(&mut self, form: &Form, destinations: &[String]) -> String {
        let mut text = form.text.clone();
        for (name, register) in ["{d}", "{e}", "{f}", "{g}"].iter().zip(destinations) {
            text = text.replace(name, register);
        }
        for (index, kind) in form.src.iter().enumerate() {
            let last = index + 1 == form.src.len();
            let source = match form.constant && last && self.rng.below(5) == 0 {
                true => self.constant(*kind),
                false => self.any(*kind),
            };
            text = text.replace(&format!("{{{index}}}"), &source);
        }
        text
    }

    fn constant(&mut self, kind: Kind) -> String {
        let bits = word(kind, self.rng);
        match kind {
            Kind::F32 => format!("0f{:08X}", bits as u32),
            Kind::F64 => format!("0d{bits:016X}"),
            Kind::H => (bits as i16).to_string(),
            Kind::R => (bits as i32).to_string(),
            _ => (bits as i64).to_string(),
        }
    }

    /// Stores a register to the next slot.
    pub fn keep(&mut self, kind: Kind, register: &str, closeness: Closeness, text: &str) {
        let at = self.slots.len() * 8 * (self.block * GRID) as usize;
        let register = match kind {
            Kind::P => {
                self.line(format!("selp.b32 %r43, 1, 0, {register};"));
                "%r43"
            }
            _ => register,
        };
        self.line(format!(
            "st.global.b{} [%rd2+{at}], {register};",
            kind.bits().max(16).max(if kind == Kind::P { 32 } else { 0 })
        ));
        self.slots.push(Slot { kind, closeness, text: text.to_string() });
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    /// Lines in which threads may be apart.
    fn apart(&mut self, uniform: bool, statements: usize) {
        let before = self.together;
        self.together = before && uniform;
        self.depth += 1;
        self.statements(statements);
        self.depth -= 1;
        self.together = before;
    }

    /// `if`, or `if` and `else`.
    fn branch(&mut self, statements: usize) {
        let (otherwise, end) = (self.label(), self.label());
        let condition = self.any(Kind::P);
        self.line(format!("@!{condition} bra {otherwise};"));
        self.apart(false, statements);
        let both = self.rng.coin();
        if both {
            self.line(format!("bra {end};"));
        }
        self.line(format!("{otherwise}:"));
        if both {
            self.apart(false, statements);
            self.line(format!("{end}:"));
        }
    }

    /// A loop of one to four turns, as many for every thread or not.
    fn repeat(&mut self, statements: usize) {
        let (counter, done) = (format!("%r{}", 48 + self.depth), format!("%p{}", 12 + self.depth));
        let (start, uniform) = (self.label(), self.rng.coin());
        match uniform {
            true => {
                let turns = 1 + self.rng.below(3);
                self.line(format!("mov.u32 {counter}, {turns};"));
            }
            false => {
                let source = self.any(Kind::R);
                self.line(format!("and.b32 {counter}, {source}, 3;"));
            }
        }
        self.line(format!("{start}:"));
        self.apart(uniform, statements);
        self.line(format!("setp.eq.u32 {done}, {counter}, 0;"));
        self.line(format!("sub.u32 {counter}, {counter}, 1;"));
        self.line(format!("@!{done} bra {start};"));
    }

    /// A load from anywhere in the input.
    fn load(&mut self) {
        let source = self.any(Kind::R);
        let last = (BLOCK * GRID) as usize * WORDS / 2;
        // The number of 16-byte words is no power of two: the high half of a product is below it.
        self.line(format!("mul.hi.u32 %r40, {source}, {last};"));
        self.line("mul.wide.u32 %rd30, %r40, 16;");
        self.line("add.u64 %rd30, %rd0, %rd30;");
        let cache = self.rng.choose(&["", ".nc", ".ca", ".cg"]);
        let (ty, kinds): (&str, Vec<Kind>) = match self.rng.below(9) {
            0 => (".v4.b32", vec![Kind::R; 4]),
            1 => (".v4.f32", vec![Kind::F32; 4]),
            2 => (".v2.b64", vec![Kind::D; 2]),
            3 => (".v2.f64", vec![Kind::F64; 2]),
            4 => (".v4.b16", vec![Kind::H; 4]),
            5 => (".u8", vec![Kind::R]),
            6 => (".s8", vec![Kind::R]),
            7 => (".s16", vec![Kind::R]),
            _ => (".u16", vec![Kind::H]),
        };
        let destinations = self.destinations(&kinds);
        let list = match destinations.as_slice() {
            [one] => one.clone(),
            many => format!("{{{}}}", many.join(", ")),
        };
        let text = format!("ld.global{cache}{ty} {list}, [%rd30];");
        self.line(text.clone());
        for (kind, destination) in kinds.into_iter().zip(&destinations) {
            self.keep(kind, destination, Closeness::Bits, &text);
        }
    }
}

/// The module around the lines.
fn module(lines: &[String], slots: usize, block: u32) -> String {
    let mut out = String::from(
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.extern .shared .align 16 .b8 smem[];\n\n\
         .visible .entry fuzz(\n    .param .u64 input,\n    .param .u64 output\n)\n",
    );
    out.push_str(&format!(".reqntid {block}, 1, 1\n{{\n"));
    out.push_str("    .reg .pred %p<16>;\n    .reg .b16 %h<32>;\n    .reg .b32 %r<80>;\n    .reg .b64 %rd<40>;\n");
    // The thread's number among all, its row of the input, its slots, and what all combine.
    let combined = 8 * slots * (block * GRID) as usize;
    let mut prologue = format!(
        "ld.param.u64 %rd0, [input];\nld.param.u64 %rd1, [output];\nmov.u32 %r60, %tid.x;\nmov.u32 %r61, %ctaid.x;\n\
         mad.lo.u32 %r61, %r61, {block}, %r60;\nmul.wide.u32 %rd2, %r61, 8;\nadd.u64 %rd2, %rd1, %rd2;\n\
         mul.wide.u32 %rd3, %r61, {};\nadd.u64 %rd3, %rd0, %rd3;\nadd.u64 %rd4, %rd1, {combined};\n",
        8 * WORDS
    );
    for (word, (kind, register)) in pool().enumerate() {
        prologue.push_str(&match kind {
            Kind::P => format!("ld.global.u8 %r40, [%rd3+{}];\nsetp.gt.u32 {register}, %r40, 127;\n", 8 * word),
            _ => format!("ld.global.b{} {register}, [%rd3+{}];\n", kind.bits(), 8 * word),
        });
    }
    for line in prologue.lines().chain(lines.iter().map(String::as_str)) {
        out.push_str(if line.ends_with(':') { "" } else { "    " });
        out.push_str(line);
        out.push('\n');
    }
    out.push_str("    ret;\n}\n");
    out
}
