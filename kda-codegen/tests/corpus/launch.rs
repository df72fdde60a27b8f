//! What the line `run:` of a case says, items separated by `;`.
//!
//! | item | meaning |
//! | --- | --- |
//! | `grid 4`, `grid 2 3` | CTAs |
//! | `block 64`, `cluster 2`, `shared 1024` | of PTX: threads, CTAs of a cluster, bytes of dynamic shared memory |
//! | `n u32 5` | a scalar, an axis or a stride |
//! | `x f32 [4, 32] random` | a dense tensor; a kernel's parameter says whether it is passed through a map |
//! | `a bf16 [64, 64] random map [64, 64] 128` | of PTX: through a map of boxes of this shape, with this swizzle or 0 |
//! | `ahead x` | a dependent launch: the grid ahead may still be writing this tensor |
//!
//! Contents are `random` (small whole numbers), `zero`, `poison` (nobody has written it), or `below N` (whole numbers, N at least 1).

use kda_codegen::compiled::{Compiled, ParamKind};
use kda_core::desc::{DimDesc, StrideDesc};
use kda_core::launch::TensorArg;
use kda_core::tensor_map::{Swizzle, TensorMapArg, TensorMapParam};
use kda_core::{Elem, Expr};
use kda_sim::{Launch, Memory, Options, Program, Report};

/// A parameter's place, and how its tensor is reached.
#[derive(Clone, Debug)]
pub struct Param {
    name: String,
    offset: usize,
    bytes: usize,
    map: Option<(Vec<u32>, Swizzle)>,
}

/// A text with all that a launch needs.
#[derive(Clone, Debug)]
pub struct Bench {
    text: String,
    grid: [u32; 3],
    block: u32,
    cluster: u32,
    shared: u32,
    params: Vec<Param>,
    /// By name, with the words of the line.
    items: Vec<(String, Item, String)>,
    /// Tensors that the grid ahead may still be writing.
    ahead: Vec<String>,
}

#[derive(Clone, Debug)]
enum Item {
    Scalar(Vec<u8>),
    Tensor { elem: Elem, shape: Vec<u64>, content: Content, map: Option<(Vec<u32>, Swizzle)> },
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Random,
    Zero,
    Poison,
    Below(u32),
}

/// A run: what the tensors hold behind it, or the report.
pub type Outcome = Result<Vec<Vec<u8>>, Box<Report>>;

const DIM: DimDesc = DimDesc { size: Expr::Int(0), stride: StrideDesc::Const(1) };
const STEPS: u64 = 300_000;
/// Most bytes of a tensor: what is generated, kept and compared for every schedule.
const MOST_BYTES: u64 = 1 << 24;

impl Bench {
    /// Of a compiled kernel.
    pub fn of_kernel(compiled: &Compiled, run: &str) -> Result<Bench, String> {
        let params = compiled.params.iter().map(|param| {
            let map = match &param.kind {
                ParamKind::Tensor { map: Some(map), .. } => Some((map.copy.clone(), map.swizzle)),
                _ => None,
            };
            Param { name: param.name.clone(), offset: param.offset as usize, bytes: param.bytes as usize, map }
        });
        let bench = Bench {
            text: compiled.ptx.clone(),
            grid: [0; 3],
            block: compiled.block,
            cluster: compiled.cluster,
            shared: compiled.shared_bytes,
            params: params.collect(),
            items: Vec::new(),
            ahead: Vec::new(),
        };
        bench.with(run, false)
    }

    /// Of a text.
    pub fn of_ptx(text: &str, run: &str) -> Result<Bench, String> {
        let params = declared(text)?;
        let (items, ahead) = (Vec::new(), Vec::new());
        let bench = Bench { text: text.into(), grid: [0; 3], block: 0, cluster: 1, shared: 0, params, items, ahead };
        bench.with(run, true)
    }

