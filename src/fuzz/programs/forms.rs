//! Lane-wise instructions with every combination of type and modifiers that PTX has and the simulator models.
//!
//! Registers have kinds, so that the bits of a NaN, which PTX leaves open, never reach an integer, and so that results of
//! approximate instructions reach nothing at all. `add.f32` and the like without a rounding are left out: an assembler may
//! contract them.

use std::sync::LazyLock;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// 16, 32 and 64 bits of anything but a float.
    H,
    /// 32 bits.
    R,
    /// 64 bits.
    D,
    /// A predicate.
    P,
    /// `f16`
    F16,
    /// `bf16`
    Bf16,
    /// Two `f16`.
    F16x2,
    /// Two `bf16`.
    Bf16x2,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 10] =
        [Kind::H, Kind::R, Kind::D, Kind::P, Kind::F16, Kind::Bf16, Kind::F16x2, Kind::Bf16x2, Kind::F32, Kind::F64];

    /// Register prefix, first register and number of registers.
    pub const fn registers(self) -> (&'static str, usize, usize) {
        match self {
            Kind::H => ("%h", 0, 6),
            Kind::F16 => ("%h", 6, 4),
            Kind::Bf16 => ("%h", 10, 4),
            Kind::R => ("%r", 0, 12),
            Kind::F32 => ("%r", 12, 8),
            Kind::F16x2 => ("%r", 20, 3),
            Kind::Bf16x2 => ("%r", 23, 3),
            Kind::D => ("%rd", 8, 6),
            Kind::F64 => ("%rd", 14, 5),
            Kind::P => ("%p", 0, 6),
        }
    }

    /// Bits of the register.
    pub const fn bits(self) -> usize {
        match self {
            Kind::P => 1,
            Kind::H | Kind::F16 | Kind::Bf16 => 16,
            Kind::D | Kind::F64 => 64,
            _ => 32,
        }
    }
}

/// How near two devices' results are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closeness {
    /// The same bits; where the kind is a float, one NaN is as good as another.
    Bits,
    /// An `f32` within a relative and an absolute error; it is used for nothing else.
    Within(f64, f64),
}

/// An instruction, or a few that belong together: `{0}` … are its sources, `{d}`, `{e}`, … its destinations.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Lines of text.
    pub text: String,
    /// Kinds of the destinations.
    pub dst: Vec<Kind>,
    /// Kinds of the sources.
    pub src: Vec<Kind>,
    /// The last source may be a constant.
    pub constant: bool,
    /// How near the results are.
    pub closeness: Closeness,
}

/// Every form.
pub static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = Forms(Vec::new());
    forms.integers();
    forms.bits();
    forms.floats();
    forms.halves();
    forms.approximations();
    forms.comparisons();
    forms.moves();
    super::conversions::add(&mut forms);
    forms.0
});

/// Integer types: name and kind.
const INTEGERS: [(&str, Kind); 6] =
    [("u16", Kind::H), ("s16", Kind::H), ("u32", Kind::R), ("s32", Kind::R), ("u64", Kind::D), ("s64", Kind::D)];
const ROUNDS: [&str; 4] = [".rn", ".rz", ".rm", ".rp"];
const BITS: [(&str, Kind); 3] = [("b16", Kind::H), ("b32", Kind::R), ("b64", Kind::D)];

/// Forms while they are listed.
pub(super) struct Forms(pub Vec<Form>);

impl Forms {
    pub(super) fn add(&mut self, text: impl Into<String>, dst: &[Kind], src: &[Kind]) {
        let closeness = Closeness::Bits;
        self.0.push(Form { text: text.into(), dst: dst.to_vec(), src: src.to_vec(), constant: false, closeness });
    }

    /// `op d, a, b;` of one kind, the last source perhaps a constant.
    fn two(&mut self, op: String, kind: Kind) {
        self.add(format!("{op} {{d}}, {{0}}, {{1}};"), &[kind], &[kind; 2]);
        if let Some(form) = self.0.last_mut() {
            form.constant = true;
        }
    }

    fn one(&mut self, op: String, dst: Kind, src: Kind) {
        self.add(format!("{op} {{d}}, {{0}};"), &[dst], &[src]);
    }

