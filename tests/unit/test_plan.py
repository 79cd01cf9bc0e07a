"""Plans: memory that nothing overwrites too early, fusion only where nobody looks, launches that fit the device.

Run this file to write the pinned plans anew, after a change that is meant to alter them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import ops
from bnnrt.backends.base import DeviceInfo, DeviceKind, Language
from bnnrt.backends.numpy_backend import NumpyBackend
from bnnrt.backends.source import KernelSource
from bnnrt.bundle import Bundle
from bnnrt.errors import BackendError, InputError
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window
from bnnrt.plan import Plan, Step, make_plan
from bnnrt.session import load_bundle

REPOSITORY = Path(__file__).parents[2]
PLANS = REPOSITORY / "tests" / "golden" / "plans"
FIXTURES = REPOSITORY / "tests" / "fixtures"
VEHICLE = REPOSITORY / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"

GPU = DeviceInfo(
    backend="opencl:0.0",
    name="described GPU",
    kind=DeviceKind.GPU,
    language=Language.OPENCL,
    platform="none",
    driver="none",
    compute_units=8,
    max_group_size=1024,
    max_group_shape=(1024, 1024, 64),
    local_memory=48 << 10,
    dedicated_local_memory=True,
    memory=4 << 30,
    max_allocation=1 << 30,
    exact_division=True,
)
CUDA_GPU = dataclasses.replace(GPU, backend="cuda:0", language=Language.CUDA)
TENSOR_GPU = dataclasses.replace(CUDA_GPU, bit_tensor_cores=True)
CPU = dataclasses.replace(GPU, kind=DeviceKind.CPU, compute_units=2)
HOST = NumpyBackend().info
ANY_DEVICE = [GPU, CUDA_GPU, CPU, HOST]


def small(group: int, local: int, device: DeviceInfo = GPU) -> DeviceInfo:
    """A device of smaller work-groups and local memory."""
    return dataclasses.replace(
        device, max_group_size=group, max_group_shape=(group, group, min(group, 64)), local_memory=local
    )


@cache
def converted(path: Path) -> Bundle:
    return load_bundle(path)


def vehicle() -> Graph:
    graph = converted(VEHICLE).pixels
    assert graph is not None
    return graph


# Memory


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Networks of dense and elementwise layers that branch, join, reshape, and give out what they please."""
    width = st.integers(1, 200)
    types: dict[str, TensorType] = {}
    for index in range(draw(st.integers(1, 3))):
        types[f"x{index}"] = TensorType((None, draw(width)), Domain.FLOAT32)
    inputs = dict(types)
    constants: dict[str, Constant] = {}
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(sorted(types)))
        shape, domain = types[x].shape[1:], types[x].domain
        names: tuple[str, ...] = (x,)
        op: ops.Op
        kinds = {
            Domain.FLOAT32: ["add", "sign", "reshape"],
            Domain.BIT: ["dense", "float", "reshape"] if len(shape) == 1 else ["float", "reshape"],
            Domain.INT32: ["threshold", "float", "reshape"],
        }[domain]
        kind = draw(st.sampled_from(kinds))
        if kind == "add":
            partners = [name for name, other in types.items() if other == types[x]]
            names, op = (x, draw(st.sampled_from(sorted(partners)))), ops.Arithmetic(ops.ArithmeticKind.ADD)
        elif kind == "sign":
            op = ops.Sign()
        elif kind == "float":
            op = ops.ToFloat()
        elif kind == "reshape":
            size = int(np.prod([1 if d is None else d for d in shape]))
            op = ops.Reshape(draw(st.sampled_from([(size,), (1, size), (size, 1)])))
        elif kind == "dense":
            constants[f"w{index}"] = Constant.bits(np.ones((draw(width), types[x].channels)))
            names, op = (x, f"w{index}"), ops.BinaryDense()
        else:
            constants[f"t{index}"] = Constant.of(np.zeros(types[x].channels, np.int32))
            constants[f"f{index}"] = Constant.bits(np.zeros(types[x].channels))
            names, op = (x, f"t{index}", f"f{index}"), ops.Threshold()
        nodes.append(Node(f"node{index}", op, names, (f"y{index}",)))
        known = {**types, **{name: constant.type for name, constant in constants.items()}}
        (types[f"y{index}"],) = op.infer([known[name] for name in names])
    outputs = draw(st.lists(st.sampled_from(sorted(types)), min_size=1, max_size=3, unique=True))
    return Graph(inputs, tuple(nodes), tuple(outputs), constants)


