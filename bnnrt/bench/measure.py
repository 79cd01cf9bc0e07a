"""The six figures of a network on a device, and the time of each of its kernels.

``first_to_last_us`` is the paper's: device timers from the first kernel's start, with the input on the device, to the
last one's end. ``events_sum_us`` adds up an event for each kernel; ``event_floor_us`` is the event of an empty one in
the same run. ``kernels_sum_us`` adds up the kernels' steady-state times. ``replay_us`` is the whole network in one
call, the mean of 100 back to back, and ``single_replay_us`` one from an idle device until it has ended. ``host_us`` is
array in, scores out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import Backend
from bnnrt.backends.numpy_backend import NumpyBackend
from bnnrt.bench.document import Figure, Kernel, Limits, Result
from bnnrt.bench.limits import empty_kernel
from bnnrt.bench.operations import operations
from bnnrt.bench.steady import elapsed_us, steady_us, warm_up
from bnnrt.executor import Executor
from bnnrt.graph import Graph
from bnnrt.ops import Domain, Sigmoid, Softmax
from bnnrt.plan import make_plan
from bnnrt.variants import TENSOR_CORES

__all__ = ["Subject", "checked", "expected", "measure", "random_feeds"]

Feeds = dict[str, npt.NDArray[Any]]

_REPLAYS = 100
_SAMPLES = 10
# Different inputs of a run lie in the host's memory up to this size; then they come again.
_INPUT_BYTES = 128 << 20
# Of floats, or words of bits, by the numpy backend.
_CHECKED_OPERATIONS = 5e7
# A figure is cut short after this time; how many samples it has is in the document.
_LONGEST_S = 10.0


@dataclass(frozen=True)
class Subject:
    """What is measured: a graph under a bundle's name, with a variant set, as ``binary`` or ``baseline``."""

    bundle: str
    graph: Graph
    variants: str = "default"
    role: str = "binary"


def random_feeds(graph: Graph, batch: int, rng: np.random.Generator) -> Feeds:
    """Random inputs as they are stored: levels 0 to 255 of images, and bits."""
    feeds: Feeds = {}
    for name, tensor_type in graph.inputs.items():
        shape = tensor_type.with_batch(batch)
        if tensor_type.domain is Domain.BIT:
            feeds[name] = packing.pack(rng.random(shape) < 0.5)
        else:
            dtype = {Domain.UINT8: np.uint8, Domain.INT32: np.int32, Domain.FLOAT32: np.float32}[tensor_type.domain]
            feeds[name] = rng.integers(0, 256, shape, dtype=np.uint8).astype(dtype)
    return feeds


def expected(graph: Graph, feeds: Feeds) -> Feeds:
    """What the numpy backend makes of the first images of a batch: as many as it can do in about a second."""
    batch = len(next(iter(feeds.values())))
    binary, floats = operations(graph, graph.nodes, 1)
    if all(tensor_type.shape[0] is None for tensor_type in graph.inputs.values()):
        batch = max(1, min(batch, int(_CHECKED_OPERATIONS / (binary / packing.WORD_BITS + floats + 1))))
    numpy = NumpyBackend()
    executor = Executor(numpy, make_plan(graph, numpy.info, batch))
    return executor.run({name: array[:batch] for name, array in feeds.items()})


def checked(executor: Executor, feeds: Feeds) -> bool:
    """Whether an executor's outputs are those of the numpy backend, bit for bit; 2 ulp apart after exp."""
    graph = executor.plan.graph
    executor.poison()
    results = executor.run(feeds)
    pairs = [(results[name], wanted) for name, wanted in expected(graph, feeds).items()]
    if any(isinstance(node.op, Sigmoid | Softmax) for node in graph.nodes):
        return all(np.allclose(found[: len(y)], y, rtol=2**-22, atol=0, equal_nan=True) for found, y in pairs)
    return all(found[: len(y)].tobytes() == y.tobytes() for found, y in pairs)


