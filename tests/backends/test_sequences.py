"""Many launches as one call, and what the device's timers say of them."""

from __future__ import annotations

import numpy as np
import pytest

from bnnrt import ops
from bnnrt.backends.base import Backend, DeviceKind
from bnnrt.bench.document import Limits
from bnnrt.bench.limits import empty_kernel, measure_limits
from bnnrt.bench.measure import Subject, measure, random_feeds
from bnnrt.bench.steady import steady_us
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import ArithmeticKind, Domain, TensorType
from bnnrt.plan import make_plan

GRAPH = Graph(
    {"x": TensorType((None, 4), Domain.FLOAT32)},
    tuple(
        Node(f"n{i}", ops.Arithmetic(ArithmeticKind.ADD), (f"t{i}" if i else "x", "c"), (f"t{i + 1}",))
        for i in range(5)
    ),
    ("t5",),
    {"c": Constant.of(np.arange(4, dtype=np.float32))},
)


def test_every_replay_reads_its_own_input(backend: Backend) -> None:
    executor = Executor(backend, make_plan(GRAPH, backend.info, 3))
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.integers(0, 100, (3, 4)).astype(np.float32)
        executor.poison()
        np.testing.assert_array_equal(executor.run({"x": x})["t5"], x + 5 * np.arange(4, dtype=np.float32))
    executor.close()


def test_two_sequences_do_not_mix(backend: Backend) -> None:
    executors = [Executor(backend, make_plan(GRAPH, backend.info, batch)) for batch in (1, 2)]
    for round_ in range(3):
        for batch, executor in enumerate(executors, 1):
            x = np.full((batch, 4), round_, dtype=np.float32)
            np.testing.assert_array_equal(executor.run({"x": x})["t5"], x + 5 * np.arange(4, dtype=np.float32))
    executors[0].close()
    x = np.ones((2, 4), dtype=np.float32)
    np.testing.assert_array_equal(executors[1].run({"x": x})["t5"], x + 5 * np.arange(4, dtype=np.float32))
    executors[1].close()


def test_a_span_covers_its_launches(backend: Backend) -> None:
    executor = Executor(backend, make_plan(GRAPH, backend.info, 1000))
    executor.upload(random_feeds(GRAPH, 1000, np.random.default_rng(0)))
    spans = [backend.span(executor.launches).elapsed_us() for _ in range(20)]
    singles = [backend.timed(executor.launches[0]).elapsed_us() for _ in range(20)]
    assert min(spans) > 0
    assert np.median(spans) > np.median(singles)
    executor.close()


def test_steady_state_is_positive_and_has_its_samples(backend: Backend) -> None:
    executor = Executor(backend, make_plan(GRAPH, backend.info, 10))
    times = steady_us(backend, executor.launches[0], 3)
    assert len(times) == 3
    assert min(times) > 0
    executor.close()


@pytest.fixture(scope="module")
def limits(backend: Backend) -> Limits:
    return measure_limits(backend)[0]


def test_limits(backend: Backend, limits: Limits) -> None:
    assert limits.copy_bytes_per_s is not None
    assert limits.copy_bytes_per_s > 1e8
    if backend.info.backend == "numpy":
        assert limits.popcounts_per_s is None
        assert empty_kernel(backend, backend.alloc(4)) is None
        return
    assert limits.popcounts_per_s is not None
    assert limits.popcounts_per_s > 1e7
    assert limits.binary_ops_per_s == 64 * limits.popcounts_per_s
    assert all((limits.empty_kernel_us.event, limits.empty_kernel_us.steady))
    if backend.info.kind is DeviceKind.CPU:
        assert limits.tensor_core_binary_ops_per_s is None


def test_every_figure_of_a_network(backend: Backend, limits: Limits) -> None:
    rng = np.random.default_rng(1)
    weights = {"w": Constant.bits(rng.random((40, 70)) < 0.5), "f": Constant.bits(rng.random(40) < 0.5)}
    weights["t"] = Constant.of(rng.integers(-5, 5, 40).astype(np.int32))
    nodes = (Node("d", ops.BinaryDense(), ("x", "w"), ("a",)), Node("t", ops.Threshold(), ("a", "t", "f"), ("y",)))
    graph = Graph({"x": TensorType((None, 70), Domain.BIT)}, nodes, ("y",), weights)
    result = measure(backend, Subject("made up", graph), "asked", 3, 4, limits)
    assert result.checked
    assert (result.bundle, result.backend, result.device, result.batch) == ("made up", "asked", backend.info.backend, 3)
    for figure in (result.first_to_last_us, result.events_sum_us, result.host_us, result.single_replay_us):
        assert figure is not None
        assert len(figure.samples) == 4
        assert figure.p10 > 0
    assert result.kernels_sum_us is not None
    assert (result.event_floor_us is None) == (backend.info.backend == "numpy")
    assert sum(kernel.binary_operations for kernel in result.kernels) == 2 * 3 * 40 * 70
    assert sum(kernel.share or 0 for kernel in result.kernels) == pytest.approx(1)
    total = sum(kernel.us or 0 for kernel in result.kernels)
    assert result.kernels_sum_us.median == pytest.approx(total, rel=0.5)


def test_a_wrong_result_is_told(backend: Backend, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    from bnnrt.bench import measure as module

    def spoilt(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array + 1 for name, array in right(graph, feeds).items()}

    right = module.expected
    monkeypatch.setattr(module, "expected", spoilt)
    assert not measure(backend, Subject("made up", GRAPH), "asked", 3, 2, limits).checked