    fn three(&mut self, op: String, kinds: [Kind; 4]) {
        self.add(format!("{op} {{d}}, {{0}}, {{1}}, {{2}};"), &kinds[..1], &kinds[1..]);
    }

    fn integers(&mut self) {
        for (ty, kind) in INTEGERS {
            for op in ["add", "sub", "mul.lo", "mul.hi", "min", "max"] {
                self.two(format!("{op}.{ty}"), kind);
            }
            for half in ["lo", "hi"] {
                self.three(format!("mad.{half}.{ty}"), [kind; 4]);
            }
            let wide = match kind {
                Kind::H => Some(Kind::R),
                Kind::R => Some(Kind::D),
                _ => None,
            };
            if let Some(wide) = wide {
                self.add(format!("mul.wide.{ty} {{d}}, {{0}}, {{1}};"), &[wide], &[kind; 2]);
                self.three(format!("mad.wide.{ty}"), [wide, kind, kind, wide]);
            }
            self.divisions(ty, kind);
            if ty.starts_with('s') {
                self.one(format!("neg.{ty}"), kind, kind);
                self.one(format!("abs.{ty}"), kind, kind);
            }
        }
        for op in ["add.sat.s32", "sub.sat.s32"] {
            self.two(op.to_string(), Kind::R);
        }
    }

    /// Quotients of numbers whose quotient exists: the divisor is odd, and the least number stands not above it.
    fn divisions(&mut self, ty: &str, kind: Kind) {
        let (bits, divisor, dividend) = match kind {
            Kind::H => ("b16", "%h20", "%h21"),
            Kind::R => ("b32", "%r40", "%r41"),
            _ => ("b64", "%rd30", "%rd31"),
        };
        let least: i128 = -(1 << (kind.bits() - 1)) + 1;
        for op in ["div", "rem"] {
            let text = match ty.starts_with('s') {
                true => format!(
                    "or.{bits} {divisor}, {{1}}, 1;\nmax.{ty} {dividend}, {{0}}, {least};\n\
                     {op}.{ty} {{d}}, {dividend}, {divisor};"
                ),
                false => format!("or.{bits} {divisor}, {{1}}, 1;\n{op}.{ty} {{d}}, {{0}}, {divisor};"),
            };
            self.add(text, &[kind], &[kind; 2]);
        }
    }

    fn bits(&mut self) {
        use Kind::{D, P, R};
        for (ty, kind) in BITS {
            for op in ["and", "or", "xor"] {
                self.two(format!("{op}.{ty}"), kind);
            }
            self.one(format!("not.{ty}"), kind, kind);
            self.add(format!("shl.{ty} {{d}}, {{0}}, {{1}};"), &[kind], &[kind, R]);
            let small = format!("and.b32 %r40, {{1}}, 63;\nshl.{ty} {{d}}, {{0}}, %r40;");
            self.add(small, &[kind], &[kind, R]);
            for sign in ['b', 'u', 's'] {
                let ty = format!("{sign}{}", &ty[1..]);
                self.add(format!("shr.{ty} {{d}}, {{0}}, {{1}};"), &[kind], &[kind, R]);
                let small = format!("and.b32 %r40, {{1}}, 63;\nshr.{ty} {{d}}, {{0}}, %r40;");
                self.add(small, &[kind], &[kind, R]);
            }
        }
        for op in ["and", "or", "xor"] {
            self.add(format!("{op}.pred {{d}}, {{0}}, {{1}};"), &[P], &[P; 2]);
        }
        self.one("not.pred".to_string(), P, P);
        for mode in ["l.clamp", "l.wrap", "r.clamp", "r.wrap"] {
            self.three(format!("shf.{mode}.b32"), [R; 4]);
            let text = format!("and.b32 %r40, {{2}}, 63;\nshf.{mode}.b32 {{d}}, {{0}}, {{1}}, %r40;");
            self.add(text, &[R], &[R; 3]);
        }
        for table in [0x80, 0x96, 0xE8, 0x1B, 0xCA, 0x7F] {
            self.add(format!("lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table};"), &[R], &[R; 3]);
        }
        self.three("prmt.b32".to_string(), [R; 4]);
        for (ty, kind) in &INTEGERS[2..] {
            // PTX takes the low byte of start and length; for 64 bits an H200 takes all of them.
            if *kind == R {
                self.three(format!("bfe.{ty}"), [*kind, *kind, R, R]);
            }
            let text =
                format!("and.b32 %r40, {{1}}, 63;\nand.b32 %r41, {{2}}, 63;\nbfe.{ty} {{d}}, {{0}}, %r40, %r41;");
            self.add(text, &[*kind], &[*kind, R, R]);
        }
        for (start, length) in [(0, 0), (3, 7), (8, 8), (24, 30), (31, 1), (40, 5), (5, 63), (200, 255)] {
            self.add(format!("bfi.b32 {{d}}, {{0}}, {{1}}, {start}, {length};"), &[R], &[R; 2]);
            self.add(format!("bfi.b64 {{d}}, {{0}}, {{1}}, {start}, {length};"), &[D], &[D; 2]);
        }
        for op in ["popc", "clz"] {
            self.one(format!("{op}.b32"), R, R);
            self.one(format!("{op}.b64"), R, D);
        }
        self.one("brev.b32".to_string(), R, R);
        self.one("brev.b64".to_string(), D, D);
    }

