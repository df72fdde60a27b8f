"""Times other projects' inter-chunk recurrences on the shapes and contracts of `kda bench delta_h`.

contract kda, serial  FLA 0.6.0 chunk_gated_delta_rule_fwd_h with states and h [K, V], a gate a key channel
contract kda-vk       the same with states and h [V, K]; attn-gym 0.0.17, whose states are [V, K] and whose h is [K, V]
contract scalar       FLA with one gate a head and row, [K, V]

bf16 kg, w, u and results, f32 gates summed up within chunks, f32 states; the initial state read, the final one written. FLA's kernel is
launched on tensors that are there; attn-gym's function allocates its own. One sequence is given without boundaries.

Shapes are T:HV:N, T rows in N packed sequences: those of fixed8192 and mixed6 for 8192 rows in 1 and 6, else of equal lengths. Ahead of
its first time each kernel runs a small batch, and its errors against float64 are a note. The packages come from benches/peers/fetch.sh.
"""

import os
import sys

import common
from common import Case

HEAD, CHUNK = 128, 64
FLA = os.path.join(common.FOLDER, "fla-core-0.6.0")
GYM = os.path.join(common.FOLDER, "attn-gym-0.0.17")
MIXED6 = [1300, 547, 2048, 963, 271, 3063]
SMALL = [64, 1, 63, 65, 200, 127]
judged = set()


