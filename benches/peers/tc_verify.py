"""Times other projects' verifies of T draft tokens, on the shapes and contracts of `kda bench tc_verify`.

FlashInfer 0.7.4 kda_recoverssm_verify   the same records as ours (u, key and raw gate), bf16 state, read only; no convolution: q, k and v
                                         are given. CuTe DSL, so that nvidia-cutlass-dsl and cuda-python must be installed
FLA 0.6.0 fused_recurrent_kda            a bf16 state stored behind each token; no convolution
SGLang 0.5.23, fused and pair            convolution with a bf16 pool; an f32 state and a window stored behind each token

contract conv, fixed, snapshots   all of them
contract given, softplus          FlashInfer and FLA, the latter two with the gate of the contract

Shapes are T:H:N. What is read comes from benches/peers/fetch.sh.
"""

import importlib
import os
import sys
import types

import common
import conv_verify
from common import Case

HEAD = 128
FLASHINFER = os.path.join(common.FOLDER, "flashinfer-0.7.4")
FLA = os.path.join(common.FOLDER, "fla-core-0.6.0")
CONVOLVED = ("conv", "fixed", "snapshots")


def size(contract, t, h, n):
    """Bytes of a call of ours: state, tokens and history read once, outputs, records and history written once."""
    return n * h * (32768 + 2306 * t if contract == "given" else 36608 + 3074 * t)


class Inputs:
    """Tensors of one call whose q, k and v are given. Slot 0 is nobody's."""

    def __init__(self, t, h, n):
        import torch

        def normal(*shape, dtype=torch.bfloat16, sigma=1.0):
            return (torch.randn(*shape, device="cuda", dtype=torch.float32) * sigma).to(dtype)

        self.t, self.h, self.n = t, h, n
        self.q, self.k, self.v, self.g = (normal(1, n * t, h, HEAD) for _ in range(4))
        self.beta = normal(1, n * t, h)
        self.a_log = normal(h, dtype=torch.float32, sigma=0.3)
        self.dt_bias = normal(h * HEAD, dtype=torch.float32, sigma=0.3)
        self.starts = torch.arange(0, n * t + 1, t, device="cuda", dtype=torch.int32)
        self.out = torch.empty(1, n * t, h, HEAD, device="cuda", dtype=torch.bfloat16)
        self.order = torch.randperm(n, device="cuda").to(torch.int32)

    def records(self):
        """State, slots and records of a verify that stores no states."""
        import torch

        self.slots = self.order + 1
        self.state = (torch.randn(self.n + 1, self.h, HEAD, HEAD, device="cuda") * 0.1).to(torch.bfloat16)
        self.corr = torch.empty(self.n + 1, self.h, self.t, HEAD, device="cuda")
        self.kg = torch.empty(self.n + 1, self.h, self.t, 2 * HEAD, device="cuda", dtype=torch.bfloat16)
        return self

    def snapshots(self):
        """A pool with a state behind each token; the first one of a request is what it begins with."""
        import torch

        self.slots = self.order[:, None] * self.t + torch.arange(self.t, device="cuda", dtype=torch.int32)
        self.state = (torch.randn(self.n * self.t, self.h, HEAD, HEAD, device="cuda") * 0.1).to(torch.bfloat16)
        return self


def count(contract, t, h, n):
    return 1 if "--compile" in sys.argv else common.sets(size(contract, t, h, n))


def bound(contract):
    """The gate's lower bound; None for softplus."""
    return None if contract == "softplus" else -5.0


def of_flashinfer(contract, t, h, n):
    if not os.path.isdir(FLASHINFER):
        raise common.Missing(f"{os.path.relpath(FLASHINFER)} is not there; benches/peers/fetch.sh fetches it")
    try:
        import cutlass  # noqa: F401
    except ImportError as error:
        raise common.Missing(f"{error}; nvidia-cutlass-dsl and cuda-python are needed") from error
    # Packages without their __init__, which import much more.
    for name in ("flashinfer", "flashinfer.kda_kernels", "flashinfer.gdn_kernels"):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [os.path.join(FLASHINFER, *name.split(".")[1:])]
            sys.modules[name] = package
    verify = importlib.import_module("flashinfer.kda_kernels.kda_decode_wy_output_only").kda_recoverssm_verify
    inputs = [Inputs(t, h, n).records() for _ in range(count(contract, t, h, n))]

    def call(i):
        return verify(
            i.q, i.k, i.v, i.g, i.beta, i.a_log, i.dt_bias, bound(contract), i.state, i.corr, i.kg, i.starts, i.slots, t, out=i.out
        )

    return [Case("FlashInfer 0.7.4 records without convolution", "plain", [lambda i=i: call(i) for i in inputs])]


def of_fla(contract, t, h, n):
    if not os.path.isdir(FLA):
        raise common.Missing(f"{os.path.relpath(FLA)} is not there; benches/peers/fetch.sh fetches it")
    if FLA not in sys.path:
        sys.path.insert(0, FLA)
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

    inputs = [Inputs(t, h, n).snapshots() for _ in range(count(contract, t, h, n))]

    def call(i):
        out, _ = fused_recurrent_kda_fwd(
            i.q, i.k, i.v, i.g, i.beta, A_log=i.a_log, dt_bias=i.dt_bias, initial_state=i.state, inplace_final_state=True, state_v_first=True,
            cu_seqlens=i.starts, ssm_state_indices=i.slots, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, lower_bound=bound(contract), out=i.out,
        )  # fmt: skip
        return out

    return [Case("FLA 0.6.0 bf16 snapshots without convolution", "plain", [lambda i=i: call(i) for i in inputs])]


def of_sglang(make):
    """A function that gives kernels of `conv_verify.py`, with names that say what they store."""

    def cases():
        found = make()
        for case in found:
            case.name += " f32 snapshots"
        return found

    return cases


def cases(contract, t, h, n):
    shape = (contract, t, h, n)
    found = []
    if contract in CONVOLVED or contract in ("given", "softplus"):
        found += [
            ("FlashInfer 0.7.4 kda_recoverssm_verify", lambda: of_flashinfer(*shape)),
            ("FLA 0.6.0 fused_recurrent_kda", lambda: of_fla(*shape)),
        ]
    if contract in CONVOLVED:
        found += [(name, of_sglang(make)) for name, make in conv_verify.cases("bf16", t, h, n)]
    return found


if __name__ == "__main__":
    common.main(sys.modules[__name__])
