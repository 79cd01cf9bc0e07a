"""Chains that kernels run at once: pixels to bits, convolution, thresholds, pooling; dense layer and what follows it.

Every variant that can be named runs the same random networks, as on devices of one, few and many multiprocessors: the
plan splits the work by their number.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bnnrt import ops, packing, reference
from bnnrt.backends.base import Backend
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import ArithmeticKind, Domain, TensorType, Window
from bnnrt.plan import make_plan
from bnnrt.variants import VARIANTS

Array = npt.NDArray[Any]

checked = settings(
    max_examples=int(os.environ.get("BNNRT_EXAMPLES", "3")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
UNITS = (1, 4, 200)
SETS = ["default", "paper"]
CONVOLUTIONS = sorted({v.name for v in VARIANTS if ops.BinaryConv in v.ops and v.name != "numpy"})
DENSE = sorted({v.name for v in VARIANTS if v.ops[0] is ops.BinaryDense and v.name != "numpy"})


def check(backend: Backend, graph: Graph, x: Array, variants: str, units: int) -> None:
    """Twice on poisoned memory, each time with other data; every element must be the reference's."""
    device = dataclasses.replace(backend.info, compute_units=units)
    executor = Executor(backend, make_plan(graph, device, len(x), variants))
    for data in (x, np.ascontiguousarray(x[::-1])):
        executor.poison()
        bits = graph.inputs["x"].domain is Domain.BIT
        found = executor.run({"x": packing.pack(data > 0) if bits else data})
        for name, expected in reference.run(graph, {"x": data}).items():
            wanted = packing.pack(expected > 0) if graph.types[name].domain is Domain.BIT else expected
            np.testing.assert_array_equal(found[name], wanted)
    executor.close()


class Chain:
    """Nodes one after another, with random constants."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.last = rng, "x"
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}

    def add(self, op: ops.Op, *constants: Constant) -> None:
        names = [f"c{len(self.nodes)}_{i}" for i in range(len(constants))]
        self.constants.update(zip(names, constants, strict=True))
        self.nodes.append(Node(f"n{len(self.nodes)}", op, (self.last, *names), (f"t{len(self.nodes)}",)))
        self.last = self.nodes[-1].outputs[0]

    def bits(self, *shape: int) -> Constant:
        return Constant.bits(self.rng.random(shape) < 0.5)

    def integers(self, low: int, high: int, count: int) -> Constant:
        return Constant.of(self.rng.integers(low, high, count).astype(np.int32))

    def graph(self, x: TensorType) -> Graph:
        return Graph({"x": x}, tuple(self.nodes), (self.last,), self.constants)


@pytest.mark.parametrize("variants", [*SETS, *CONVOLUTIONS])
@checked
@given(data=st.data())
def test_convolutions(backend: Backend, variants: str, data: st.DataObject) -> None:
    def pick(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    rng = np.random.default_rng(pick(0, 1 << 30))
    batch, height, width = pick(1, 3), pick(5, 20), pick(5, 20)
    channels, outputs = (data.draw(st.sampled_from(c)) for c in ((1, 3, 5, 16, 17, 32, 33, 70), (1, 6, 32, 37, 64)))
    window = Window(
        (pick(1, 5), pick(1, 5)),
        (pick(1, 2), pick(1, 2)),
        (pick(0, 2), pick(0, 2), pick(0, 2), pick(0, 2)),
        (pick(1, 2), pick(1, 2)),
    )
    assume(window.dilations[0] * (window.kernel[0] - 1) < height)
    assume(window.dilations[1] * (window.kernel[1] - 1) < width)
    chain = Chain(rng)
    pixels = data.draw(st.booleans())
    seen = channels
    if pixels:
        several = pick(1, 3) if channels < 6 else 1
        seen = channels * several
        chain.add(ops.Threshold(), chain.integers(0, 257, seen), chain.bits(seen))
    chain.add(
        ops.BinaryConv(window, 1, data.draw(st.sampled_from((-1, 0, 1)))), chain.bits(outputs, *window.kernel, seen)
    )
    if data.draw(st.booleans()) or pixels:
        spread = int((window.taps * seen) ** 0.5) + 2
        chain.add(ops.Threshold(), chain.integers(-spread, spread, outputs), chain.bits(outputs))
        _, *size, _ = (
            chain.graph(TensorType((None, height, width, channels), Domain.UINT8 if pixels else Domain.BIT))
            .types[chain.last]
            .with_batch(1)
        )
        pool = (pick(1, 3), pick(1, 3))
        if data.draw(st.booleans()) and pool[0] <= size[0] and pool[1] <= size[1]:
            chain.add(ops.BitPool(Window(pool, pool)), chain.bits(outputs))
    shape = (batch, height, width, channels)
    x = rng.integers(0, 256, shape, dtype=np.uint8) if pixels else rng.choice(np.array([-1, 1], np.float32), shape)
    graph = chain.graph(TensorType((None, *shape[1:]), Domain.UINT8 if pixels else Domain.BIT))
    check(backend, graph, x, variants, data.draw(st.sampled_from(UNITS)))


@pytest.mark.parametrize("variants", [*SETS, *DENSE])
@checked
@given(
    seed=st.integers(0, 1 << 30),
    batch=st.integers(1, 19),
    length=st.sampled_from((1, 31, 32, 100, 700, 3000)),
    outputs=st.sampled_from((1, 6, 32, 37, 100)),
    tail=st.sampled_from(("", "threshold", "factor", "factors")),
    units=st.sampled_from(UNITS),
)
def test_dense_layers(
    backend: Backend, variants: str, seed: int, batch: int, length: int, outputs: int, tail: str, units: int
) -> None:
    rng = np.random.default_rng(seed)
    chain = Chain(rng)
    chain.add(ops.BinaryDense(), chain.bits(outputs, length))
    if tail == "threshold":
        chain.add(ops.Threshold(), chain.integers(-9, 9, outputs), chain.bits(outputs))
    elif tail:
        chain.add(ops.ToFloat())
        factors = rng.normal(size=outputs if tail == "factors" else 1).astype(np.float32)
        chain.add(ops.Arithmetic(ArithmeticKind.MUL), Constant.of(factors))
    x = rng.choice(np.array([-1, 1], dtype=np.float32), (batch, length))
    check(backend, chain.graph(TensorType((None, length), Domain.BIT)), x, variants, units)


@pytest.mark.parametrize("variants", ["default", "threshold_votes"])
@checked
@given(seed=st.integers(0, 1 << 30), channels=st.integers(1, 40), several=st.integers(1, 3), batch=st.integers(1, 3))
def test_thresholds_of_pixels(
    backend: Backend, variants: str, seed: int, channels: int, several: int, batch: int
) -> None:
    chain = Chain(np.random.default_rng(seed))
    chain.add(ops.Threshold(), chain.integers(0, 257, channels * several), chain.bits(channels * several))
    x = chain.rng.integers(0, 256, (batch, 3, 4, channels), dtype=np.uint8)
    check(backend, chain.graph(TensorType((None, 3, 4, channels), Domain.UINT8)), x, variants, 4)