def lengths(t, n):
    """Rows of each sequence."""
    return MIXED6 if (t, n) == (sum(MIXED6), len(MIXED6)) else [t // n + (i < t % n) for i in range(n)]


def chunks(rows):
    return sum(-(-length // CHUNK) for length in rows)


def size(contract, t, h, n):
    """Bytes of a call: inputs read once, results written once."""
    count = chunks(lengths(t, n))
    gates = 4 * t * h if contract == "scalar" else 4 * count * h * HEAD
    return t * h * 8 * HEAD + 2 * count * h * HEAD * HEAD + gates + 8 * n * h * HEAD * HEAD


class Inputs:
    """Tensors of one call: rows of each sequence, value heads."""

    def __init__(self, contract, rows, h):
        import torch

        def uniform(*shape, low=-1.0, high=1.0, dtype=torch.bfloat16):
            return torch.empty(*shape, device="cuda", dtype=torch.float32).uniform_(low, high).to(dtype)

        t, n = sum(rows), len(rows)
        self.rows, self.count = rows, chunks(rows)
        self.scalar, self.v_first = contract == "scalar", contract == "kda-vk"
        self.kg, self.w = (uniform(1, t, h, HEAD, low=-0.1, high=0.1) for _ in range(2))
        self.u = uniform(1, t, h, HEAD)
        self.gate = uniform(*((1, t, h) if self.scalar else (1, t, h, HEAD)), low=-1.0, high=0.0, dtype=torch.float32)
        self.initial = uniform(n, h, HEAD, HEAD, dtype=torch.float32)
        ends = torch.tensor([0, *rows]).cumsum(0)
        offsets = torch.tensor([0, *(-(-length // CHUNK) for length in rows)]).cumsum(0)
        self.ends, self.offsets = (None, None) if n == 1 else (ends.cuda(), offsets.cuda())
        self.final, self.v_new = torch.empty_like(self.initial), torch.empty_like(self.u)
        self.h = torch.empty(1, self.count, h, HEAD, HEAD, device="cuda", dtype=torch.bfloat16)

    def reference(self):
        """h, values and final state in float64; states [K, V]."""
        import torch

        kg, w, u, gate, s = (x.double() for x in (self.kg, self.w, self.u, self.gate, self.initial))
        s = s.transpose(-1, -2) if self.v_first else s
        h, v_new, final, end = [], [], [], 0
        for n, length in enumerate(self.rows):
            begin, end, state = end, end + length, s[n]
            for row in range(begin, end, CHUNK):
                part = slice(row, min(row + CHUNK, end))
                h.append(state)
                x = u[0, part] - torch.einsum("thk,hkv->thv", w[0, part], state)
                v_new.append(x)
                last = gate[0, part.stop - 1]
                if self.scalar:
                    x = x * torch.exp2(last - gate[0, part])[..., None]
                decay = last[:, None, None] if self.scalar else last[..., None]
                state = state * torch.exp2(decay) + torch.einsum("thk,thv->hkv", kg[0, part], x)
            final.append(state)
        return torch.stack(h), torch.cat(v_new), torch.stack(final)


def judge(name, contract, run, h_k_first):
    """Says the errors of a kernel on a small batch, once; `run(inputs)` gives h, values and the final state."""
    if (name, contract) in judged or "--compile" in sys.argv:
        return
    judged.add((name, contract))
    inputs = Inputs(contract, SMALL, 2)
    h, v_new, final = run(inputs)
    h, final = (h[0] if h_k_first else h[0].transpose(-1, -2)), (final.transpose(-1, -2) if inputs.v_first else final)
    found = (h[: inputs.count], v_new[0], final)
    error = [((x.double() - y).norm() / y.norm()).item() for x, y in zip(found, inputs.reference())]
    common.say("note", f"{name} {contract}: relative errors of h {error[0]:.1e} v_new {error[1]:.1e} final state {error[2]:.1e}")


def package(folder):
    if not os.path.isdir(folder):
        raise common.Missing(f"{os.path.relpath(folder)} is not there; benches/peers/fetch.sh fetches it")
    if folder not in sys.path:
        sys.path.insert(0, folder)


def inputs_of(contract, t, h, n):
    count = 1 if "--compile" in sys.argv else common.sets(size(contract, t, h, n))
    return [Inputs(contract, lengths(t, n), h) for _ in range(count)]


def fla(contract, t, h, n):
    package(FLA)
    import triton
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_kernel_h_blockdim64 as kernel

    def call(i):
        heads, sequences = i.u.shape[2], len(i.rows)
        kernel[lambda meta: (triton.cdiv(HEAD, meta["BV"]) * sequences * heads,)](
            k=i.kg, v=i.u, w=i.w, v_new=i.v_new, g=i.gate if i.scalar else None, gk=None if i.scalar else i.gate, h=i.h, h0=i.initial,
            ht=i.final, cu_seqlens=i.ends, chunk_offsets=i.offsets, T=i.u.shape[1], H=heads, HV=heads, K=HEAD, V=HEAD, BT=CHUNK,
            STATE_V_FIRST=i.v_first,
        )  # fmt: skip
        return i.v_new

    name = f"FLA 0.6.0 {'V' if contract == 'kda-vk' else 'K'} first"
    judge(name, contract, lambda i: (call(i), (i.h, i.v_new, i.final))[1], contract != "kda-vk")
    return [Case(name, "plain", [lambda i=i: call(i) for i in inputs_of(contract, t, h, n)])]


def gym(contract, t, h, n):
    package(GYM)
    from attn_gym.linear._delta_rule.chunk_schedule import RaggedChunkMetadata
    from attn_gym.linear.kda.fwd.triton.chunk_delta_h import chunk_gated_delta_rule_fwd_h

    def call(i):
        metadata = None
        if i.ends is not None:
            metadata = RaggedChunkMetadata.from_offsets(i.narrow[0], i.narrow[1], i.u.shape[1], CHUNK)
        return chunk_gated_delta_rule_fwd_h(i.kg, i.w, i.u, i.gate, i.initial, metadata=metadata)

    def narrow(i):
        i.narrow = None if i.ends is None else (i.ends.int(), i.offsets.int())
        return i

    name = "attn-gym 0.0.17 states V first"
    judge(name, contract, lambda i: call(narrow(i)), True)
    return [Case(name, "plain", [lambda i=i: call(i)[1] for i in map(narrow, inputs_of(contract, t, h, n))])]


def cases(contract, t, h, n):
    found = [("FLA 0.6.0 chunk_gated_delta_rule_fwd_h", lambda: fla(contract, t, h, n))]
    if contract == "kda-vk":
        found.append(("attn-gym 0.0.17 chunk_gated_delta_rule_fwd_h", lambda: gym(contract, t, h, n)))
    return found


if __name__ == "__main__":
    common.main(sys.modules[__name__])