def measure(
    backend: Backend, subject: Subject, asked: str, batch: int, runs: int, limits: Limits, seed: int = 0
) -> Result:
    """Measure a network on a device.

    Args:
        asked: the backend as the user named it.
        runs: images, or batches of them, of ``first_to_last_us`` and ``host_us``.
        limits: of this device, in this run.

    Raises BackendError where the device has no kernel or too little memory.
    """
    rng = np.random.default_rng(seed)
    plan = make_plan(subject.graph, backend.info, batch, subject.variants)
    executor = Executor(backend, plan)
    try:
        inputs = _inputs(subject.graph, batch, runs, rng)
        good = checked(executor, inputs[0])
        warm_up(backend, executor.replay)
        host = _sampled(runs, lambda run: _host(executor, inputs[run % len(inputs)]))
        spans = _sampled(runs, lambda run: _span(backend, executor, inputs[run % len(inputs)]))
        events, floor = _events(backend, executor, inputs[0], min(runs, 200))
        steady = _steady(backend, executor, inputs[0])
        replays = _sampled(_SAMPLES, lambda _: elapsed_us(backend, executor.replay, _REPLAYS))
        singles = _sampled(runs, lambda _: elapsed_us(backend, executor.replay))
    finally:
        executor.close()
    return Result(
        bundle=subject.bundle,
        backend=asked,
        device=backend.info.backend,
        batch=batch,
        variants=subject.variants,
        role=subject.role,
        first_to_last_us=Figure.of(spans),
        kernels_sum_us=Figure.of([sum(sample) for sample in zip(*steady, strict=True)]),
        events_sum_us=Figure.of([sum(sample) for sample in zip(*events, strict=True)]),
        event_floor_us=Figure.of(floor) if floor else None,
        replay_us=Figure.of(replays),
        single_replay_us=Figure.of(singles),
        host_us=Figure.of(host),
        kernels=_kernels(executor, [_median(s) for s in steady], [_median(e) for e in events], limits),
        checked=good,
        arena_bytes=sum(plan.arena),
        constants_bytes=sum(c.nbytes for c in plan.constants.values()),
    )


def _inputs(graph: Graph, batch: int, runs: int, rng: np.random.Generator) -> list[Feeds]:
    first = random_feeds(graph, batch, rng)
    size = sum(array.nbytes for array in first.values())
    return [first, *(random_feeds(graph, batch, rng) for _ in range(min(runs, max(1, _INPUT_BYTES // size)) - 1))]


def _sampled(count: int, sample: Any) -> list[float]:
    """Up to ``count`` samples, fewer where they take too long."""
    start = perf_counter_ns()
    found: list[float] = []
    while len(found) < count and (not found or (perf_counter_ns() - start) / 1e9 < _LONGEST_S):
        found.append(sample(len(found)))
    return found


def _host(executor: Executor, feeds: Feeds) -> float:
    start = perf_counter_ns()
    executor.run(feeds)
    return (perf_counter_ns() - start) / 1000


def _span(backend: Backend, executor: Executor, feeds: Feeds) -> float:
    executor.upload(feeds)
    backend.synchronize()
    return backend.span(executor.launches).elapsed_us()


def _events(backend: Backend, executor: Executor, feeds: Feeds, runs: int) -> tuple[list[list[float]], list[float]]:
    """For each kernel its events, and those of an empty kernel, taken in turn."""
    buffer = backend.alloc(4)
    try:
        nothing = empty_kernel(backend, buffer)
        executor.upload(feeds)
        launches = [*executor.launches, *([nothing] if nothing else [])]
        rounds: list[list[float]] = []
        start = perf_counter_ns()
        while len(rounds) < runs and (not rounds or (perf_counter_ns() - start) / 1e9 < _LONGEST_S):
            rounds.append([event.elapsed_us() for event in [backend.timed(launch) for launch in launches]])
    finally:
        backend.synchronize()
        backend.free(buffer)
    columns = [list(column) for column in zip(*rounds, strict=True)]
    return (columns[:-1], columns[-1]) if nothing else (columns, [])


def _steady(backend: Backend, executor: Executor, feeds: Feeds) -> list[list[float]]:
    """For each kernel its steady-state times. Each finds the input that the ones before it have written."""
    executor.upload(feeds)
    backend.synchronize()
    return [steady_us(backend, launch, _SAMPLES) for launch in executor.launches]


def _median(samples: Sequence[float]) -> float:
    return float(np.median(samples))


def _kernels(executor: Executor, steady: list[float], events: list[float], limits: Limits) -> tuple[Kernel, ...]:
    plan, total = executor.plan, sum(steady)
    found: list[Kernel] = []
    for step in plan.steps:
        binary, floats = operations(plan.graph, step.nodes, plan.batch)
        for spec in step.launches:
            # Of several launches the last one computes the layer; the ones before it prepare its operands.
            last = spec is step.launches[-1]
            us, moved = steady[len(found)], plan.bytes_moved(spec)
            done = binary if last else 0
            on_tensor_cores = step.variant in TENSOR_CORES
            found.append(
                Kernel(
                    name=spec.entry,
                    layer=step.nodes[0].name,
                    variant=step.variant,
                    grid=spec.grid,
                    block=spec.block,
                    local_bytes=spec.local_bytes,
                    us=us,
                    event_us=events[len(found)],
                    bytes=moved,
                    binary_operations=done,
                    float_operations=floats if last else 0,
                    share=us / total if total else None,
                    fraction_of_copy=_fraction(moved, us, limits.copy_bytes_per_s),
                    fraction_of_popcount=None if on_tensor_cores else _fraction(done, us, limits.binary_ops_per_s),
                    fraction_of_tensor_cores=(
                        _fraction(done, us, limits.tensor_core_binary_ops_per_s) if on_tensor_cores else None
                    ),
                )
            )
    return tuple(found)


def _fraction(work: float, us: float, rate: float | None) -> float | None:
    return work / (us * 1e-6) / rate if rate and us else None
