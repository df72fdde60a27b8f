//! `gemm` against float64: bf16 operands, f32 accumulation, bias, SiLU, one rounding to the type of the result.
//!
//! The budget comes from the storage rounding and from an accumulation of the same products that rounds as tensor cores do. M and K
//! are ragged, N is a multiple of 8: copies write whole 16 bytes. Whatever lies between the rows of C stays as it was.

use super::{Device, Extent, Measured, Request, Sink};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, KernelDesc, PreparedLaunch};
use kda_kernels::gemm::{GemmWsArgs, GemmWsVariant};
use kda_ref::budget::{Budget, Stored};
use kda_ref::rng::Rng;
use kda_ref::tensor_core;
use kda_runtime::executor::sim::{Options, Schedule, SimExecutor, schedule_name};
use kda_runtime::{Backend, DeviceBuffer};

type Failure = Box<dyn std::error::Error>;

/// M, N, K, and whether there is a bias: one tile, single rows and columns, parts of tiles, more tiles than CTAs with more steps
/// than stages.
const SIZES: [([u64; 3], bool); 6] = [
    ([128, 256, 64], false),
    ([1, 8, 8], true),
    ([200, 136, 328], true),
    ([130, 264, 8], false),
    ([521, 296, 456], true),
    (GROUPS, true),
];
/// More rows of tiles than are walked through together, in two columns: the second group is a part of one. One step along K.
pub const GROUPS: [u64; 3] = [4360, 264, 8];
/// Several tiles a CTA, and more steps along K than twice the depth of a ring.
const SAMPLE: [u64; 3] = [521, 296, 824];
/// Rows of a tile.
const BM: u32 = 128;
/// Clusters of the grid, so that each walks over several of these tiles.
const CLUSTERS: u32 = 2;

/// CTAs of a persistent grid: one an SM, or one a tile if there are fewer of these, in whole clusters.
pub fn ctas(variant: GemmWsVariant, [m, n, _]: [u64; 3], multiprocessors: u32) -> u32 {
    let cluster = variant.ctas();
    let tiles = m.div_ceil(u64::from(BM * cluster)) * n.div_ceil(variant.bn().into());
    let clusters = tiles.min(u64::from(multiprocessors / cluster)).max(1);
    clusters as u32 * cluster
}

/// Runs every variant on every size. A full check in the simulator goes on to every schedule.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let device = Device::of(request.device);
    for (done, variant) in GemmWsVariant::ALL.into_iter().enumerate() {
        let share = (done + 1) as f64 / GemmWsVariant::ALL.len() as f64;
        for (size, bias) in SIZES {
            sink(measure(device, variant, size, bias, request.seed)?, share);
        }
        if request.extent == Extent::Full && request.device.backend == Backend::Sim {
            for schedule in Schedule::ALL {
                let options = Options { schedule, seed: request.seed, ..Options::default() };
                let executor = SimExecutor::for_kernel(options, variant.desc());
                let mut measured = measure(Device::simulator(&executor), variant, SAMPLE, true, request.seed)?;
                measured.case += &format!(", schedule {}", schedule_name(schedule));
                sink(measured, share);
            }
        }
    }
    Ok(())
}

/// Runs one variant on its sample problem.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = GemmWsVariant::ALL.into_iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = variant.ok_or_else(|| format!("{} is no variant of gemm", desc.entry))?;
    sink(measure(device, variant, SAMPLE, true, seed)?, 1.0);
    Ok(())
}

fn measure(device: Device, variant: GemmWsVariant, size: [u64; 3], bias: bool, seed: u64) -> Result<Measured, String> {
    let [m, n, k] = size;
    let case = format!("{} [{m}, {n}], K = {k}", variant.desc().entry);
    let grid = CLUSTERS * variant.ctas();
    let judged = Product::new(device, variant, size, grid, bias, seed).and_then(|product| product.judge(device));
    let (error, budget) = judged.map_err(|cause| format!("{case}: {cause}"))?;
    Ok(Measured { case, output: "c".into(), error, budget })
}

/// A product with its memory.
pub struct Product<'d> {
    /// The launch.
    pub launch: PreparedLaunch,
    a: DeviceBuffer<'d>,
    b: DeviceBuffer<'d>,
    c: DeviceBuffer<'d>,
    bias: Option<DeviceBuffer<'d>>,
    variant: GemmWsVariant,
    /// M, N, K, and elements from a row of C to the next.
    sizes: [u64; 4],
}

