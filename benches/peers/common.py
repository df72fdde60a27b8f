"""What the peers' scripts share: the clock, the protocol of `kda bench --peers`, and how a file of a peer is imported.

A script gives `cases(contract, t, h, n)`: the kernels that run a shape, each as a `Case`. It is asked for shapes on standard input, or
times those of its command line:

    python3 benches/peers/conv_verify.py fp32:4:8:1 bf16:4:64:2     prints CSV
    python3 benches/peers/conv_verify.py --serve                    answers lines `shape CONTRACT T H N` (src/bench/peers.rs)

Method, the same as for our kernels: a CUDA graph of calls over rotating input sets of more than 210 MB in all, so that L2 is cold; at
least 300 us of calls a graph; warmed up twice; median, 10th and 90th percentile of the replays.
"""

import argparse
import importlib.util
import math
import os
import sys
import types

COLD_BYTES = 210e6
REPLAY_US = 300.0
LEAST_US = 2.5
LEAST_CALLS = 4
WARM_UP = 2
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "target", "peers")


class Case:
    """One kernel at one shape.

    name: as it is printed. launch: plain or pdl. calls: one function without arguments for each input set, which gives the output.
    """

    def __init__(self, name, launch, calls):
        self.name, self.launch, self.calls = name, launch, calls


class Missing(Exception):
    """A peer that cannot be timed, in words."""


def load(folder, file, stubs):
    """The module of a file under target/peers; `stubs` are modules that it imports and that are not there: name -> attributes."""
    path = os.path.join(FOLDER, folder, file)
    if not os.path.isfile(path):
        raise Missing(f"{os.path.relpath(path)} is not there; benches/peers/fetch.sh fetches it")
    for name, attributes in stubs.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        for attribute, value in attributes.items():
            setattr(sys.modules[name], attribute, value)
    unique = f"peer_{folder}_{file}".replace(".", "_").replace("-", "_")
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, path)
    module = importlib.util.module_from_spec(spec)
    # Triton asks for the module of a kernel by its name.
    sys.modules[unique] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


def sets(size):
    """Input sets of `size` bytes each that leave L2 cold."""
    return max(2, min(1024, math.ceil(COLD_BYTES / size)))


def rounds(size, count):
    """Times through `count` input sets."""
    calls = max(REPLAY_US / max(size / 4.3e6, LEAST_US), LEAST_CALLS)
    return math.ceil(calls / count)


def percentiles(times):
    """Median, 10th and 90th percentile."""
    times = sorted(times)
    last = len(times) - 1
    # Halves are rounded up, as for our kernels.
    return times[len(times) // 2], times[math.floor(0.1 * last + 0.5)], times[math.floor(0.9 * last + 0.5)]


def time(case, size, samples):
    """Microseconds of a call: median, 10th and 90th percentile."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = case.calls[0]()
    stream.synchronize()
    if not torch.isfinite(out.float()).all():
        raise Missing("its output is not finite")
    graph, count = torch.cuda.CUDAGraph(), rounds(size, len(case.calls))
    with torch.cuda.graph(graph):
        for _ in range(count):
            for call in case.calls:
                call()
    times = []
    for sample in range(WARM_UP + samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        if sample >= WARM_UP:
            times.append(1e3 * start.elapsed_time(end) / (count * len(case.calls)))
    return percentiles(times)


def say(*fields):
    print(",".join(str(field).replace("\n", " ") for field in fields), flush=True)


def reason(error):
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, Missing) else f"{type(error).__name__}: {text}"


def answer(peers, contract, shape, samples):
    """Times every kernel of a shape; what fails is named with its reason. `peers`: see `main`."""
    import torch

    for name, make in peers.cases(contract, *shape):
        try:
            for case in make():
                us, p10, p90 = time(case, peers.size(contract, *shape), samples)
                say("time", case.name, case.launch, f"{us:.4f}", f"{p10:.4f}", f"{p90:.4f}")
        except Exception as error:  # A peer's failure is a line, whatever it is.
            say("skip", name, reason(error))
        torch.cuda.empty_cache()


def compile_all(script, shapes, processes):
    """Runs every kernel once, in several processes, so that Triton's cache holds them all: compiling is slow and runs on one core."""
    import subprocess

    seen, jobs = set(), []
    for contract, t, h, n in shapes:
        # Kernels depend on the number of requests by their tiles alone.
        key = (contract, t, h, 1 if n * h <= 16 else 2 if n * h <= 32 else 3)
        if key not in seen:
            seen.add(key)
            jobs.append(f"{contract}:{t}:{h}:{n}")
    parts = [jobs[i::processes] for i in range(processes) if jobs[i::processes]]
    running = [subprocess.Popen([sys.executable, script, "--compile", *part], stdout=subprocess.DEVNULL) for part in parts]
    for process in running:
        process.wait()


def parse(text):
    contract, *sizes = text.split(":")
    t, h, n = (int(size) for size in sizes)
    return contract, t, h, n


def unusable():
    """Why nothing can be timed here, or None."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        return f"{error}; PyTorch with CUDA and Triton are needed"
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA device"


def main(peers):
    """The command line. `peers` has `cases(contract, t, h, n)`, a list of (name, function that gives a list of `Case`), and
    `size(contract, t, h, n)`, the bytes of a call."""
    parser = argparse.ArgumentParser(description=peers.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", type=parse, metavar="CONTRACT:T:H:N")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--serve", action="store_true", help="answer lines of standard input, too")
    parser.add_argument("--compile", action="store_true", help="run every kernel once, and time nothing")
    parser.add_argument("--processes", type=int, default=min(12, os.cpu_count() or 1), help="that compile at once, ahead of the times")
    arguments = parser.parse_args()
    why = unusable()
    if why:
        say("skip", "every peer", why)
        say("done")
        for _ in sys.stdin if arguments.serve else ():
            say("done")
        return None
    import torch
    import triton

    if arguments.compile:
        for contract, t, h, n in arguments.shapes:
            for _, make in peers.cases(contract, t, h, n):
                try:
                    for case in make():
                        case.calls[0]()
                    torch.cuda.synchronize()
                except Exception:  # It is named when it is timed.
                    pass
        return None
    if arguments.shapes and arguments.processes > 1:
        compile_all(sys.argv[0], arguments.shapes, arguments.processes)
    say("note", f"peers with torch {torch.__version__} and triton {triton.__version__}")
    if not arguments.serve:
        for contract, t, h, n in arguments.shapes:
            print(f"# {contract} T={t} H={h} N={n}")
            answer(peers, contract, (t, h, n), arguments.samples)
        return None
    say("done")
    for line in sys.stdin:
        word, contract, *shape = line.split()
        if word == "shape":
            answer(peers, contract, tuple(int(size) for size in shape), arguments.samples)
        say("done")
    return None