    fn with(mut self, run: &str, ptx: bool) -> Result<Bench, String> {
        for item in run.split(';').map(str::trim).filter(|item| !item.is_empty()) {
            let fail = || format!("run: `{item}`");
            let words: Vec<&str> = item.split_whitespace().collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok()).ok_or_else(fail);
            match words[0] {
                "grid" => {
                    self.grid = [number(1)?, 1, 1];
                    for at in 2..words.len() {
                        *self.grid.get_mut(at - 1).ok_or_else(fail)? = number(at)?;
                    }
                }
                "block" if ptx => self.block = number(1)?,
                "cluster" if ptx => self.cluster = number(1)?,
                "shared" if ptx => self.shared = number(1)?,
                "ahead" if words.len() > 1 => self.ahead.extend(words[1..].iter().map(|name| name.to_string())),
                name => {
                    if self.items.iter().any(|(known, ..)| known == name) || words.len() < 3 {
                        return Err(fail());
                    }
                    let parsed = parameter(item, ptx).ok_or_else(fail)?;
                    if let Item::Tensor { elem, shape, .. } = &parsed
                        && bytes_of(*elem, shape).is_none_or(|bytes| bytes > MOST_BYTES)
                    {
                        return Err(format!("{}: more than {MOST_BYTES} bytes", fail()));
                    }
                    self.items.push((name.into(), parsed, item.into()));
                }
            }
        }
        if let Some(param) = self.params.iter().find(|p| !self.items.iter().any(|(name, ..)| *name == p.name)) {
            return Err(format!("run: nothing on `{}`", param.name));
        }
        let tensor =
            |name: &&String| self.items.iter().any(|(n, item, _)| n == *name && matches!(item, Item::Tensor { .. }));
        if let Some(name) = self.ahead.iter().find(|name| !tensor(name)) {
            return Err(format!("run: no tensor `{name}`"));
        }
        if self.grid[0] == 0 || self.block == 0 {
            return Err("run: `grid`, and for PTX `block`".into());
        }
        Ok(self)
    }

    /// The line `run:` of the text by itself.
    pub fn described(&self) -> String {
        let mut text = format!("grid {}", self.grid.map(|n| n.to_string()).join(" ")).replace(" 1 1", "");
        text += &format!("; block {}; shared {}", self.block, self.shared);
        if self.cluster > 1 {
            text += &format!("; cluster {}", self.cluster);
        }
        for param in &self.params {
            let written =
                self.items.iter().find(|(name, _, _)| *name == param.name).map_or("", |(_, _, written)| written);
            text += &format!("; {written}");
            if let Some((tile, swizzle)) = &param.map {
                text += &format!(" map {tile:?} {}", swizzle.span().unwrap_or(0));
            }
        }
        if !self.ahead.is_empty() {
            text += &format!("; ahead {}", self.ahead.join(" "));
        }
        text
    }

    /// Runs the text on fresh memory.
    pub fn run(&self, options: &Options) -> Result<Outcome, String> {
        let program = Program::load(&self.text).map_err(|e| format!("{e}"))?;
        let (mut memory, mut tensors, mut ahead) = (Memory::new(), Vec::new(), Vec::new());
        let size = self.params.iter().map(|p| p.offset + p.bytes).max().unwrap_or(0);
        let mut block = vec![0u8; size];
        for (seed, (name, item, _)) in self.items.iter().enumerate() {
            let param = self.params.iter().find(|p| p.name == *name);
            let param = param.ok_or_else(|| format!("run: no parameter `{name}`"))?;
            let bytes = match item {
                Item::Scalar(bytes) => bytes.clone(),
                Item::Tensor { elem, shape, content, map } => {
                    let count: u64 = shape.iter().product();
                    let values = content.bytes(*elem, count, seed as u64);
                    let length = count * u64::from(elem.bytes());
                    let at = memory.allocate(length).map_err(|e| format!("{e:?}"))?;
                    if let Some(values) = values {
                        memory.write(at, &values).map_err(|e| format!("{e:?}"))?;
                    }
                    tensors.push((at, length));
                    ahead.extend(self.ahead.contains(name).then_some(at));
                    match param.map.as_ref().or(map.as_ref()) {
                        Some((tile, swizzle)) => encode(at, length, *elem, shape, tile, *swizzle)?,
                        None => at.to_le_bytes().to_vec(),
                    }
                }
            };
            if bytes.len() != param.bytes {
                return Err(format!("run: `{name}` has {} bytes, not {}", param.bytes, bytes.len()));
            }
            block[param.offset..][..param.bytes].copy_from_slice(&bytes);
        }
        if !ahead.is_empty() {
            memory.depend(&ahead);
        }
        let launch =
            Launch { shared_bytes: self.shared, cluster: self.cluster, ..Launch::new(self.grid, self.block, &block) };
        let options = Options { step_limit: STEPS, ..*options };
        if let Err(report) = kda_sim::run(&program, &launch, &mut memory, &options) {
            return Ok(Err(report));
        }
        let contents = tensors.iter().map(|(at, length)| {
            let mut bytes = vec![0; *length as usize];
            memory.read(*at, &mut bytes).map(|()| bytes).map_err(|e| format!("{e:?}"))
        });
        contents.collect::<Result<_, _>>().map(Ok)
    }
}

/// Parameters that a text declares.
fn declared(text: &str) -> Result<Vec<Param>, String> {
    let entry = text.find(".entry").ok_or("no `.entry`")?;
    let end = text[entry..].find('{').ok_or("no body")? + entry;
    let mut offset = 0usize;
    let mut found = Vec::new();
    for piece in text[entry..end].split(".param").skip(1) {
        let piece = piece.trim().trim_end_matches(|c: char| c != ']' && !c.is_alphanumeric());
        let piece = piece.split([')', ',']).next().unwrap_or_default().trim();
        let name = piece.split_whitespace().last().unwrap_or_default();
        let (name, bytes) = match name.split_once('[') {
            Some((name, _)) => (name, 128),
            None if piece.starts_with(".u32") || piece.starts_with(".b32") => (name, 4),
            None if piece.starts_with(".u64") || piece.starts_with(".b64") => (name, 8),
            None => return Err(format!("parameter `{piece}`")),
        };
        offset = offset.next_multiple_of(bytes.min(64));
        found.push(Param { name: name.into(), offset, bytes, map: None });
        offset += bytes;
    }
    Ok(found)
}

