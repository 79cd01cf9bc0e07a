"""Products of square float32 matrices over their size: naive, tiled, two elements a thread, and more a thread.

    python benchmarks/matmul.py --backend opencl:cpu --output matmul.json --plot matmul.png

The kernels are those of dense layers. Each time is one launch by the device's own timer, after warm-up; kernels take
turns, so that a drift of the device meets all of them alike. Beside them NumPy (by the host's clock) and, where they
are installed and the device fits, cuBLAS through PyTorch or CuPy, and CLBlast through PyCLBlast. Every result is
checked: ours bit for bit, the others up to rounding. --plot needs the extra `report`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt
from common import environment, summary, write

from bnnrt.backends import numpy_kernels, open_backend
from bnnrt.backends.base import Backend, Language
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Dense, Domain, TensorType
from bnnrt.plan import make_plan

Array = npt.NDArray[np.float32]
Timed = Callable[[], tuple[float, Array]]
"""Runs a product once; microseconds and the result."""

VARIANTS = ("real_dense", "matmul_naive", "matmul_tiled", "matmul_two", "matmul_blocks", "matmul_lanes", "numpy")
LABELS = {
    "real_dense": "direct",
    "matmul_naive": "naive",
    "matmul_tiled": "tiled",
    "matmul_two": "tiled, two elements a thread",
    "matmul_blocks": "tiled, 4 x 4 elements a thread",
    "matmul_lanes": "vectors, 4 x 16 elements a thread",
    "numpy": "NumPy backend",
}
WARMUP = 3


def ours(backend: Backend, a: Array, b: Array) -> Iterator[tuple[str, Timed]]:
    """The kernels that this device can run."""
    nodes = (Node("product", Dense(), ("a", "b"), ("y",)),)
    graph = Graph({"a": TensorType((None, a.shape[1]), Domain.FLOAT32)}, nodes, ("y",), {"b": Constant.of(b.T.copy())})
    for variant in VARIANTS:
        plan = make_plan(graph, backend.info, len(a), variant)
        if plan.steps[0].variant != variant:
            continue
        executor = Executor(backend, plan)

        def timed(executor: Executor = executor) -> tuple[float, Array]:
            results, (timing,) = executor.run_timed({"a": a})
            return timing.microseconds, results["y"]

        yield variant, timed


def by_numpy(a: Array, b: Array) -> Timed:
    def timed() -> tuple[float, Array]:
        start = perf_counter_ns()
        result = a @ b
        return (perf_counter_ns() - start) / 1000, result

    return timed


def by_torch(a: Array, b: Array) -> Timed:
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise ImportError("PyTorch has no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    left, right = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed() -> tuple[float, Array]:
        start.record()
        result = left @ right
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000, result.cpu().numpy()

    return timed


def by_cupy(a: Array, b: Array) -> Timed:
    cupy = import_module("cupy")
    left, right = cupy.asarray(a), cupy.asarray(b)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()

    def timed() -> tuple[float, Array]:
        start.record()
        result = left @ right
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) * 1000, cupy.asnumpy(result)

    return timed


def by_clblast(backend: Backend, a: Array, b: Array) -> Timed:
    """On the same device, in a context of its own. A product may be several kernels, so markers stand around it."""
    cl, clblast = import_module("pyopencl"), import_module("pyclblast")
    arrays = import_module("pyopencl.array")
    platform, device = (int(number) for number in backend.info.backend.partition(":")[2].split("."))
    context = cl.Context([cl.get_platforms()[platform].get_devices()[device]])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    left, right = arrays.to_device(queue, a), arrays.to_device(queue, b)
    result = arrays.zeros(queue, (len(a), b.shape[1]), np.float32)
    (m, k), n = a.shape, b.shape[1]

    def timed() -> tuple[float, Array]:
        before = cl.enqueue_marker(queue)
        clblast.gemm(queue, m, n, k, left, right, result, a_ld=k, b_ld=n, c_ld=n)
        after = cl.enqueue_marker(queue)
        after.wait()
        return (after.profile.end - before.profile.end) / 1000, result.get()

    return timed


def peers(backend: Backend, a: Array, b: Array) -> Iterator[tuple[str, Timed]]:
    yield "NumPy", by_numpy(a, b)
    if backend.info.language is Language.CUDA:
        for name, make in (("cuBLAS (PyTorch)", by_torch), ("cuBLAS (CuPy)", by_cupy)):
            try:
                yield name, make(a, b)
                break
            except ImportError:
                continue
    if backend.info.language is Language.OPENCL:
        with suppress(ImportError):
            yield "CLBlast", by_clblast(backend, a, b)


def measure(backend: Backend, size: int, runs: int) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    a, b = (rng.normal(size=(size, size)).astype(np.float32) for _ in range(2))
    wanted = np.empty_like(a)
    numpy_kernels.real_dense(a, b.T.copy(), wanted)
    exact = dict(ours(backend, a, b))
    calls = {**exact, **dict(peers(backend, a, b))}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(WARMUP + runs):
        for name, call in calls.items():
            taken, found = call()
            if name in exact and not np.array_equal(found, wanted):
                raise SystemExit(f"{name} of size {size} differs")
            if not np.allclose(found, wanted, rtol=0, atol=1e-5 * size):
                raise SystemExit(f"{name} of size {size} is wrong")
            if run >= WARMUP:
                samples[name].append(taken)
    return {
        "size": size,
        "checked": True,
        "microseconds": {name: summary(taken) for name, taken in samples.items()},
        "gflops": {name: 2e-3 * size**3 / float(np.median(taken)) for name, taken in samples.items()},
    }


def plot(document: dict[str, Any], path: Path) -> None:
    matplotlib = import_module("matplotlib")
    matplotlib.use("Agg")
    plt = import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    sizes = [result["size"] for result in document["results"]]
    for name in document["results"][0]["microseconds"]:
        times = [result["microseconds"][name] for result in document["results"]]
        style = "o-" if name in LABELS else "s--"
        (line,) = axes.plot(sizes, [t["median"] for t in times], style, label=LABELS.get(name, name))
        axes.fill_between(
            sizes, [t["p10"] for t in times], [t["p90"] for t in times], color=line.get_color(), alpha=0.2
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("rows and columns of each matrix")
    axes.set_ylabel("microseconds, median (shaded: 10 to 90 %)")
    axes.set_title("\n".join(["Product of float32 matrices", *wrap(document["device"], 90)]), fontsize=10)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--plot", type=Path, help="picture, by its suffix")
    arguments = parser.parse_args()
    backend = open_backend(arguments.backend)
    document: dict[str, Any] = {
        "schema": "bnnrt-matmul-1",
        "environment": environment(),
        "backend": backend.info.backend,
        "device": f"{backend.info.name}, {backend.info.platform} {backend.info.driver}",
        "timer": "the device's own, one launch; NumPy: the host's clock",
        "runs": arguments.runs,
        "results": [],
    }
    for size in arguments.sizes:
        result = measure(backend, size, arguments.runs)
        document["results"].append(result)
        for name, taken in result["microseconds"].items():
            print(f"{size:5} {name:18} {taken['median']:12.1f} µs {result['gflops'][name]:9.1f} GFLOP/s", flush=True)
    if arguments.output:
        write(document, arguments.output)
    if arguments.plot:
        plot(document, arguments.plot)


if __name__ == "__main__":
    main()
