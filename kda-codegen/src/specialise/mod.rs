//! Specialisation: one variant of a kernel becomes KIR.
//!
//! The body is evaluated in two times at once. What is known while compiling is computed; what is not becomes
//! instructions. A device function is evaluated at its call, an unrolled loop once a trip, a branch on a constant on its
//! side alone. Variables are rebound, not overwritten, as long as control is static; where runtime branches join and where
//! runtime loops go round, the values that differ get a register of their own.
//!
//! | question | file |
//! | --- | --- |
//! | what a value is, and what is known of it | `value`, `range` |
//! | statements, expressions, names, operators, types | `expr`, `names`, `ops`, `halves`, `convert`, `assign`, `pattern`, `matrix_types`, `attributes` |
//! | calls: device functions, functions, methods | `call`, `functions`, `math`, `lanes`, `methods` |
//! | control | `control`, `loops`, `trips`, `join`, `trial` |
//! | work that a counter hands out | `tickets` |
//! | memory | `views`, `based`, `global`, `shared`, `tile`, `tile_access`, `shared_access` |
//! | matrices in the registers of a warp | `fragment` |
//! | products of warpgroups | `products` |
//! | roles, barriers, bulk copies, dependent launch | `roles`, `sync`, `mbarrier` |
//! | tensor memory and its products | `tensor_memory`, `tcgen05` |
//! | clusters | `cluster`, `multicast` |
//! | what is emitted, and where an error stands | `builder`, `site` |
//! | how much work is too much | `budget` |
//! | what becomes of it all: checks, fences, text | `finish` |

mod assign;
mod attributes;
mod based;
mod budget;
mod builder;
mod call;
mod cluster;
mod control;
mod convert;
mod env;
mod expr;
mod finish;
mod fragment;
mod functions;
mod global;
mod halves;
mod join;
mod lanes;
mod lists;
mod loops;
mod math;
mod matrix_types;
mod mbarrier;
mod methods;
mod multicast;
mod names;
mod ops;
mod params;
mod pattern;
mod pipeline;
mod products;
mod range;
mod roles;
mod shared;
mod shared_access;
mod site;
mod sync;
mod tcgen05;
mod tensor_copy;
mod tensor_memory;
mod tickets;
mod tile;
mod tile_access;
mod trial;
mod trips;
mod value;
mod views;

use crate::compiled::{Barrier, Compiled, SharedBuffer};
use crate::consteval::{Const, Scope};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Place, Uniform};
use crate::signature::Resolved;
use crate::syntax::{Family, Kernel};
use crate::variants::Variant;
use budget::Budget;
use builder::Builder;
use env::Scopes;
use kda_ptx::Reg;
use proc_macro2::Span;
use range::Affine;
use site::Site;
use std::collections::HashMap;
use value::Value;

/// Bytes of shared memory that a CTA may have on the architectures in the table.
pub const MAX_SHARED_BYTES: u32 = 232_448;

/// Who arrives at a barrier for a warp that has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// One lane, for what all lanes did: the warp barrier ahead of it orders them.
    #[default]
    Warp,
    /// Every lane, for itself: for tools that see a thread's own arrival alone.
    Lane,
}

/// Compiles one variant.
pub fn compile_variant(family: &Family, kernel: &Kernel, variant: &Variant, resolved: &Resolved) -> Result<Compiled> {
    compile_with_arrivals(family, kernel, variant, resolved, Arrivals::Warp)
}

/// Compiles one variant; stages are handed over as `arrivals` says, except those released to several CTAs.
pub fn compile_with_arrivals(
    family: &Family,
    kernel: &Kernel,
    variant: &Variant,
    resolved: &Resolved,
    arrivals: Arrivals,
) -> Result<Compiled> {
    // Buffers that no variant code touches take no memory: the first pass finds them, the second places the others.
    // So are rings that are filled by multicast, whose releases may stand ahead of the loads, and rings whose stages are
    // filled once.
    let mut used: Option<Vec<bool>> = None;
    let mut multicast = std::collections::BTreeSet::new();
    let mut filled_once = std::collections::BTreeSet::new();
    loop {
        let mut specialiser = Specialiser::new(family, kernel, variant, resolved, used.take());
        specialiser.cluster.multicast.clone_from(&multicast);
        specialiser.filled_once.clone_from(&filled_once);
        specialiser.arrivals = arrivals;
        specialiser.kernel_body()?;
        let once: std::collections::BTreeSet<usize> =
            (0..specialiser.rings.len()).filter(|ring| !specialiser.rings[*ring].reused).collect();
        let settled = specialiser.cluster.found == multicast && once == filled_once;
        let touched: Vec<bool> = specialiser.buffers.iter().map(|b| b.used).collect();
        if settled && (touched.iter().all(|u| *u) || specialiser.keep.is_some()) {
            specialiser.check_shared_size()?;
            return specialiser.finish();
        }
        multicast.clone_from(&specialiser.cluster.found);
        filled_once = once;
        used = Some(touched);
    }
}

