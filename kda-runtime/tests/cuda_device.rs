//! The CUDA executor on a real device. Without one these tests say so and end; with `KDA_REQUIRE_CUDA` set they fail.
#![cfg(feature = "cuda")]

use kda_core::desc::{DimDesc, Protocol, SourceLocation, StrideDesc, TensorParam, content_hash};
use kda_core::exec::{ExecError, Stream};
use kda_core::expr::BinaryOp;
use kda_core::launch::{Arg, prepare};
use kda_core::{Arch, Elem, Executor, Expr, IsaVersion, KernelDesc, ParamDesc, ParamKind, PreparedLaunch, ScalarArg};
use kda_runtime::executor::cuda::CudaExecutor;
use kda_runtime::{DeviceBuffer, Guarding};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `y[i] = x[i] * s + 1` over `n` elements, passed through the last 512 bytes of dynamic shared memory.
const STEP: &str = ".version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry step(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 s)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>;
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r2, %r0, 128, %r1;
    ld.param.u32 %r3, [n];
    setp.ge.u32 %p, %r2, %r3;
    @%p bra DONE;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    ld.param.f32 %f0, [s];
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d0, %d0, %d2;
    add.u64 %d1, %d1, %d2;
    ld.global.f32 %f1, [%d0];
    fma.rn.f32 %f1, %f1, %f0, 0f3F800000;
    mov.u32 %r4, smem;
    mad.lo.u32 %r4, %r1, 4, %r4;
    st.shared.f32 [%r4+65024], %f1;
    ld.shared.f32 %f2, [%r4+65024];
    st.global.f32 [%d1], %f2;
DONE:
    ret;
}
";

/// `y[i]` = 100 times the CTAs of the cluster, plus the rank of CTA `i` in its cluster.
const RANK: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry rank(.param .u64 y, .param .u32 n)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    mad.lo.u32 %r1, %r2, 100, %r1;
    ld.param.u64 %d0, [y];
    mul.wide.u32 %d1, %r0, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r1;
    ret;
}
";

const N: Expr = Expr::Name("n");
const CTAS: Expr = Expr::Binary(BinaryOp::Div, &Expr::Binary(BinaryOp::Add, &N, &Expr::Int(127)), &Expr::Int(128));

const fn vector(name: &'static str, elem: Elem, writes: bool, offset: u32) -> ParamDesc {
    let dims = &[DimDesc { size: N, stride: StrideDesc::Const(1) }];
    let kind = ParamKind::Tensor(TensorParam { elem, writes, optional: false, stable: false, align: 16, dims });
    ParamDesc { name, kind, offset, bytes: 8 }
}

static STEP_PARAMS: &[ParamDesc] = &[
    vector("x", Elem::F32, false, 0),
    vector("y", Elem::F32, true, 8),
    ParamDesc { name: "n", kind: ParamKind::Dim, offset: 16, bytes: 4 },
    ParamDesc { name: "s", kind: ParamKind::Scalar(Elem::F32), offset: 20, bytes: 4 },
];

const fn step(isa: IsaVersion, arch: Arch, ptx: &'static str) -> KernelDesc {
    KernelDesc {
        entry: "step",
        family: "step",
        kernel: "step",
        arch,
        isa,
        ptx,
        block: 128,
        cluster: 1,
        grid: [CTAS, Expr::Int(1), Expr::Int(1)],
        min_blocks_per_sm: 1,
        shared_bytes: 65_536,
        shared: &[],
        roles: &[],
        barriers: &[],
        protocol: Protocol::Nothing,
        params: STEP_PARAMS,
        param_bytes: 24,
        consts: &[],
        requires: &[],
        pdl: true,
        source: SourceLocation { file: file!(), line: 1 },
        hash: content_hash(ptx),
    }
}

static STEP_DESC: KernelDesc = step(IsaVersion::new(8, 0), Arch::SM_90, STEP);
static RANK_DESC: KernelDesc = KernelDesc {
    entry: "rank",
    cluster: 2,
    grid: [N, Expr::Int(1), Expr::Int(1)],
    shared_bytes: 0,
    params: &[vector("y", Elem::I32, true, 0), ParamDesc { name: "n", kind: ParamKind::Dim, offset: 8, bytes: 4 }],
    param_bytes: 12,
    pdl: false,
    ..step(IsaVersion::new(8, 0), Arch::SM_90, RANK)
};

