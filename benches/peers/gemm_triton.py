"""C = A . B^T in Triton, as its authors write it for Hopper: persistent programs, tiles by tensor descriptor, the compiler's own
pipelining. Rows and columns beyond the matrices are zeros and not stored."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BM, BN, BK, GROUP = 128, 256, 64, 16


@triton.jit
def product_kernel(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr
):
    rows = tl.cdiv(m, BM)
    columns = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = tl.minimum(rows - first, GROUP)
        rest = tile % (GROUP * columns)
        row = (first + rest % height) * BM
        column = (rest // height) * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(k, BK)):
            left = a.load([row, step * BK])
            right = b.load([column, step * BK])
            acc = tl.dot(left, right.T, acc)
        c.store([row, column], acc.to(tl.bfloat16))


def product(a, b, c):
    (m, k), n = a.shape, b.shape[0]
    programs = min(
        torch.cuda.get_device_properties(a.device).multi_processor_count, triton.cdiv(m, BM) * triton.cdiv(n, BN)
    )
    descriptors = [
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(b, [BN, BK]),
        TensorDescriptor.from_tensor(c, [BM, BN]),
    ]
    product_kernel[(programs,)](
        *descriptors, m, n, k, BM, BN, BK, GROUP, programs, num_warps=8, num_stages=3
    )