    fn floats(&mut self) {
        use Kind::{F32, F64};
        for round in ROUNDS {
            for ftz in ["", ".ftz"] {
                for sat in ["", ".sat"] {
                    for op in ["add", "sub", "mul"] {
                        self.two(format!("{op}{round}{ftz}{sat}.f32"), F32);
                    }
                    self.three(format!("fma{round}{ftz}{sat}.f32"), [F32; 4]);
                }
                self.two(format!("div{round}{ftz}.f32"), F32);
                self.one(format!("rcp{round}{ftz}.f32"), F32, F32);
                self.one(format!("sqrt{round}{ftz}.f32"), F32, F32);
            }
            for op in ["add", "sub", "mul", "div"] {
                self.two(format!("{op}{round}.f64"), F64);
            }
            self.three(format!("fma{round}.f64"), [F64; 4]);
            self.one(format!("rcp{round}.f64"), F64, F64);
            self.one(format!("sqrt{round}.f64"), F64, F64);
        }
        for ftz in ["", ".ftz"] {
            for op in ["min", "max", "min.NaN", "max.NaN"] {
                let (op, nan) = op.split_once('.').map_or((op, ""), |(op, _)| (op, ".NaN"));
                self.two(format!("{op}{ftz}{nan}.f32"), F32);
            }
            self.one(format!("neg{ftz}.f32"), F32, F32);
            self.one(format!("abs{ftz}.f32"), F32, F32);
        }
        for op in ["min", "max"] {
            self.two(format!("{op}.f64"), F64);
        }
        for op in ["neg", "abs"] {
            self.one(format!("{op}.f64"), F64, F64);
        }
    }

    fn halves(&mut self) {
        let halves = [("f16", Kind::F16), ("bf16", Kind::Bf16), ("f16x2", Kind::F16x2), ("bf16x2", Kind::Bf16x2)];
        for (ty, kind) in halves {
            self.one(format!("neg.{ty}"), kind, kind);
            self.one(format!("abs.{ty}"), kind, kind);
            self.add(format!("mul.rn.{ty} {{d}}, {{0}}, {{1}};"), &[kind], &[kind; 2]);
        }
    }

    /// Results within the errors that the PTX ISA documents, with room for what it says of subnormal numbers.
    fn approximations(&mut self) {
        use Kind::F32;
        let tiny = f64::from(f32::MIN_POSITIVE);
        for ftz in ["", ".ftz"] {
            for (op, relative, absolute) in [
                ("rcp.approx", 2f64.powi(-22), tiny),
                ("sqrt.approx", 2f64.powi(-21), tiny),
                ("rsqrt.approx", 2f64.powi(-22), tiny),
                ("ex2.approx", 2f64.powi(-21), tiny),
                ("lg2.approx", 2f64.powi(-21), 2f64.powi(-21)),
            ] {
                self.one(format!("{op}{ftz}.f32"), F32, F32);
                self.within(relative, absolute);
            }
            // The divisor's exponent is brought into the range where the error is documented. It comes from an integer: bits of a
            // NaN are nobody's business.
            for op in ["div.approx", "div.full"] {
                let text = format!(
                    "and.b32 %r40, {{1}}, -1073741825;\nor.b32 %r40, %r40, 536870912;\n{op}{ftz}.f32 {{d}}, {{0}}, %r40;"
                );
                self.add(text, &[F32], &[F32, Kind::R]);
                self.within(2f64.powi(-21), 2.0 * tiny);
            }
        }
        self.one("tanh.approx.f32".to_string(), F32, F32);
        self.within(2f64.powi(-10), tiny);
    }