def aliases(plan: Plan) -> dict[str, str]:
    """The tensor whose memory a tensor is; a step without a launch makes one the other."""
    found: dict[str, str] = {}
    for step in plan.steps:
        if not step.launches:
            (node,) = step.nodes
            found[node.outputs[0]] = found.get(node.inputs[0], node.inputs[0])
    return found


def follow(plan: Plan) -> None:
    """Run a plan on memory whose every byte says which tensor was last written there."""
    same = aliases(plan)
    memory = [np.full(size, "", dtype=object) for size in plan.arena]

    def place(name: str) -> tuple[int, int]:
        found = plan.placements[name]
        assert found.nbytes <= plan.arena[found.slot]
        return found.slot, found.nbytes

    def put(name: str) -> None:
        slot, size = place(name)
        memory[slot][:size] = same.get(name, name)

    def expect(name: str, when: str) -> None:
        slot, size = place(name)
        assert (memory[slot][:size] == same.get(name, name)).all(), f"{name} is gone {when}"

    for name in plan.graph.inputs:
        put(name)
    for step in plan.steps:
        for launch in step.launches:
            # Every kernel takes what it reads, then what it writes, then a count.
            *reads, written = [a for a in launch.args if isinstance(a, str) and a in plan.placements]
            for name in reads:
                expect(name, f"when {launch.entry} reads it")
                assert place(name)[0] != place(written)[0], f"{launch.entry} overwrites {name}"
            put(written)
    for name in plan.graph.outputs:
        expect(name, "at the end")


@settings(max_examples=150)
@given(graph=graphs(), device=st.sampled_from(ANY_DEVICE), batch=st.integers(1, 5))
def test_no_tensor_is_overwritten_while_it_is_needed(graph: Graph, device: DeviceInfo, batch: int) -> None:
    plan = make_plan(graph, device, batch)
    follow(plan)
    same = aliases(plan)
    for slot, size in enumerate(plan.arena):
        assert size == max(p.nbytes for p in plan.placements.values() if p.slot == slot)
    for name, root in same.items():
        assert plan.placements[name].slot == plan.placements[root].slot
        assert plan.placements[name].nbytes == plan.placements[root].nbytes


@pytest.mark.parametrize("variants", ["default", "paper"])
@pytest.mark.parametrize("device", ANY_DEVICE, ids=lambda device: f"{device.backend}-{device.kind.value}")
def test_no_tensor_of_a_real_network_is_overwritten(device: DeviceInfo, variants: str) -> None:
    for path in FIXTURES.glob("*_dynamo.onnx"):
        follow(make_plan(converted(path).model, device, 3, variants))
    follow(make_plan(vehicle(), device, 2, variants))


def test_memory_is_used_again() -> None:
    """A chain needs two tensors at a time, however long it is."""
    nodes = tuple(
        Node(f"n{i}", ops.Arithmetic(ops.ArithmeticKind.ADD), (f"t{i}", f"t{i}"), (f"t{i + 1}",)) for i in range(20)
    )
    plan = make_plan(Graph({"t0": TensorType((None, 64), Domain.FLOAT32)}, nodes, ("t20",)), GPU, 2)
    assert plan.arena == (2 * 64 * 4, 2 * 64 * 4)
    follow(plan)


def test_every_step_computes_what_the_graph_says_once() -> None:
    for device in ANY_DEVICE:
        graph = vehicle()
        done = [node for step in make_plan(graph, device, 1).steps for node in step.nodes]
        assert sorted(done, key=graph.nodes.index) == list(graph.nodes)


def test_bytes_moved_counts_every_operand_once() -> None:
    real = TensorType((None, 64), Domain.FLOAT32)
    square = Node("square", ops.Arithmetic(ops.ArithmeticKind.MUL), ("x", "x"), ("y",))
    shift = Node("shift", ops.Arithmetic(ops.ArithmeticKind.ADD), ("y", "c"), ("z",))
    graph = Graph({"x": real}, (square, shift), ("z",), {"c": Constant.of(np.zeros(64, np.float32))})
    plan = make_plan(graph, GPU, 3)
    moved = [plan.bytes_moved(launch) for step in plan.steps for launch in step.launches]
    assert moved[1] == (3 * 64 + 64 + 3 * 64) * 4
    assert moved[0] == (3 * 64 + 3 * 64) * 4


# Fusion


