"""Convolutions on 1-bit tensor cores: on every device that has them, and by the same text on the host.

The host needs g++ only; what that shows, and what it does not, is said in tests/checkers/cuda_on_host.py.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bnnrt import ops, packing, reference
from bnnrt.backends.base import Backend
from bnnrt.backends.source import KernelSource
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window
from bnnrt.plan import make_plan

CHECKERS = Path(__file__).parents[1] / "checkers"

checked = settings(
    max_examples=int(os.environ.get("BNNRT_EXAMPLES", "5")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Chain:
    """A convolution and what surrounds it. ``planes``: thresholds of each pixel's channel, 0 for packed bits."""

    size: tuple[int, int]
    channels: int
    outputs: int
    window: Window
    planes: int = 0
    pad: int = -1
    thresholds: bool = True
    pool: tuple[int, int] | None = None
    units: int = 4
    spread: int = 3

    def run(self, backend: Backend, seed: int) -> dict[str, object]:
        """Twice on poisoned memory; every element must be the reference's.

        Returns the kernel's defines; none where the least tile of the whole chain does not fit local memory.
        """
        rng = np.random.default_rng(seed)
        graph = self._graph(rng)
        shape = (1 + seed % 2, *self.size, self.channels)
        device = dataclasses.replace(backend.info, compute_units=self.units)
        plan = make_plan(graph, device, shape[0], "conv_tensor")
        if len(plan.steps) > 1:
            return {}
        executor = Executor(backend, plan)
        for _ in range(2):
            signs = rng.choice(np.array([-1, 1], dtype=np.float32), shape)
            x = rng.integers(0, 256, shape, dtype=np.uint8) if self.planes else signs
            executor.poison()
            found = executor.run({"x": x if self.planes else packing.pack(x > 0)})
            for name, expected in reference.run(graph, {"x": x}).items():
                wanted = packing.pack(expected > 0) if self.thresholds else expected
                np.testing.assert_array_equal(found[name], wanted)
        executor.close()
        (launch,) = plan.steps[0].launches
        assert launch.entry == "conv_tensor"
        code = launch.code
        assert isinstance(code, KernelSource)
        return dict(code.defines)

    def _graph(self, rng: np.random.Generator) -> Graph:
        nodes: list[Node] = []
        constants: dict[str, Constant] = {}

        def add(op: ops.Op, *given: Constant) -> None:
            names = [f"c{len(nodes)}_{i}" for i in range(len(given))]
            constants.update(zip(names, given, strict=True))
            before = nodes[-1].outputs[0] if nodes else "x"
            nodes.append(Node(f"n{len(nodes)}", op, (before, *names), (f"t{len(nodes)}",)))

        def bits(*shape: int) -> Constant:
            return Constant.bits(rng.random(shape) < 0.5)

        def integers(low: int, high: int, count: int) -> Constant:
            return Constant.of(rng.integers(low, high, count).astype(np.int32))

        seen = self.channels * max(1, self.planes)
        if self.planes:
            add(ops.Threshold(), integers(0, 257, seen), bits(seen))
        add(ops.BinaryConv(self.window, 1, self.pad), bits(self.outputs, *self.window.kernel, seen))
        if self.thresholds:
            deviation = int((self.window.taps * seen) ** 0.5) + 2
            most = min(self.spread * deviation, 1 << 31)
            add(ops.Threshold(), integers(-most, most, self.outputs), bits(self.outputs))
        if self.pool:
            add(ops.BitPool(Window(self.pool, self.pool)), bits(self.outputs))
        x = TensorType((None, *self.size, self.channels), Domain.UINT8 if self.planes else Domain.BIT)
        return Graph({"x": x}, tuple(nodes), (nodes[-1].outputs[0],), constants)


