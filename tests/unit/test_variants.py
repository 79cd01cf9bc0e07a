"""The table of kernel variants: complete, and every row of it launches kernels as they are written."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnnrt import ops, packing
from bnnrt.backends.base import DeviceInfo, DeviceKind, HostFunction, Language
from bnnrt.backends.numpy_backend import device
from bnnrt.backends.source import KernelSource, assemble
from bnnrt.errors import InputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import OPS, Domain, Op, TensorType, Window
from bnnrt.plan import Plan, make_plan
from bnnrt.variants import SETS, VARIANTS, candidates
from bnnrt.variants.paper import patch_width

Array = npt.NDArray[Any]

every_language = pytest.mark.parametrize("language", Language, ids=lambda language: language.name)
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


def described(language: Language, kind: DeviceKind = DeviceKind.GPU) -> DeviceInfo:
    return dataclasses.replace(
        device(),
        language=language,
        kind=kind,
        max_group_size=256,
        max_group_shape=(256, 256, 64),
        local_memory=32 << 10,
    )


DEVICES = [
    described(Language.OPENCL),
    described(Language.OPENCL, DeviceKind.CPU),
    described(Language.CUDA),
    described(Language.NUMPY, DeviceKind.CPU),
    dataclasses.replace(described(Language.CUDA), bit_tensor_cores=True),
]
IN_C = [info for info in DEVICES if info.language is not Language.NUMPY]


# The table


@every_language
@every_op
@pytest.mark.parametrize("chosen", SETS)
def test_every_operator_runs_alone_in_every_language(op: type[Op], language: Language, chosen: str) -> None:
    assert any(row.ops == (op,) for row in candidates(op, language, chosen))


def test_rows_are_told_apart_by_name() -> None:
    keys = [(row.name, row.ops, language) for row in VARIANTS for language in row.languages]
    assert len(keys) == len(set(keys))
    for row in VARIANTS:
        assert row.name not in SETS
        assert row.sets <= set(SETS)
        assert row.languages
        assert all(op in OPS.values() for op in row.ops)


@every_language
@every_op
def test_a_set_keeps_the_order_of_the_table(op: type[Op], language: Language) -> None:
    for chosen in SETS:
        wanted = [r for r in VARIANTS if r.ops[0] is op and language in r.languages and chosen in r.sets]
        assert candidates(op, language, chosen) == wanted
    assert candidates(op, language) == candidates(op, language, "default")


def test_a_row_that_is_named_comes_first() -> None:
    for row in VARIANTS:
        for language in row.languages:
            found = candidates(row.ops[0], language, row.name)
            assert found[0].name == row.name
            others = [r for r in candidates(row.ops[0], language) if r.name != row.name]
            assert found[-len(others) :] == others or not others
            assert len({id(r) for r in found}) == len(found)


def test_a_name_leaves_other_operators_and_languages_as_they_are() -> None:
    assert candidates(ops.Sign, Language.OPENCL, "patch_gemm") == candidates(ops.Sign, Language.OPENCL)
    for op in OPS.values():
        assert candidates(op, Language.NUMPY, "patch_gemm") == candidates(op, Language.NUMPY)


@pytest.mark.parametrize("chosen", ["", "fastest", "Default", "patch_gemm "])
def test_unknown_names_are_refused(chosen: str) -> None:
    with pytest.raises(InputError, match=r"unknown variant.*default, paper"):
        candidates(ops.Sign, Language.OPENCL, chosen)


def test_the_papers_kernels_have_their_names() -> None:
    def first(op: type[Op], chosen: str) -> str:
        return candidates(op, Language.OPENCL, chosen)[0].name

    assert first(ops.BinaryConv, "paper") == "patch_gemm_threshold"
    assert "patch_gemm" in [row.name for row in candidates(ops.BinaryConv, Language.OPENCL, "paper")]
    assert first(ops.BinaryDense, "paper") == "dense_segments"
    assert "patch_gemm" not in [row.name for row in candidates(ops.BinaryConv, Language.OPENCL)]


# Every row at work


def bits(*shape: int) -> Constant:
    return Constant.bits(np.random.default_rng(sum(shape)).random(shape) < 0.5)


def floats(*shape: int) -> Constant:
    return Constant.of(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def network(x: TensorType, *nodes: tuple[Op, dict[str, Constant]]) -> Graph:
    """A chain of operators, each with its constants."""
    made, constants, last = [], {}, "x"
    for index, (op, extra) in enumerate(nodes):
        named = {f"{name}{index}": constant for name, constant in extra.items()}
        made.append(Node(f"node{index}", op, (last, *named), (f"y{index}",)))
        constants.update(named)
        last = f"y{index}"
    return Graph({"x": x}, tuple(made), (last,), constants)


def image(domain: Domain, channels: int) -> TensorType:
    return TensorType((None, 9, 7, channels), domain)


def flat(domain: Domain, features: int) -> TensorType:
    return TensorType((None, features), domain)


def threshold(channels: int) -> tuple[Op, dict[str, Constant]]:
    return ops.Threshold(), {"t": Constant.of(np.arange(channels, dtype=np.int32)), "f": bits(channels)}


WINDOW = Window((3, 3), pads=(1, 1, 1, 1))
FLOAT, BIT, INT, PIXEL = Domain.FLOAT32, Domain.BIT, Domain.INT32, Domain.UINT8
NETWORKS = [
    *[network(image(FLOAT, 5), (ops.Arithmetic(kind), {"c": floats(5)})) for kind in ops.ArithmeticKind],
    network(image(FLOAT, 5), (ops.AveragePool(WINDOW), {}), (ops.Relu(), {}), (ops.PRelu(), {"s": floats(5)})),
    network(
        image(FLOAT, 5), (ops.Clip(0.0, 6.0), {}), (ops.Sigmoid(), {}), (ops.Softmax(), {}), (ops.LogSoftmax(), {})
    ),
    Graph(
        {"x": image(FLOAT, 5), "z": TensorType((None, 1, 1, 5), FLOAT)},
        (Node("a", ops.Arithmetic(ops.ArithmeticKind.MUL), ("x", "z"), ("y",)),),
        ("y",),
        {},
    ),
    Graph(
        {"x": image(FLOAT, 5)},
        (Node("a", ops.Relu(), ("x",), ("a",)), Node("c", ops.Concat(), ("a", "x", "a"), ("y",))),
        ("y",),
        {},
    ),
    network(image(BIT, 40), (ops.BinaryConv(WINDOW, pad_value=-1), {"w": bits(6, 3, 3, 40)})),
    network(image(BIT, 40), (ops.BinaryConv(WINDOW, pad_value=0), {"w": bits(6, 3, 3, 40)}), threshold(6)),
    network(image(BIT, 40), (ops.BinaryConv(WINDOW, 2, 1), {"w": bits(6, 3, 3, 20)}), threshold(6)),
    network(image(BIT, 3), (ops.BinaryConv(WINDOW, pad_value=-1), {"w": bits(33, 3, 3, 3)}), threshold(33)),
    network(flat(BIT, 100), (ops.BinaryDense(), {"w": bits(7, 100)}), threshold(7)),
    network(image(FLOAT, 4), (ops.BinaryWeightConv(WINDOW, 2), {"w": bits(6, 3, 3, 2)})),
    network(image(FLOAT, 4), (ops.BinaryWeightConv(WINDOW), {"w": bits(6, 3, 3, 4)})),
    network(flat(FLOAT, 33), (ops.BinaryWeightDense(), {"w": bits(6, 33)})),
    network(image(BIT, 40), (ops.BitPool(WINDOW), {"m": bits(40)})),
    network(image(FLOAT, 4), (ops.Conv(WINDOW), {"w": floats(6, 3, 3, 4)})),
    network(flat(FLOAT, 33), (ops.Dense(), {"w": floats(6, 33)})),
    network(image(PIXEL, 3), (ops.Grayscale(), {}), (ops.LocalBinaryPattern(), {})),
    network(image(FLOAT, 4), (ops.MaxPool(WINDOW), {})),
    network(image(INT, 4), (ops.MaxPool(WINDOW), {})),
    network(image(FLOAT, 4), (ops.Pad((1, 2, 3, 4), -1.0), {})),
    network(image(BIT, 40), (ops.Reshape((9 * 7 * 40,)), {})),
    network(image(BIT, 32), (ops.Reshape((9 * 7 * 32,)), {})),
    network(image(FLOAT, 4), (ops.Sign(), {}), (ops.ToFloat(), {})),
    network(image(FLOAT, 4), (ops.Gather(3), {"i": Constant.of(np.array([3, 0, 1], dtype=np.int32))})),
    network(image(INT, 4), (ops.Gather(1), {"i": Constant.of(np.array([8, 0], dtype=np.int32))})),
    network(image(BIT, 40), (ops.Gather(2), {"i": Constant.of(np.array([6, 0], dtype=np.int32))})),
    network(image(BIT, 40), (ops.Gather(3), {"i": Constant.of(np.array([39, 0, 0], dtype=np.int32))})),
    network(flat(FLOAT, 9), (ops.ArgMax(), {}), (ops.ToInt64(), {})),
    network(flat(FLOAT, 9), (ops.TopK(3), {}), (ops.TopK(2, picked=ops.Picked.INDICES), {})),
    network(image(PIXEL, 3), threshold(3)),
    network(image(PIXEL, 40), threshold(40)),
    network(image(PIXEL, 3), threshold(3), (ops.BinaryConv(WINDOW), {"w": bits(6, 3, 3, 3)}), threshold(6)),
    network(
        image(PIXEL, 3), threshold(3), (ops.BinaryConv(WINDOW, pad_value=1), {"w": bits(6, 3, 3, 3)}), threshold(6)
    ),
    network(image(INT, 3), (ops.ToFloat(), {}), (ops.Arithmetic(ops.ArithmeticKind.ADD), {"c": floats(3)})),
    network(image(PIXEL, 3), (ops.ToFloat(), {})),
    network(image(INT, 3), (ops.ToFloat(), {})),
    network(image(FLOAT, 4), (ops.Transpose((0, 3, 1, 2)), {})),
    network(
        image(FLOAT, 4),
        (ops.Transpose((0, 2, 3, 1)), {}),
        (ops.Arithmetic(ops.ArithmeticKind.ADD), {"c": floats(9)}),
        (ops.Sign(), {}),
    ),
]


def test_the_networks_use_every_operator_and_row() -> None:
    assert {type(node.op) for graph in NETWORKS for node in graph.nodes} == set(OPS.values())
    used = {
        (type(step.nodes[0].op), step.variant)
        for graph in NETWORKS
        for info in DEVICES
        for chosen in (*SETS, *{row.name for row in VARIANTS})
        for step in make_plan(graph, info, 2, chosen).steps
    }
    assert used == {(row.ops[0], row.name) for row in VARIANTS}


KERNEL = re.compile(r"^KERNEL (\w+)\(([^)]*)\)", re.MULTILINE)
PARAMETER = re.compile(r"(?P<const>const )?GLOBAL (?P<type>\w+) \*RESTRICT \w+|int \w+")
C_TYPES = {
    "float": "float32",
    "float16": "float32",
    "int": "int32",
    "int4": "int32",
    "int16": "int32",
    "uint": "uint32",
    "uint4": "uint32",
    "uint16": "uint32",
    "uchar": "uint8",
}


def parameters(source: KernelSource, entry: str) -> list[str]:
    text = "".join(resources.files("bnnrt.kernels").joinpath(path).read_text() for path in source.files)
    (found,) = [match[2] for match in KERNEL.finditer(text) if match[1] == entry]
    return [" ".join(parameter.split()) for parameter in found.split(",")]


def check_launches(plan: Plan, language: str) -> int:
    """Compare what the plan hands to each kernel with what the kernel declares."""
    defines: dict[str, Any]
    count = 0
    for step in plan.steps:
        for launch in step.launches:
            count += 1
            assert isinstance(launch.code, KernelSource)
            assemble(launch.code, language)
            defines = dict(launch.code.defines)
            declared = parameters(launch.code, launch.entry)
            assert len(declared) == len(launch.args), launch
            for parameter, argument in zip(declared, launch.args, strict=True):
                match = PARAMETER.fullmatch(parameter)
                assert match, parameter
                assert (match["type"] is None) == isinstance(argument, int), (launch.entry, parameter, argument)
                if match["type"] is None or isinstance(argument, int):
                    continue
                # Every output is a tensor; a constant is only read.
                assert match["const"] or argument in plan.placements, (launch.entry, parameter, argument)
                given = (
                    plan.placements[argument].dtype if argument in plan.placements else plan.constants[argument].dtype
                )
                written = defines.get(match["type"], match["type"])
                if written in C_TYPES:  # else a name that the kernel itself defines
                    assert C_TYPES[written] == given.name, (launch.entry, parameter, argument)
    return count


@pytest.mark.parametrize("info", IN_C, ids=lambda info: f"{info.language.name}-{info.kind.value}")
def test_arguments_are_those_that_the_kernels_declare(info: DeviceInfo) -> None:
    chosen = sorted({*SETS, *(row.name for row in VARIANTS)})
    counts = [
        check_launches(make_plan(graph, info, 2, each), info.language.value) for graph in NETWORKS for each in chosen
    ]
    assert sum(counts) > len(chosen) * len(NETWORKS)


def test_numpys_steps_are_functions() -> None:
    for graph in NETWORKS:
        for step in make_plan(graph, DEVICES[3], 2).steps:
            assert all(isinstance(launch.code, HostFunction) for launch in step.launches)


def test_the_arguments_end_with_the_number_of_threads_that_do_something() -> None:
    for info in IN_C:
        for graph in NETWORKS:
            for step in make_plan(graph, info, 3).steps:
                for launch in step.launches:
                    threads = int(np.prod(launch.grid)) * int(np.prod(launch.block))
                    shared = ("xnor_gemm", "matmul_tiled", "dense_tile", "threshold_votes")  # many threads a row
                    if isinstance(launch.args[-1], int) and launch.entry not in shared:
                        assert threads - launch.block[0] < launch.args[-1] <= threads, launch


# The packing width of the paper's kernels


@pytest.mark.parametrize(
    ("kernel", "width"),
    [
        ((5, 5), 25),
        ((1, 1), 1),
        ((3, 3), 9),
        ((2, 3), 6),
        ((4, 8), 32),
        ((1, 32), 32),
        ((3, 11), 32),
        ((6, 6), 32),
        ((7, 7), 32),
    ],
)
def test_packing_width(kernel: tuple[int, int], width: int) -> None:
    assert patch_width(kernel) == width


@pytest.mark.parametrize(("kernel", "channels"), [((5, 5), 3), ((3, 3), 33), ((1, 1), 40), ((7, 7), 2), ((6, 6), 5)])
def test_the_papers_weights_are_packed_channel_by_channel(kernel: tuple[int, int], channels: int) -> None:
    weights = bits(6, *kernel, channels)
    x = TensorType((None, 9, 7, channels), BIT)
    graph = network(x, (ops.BinaryConv(Window(kernel)), {"w": weights}))
    plan = make_plan(graph, DEVICES[0], 2, "paper")
    (step,) = plan.steps
    assert step.variant == "patch_gemm"
    pack, gemm = step.launches
    assert dict(pack.code.defines)["PACK_WIDTH"] == patch_width(kernel)  # type: ignore[union-attr]
    (packed,) = [plan.constants[name] for name in gemm.args if name in plan.constants]
    length = kernel[0] * kernel[1] * channels
    found = packing.unpack(packed, length, patch_width(kernel)).reshape(6, channels, *kernel)
    np.testing.assert_array_equal(found, weights.unpacked().transpose(0, 3, 1, 2))
    # The patches that these are multiplied with: one for each output pixel of the batch.
    patches = pack.args[-1]
    assert plan.placements[str(patches)].shape == (2 * (10 - kernel[0]) * (8 - kernel[1]), packed.shape[1])