def conv_and_threshold(*more: Node, outputs: Iterable[str] = ("y",), channels: int = 40) -> Graph:
    nodes = (
        Node("conv", ops.BinaryConv(Window((3, 3))), ("x", "w"), ("acc",)),
        Node("threshold", ops.Threshold(), ("acc", "t", "f"), ("y",)),
    )
    constants = {
        "w": Constant.bits(np.ones((9, 3, 3, channels))),
        "t": Constant.of(np.zeros(9, np.int32)),
        "f": Constant.bits(np.zeros(9)),
    }
    x = TensorType((None, 8, 8, channels), Domain.BIT)
    return Graph({"x": x}, (*nodes, *more), tuple(outputs), constants)


def names(plan: Plan) -> list[tuple[str, ...]]:
    return [tuple(node.name for node in step.nodes) for step in plan.steps]


@pytest.mark.parametrize(("device", "variant"), [(GPU, "conv_tile"), (TENSOR_GPU, "conv_tensor"), (CPU, "conv_lanes")])
def test_a_threshold_is_fused_into_its_convolution(device: DeviceInfo, variant: str) -> None:
    plan = make_plan(conv_and_threshold(), device, 1)
    assert names(plan) == [("conv", "threshold")]
    assert plan.steps[0].variant == variant
    assert "acc" not in plan.placements


def test_tensor_cores_are_used_where_there_are_some() -> None:
    graph = conv_and_threshold()

    def chosen(device: DeviceInfo, variants: str = "default") -> Step:
        return make_plan(graph, device, 1, variants).steps[0]

    assert chosen(CUDA_GPU).variant == "conv_tile"
    assert dict(chosen(CUDA_GPU).passed_over)["conv_tensor"] == "no 1-bit tensor cores"
    assert chosen(CUDA_GPU, "conv_tensor").variant == "conv_tile"
    assert chosen(TENSOR_GPU, "conv_tile").variant == "conv_tile"
    assert chosen(TENSOR_GPU).variant == "conv_tensor"


@pytest.mark.parametrize("device", [GPU, CUDA_GPU, CPU], ids=lambda device: f"{device.backend}-{device.kind.value}")
@pytest.mark.parametrize(
    "graph",
    [
        conv_and_threshold(outputs=("y", "acc")),
        conv_and_threshold(Node("look", ops.ToFloat(), ("acc",), ("z",)), outputs=("y", "z")),
        conv_and_threshold(Node("again", ops.Threshold(), ("acc", "t", "f"), ("z",)), outputs=("y", "z")),
    ],
    ids=["output", "second reader", "second threshold"],
)
def test_an_accumulator_that_others_read_is_not_fused_away(graph: Graph, device: DeviceInfo) -> None:
    plan = make_plan(graph, device, 1)
    assert names(plan)[:2] == [("conv",), ("threshold",)]
    assert "acc" in plan.placements
    # On a CPU nothing else is before the kernel of a convolution alone; elsewhere one row fits the chain or the node.
    fused = {"conv_lanes"} if device is CPU else {"conv_tile"}
    assert fused & {*dict(plan.steps[0].passed_over), plan.steps[0].variant}
    follow(plan)


@pytest.mark.parametrize("device", [GPU, CUDA_GPU, CPU], ids=lambda device: f"{device.backend}-{device.kind.value}")
def test_a_tensor_that_its_only_reader_reads_twice_is_not_fused_away(device: DeviceInfo) -> None:
    nodes = (
        Node("float", ops.ToFloat(), ("x",), ("a",)),
        Node("twice", ops.Arithmetic(ops.ArithmeticKind.ADD), ("a", "a"), ("y",)),
    )
    plan = make_plan(Graph({"x": TensorType((None, 8), Domain.INT32)}, nodes, ("y",)), device, 1)
    assert names(plan) == [("float",), ("twice",)]
    assert "a" in plan.placements
    follow(plan)


@pytest.mark.parametrize("device", ANY_DEVICE, ids=lambda device: f"{device.backend}-{device.kind.value}")
def test_a_sum_with_what_is_computed_later_is_not_fused_away(device: DeviceInfo) -> None:
    """The sum of two layers: it cannot run in the place of the first."""
    nodes = (
        Node("first", ops.BinaryDense(), ("x", "w"), ("a",)),
        Node("first float", ops.ToFloat(), ("a",), ("b",)),
        Node("second", ops.BinaryDense(), ("x", "w"), ("c",)),
        Node("second float", ops.ToFloat(), ("c",), ("d",)),
        Node("sum", ops.Arithmetic(ops.ArithmeticKind.ADD), ("b", "d"), ("y",)),
    )
    constants = {"w": Constant.bits(np.ones((9, 40)))}
    plan = make_plan(Graph({"x": TensorType((None, 40), Domain.BIT)}, nodes, ("y",), constants), device, 2)
    ran = [name for step in names(plan) for name in step]
    assert ran == [node.name for node in nodes]
    follow(plan)