FIVE = Window((5, 5), pads=(2, 2, 2, 2))
THREE = Window((3, 3), pads=(1, 1, 1, 1))
# Each with what makes it a case of its own, as defines of the kernel.
CASES: dict[str, tuple[Chain, dict[str, int]]] = {
    "pixels, blocks of taps past the window": (
        Chain((40, 52), 3, 32, FIVE, planes=1, pool=(2, 2)),
        {"COMPLEMENT": 1, "BLOCK_H": 2, "BLOCK_W": 5, "INNER": 3, "MEMBERS": 4},
    ),
    "several planes of a pixel": (
        Chain((17, 23), 3, 40, THREE, planes=3, pool=(2, 2), pad=1),
        {"COMPLEMENT": 1, "PIXEL_CHANNELS": 3, "CHANNELS": 9},
    ),
    "blocks of taps without the complement": (
        Chain((20, 20), 3, 32, Window((7, 7)), planes=1),
        {"COMPLEMENT": 0, "BLOCK_W": 7, "INNER": 7},
    ),
    "the last product is half": (Chain((30, 30), 32, 32, FIVE, pool=(2, 2)), {"INNER": 25, "IN_REGISTERS": 1}),
    "many weights in registers": (
        Chain((20, 18), 128, 37, THREE, pool=(2, 2)),
        {"IN_REGISTERS": 1, "MEMBERS": 1, "INNER": 36, "PIXEL_STRIDE": 6},
    ),
    "weights that are read as needed": (
        Chain((18, 34), 512, 32, THREE, units=1),
        {"IN_REGISTERS": 0, "SPAN": 2, "PIXEL_STRIDE": 20, "INNER": 144},
    ),
    "and the last product is half": (
        Chain((10, 18), 320, 37, THREE, pool=(2, 2)),
        {"IN_REGISTERS": 0, "MEMBERS": 2, "INNER": 90, "PIXEL_STRIDE": 10},
    ),
    "zeros outside": (
        Chain((11, 13), 70, 33, Window((3, 5), (2, 1), (1, 2, 0, 1)), pad=0, pool=(1, 3)),
        {"COMPLEMENT": 0, "COLUMN_CLASSES": 4},
    ),
    "zeros outside, with the complement": (
        Chain((12, 12), 8, 16, Window((3, 3), pads=(1, 1, 1, 1), dilations=(2, 2)), pad=0, pool=(3, 3)),
        {"COMPLEMENT": 1, "COLUMN_CLASSES": 3, "MEMBERS": 3},
    ),
    "accumulators": (Chain((9, 14), 64, 36, THREE, thresholds=False), {"BITS": 0, "COMPLEMENT": 0}),
    "accumulators, no four at once": (Chain((9, 14), 33, 37, Window((1, 1)), thresholds=False), {"COMPLEMENT": 1}),
    "accumulators, zeros outside": (
        Chain((9, 14), 40, 64, THREE, thresholds=False, pad=0),
        {"BITS": 0, "COLUMN_CLASSES": 3},
    ),
    "thresholds that always or never pass": (Chain((9, 14), 64, 64, THREE, spread=1 << 31), {"BITS": 1}),
    "one result": (Chain((5, 5), 48, 200, Window((5, 5))), {"RESULT_HEIGHT": 1, "RESULT_WIDTH": 1}),
}


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    def pick(*choices: int) -> int:
        return draw(st.sampled_from(choices))

    def several(low: int, high: int, count: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, dilations = (pick(1, 2, 3, 5, 7), pick(1, 3, 5, 7)), (pick(1, 1, 2), pick(1, 1, 2))
    channels = pick(1, 3, 5, 8, 11, 16, 17, 32, 33, 64, 70, 96, 128, 200, 256)
    least = [dilations[axis] * (kernel[axis] - 1) + 1 for axis in (0, 1)]
    size = (least[0] + draw(st.integers(0, 25)), least[1] + draw(st.integers(0, 40)))
    window = Window(kernel, (pick(1, 1, 2), pick(1, 1, 2, 3)), several(0, 3, 4), dilations)
    planes = 0 if channels > 11 else pick(0, 1, 32 // channels if channels < 6 else 1)
    thresholds = planes > 0 or draw(st.booleans())
    pool: tuple[int, int] | None = draw(st.sampled_from([None, (2, 2), (2, 2), (3, 3), (2, 1), (1, 2), (4, 4), (1, 3)]))
    out = [
        (size[axis] + window.pads[axis] + window.pads[axis + 2] - least[axis]) // window.strides[axis] + 1
        for axis in (0, 1)
    ]
    if not thresholds or (pool and (pool[0] > out[0] or pool[1] > out[1])):
        pool = None
    outputs, pad, units = pick(1, 6, 32, 37, 64, 100), pick(-1, 0, 1), pick(1, 4, 132)
    return Chain(size, channels, outputs, window, planes, pad, thresholds, pool, units)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    if shutil.which("g++") is None:
        pytest.skip("no g++ to run CUDA's text on the host")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKERS)
        module = importlib.import_module("cuda_on_host")
    made: Backend = module.HostCuda(tmp_path_factory.mktemp("host"))
    return made


@pytest.fixture
def device(backend: Backend) -> Backend:
    if not backend.info.bit_tensor_cores:
        pytest.skip("no 1-bit tensor cores")
    return backend


@pytest.mark.parametrize("case", CASES)
def test_every_way_on_the_host(host: Backend, case: str) -> None:
    chain, expected = CASES[case]
    defines = chain.run(host, 1)
    assert {name: defines[name] for name in expected} == expected


@checked
@given(chain=chains(), seed=st.integers(0, 1 << 30))
def test_random_chains_on_the_host(host: Backend, chain: Chain, seed: int) -> None:
    assume(chain.run(host, seed))


@pytest.mark.parametrize("case", CASES)
def test_every_way(device: Backend, case: str) -> None:
    chain, _ = CASES[case]
    for units in (1, 4, 132):
        assert dataclasses.replace(chain, units=units).run(device, 1)


@checked
@given(chain=chains(), seed=st.integers(0, 1 << 30))
def test_random_chains(device: Backend, chain: Chain, seed: int) -> None:
    assume(chain.run(device, seed))
