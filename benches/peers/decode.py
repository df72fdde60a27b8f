"""Times FLA's recurrent KDA kernel (fla-core 0.6.0) at one token a request, on the shapes and contracts of `kda bench decode`.

FLA's kernel has no convolution: q, k and v are given, whatever the contract, and its times leave the convolution out.

contract fp32, given    f32 states: the pool updated in place, and out of place; K-first, as FLA keeps them, and V-first
contract fp32-kv        f32 states K-first, in place and out of place
contract bf16, bf16-kv  bf16 states, V-first or K-first, in place; out of place the kernel writes f32

bf16 q, k, v, raw gate and write-strength logits; gate, norms and sigmoid in the kernel; softplus gate.

Shapes are 1:H:N. The package comes from benches/peers/fetch.sh.
"""

import os
import sys

import common
from common import Case

HEAD = 128
PACKAGE = os.path.join(common.FOLDER, "fla-core-0.6.0")
IN_PLACE, OUT_OF_PLACE = ("in place", True), ("out of place", False)
K_FIRST, V_FIRST = ("K first", False), ("V first", True)
# Memory orders, and where states go.
FORMS = {
    "fp32": ((K_FIRST, V_FIRST), (IN_PLACE, OUT_OF_PLACE)),
    "given": ((K_FIRST, V_FIRST), (IN_PLACE, OUT_OF_PLACE)),
    "fp32-kv": ((K_FIRST,), (IN_PLACE, OUT_OF_PLACE)),
    "bf16": ((V_FIRST,), (IN_PLACE,)),
    "bf16-kv": ((K_FIRST,), (IN_PLACE,)),
}


def is_narrow(contract):
    """Whether states are bf16."""
    return contract.startswith("bf16")


def size(contract, t, h, n):
    """Bytes of a call: the state read and written, every other input read once, the output written once."""
    return n * h * (2 * HEAD * HEAD * (2 if is_narrow(contract) else 4) + 2 * HEAD + 2 + 4 * HEAD + 4 * HEAD)


class Inputs:
    """Tensors of one call."""

    def __init__(self, contract, h, n):
        import torch

        def normal(*shape, dtype=torch.bfloat16, sigma=1.0):
            return (torch.randn(*shape, device="cuda", dtype=torch.float32) * sigma).to(dtype)

        self.q, self.k, self.v, self.g = (normal(n, 1, h, HEAD) for _ in range(4))
        self.beta = normal(n, 1, h)
        self.a_log = normal(h, dtype=torch.float32, sigma=0.3)
        self.dt_bias = normal(h * HEAD, dtype=torch.float32, sigma=0.3)
        self.state = normal(n, h, HEAD, HEAD, dtype=torch.bfloat16 if is_narrow(contract) else torch.float32, sigma=0.1)
        self.slots = torch.randperm(n, device="cuda").to(torch.int32)
        self.out = torch.empty(n, 1, h, HEAD, device="cuda", dtype=torch.bfloat16)


def recurrent(contract, t, h, n):
    if t != 1:
        raise common.Missing("decode has T = 1")
    if not os.path.isdir(PACKAGE):
        raise common.Missing(f"{os.path.relpath(PACKAGE)} is not there; benches/peers/fetch.sh fetches it")
    if PACKAGE not in sys.path:
        sys.path.insert(0, PACKAGE)
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

    count = 1 if "--compile" in sys.argv else common.sets(size(contract, t, h, n))
    inputs = [Inputs(contract, h, n) for _ in range(count)]

    def call(i, v_first, in_place):
        where = {"ssm_state_indices": i.slots} if in_place else {"output_final_state": True}
        out, _ = fused_recurrent_kda_fwd(
            i.q, i.k, i.v, i.g, i.beta, A_log=i.a_log, dt_bias=i.dt_bias, initial_state=i.state, inplace_final_state=in_place,
            state_v_first=v_first, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, out=i.out, **where,
        )  # fmt: skip
        return out

    orders, places = FORMS[contract]
    return [
        Case(f"FLA 0.6.0 without convolution {where} {order}", "plain", [lambda i=i, v=v, p=p: call(i, v, p) for i in inputs])
        for where, p in places
        for order, v in orders
    ]


def cases(contract, t, h, n):
    return [("FLA 0.6.0 fused_recurrent_kda", lambda: recurrent(contract, t, h, n))]


if __name__ == "__main__":
    common.main(sys.modules[__name__])
