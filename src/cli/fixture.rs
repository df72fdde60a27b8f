//! Hand-made kernels for tests of the commands.

use kda::core::desc::{
    BarrierDesc, ConstDesc, DimDesc, Protocol, Requirement, RoleDesc, SharedBuffer, SourceLocation, StrideDesc,
    TensorParam, content_hash,
};
use kda::core::expr::BinaryOp;
use kda::core::{Arch, Elem, Expr, IsaVersion, KernelDesc, ParamDesc, ParamKind};

const ROWS: Expr = Expr::Name("n");
const PTX: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry verify__t4() { ret; }\n";

const STATE: TensorParam = TensorParam {
    elem: Elem::F32,
    writes: true,
    optional: false,
    stable: true,
    align: 16,
    dims: &[
        DimDesc { size: ROWS, stride: StrideDesc::Param("state_stride_0") },
        DimDesc { size: Expr::Int(128), stride: StrideDesc::Const(1) },
    ],
};

/// A kernel with one of everything.
pub static VERIFY: KernelDesc = KernelDesc {
    entry: "verify__t4",
    family: "conv_verify",
    kernel: "verify",
    arch: Arch::SM_90A,
    isa: IsaVersion::new(8, 0),
    ptx: PTX,
    block: 384,
    cluster: 2,
    grid: [Expr::Binary(BinaryOp::Mul, &ROWS, &Expr::Int(2)), Expr::Int(1), Expr::Int(1)],
    min_blocks_per_sm: 1,
    shared_bytes: 73_784,
    shared: &[
        SharedBuffer { name: "tile", offset: 0, bytes: 65_536, align: 1024, elem: Elem::BF16, shape: &[2, 128, 128] },
        SharedBuffer { name: "bias", offset: 69_632, bytes: 4096, align: 16, elem: Elem::F32, shape: &[1024] },
        SharedBuffer { name: "full", offset: 73_728, bytes: 56, align: 8, elem: Elem::U64, shape: &[7] },
    ],
    roles: &[
        RoleDesc { name: "producer", first_warp: 0, warps: 4, registers: Some(40) },
        RoleDesc { name: "consumer", first_warp: 4, warps: 8, registers: Some(232) },
    ],
    barriers: &[BarrierDesc { name: "consumers", id: 1, threads: 256 }],
    protocol: Protocol::Proved,
    params: &[
        ParamDesc { name: "state", kind: ParamKind::Tensor(STATE), offset: 0, bytes: 8 },
        ParamDesc { name: "state_stride_0", kind: ParamKind::Stride { tensor: 0, axis: 0 }, offset: 8, bytes: 8 },
        ParamDesc { name: "n", kind: ParamKind::Dim, offset: 16, bytes: 4 },
        ParamDesc { name: "scale", kind: ParamKind::Scalar(Elem::F32), offset: 20, bytes: 4 },
    ],
    param_bytes: 24,
    consts: &[ConstDesc { name: "T", value: "4" }],
    requires: &[Requirement { text: "n > 0", expr: Expr::Binary(BinaryOp::Gt, &ROWS, &Expr::Int(0)) }],
    pdl: true,
    source: SourceLocation { file: "kda-kernels/src/conv_verify.rs", line: 42 },
    hash: content_hash(PTX),
};

const fn scale(arch: Arch, isa: IsaVersion) -> KernelDesc {
    KernelDesc {
        entry: "scale",
        family: "scale",
        kernel: "scale",
        arch,
        isa,
        ptx: ".version 8.0\n",
        block: 128,
        cluster: 1,
        grid: [Expr::Int(1); 3],
        min_blocks_per_sm: 1,
        shared_bytes: 0,
        shared: &[],
        roles: &[],
        barriers: &[],
        protocol: Protocol::Nothing,
        params: &[],
        param_bytes: 0,
        consts: &[],
        requires: &[],
        pdl: false,
        source: SourceLocation { file: "kda-kernels/src/scale.rs", line: 3 },
        hash: content_hash(".version 8.0\n"),
    }
}

/// A kernel with none of anything, for Hopper.
pub static SCALE_90: KernelDesc = scale(Arch::SM_90A, IsaVersion::new(8, 0));
/// The same entry for Blackwell.
pub static SCALE_100: KernelDesc = scale(Arch::SM_100F, IsaVersion::new(8, 8));