def test_only_a_threshold_is_fused() -> None:
    x = TensorType((None, 8, 8, 40), Domain.BIT)
    nodes = (
        Node("conv", ops.BinaryConv(Window((3, 3))), ("x", "w"), ("acc",)),
        Node("float", ops.ToFloat(), ("acc",), ("y",)),
    )
    plan = make_plan(Graph({"x": x}, nodes, ("y",), {"w": Constant.bits(np.ones((9, 3, 3, 40)))}), GPU, 1)
    assert names(plan) == [("conv",), ("float",)]


# Devices


def check_launches(plan: Plan) -> None:
    device = plan.device
    for step in plan.steps:
        for launch in step.launches:
            label = f"{step.variant}: {launch.entry} {launch.grid} {launch.block} {launch.local_bytes}"
            assert all(1 <= b <= most for b, most in zip(launch.block, device.max_group_shape, strict=True)), label
            assert np.prod(launch.block) <= device.max_group_size, label
            assert launch.local_bytes <= device.local_memory, label
            assert all(1 <= g < 1 << 31 for g in launch.grid), label


@pytest.mark.parametrize("variants", ["default", "paper", "patch_gemm", "dense_segments"])
@pytest.mark.parametrize("local", [0, 1 << 10, 16 << 10])
@pytest.mark.parametrize("group", [8, 32, 64, 256])
@pytest.mark.parametrize("device", [GPU, CUDA_GPU, CPU], ids=lambda device: f"{device.backend}-{device.kind.value}")
def test_launches_fit_the_device(device: DeviceInfo, group: int, local: int, variants: str) -> None:
    for graph in (vehicle(), converted(FIXTURES / "paper_legacy.onnx").model):
        plan = make_plan(graph, small(group, local, device), 2, variants)
        check_launches(plan)
        follow(plan)


def test_work_groups_may_be_flat() -> None:
    """Some devices take many work-items along one axis only."""
    flat = dataclasses.replace(GPU, max_group_shape=(1024, 1, 1))
    for variants in ("default", "paper"):
        check_launches(make_plan(converted(FIXTURES / "paper_legacy.onnx").model, flat, 1, variants))


def test_the_papers_kernels_are_chosen_where_they_fit() -> None:
    graph = vehicle()
    kernels = [launch.entry for step in make_plan(graph, GPU, 1, "paper").steps for launch in step.launches]
    assert [k for k in kernels if k in ("patch_pack", "xnor_gemm_threshold", "dense_segments")] == [
        *["patch_pack", "xnor_gemm_threshold"] * 2,
        *["dense_segments"] * 3,
    ]
    without = make_plan(graph, small(1024, 0), 1, "paper")
    (reason, *_) = [s.passed_over for s in without.steps if s.variant == "direct"]
    reason = dict(reason)["patch_gemm_threshold"]
    assert "local memory" in reason


def division() -> Graph:
    real = TensorType((None, 5), Domain.FLOAT32)
    node = Node("the_division", ops.Arithmetic(ops.ArithmeticKind.DIV), ("a", "b"), ("y",))
    return Graph({"a": real, "b": real}, (node,), ("y",))


def test_a_device_without_exact_division_divides_integers() -> None:
    for exact in (False, True):
        plan = make_plan(division(), dataclasses.replace(GPU, exact_division=exact), 1)
        code = plan.steps[0].launches[0].code
        assert isinstance(code, KernelSource)
        assert dict(code.defines)["EXACT_DIVISION"] == exact
        assert "common/division.h" in code.files


def test_an_error_gives_the_reason_of_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    from bnnrt import variants

    rows = [
        dataclasses.replace(row, supports=lambda site, name=row.name: f"{name} is broken")
        for row in variants.VARIANTS
        if row.ops[0] is ops.BinaryDense
    ]
    monkeypatch.setattr(variants, "VARIANTS", tuple(rows))
    weights = Constant.bits(np.ones((3, 40)))
    node = Node("dense", ops.BinaryDense(), ("x", "w"), ("y",))
    graph = Graph({"x": TensorType((None, 40), Domain.BIT)}, (node,), ("y",), {"w": weights})
    with pytest.raises(BackendError) as caught:
        make_plan(graph, GPU, 1)
    for row in rows:
        if GPU.language in row.languages and "default" in row.sets and row.ops == (ops.BinaryDense,):
            assert f"{row.name}: {row.name} is broken" in str(caught.value)
    monkeypatch.setattr(variants, "VARIANTS", ())
    with pytest.raises(BackendError, match=r"BinaryDense cannot run .* no kernel for this operator.*dense"):
        make_plan(graph, GPU, 1)


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown variant fastest.*default, paper"):
        make_plan(vehicle(), GPU, 1, "fastest")


