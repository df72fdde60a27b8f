"""Times SGLang's Triton kernels for the KDA verify of T draft tokens, on the shapes and contracts of `kda bench conv_verify`.

contract fp32    fused kernel of 0.5.20: f32 convolution pool, rolled; windows [D, 3]. Its pool must be [3, D], so that is what it gets.
contract bf16    fused kernel of 0.5.23, and the pair that it replaces (convolution update, then recurrence): bf16 pool and windows [3, D],
                 not rolled.

Each fused kernel with two V tiles, the ones that are fastest near a shape; each kernel without and with programmatic dependent launch.
Inputs: f32 states and weights, bounded gate -5, three permutations as index maps.

The files come from benches/peers/fetch.sh. Of SGLang they import questions about the device alone, which the modules in `STUBS` answer
for an NVIDIA GPU of compute capability 9.0; whether kernels are launched with PDL is set before each call.
"""

import sys

import common
from common import Case

HEAD = 128
STUBS = {
    "sglang.kernels.jit.utils": {"is_arch_support_pdl": lambda: False, "is_hip_runtime": lambda: False},
    "sglang.srt.utils": {
        "get_device_sm": lambda: 90,
        "is_cuda": lambda: True,
        "is_gfx95_supported": lambda: False,
        "is_hip": lambda: False,
        "is_sm90_supported": lambda: True,
    },
}
LAUNCHES = (("plain", False), ("pdl", True))


def size(contract, t, h, n):
    """Bytes of a call: every input read once, every output written once."""
    per_pair = 74752 + 71426 * t if contract == "fp32" else 67840 + 69122 * t
    return n * h * per_pair + (8196 if contract == "fp32" else 6660) * h


class Inputs:
    """Tensors of one call."""

    def __init__(self, contract, t, h, n):
        import torch

        d = 3 * h * HEAD
        fp32 = contract == "fp32"
        elem = torch.float32 if fp32 else torch.bfloat16

        def normal(*shape, dtype=torch.float32, sigma=1.0):
            return (torch.randn(*shape, device="cuda", dtype=torch.float32) * sigma).to(dtype)

        def permutation():
            return torch.randperm(n, device="cuda").to(torch.int32)

        self.x = normal(n * t, d, dtype=torch.bfloat16)
        self.weight = normal(d, 4, sigma=0.3)
        self.bias = normal(d, sigma=0.3) if fp32 else None
        self.conv_state = normal(n, 3, d, dtype=elem).transpose(1, 2)
        self.conv_slots, self.state_slots, self.rows = permutation(), permutation(), permutation()
        self.state = normal(n, h, HEAD, HEAD, sigma=0.1)
        self.a = normal(n * t, h * HEAD, dtype=torch.bfloat16)
        self.b = normal(n * t, h, dtype=torch.bfloat16)
        self.a_log, self.dt_bias = normal(h, sigma=0.3), normal(h * HEAD, sigma=0.3)
        self.states_out = torch.empty(n, t, h, HEAD, HEAD, device="cuda")
        windows = (n, t, d, 3) if fp32 else (n, t, 3, d)
        self.windows = torch.empty(*windows, device="cuda", dtype=elem)
        if not fp32:
            self.windows = self.windows.transpose(2, 3)
        self.starts = torch.arange(0, n * t + 1, t, device="cuda", dtype=torch.int32)


_inputs = {}


def inputs(contract, t, h, n):
    """The input sets of a shape; those of the last shape alone are kept."""
    key = (contract, t, h, n)
    if key not in _inputs:
        _inputs.clear()
        count = 1 if "--compile" in sys.argv else common.sets(size(*key))
        _inputs[key] = [Inputs(*key) for _ in range(count)]
    return _inputs[key]


def fused(version, contract, t, h, n):
    if t < 3:
        raise common.Missing("it needs T of 3 or more")
    module = common.load(f"sglang-{version}", "fused_kda_conv_recurrent_verify.py", STUBS)
    tiles = (4, 16) if n * h <= 16 else (16, 32)

    def call(i, tile, pdl):
        module.KDA_VERIFY_BLOCK_V = tile
        module.is_arch_support_pdl = lambda: pdl
        return module.fused_kda_conv_gating_verify(
            i.x, i.weight, i.bias, i.conv_state, i.conv_slots, i.windows, i.rows, i.a, i.b, i.a_log, i.dt_bias, i.state, i.state_slots,
            i.states_out, HEAD**-0.5, t, h, h, HEAD, HEAD, lower_bound=-5.0,
        )  # fmt: skip

    return [
        Case(f"SGLang {version} fused BV {tile}", launch, [lambda i=i, tile=tile, pdl=pdl: call(i, tile, pdl) for i in inputs(contract, t, h, n)])
        for tile in tiles
        for launch, pdl in LAUNCHES
    ]


def pair(contract, t, h, n):
    conv = common.load("sglang-0.5.23", "causal_conv1d_triton.py", STUBS)
    recurrence = common.load("sglang-0.5.23", "fused_sigmoid_gating_recurrent.py", STUBS)
    d = 3 * h * HEAD

    def call(i, pdl):
        conv.is_arch_support_pdl = recurrence.is_arch_support_pdl = lambda: pdl
        y = conv.causal_conv1d_update(
            i.x.view(n, t, d).transpose(1, 2), i.conv_state, i.weight, i.bias, activation="silu", conv_state_indices=i.conv_slots,
            intermediate_conv_window=i.windows, intermediate_state_indices=i.rows,
        )  # fmt: skip
        q, k, v = (part.unflatten(-1, (h, HEAD)).unsqueeze(0) for part in y.transpose(1, 2).reshape(n * t, d).split(h * HEAD, dim=-1))
        return recurrence.fused_sigmoid_gating_delta_rule_update(
            A_log=i.a_log, a=i.a, dt_bias=i.dt_bias, softplus_beta=1.0, softplus_threshold=20.0, q=q, k=k, v=v, b=i.b,
            initial_state_source=i.state, initial_state_indices=i.state_slots, cu_seqlens=i.starts, use_qk_l2norm_in_kernel=True,
            is_kda=True, lower_bound=-5.0, disable_state_update=True, intermediate_states_buffer=i.states_out,
            intermediate_state_indices=i.rows, cache_steps=t,
        )  # fmt: skip

    return [
        Case("SGLang 0.5.23 pair", launch, [lambda i=i, pdl=pdl: call(i, pdl) for i in inputs(contract, t, h, n)]) for launch, pdl in LAUNCHES
    ]


def cases(contract, t, h, n):
    shape = (contract, t, h, n)
    if contract == "fp32":
        return [("SGLang 0.5.20 fused", lambda: fused("0.5.20", *shape))]
    return [("SGLang 0.5.23 fused", lambda: fused("0.5.23", *shape)), ("SGLang 0.5.23 pair", lambda: pair(*shape))]


if __name__ == "__main__":
    common.main(sys.modules[__name__])