    fn within(&mut self, relative: f64, absolute: f64) {
        if let Some(form) = self.0.last_mut() {
            form.closeness = Closeness::Within(relative, absolute);
        }
    }

    fn comparisons(&mut self) {
        use Kind::{F32, F64, P, R};
        let mut compare = |ops: &[&str], ftz: &str, ty: &str, kind: Kind| {
            for op in ops {
                let what = format!("setp.{op}");
                self.add(format!("{what}{ftz}.{ty} {{d}}, {{0}}, {{1}};"), &[P], &[kind; 2]);
                self.add(format!("{what}{ftz}.{ty} {{d}}|{{e}}, {{0}}, {{1}};"), &[P, P], &[kind; 2]);
                for (combine, not) in [("and", ""), ("or", "!"), ("xor", "")] {
                    let text = format!("{what}.{combine}{ftz}.{ty} {{d}}, {{0}}, {{1}}, {not}{{2}};");
                    self.add(text, &[P], &[kind, kind, P]);
                }
            }
        };
        let order = ["eq", "ne", "lt", "le", "gt", "ge"];
        for (ty, kind) in INTEGERS {
            compare(&order, "", ty, kind);
        }
        for (ty, kind) in BITS {
            compare(&order[..2], "", ty, kind);
        }
        let unordered = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
        for ops in [&order[..], &unordered[..]] {
            compare(ops, "", "f32", F32);
            compare(ops, ".ftz", "f32", F32);
            compare(ops, "", "f64", F64);
        }
        for (ty, kind) in INTEGERS.into_iter().chain(BITS).chain([("f32", F32), ("f64", F64)]) {
            self.add(format!("selp.{ty} {{d}}, {{0}}, {{1}}, {{2}};"), &[kind], &[kind, kind, P]);
            self.add(format!("selp.{ty} {{d}}, {{0}}, {{1}}, !{{2}};"), &[kind], &[kind, kind, P]);
        }
        self.add("selp.u32 {d}, 1, 0, {0};", &[R], &[P]);
    }

    fn moves(&mut self) {
        use Kind::{Bf16, Bf16x2, D, F16, F16x2, F32, F64, H, P, R};
        for kind in Kind::ALL {
            let ty = if kind == P { "pred".to_string() } else { format!("b{}", kind.bits()) };
            self.one(format!("mov.{ty}"), kind, kind);
        }
        // Any bits may become a float.
        for (float, bits) in [(F32, R), (F64, D), (F16, H), (Bf16, H), (F16x2, R), (Bf16x2, R)] {
            self.one(format!("mov.b{}", bits.bits()), float, bits);
        }
        // The bits of a float that is no NaN.
        self.add("setp.nan.f32 %p10, {0}, {0};\nselp.b32 {d}, 0, {0}, %p10;", &[R], &[F32]);
        self.add("setp.nan.f64 %p10, {0}, {0};\nselp.b64 {d}, 0, {0}, %p10;", &[D], &[F64]);
        for special in ["%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%laneid", "%lanemask_lt"] {
            self.add(format!("mov.u32 {{d}}, {special};"), &[R], &[]);
        }
        self.add("mov.b32 {d}, {{0}, {1}};", &[R], &[H; 2]);
        self.add("mov.b32 {{d}, {e}}, {0};", &[H; 2], &[R]);
        self.add("mov.b64 {d}, {{0}, {1}};", &[D], &[R; 2]);
        self.add("mov.b64 {{d}, {e}}, {0};", &[R; 2], &[D]);
        self.add("mov.b64 {d}, {{0}, {1}, {2}, {3}};", &[D], &[H; 4]);
        self.add("mov.b64 {{d}, {e}, {f}, {g}}, {0};", &[H; 4], &[D]);
        self.add("mov.b32 {d}, {{0}, {1}};", &[F16x2], &[F16; 2]);
        self.add("mov.b32 {{d}, {e}}, {0};", &[Bf16; 2], &[Bf16x2]);
    }
}