/// `n u32 5` and `x f32 [4, 32] random …`.
fn parameter(item: &str, ptx: bool) -> Option<Item> {
    let rest = item.split_once(' ')?.1.trim();
    let (ty, rest) = rest.split_once(' ')?;
    let rest = rest.trim();
    if !rest.starts_with('[') {
        return Some(Item::Scalar(match ty {
            "u32" => rest.parse::<u32>().ok()?.to_le_bytes().to_vec(),
            "bool" => vec![u8::from(rest.parse::<bool>().ok()?)],
            "u64" => rest.parse::<u64>().ok()?.to_le_bytes().to_vec(),
            "i32" => rest.parse::<i32>().ok()?.to_le_bytes().to_vec(),
            "f32" => rest.parse::<f32>().ok()?.to_le_bytes().to_vec(),
            _ => return None,
        }));
    }
    let elem = [Elem::F32, Elem::BF16, Elem::F16, Elem::U32, Elem::U64, Elem::I32, Elem::U8];
    let elem = *elem.iter().find(|e| e.to_string() == ty)?;
    let (shape, rest) = sizes(rest)?;
    let (content, map) = match rest.split_once(" map ") {
        Some((content, map)) if ptx => {
            let (tile, swizzle) = sizes(map)?;
            let swizzle = Swizzle::of_span(swizzle.parse().ok()?)?;
            (content, Some((tile.into_iter().map(|n| n as u32).collect(), swizzle)))
        }
        Some(_) => return None,
        None => (rest, None),
    };
    let content = match content.split_once(' ') {
        Some(("below", n)) => Content::Below(n.parse().ok().filter(|n| *n > 0)?),
        None if content == "random" => Content::Random,
        None if content == "zero" => Content::Zero,
        None if content == "poison" => Content::Poison,
        _ => return None,
    };
    Some(Item::Tensor { elem, shape, content, map })
}

/// Bytes of a dense tensor, empty axes counted as 1; none if they are past 64 bits.
fn bytes_of(elem: Elem, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(u64::from(elem.bytes()), |bytes, size| bytes.checked_mul((*size).max(1)))
}

/// `[4, 32] rest`.
fn sizes(text: &str) -> Option<(Vec<u64>, &str)> {
    let (list, rest) = text.trim().strip_prefix('[')?.split_once(']')?;
    let sizes: Option<Vec<u64>> = list.split(',').map(|n| n.trim().parse().ok()).collect();
    Some((sizes?, rest.trim()))
}

impl Content {
    /// `count` elements; none if nobody has written them.
    fn bytes(self, elem: Elem, count: u64, seed: u64) -> Option<Vec<u8>> {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (z ^ (z >> 29)) as u32
        };
        let limit = match self {
            Content::Poison => return None,
            Content::Zero => 1,
            Content::Below(n) => n,
            Content::Random => 17,
        };
        let value = |n: u32| -> Vec<u8> {
            let float = (if matches!(self, Content::Random) { n as f32 - 8.0 } else { n as f32 }).to_bits();
            match elem {
                Elem::F32 => float.to_le_bytes().to_vec(),
                Elem::BF16 => ((float >> 16) as u16).to_le_bytes().to_vec(),
                // Whole numbers up to 8: sign, exponent and fraction moved to their places.
                Elem::F16 if float << 1 == 0 => vec![0, 0],
                Elem::F16 => {
                    let rest = ((float >> 13) & 0x3ffff) as u16;
                    ((float >> 16) as u16 & 0x8000 | rest.wrapping_sub(112 << 10) & 0x7fff).to_le_bytes().to_vec()
                }
                _ => u64::from(n).to_le_bytes()[..elem.bytes() as usize].to_vec(),
            }
        };
        Some((0..count).flat_map(|_| value(word() % limit)).collect())
    }
}

fn encode(at: u64, bytes: u64, elem: Elem, shape: &[u64], tile: &[u32], swizzle: Swizzle) -> Result<Vec<u8>, String> {
    if shape.len() != tile.len() || shape.len() > 5 {
        return Err("run: a box has the axes of its tensor".into());
    }
    let strides: Vec<u64> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
    let tensor = TensorArg::strided(at, bytes, elem, shape, &strides).map_err(|e| format!("{e}"))?;
    let (dims, tile): (_, &'static [u32]) = (&[DIM; 5][..tile.len()], tile.to_vec().leak());
    let param = TensorMapParam { elem, writes: true, optional: false, stable: false, dims, tile, swizzle };
    Ok(TensorMapArg { param, tensor, offset: 0 }.encode().to_vec())
}