/// A shared buffer while it is compiled.
#[derive(Clone, Debug)]
struct Buffer {
    desc: SharedBuffer,
    used: bool,
    /// Products read it.
    multiplied: bool,
    declared: (Span, Span),
}

/// One function activation.
struct Frame {
    scopes: Scopes,
    generics: HashMap<String, Const>,
    library: Option<String>,
}

/// What a kernel parameter has become.
#[derive(Clone, Debug, Default)]
struct ParamState {
    /// Largest alignment that an access needs, bytes.
    align: u32,
    /// Accessed by ordinary loads, stores or atomics.
    generic: bool,
    /// First access ahead of `pdl::wait()` that needs it behind.
    early: Option<(Span, Span)>,
}

struct Specialiser<'a> {
    family: &'a Family,
    arrivals: Arrivals,
    kernel: &'a Kernel,
    variant: &'a Variant,
    resolved: &'a Resolved,
    builder: Builder,
    frames: Vec<Frame>,
    /// Uniformity of the open runtime branches.
    control: Vec<Uniform>,
    /// Number of them that are no loops.
    branches: usize,
    /// Those that are the roles' own.
    role_branches: usize,
    /// Roles whose code is being compiled; `None` where all warps run.
    roles: Option<Vec<usize>>,
    buffers: Vec<Buffer>,
    shared_end: u32,
    keep: Option<Vec<bool>>,
    declared: usize,
    barriers: Vec<(Barrier, Vec<usize>)>,
    params: Vec<ParamState>,
    /// Registers that are another register plus a constant.
    affine: HashMap<Reg, Affine>,
    /// The same where it may have wrapped.
    modular: HashMap<Reg, (Reg, i64)>,
    /// 16-bit registers that are the lower or the upper half of a word.
    halves: HashMap<Reg, (Reg, bool)>,
    /// Counters of loops, with the texts of their ranges.
    counters: HashMap<Reg, String>,
    /// Constants that a library's functions see, and the module's own (`None`).
    constants: HashMap<Option<String>, Scope<'static>>,
    budget: Budget,
    files: Vec<String>,
    /// `pdl::wait()` has run on every path to here.
    waited: bool,
    /// The kernel waits for its predecessor somewhere.
    dependent: Option<(Span, Span)>,
    /// A `return` that is come to without such a wait.
    left_early: Option<(Span, Span)>,
    /// Name of the variable that is being declared.
    naming: Option<String>,
    returned: bool,
    /// Rings, and the stages that were ever taken from them.
    rings: Vec<pipeline::Ring>,
    holdings: Vec<pipeline::Holding>,
    /// Rings whose stages are all filled once: they have no empty barriers.
    filled_once: std::collections::BTreeSet<usize>,
    /// Stages of the buffer that is being declared in a pipeline.
    staging: Option<u32>,
    /// mbarriers that no barrier has published yet, with the predicate of the thread that initialised them.
    fresh_barriers: Option<kda_ptx::operand::PredSrc>,
    /// The kernel has mbarriers outside pipelines.
    raw_barriers: bool,
    /// The code runs in one thread of its role.
    elected: bool,
    /// Some code of one thread has been compiled.
    elections: bool,
    /// Stages taken by the code of one thread that is being compiled.
    elected_takes: Vec<pipeline::ElectedTake>,
    /// Register of the warp's index, once something has asked for it.
    warp_register: Option<Reg>,
    /// What the kernel does with its cluster.
    cluster: cluster::State,
    /// Accumulators in tensor memory.
    tensor_memory: tensor_memory::State,
    /// That thread has issued bulk stores from stages whose writes it has not waited for.
    writing: bool,
    /// Products in flight, and accumulators so far.
    flight: products::Flight,
    accumulators: usize,
    /// Accumulators that have become operands.
    conversions: products::Conversions,
    /// Work that counters hand out.
    tickets: tickets::State,
    /// Buffers of elements that were loaded in roles, by their registers.
    lists: HashMap<Reg, usize>,
    /// Places of protocol events.
    spans: Vec<(Span, Span)>,
    calls: Vec<String>,
}