impl<'d> Product<'d> {
    /// Random operands on a grid of so many CTAs.
    pub fn new(
        device: Device<'d>,
        variant: GemmWsVariant,
        [m, n, k]: [u64; 3],
        ctas: u32,
        with_bias: bool,
        seed: u64,
    ) -> Result<Product<'d>, Failure> {
        let Device { executor, guarding } = device;
        let mut rng = Rng::new(seed);
        let mut operand =
            |name, rows: u64| DeviceBuffer::of(executor, name, &rng.normals_bf16((rows * k) as usize, 1.0), guarding);
        let (a, b) = (operand("a", m)?, operand("b", n)?);
        let values: Vec<f32> = rng.normals_bf16(n as usize, 4.0).into_iter().map(f32::from).collect();
        let bias = with_bias.then(|| DeviceBuffer::of(executor, "bias", &values, guarding)).transpose()?;
        let elem = variant.out();
        // Elements lie between the rows.
        let pitch = n + 8;
        let c = DeviceBuffer::new(executor, "c", m * pitch * u64::from(elem.bytes()), guarding)?;
        c.fill(0xFF)?;
        let args = GemmWsArgs {
            a: a.dense(Elem::BF16, &[m, k])?,
            b: b.dense(Elem::BF16, &[n, k])?,
            bias: bias.as_ref().map(|bias| bias.dense(Elem::F32, &[n])).transpose()?,
            c: c.strided(elem, &[m, n], &[pitch, 1])?,
            ctas,
        };
        let launch = args.prepare(variant, false)?;
        Ok(Product { launch, a, b, c, bias, variant, sizes: [m, n, k, pitch] })
    }

    /// Runs it: relative Frobenius error and its limit. The error is infinite if the largest single one is past its own limit.
    pub fn judge(&self, device: Device) -> Result<(f64, f64), Failure> {
        // SAFETY: the buffers live until the results have been read, and nothing else uses them.
        unsafe { device.executor.launch(&self.launch, Stream::default())? };
        device.executor.synchronize(Stream::default())?;
        for buffer in [&self.a, &self.b, &self.c].into_iter().chain(&self.bias) {
            buffer.check_canaries()?;
        }
        let (exact, emulated) = self.expected()?;
        let stored = if self.variant.out() == Elem::BF16 { Stored::Bf16 } else { Stored::F32 };
        let judgement = Budget::derive(&exact, &[&emulated], stored).judge(&exact, &self.results()?);
        let error = if judgement.error.max <= judgement.limit.max { judgement.error.rms } else { f64::INFINITY };
        Ok((error, judgement.limit.rms))
    }

    /// Addresses of A, B and C.
    pub fn places(&self) -> [u64; 3] {
        [self.a.ptr(), self.b.ptr(), self.c.ptr()]
    }

    /// Elements from a row of C to the next.
    pub fn pitch(&self) -> u64 {
        self.sizes[3]
    }

    /// The result without what lies between its rows, which must be untouched.
    pub fn results(&self) -> Result<Vec<f64>, Failure> {
        let [_, n, _, pitch] = self.sizes.map(|size| size as usize);
        let stored: Vec<(f64, bool)> = match self.variant.out() {
            Elem::BF16 => {
                let values: Vec<bf16> = self.c.download()?;
                values.iter().map(|x| (x.to_f64(), x.to_bits() == u16::MAX)).collect()
            }
            _ => {
                let values: Vec<f32> = self.c.download()?;
                values.iter().map(|x| (f64::from(*x), x.to_bits() == u32::MAX)).collect()
            }
        };
        if stored.chunks_exact(pitch).any(|row| row[n..].iter().any(|(_, untouched)| !untouched)) {
            return Err("elements between the rows of c were written".into());
        }
        Ok(stored.chunks_exact(pitch).flat_map(|row| row[..n].iter().map(|(value, _)| *value)).collect())
    }

    /// In float64, and with the roundings of the kernel.
    fn expected(&self) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let wide = |buffer: &DeviceBuffer| -> Result<Vec<f64>, Failure> {
            Ok(buffer.download::<bf16>()?.iter().map(|x| x.to_f64()).collect())
        };
        let (a, b) = (wide(&self.a)?, wide(&self.b)?);
        let [_, n, k, _] = self.sizes.map(|size| size as usize);
        let bias: Vec<f32> = self.bias.as_ref().map_or(Ok(vec![0.0; n]), DeviceBuffer::download)?;
        let silu = self.variant.silu();
        let (mut exact, mut emulated) = (Vec::new(), Vec::new());
        for row in a.chunks_exact(k) {
            for (column, bias) in b.chunks_exact(k).zip(&bias) {
                let sum = row.iter().zip(column).map(|(x, y)| x * y).sum::<f64>() + f64::from(*bias);
                exact.push(if silu { sum / (1.0 + (-sum).exp()) } else { sum });
                let sum = tensor_core::dot(row, column) + bias;
                emulated.push(f64::from(if silu { sum / (1.0 + (-sum).exp()) } else { sum }));
            }
        }
        Ok((exact, emulated))
    }
}