@pytest.mark.parametrize("device", ANY_DEVICE, ids=lambda device: f"{device.backend}-{device.kind.value}")
def test_a_batch_that_int32_cannot_count_is_refused(device: DeviceInfo) -> None:
    real = TensorType((None, 1 << 16), Domain.FLOAT32)
    graph = Graph({"x": real}, (Node("n", ops.Arithmetic(ops.ArithmeticKind.ADD), ("x", "x"), ("y",)),), ("y",))
    assert make_plan(graph, device, (1 << 15) - 1).device_bytes == 2 * ((1 << 15) - 1) * (1 << 18)
    with pytest.raises(InputError, match=f"{1 << 31} elements is too large.*smaller batch"):
        make_plan(graph, device, 1 << 15)


def test_scratch_that_int32_cannot_count_is_refused() -> None:
    """The paper's patches are many times the image; here nothing else is large."""
    node = Node("conv", ops.BinaryConv(Window((5, 5))), ("x", "w"), ("y",))
    x = TensorType((None, 68, 68, 64), Domain.BIT)
    graph = Graph({"x": x}, (node,), ("y",), {"w": Constant.bits(np.ones((1, 5, 5, 64)))})
    assert make_plan(graph, GPU, 1, "paper").steps[0].variant == "patch_gemm"
    words = 64 * 64 * 64  # of an image: a word for each channel of each pixel
    make_plan(graph, GPU, (1 << 31) // words - 1, "paper")
    make_plan(graph, GPU, (1 << 31) // words)
    with pytest.raises(InputError, match=r"too large.*smaller batch"):
        make_plan(graph, GPU, (1 << 31) // words, "paper")


def test_a_batch_beyond_the_devices_memory_is_refused() -> None:
    backend = NumpyBackend()
    plan = make_plan(division(), backend.info, 100)
    backend.info = dataclasses.replace(backend.info, memory=plan.device_bytes - 1)
    with pytest.raises(BackendError, match=f"batch of 100 needs {plan.device_bytes} bytes.*smaller batch"):
        Executor(backend, plan)
    backend.info = dataclasses.replace(backend.info, memory=plan.device_bytes)
    Executor(backend, plan).close()


# Pinned plans


def document(plan: Plan) -> dict[str, Any]:
    return {
        "arena_bytes": list(plan.arena),
        "placements": {
            name: [place.slot, list(place.shape), str(place.dtype)] for name, place in plan.placements.items()
        },
        "constants": {name: [list(array.shape), str(array.dtype)] for name, array in plan.constants.items()},
        "steps": [
            {
                "nodes": [node.name for node in step.nodes],
                "variant": step.variant,
                "passed_over": [list(pair) for pair in step.passed_over],
                "launches": [
                    {
                        "entry": launch.entry,
                        "files": list(getattr(launch.code, "files", ())),
                        "defines": dict(getattr(launch.code, "defines", ())),
                        "args": list(launch.args),
                        "grid": list(launch.grid),
                        "block": list(launch.block),
                        "local_bytes": launch.local_bytes,
                    }
                    for launch in step.launches
                ],
            }
            for step in plan.steps
        ],
    }


def compact(value: Any, indent: str = "") -> str:
    """JSON with one short thing a line, so that a difference can be read."""
    line = json.dumps(value)
    if len(indent) + len(line) <= 116 or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {compact(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + compact(item, inner) for item in value) + f"\n{indent}]"


def pinned(variants: str) -> str:
    return compact(document(make_plan(vehicle(), GPU, 2, variants))) + "\n"


@pytest.mark.parametrize("variants", ["default", "paper"])
def test_plan_of_the_vehicle_model_is_pinned(variants: str) -> None:
    text = (PLANS / f"vehicle_{variants}.json").read_text(encoding="utf-8")
    assert pinned(variants) == text
    json.loads(text)


if __name__ == "__main__":
    PLANS.mkdir(exist_ok=True)
    for each in ("default", "paper"):
        (PLANS / f"vehicle_{each}.json").write_text(pinned(each), encoding="utf-8")