/// Set where a device must be found, so that tests that cannot run fail.
const REQUIRED: &str = "KDA_REQUIRE_CUDA";

/// The device, for one test at a time: a capture must not see the waits of another test.
fn device() -> Option<(CudaExecutor, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match CudaExecutor::open(0) {
        Ok(device) => Some((device, guard)),
        Err(ExecError::NoDevice(why)) => {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, but there is nothing to run on: {why}");
            eprintln!("nothing to run on: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn step_launch(x: &DeviceBuffer, y: &DeviceBuffer, n: u64, s: f32, pdl: bool) -> PreparedLaunch {
    let vector = |buffer: &DeviceBuffer| Arg::Tensor(Some(buffer.dense(Elem::F32, &[n]).unwrap()));
    prepare(&STEP_DESC, &[vector(x), vector(y), Arg::Scalar(ScalarArg::F32(s))], pdl).unwrap()
}

fn values(n: u64) -> Vec<f32> {
    (0..n).map(|i| (i % 1013) as f32 * 0.25 - 100.0).collect()
}

#[test]
fn launches_on_both_streams_and_leaves_the_neighbours_alone() {
    let Some((device, _guard)) = device() else { return };
    eprintln!("{}", device.describe());
    for n in [1u64, 127, 128, 1_000_003] {
        let input = values(n);
        let expected: Vec<f32> = input.iter().map(|x| x.mul_add(0.5, 1.0)).collect();
        for stream in [Stream(0), device.own_stream()] {
            let x = DeviceBuffer::of(&device, "x", &input, Guarding::BANDS).unwrap();
            let y = DeviceBuffer::new(&device, "y", n * 4, Guarding::BANDS).unwrap();
            let launch = step_launch(&x, &y, n, 0.5, false);
            // SAFETY: both buffers outlive the wait in `download`.
            unsafe { device.launch(&launch, stream) }.unwrap();
            device.synchronize(stream).unwrap();
            assert!(y.download::<f32>().unwrap() == expected, "n = {n}");
            x.check_canaries().unwrap();
            y.check_canaries().unwrap();
        }
    }
}

#[test]
fn a_captured_chain_of_dependent_launches_replays() {
    let Some((device, _guard)) = device() else { return };
    let n = 70_000u64;
    for pdl in [false, true] {
        let y = DeviceBuffer::of(&device, "y", &values(n), Guarding::BANDS).unwrap();
        let launch = step_launch(&y, &y, n, 0.5, pdl);
        assert_eq!(launch.pdl, pdl);
        let chain = |device: &CudaExecutor| {
            // SAFETY: the buffer outlives every replay.
            (0..10).try_for_each(|_| unsafe { device.launch(&launch, Stream(0)) })
        };
        device.warm(&STEP_DESC).unwrap();
        let graph = device.capture(chain).unwrap();
        let same = |steps: usize| -> Vec<f32> {
            let step = |x: f32| (0..steps).fold(x, |x, _| x.mul_add(0.5, 1.0));
            values(n).into_iter().map(step).collect()
        };
        assert!(y.download::<f32>().unwrap() == values(n), "capturing must not run anything");
        // SAFETY: as above.
        let us = device.time_us(|_| unsafe { graph.launch(Stream(0)) }).unwrap();
        assert!(y.download::<f32>().unwrap() == same(10), "pdl {pdl}");
        // SAFETY: as above.
        unsafe { graph.launch(Stream(0)) }.unwrap();
        assert!(y.download::<f32>().unwrap() == same(20), "pdl {pdl}");
        assert!(us > 1.0 && us < 1e6, "{us} us");
        eprintln!("10 launches in a graph, pdl {pdl}: {us:.1} us");
        y.check_canaries().unwrap();
    }
}

#[test]
fn a_kernel_that_is_not_warm_cannot_be_captured() {
    let Some((device, _guard)) = device() else { return };
    let y = DeviceBuffer::of(&device, "y", &values(4), Guarding::BANDS).unwrap();
    let launch = step_launch(&y, &y, 4, 0.5, false);
    // SAFETY: nothing is launched.
    let result = device.capture(|device| unsafe { device.launch(&launch, Stream(0)) });
    match result.err() {
        Some(ExecError::Unsupported(why)) => assert!(why.contains("warm"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(y.download::<f32>().unwrap() == values(4), "the device still works");
}

#[test]
fn clusters_are_launched_as_such() {
    let Some((device, _guard)) = device() else { return };
    let y = DeviceBuffer::new(&device, "y", 8 * 4, Guarding::BANDS).unwrap();
    let launch = prepare(&RANK_DESC, &[Arg::Tensor(Some(y.dense(Elem::I32, &[8]).unwrap()))], true).unwrap();
    assert!(!launch.pdl);
    // SAFETY: the buffer outlives the wait in `download`.
    unsafe { device.launch(&launch, Stream(0)) }.unwrap();
    assert_eq!(y.download::<i32>().unwrap(), [200, 201, 200, 201, 200, 201, 200, 201]);
}

#[test]
fn the_driver_tells_what_a_kernel_uses() {
    let Some((device, _guard)) = device() else { return };
    let info = device.function_info(&STEP_DESC).unwrap();
    eprintln!("{info:?}");
    assert!((4..64).contains(&info.registers) && info.local_bytes == 0 && info.max_threads == 128, "{info:?}");
}

#[test]
fn what_the_driver_refuses_is_told() {
    static NEWER: KernelDesc = step(IsaVersion::new(9, 9), Arch::SM_90, ".version 9.9\n.target sm_90\n");
    static WRONG: KernelDesc = step(
        IsaVersion::new(8, 0),
        Arch::SM_90,
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry step() { frobnicate; }\n",
    );
    static OTHER: KernelDesc = step(
        IsaVersion::new(8, 0),
        Arch::SM_90,
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry other() { ret; }\n",
    );
    static ELSEWHERE: KernelDesc = step(IsaVersion::new(8, 0), Arch::SM_120A, STEP);
    let Some((device, _guard)) = device() else { return };
    let refused = |desc: &'static KernelDesc| device.warm(desc).unwrap_err();
    let error = refused(&NEWER);
    assert!(matches!(&error, ExecError::OldDriver { entry: "step", .. }), "{error}");
    let error = refused(&WRONG).to_string();
    assert!(error.contains("cuModuleLoadDataEx") && error.contains("frobnicate"), "{error}");
    let error = refused(&OTHER).to_string();
    assert!(error.contains("cuModuleGetFunction") && error.contains("CUDA_ERROR_NOT_FOUND"), "{error}");
    let error = refused(&ELSEWHERE).to_string();
    assert!(error.contains("sm_120a"), "{error}");
    let error = device.allocate(1 << 50).unwrap_err().to_string();
    assert!(error.contains("CUDA_ERROR_OUT_OF_MEMORY") && error.contains("1125899906842624 bytes"), "{error}");
    let error = device.read(0x10, &mut [0u8; 4]).unwrap_err().to_string();
    assert!(error.contains("cuMemcpyDtoHAsync_v2"), "{error}");
    device.allocate(0).and_then(|ptr| device.free(ptr)).unwrap();
}

#[test]
fn an_executor_can_be_opened_again_and_used_from_other_threads() {
    let Some((first, _guard)) = device() else { return };
    let second = CudaExecutor::open(0).unwrap();
    drop(first);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let y = DeviceBuffer::of(&second, "y", &values(1000), Guarding::BANDS).unwrap();
                let launch = step_launch(&y, &y, 1000, 2.0, true);
                // SAFETY: the buffer outlives the wait in `download`.
                unsafe { second.launch(&launch, Stream(0)) }.unwrap();
                let expected: Vec<f32> = values(1000).iter().map(|x| x.mul_add(2.0, 1.0)).collect();
                assert!(y.download::<f32>().unwrap() == expected);
            });
        }
    });
}