impl<'a> Specialiser<'a> {
    fn new(
        family: &'a Family,
        kernel: &'a Kernel,
        variant: &'a Variant,
        resolved: &'a Resolved,
        keep: Option<Vec<bool>>,
    ) -> Self {
        let generics = variant.bindings.iter().cloned().collect();
        Specialiser {
            family,
            arrivals: Arrivals::default(),
            kernel,
            variant,
            resolved,
            builder: Builder::new(),
            frames: vec![Frame { scopes: Scopes::new(), generics, library: None }],
            control: Vec::new(),
            branches: 0,
            role_branches: 0,
            roles: None,
            buffers: Vec::new(),
            shared_end: 0,
            keep,
            declared: 0,
            barriers: Vec::new(),
            params: vec![ParamState::default(); resolved.params.len()],
            affine: HashMap::new(),
            modular: HashMap::new(),
            halves: HashMap::new(),
            counters: HashMap::new(),
            constants: HashMap::new(),
            budget: Budget::default(),
            files: Vec::new(),
            waited: false,
            dependent: None,
            left_early: None,
            naming: None,
            returned: false,
            rings: Vec::new(),
            holdings: Vec::new(),
            filled_once: Default::default(),
            staging: None,
            fresh_barriers: None,
            raw_barriers: false,
            elected: false,
            elections: false,
            elected_takes: Vec::new(),
            warp_register: None,
            flight: products::Flight::default(),
            cluster: cluster::State::default(),
            tensor_memory: tensor_memory::State::default(),
            writing: false,
            accumulators: 0,
            conversions: products::Conversions::default(),
            tickets: tickets::State::default(),
            lists: HashMap::new(),
            spans: Vec::new(),
            calls: Vec::new(),
        }
    }

    fn kernel_body(&mut self) -> Result<()> {
        let body = &self.kernel.body;
        let value = self.block(body)?;
        self.finish_writes(Site::Tokens(&self.kernel.name))?;
        if value != Value::Unit {
            let message = format!("a kernel gives nothing; its body gives {}", value.describe());
            return Err(match body.stmts.last() {
                Some(last) => Diagnostic::at(160, last, message),
                None => Diagnostic::at(160, &self.kernel.name, message),
            });
        }
        self.check_landed_by("the kernel")?;
        self.free_tensor_memory()?;
        self.leave_cluster()?;
        if let Some(wait) = self.dependent {
            for (param, state) in self.resolved.params.iter().zip(&self.params) {
                if let Some(span) = state.early {
                    return Err(Diagnostic::new(
                        651,
                        span,
                        format!("`{}` is accessed ahead of `pdl::wait()`, while a predecessor may still write or read it", param.name),
                    )
                    .help("move the access behind the wait, or mark the parameter `stable` if no running predecessor writes it, `unshared` if none reads it either"));
                }
            }
            self.check_waits(wait)?;
        }
        Ok(())
    }

    /// A kernel that waits for its predecessor does so on every path: whoever waits for it relies on that.
    fn check_waits(&self, wait: (Span, Span)) -> Result<()> {
        let (place, message) = match self.left_early {
            Some(place) => (place, "a CTA that returns here has not waited for the predecessor"),
            None if !self.waited => (wait, "only some paths come to this wait for the predecessor"),
            None => return Ok(()),
        };
        Err(Diagnostic::new(663, place, message)
            .help("put `pdl::wait()` where every path passes, ahead of each `return`"))
    }

    /// The source of what is emitted next.
    fn place(&mut self, site: Site<'_>) {
        let span = site.start();
        let start = span.start();
        let name = span.file();
        let file = match self.files.iter().position(|f| *f == name) {
            Some(index) => index,
            None => {
                self.files.push(name);
                self.files.len() - 1
            }
        };
        self.builder.place = Place { file: file as u32 + 1, line: start.line as u32, column: start.column as u32 + 1 };
    }

    fn frame(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Uniformity of control here.
    fn control(&self) -> Uniform {
        self.control.iter().copied().max().unwrap_or(Uniform::Cta)
    }
}
