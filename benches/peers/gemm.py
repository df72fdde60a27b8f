"""Times the matrix product of peers beside cuBLAS: bf16 (fp16 where a peer has no bf16), K contiguous, 8192^3.

    python3 benches/peers/gemm.py triton
    python3 benches/peers/gemm.py cute FILE

`triton` is the kernel of gemm_triton.py. FILE is CUTLASS's example of a persistent warp-specialised product for Hopper in the CuTe
DSL (dense_gemm_persistent.py), which is not part of this project; the package nvidia-cutlass-dsl must be installed.

Prints the seconds from the start of the process to the first result and of these what the peer's compiler took, then the median of 15
runs, warmed up, in turn with cuBLAS (through PyTorch) on the same operands. Clear the peer's cache to measure a first run.
"""

import time

START = time.perf_counter()

import importlib.util
import statistics
import sys

import torch

SIZE = (8192, 8192, 8192)
REPEATS = 15


def triton_product(m, n, k):
    """The product of gemm_triton.py: a function without arguments, its operands, and the seconds that compiling took."""
    import gemm_triton

    a, b = (torch.randn(rows, k, device="cuda").to(torch.bfloat16) for rows in (m, n))
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    before = time.perf_counter()
    gemm_triton.product(a, b, c)
    torch.cuda.synchronize()
    return lambda: gemm_triton.product(a, b, c), (a, b, c), time.perf_counter() - before


def cute_product(m, n, k, path):
    """The product of CUTLASS's example, compiled by the CuTe DSL."""
    import cuda.bindings.driver as cuda
    import cutlass
    import cutlass.cute as cute
    import cutlass.torch as cutlass_torch
    from cutlass.cute.runtime import from_dlpack

    spec = importlib.util.spec_from_file_location("example", path)
    example = importlib.util.module_from_spec(spec)
    sys.modules["example"] = example
    spec.loader.exec_module(example)

    def tensors(dtype):
        a, b = (torch.randn(rows, k, device="cuda").to(dtype).unsqueeze(-1) for rows in (m, n))
        return a, b, torch.empty(m, n, 1, device="cuda", dtype=dtype)

    def layout(t):
        return from_dlpack(t, assumed_align=16).mark_layout_dynamic(leading_dim=1)

    a, b, c = tensors(torch.float16)
    views = [layout(t) for t in (a, b, c)]
    torch.cuda.synchronize()
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    clusters = cutlass.utils.HardwareInfo().get_max_active_clusters(1)
    gemm = example.HopperWgmmaGemmPersistentKernel(cutlass.Float32, (128, 256), (1, 1), 8, True)
    before = time.perf_counter()
    compiled = cute.compile(gemm, *views, clusters, stream)
    compiled(*views, stream)
    torch.cuda.synchronize()
    took = time.perf_counter() - before
    return lambda: compiled(*views, stream), (a[..., 0], b[..., 0], c[..., 0]), took


def microseconds(work):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def main():
    m, n, k = SIZE
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "triton" and len(sys.argv) == 2:
        work, (a, b, c), compiling = triton_product(m, n, k)
    elif name == "cute" and len(sys.argv) == 3:
        work, (a, b, c), compiling = cute_product(m, n, k, sys.argv[2])
    else:
        sys.exit(__doc__)
    first = time.perf_counter() - START
    right = torch.matmul(a, b.T)
    error = ((c.float() - right.float()).norm() / right.float().norm()).item()
    times, cublas = [], []
    for turn in range(REPEATS + 3):
        pair = microseconds(work), microseconds(lambda: torch.matmul(a, b.T, out=right))
        if turn >= 3:
            times.append(pair[0])
            cublas.append(pair[1])
    ours, theirs = statistics.median(times), statistics.median(cublas)
    flop = 2 * m * n * k / 1e6
    print(
        f"{name}, {a.dtype}: first result after {first:.2f} s, of which compiling and first launch {compiling:.2f} s; "
        f"{ours:.1f} us, {flop / ours:.1f} TFLOP/s, cuBLAS {theirs:.1f} us, {theirs / ours:.3f} of its speed; "
        f"distance {error:.1e}"
    )


main()
