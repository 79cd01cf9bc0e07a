"""Runs every kernel at least once, for checkers that watch memory: Oclgrind, compute-sanitizer.

    python tests/checkers/every_kernel.py --backend opencl

Each result is compared with the unpacked reference. Nothing is freed until the end, so that a checker's record of what
was written stays that of one allocation. Exit status 1 if a result differs or a kernel of the language was left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import ops, packing, reference
from bnnrt.backends import open_backend
from bnnrt.backends.base import Backend, DeviceKind, Language
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window
from bnnrt.plan import make_plan

Array = npt.NDArray[Any]
Case = tuple[str, Graph, dict[str, Array]]

BATCH = 2
WINDOW = Window((3, 2), (2, 1), (1, 0, 2, 1))


def graph_of(op: ops.Op, x: TensorType, *constants: Constant) -> Graph:
    names = [f"c{i}" for i in range(len(constants))]
    return Graph({"x": x}, (Node("n", op, ("x", *names), ("y",)),), ("y",), dict(zip(names, constants, strict=True)))


def thresholded(conv: ops.BinaryConv, x: TensorType, weights: Constant, rng: np.random.Generator) -> Graph:
    outputs = weights.type.shape[0] or 0
    constants = {
        "w": weights,
        "t": Constant.of(rng.integers(-20, 20, outputs).astype(np.int32)),
        "f": Constant.bits(rng.random(outputs) < 0.5),
    }
    nodes = (
        Node("n", conv, ("x", "w"), ("acc",)),
        Node("t", ops.Threshold(), ("acc", "t", "f"), ("bits",)),
        Node("p", ops.BitPool(Window((2, 2), strides=(2, 2))), ("bits", "f"), ("y",)),
    )
    return Graph({"x": x}, nodes, ("y",), constants)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    def bits(*shape: int) -> Array:
        return rng.choice(np.array([-1, 1], dtype=np.float32), shape)

    def weights(*shape: int) -> Constant:
        return Constant.bits(bits(*shape) > 0)

    for channels, pad in ((3, -1), (40, 1), (70, 0)):
        x = TensorType((None, 6, 7, channels), Domain.BIT)
        conv, feeds = ops.BinaryConv(WINDOW, 1, pad), {"x": bits(BATCH, 6, 7, channels)}
        for variant in ("default", "paper", "conv_lanes", "conv_tensor", "conv_tile", "direct_threshold"):
            yield variant, thresholded(conv, x, weights(37, 3, 2, channels), rng), feeds
        for variant in ("direct", "conv_tensor", "conv_tile", *(("patch_gemm", "patch_separate") if pad else ())):
            yield variant, graph_of(conv, x, weights(37, 3, 2, channels)), feeds
    grouped = TensorType((None, 6, 7, 40), Domain.BIT)
    yield "default", graph_of(ops.BinaryConv(WINDOW, 2), grouped, weights(6, 3, 2, 20)), {"x": bits(BATCH, 6, 7, 40)}
    for variant in ("default", "dense_segments", "dense_segments_shuffle", "dense_direct", "dense_tile"):
        graph = graph_of(ops.BinaryDense(), TensorType((None, 700), Domain.BIT), weights(5, 700))
        yield variant, graph, {"x": bits(BATCH, 700)}
    constants = {"w": weights(40, 700), "t": Constant.of(rng.integers(-9, 9, 40).astype(np.int32)), "f": weights(40)}
    dense = (Node("d", ops.BinaryDense(), ("x", "w"), ("acc",)), Node("t", ops.Threshold(), ("acc", "t", "f"), ("y",)))
    for variant in ("default", "dense_tile", "threshold_votes"):
        yield variant, Graph({"x": graph.inputs["x"]}, dense, ("y",), constants), {"x": bits(BATCH, 700)}

    real = TensorType((None, 6, 7, 5), Domain.FLOAT32)
    pixels = {"x": rng.normal(size=(BATCH, 6, 7, 5)).astype(np.float32)}
    yield "default", graph_of(ops.BinaryWeightConv(WINDOW), real, weights(4, 3, 2, 5)), pixels
    kernel = Constant.of(rng.normal(size=(4, 3, 2, 5)).astype(np.float32))
    yield "default", graph_of(ops.Conv(WINDOW), real, kernel), pixels
    for variant in ("real_conv", "matmul_naive", "matmul_tiled", "matmul_two", "matmul_blocks"):
        yield variant, graph_of(ops.BinaryWeightConv(WINDOW), real, weights(4, 3, 2, 5)), pixels
        yield variant, graph_of(ops.Conv(WINDOW), real, kernel), pixels
    yield "default", graph_of(ops.MaxPool(WINDOW), real), pixels
    yield "default", graph_of(ops.AveragePool(WINDOW, (1, 0, 0, 1)), real), pixels
    for op in (ops.Relu(), ops.Clip(-0.5, 0.5), ops.Sigmoid(), ops.Softmax(), ops.LogSoftmax()):
        yield "default", graph_of(op, real), pixels
    yield "default", graph_of(ops.PRelu(), real, Constant.of(rng.normal(size=5).astype(np.float32))), pixels
    yield "default", graph_of(ops.Pad((1, 0, 2, 1), 0.5), real), pixels
    joined = (Node("n", ops.Concat(), ("x", "z", "x"), ("y",)),)
    other = TensorType((None, 6, 7, 3), Domain.FLOAT32)
    both = {**pixels, "z": rng.normal(size=(BATCH, 6, 7, 3)).astype(np.float32)}
    yield "default", Graph({"x": real, "z": other}, joined, ("y",), {}), both
    yield "default", graph_of(ops.Transpose((0, 3, 1, 2)), real), pixels
    picks = Constant.of(np.array([4, 0, 4], dtype=np.int32))
    for axis in (1, 3):
        yield "default", graph_of(ops.Gather(axis), real, picks), pixels
    yield "default", graph_of(ops.ArgMax(ops.Extreme.LEAST, ops.Ties.LAST), real), pixels
    yield "default", graph_of(ops.TopK(3), real), pixels
    ends = (Node("k", ops.TopK(2, picked=ops.Picked.INDICES), ("x",), ("i",)), Node("n", ops.ToInt64(), ("i",), ("y",)))
    yield "default", Graph({"x": real}, ends, ("y",)), pixels
    repeated = (Node("n", ops.Arithmetic(ops.ArithmeticKind.MAX), ("x", "z"), ("y",)),)
    row = {**pixels, "z": rng.normal(size=(BATCH, 1, 7, 1)).astype(np.float32)}
    yield "default", Graph({"x": real, "z": TensorType((None, 1, 7, 1), Domain.FLOAT32)}, repeated, ("y",)), row
    yield "default", graph_of(ops.Sign(), real), pixels
    planes = (
        Node("t", ops.Transpose((0, 2, 3, 1)), ("x",), ("nhwc",)),
        Node("a", ops.Arithmetic(ops.ArithmeticKind.ADD), ("nhwc", "c"), ("sum",)),
        Node("s", ops.Sign(), ("sum",), ("y",)),
    )
    addend = {"c": Constant.of(rng.normal(size=6).astype(np.float32))}
    yield "default", Graph({"x": real}, planes, ("y",), addend), pixels
    channel = Constant.of(rng.normal(size=5).astype(np.float32))
    yield "default", graph_of(ops.Arithmetic(ops.ArithmeticKind.MUL), real, channel), pixels
    x = TensorType((None, 6, 7, 40), Domain.BIT)
    feeds = {"x": bits(BATCH, 6, 7, 40)}
    yield "default", graph_of(ops.BitPool(WINDOW), x, weights(40)), feeds
    yield "default", graph_of(ops.ToFloat(), x), feeds
    yield "default", graph_of(ops.Gather(3), x, Constant.of(np.arange(39, -1, -1, dtype=np.int32))), feeds
    yield "default", graph_of(ops.Reshape((6 * 7 * 40,)), x), feeds
    levels = TensorType((None, 6, 7, 3), Domain.UINT8)
    t, f = Constant.of(np.array([0, 128, 256], dtype=np.int32)), weights(3)
    image = {"x": rng.integers(0, 256, (BATCH, 6, 7, 3), dtype=np.uint8)}
    many = {"x": rng.integers(0, 256, (BATCH, 6, 7, 40), dtype=np.uint8)}
    constants = {"t": Constant.of(rng.integers(0, 256, 40).astype(np.int32)), "f": weights(40)}
    wide = TensorType((None, 6, 7, 40), Domain.UINT8)
    yield "threshold_votes", graph_of(ops.Threshold(), wide, *constants.values()), many
    yield "default", graph_of(ops.Threshold(), levels, t, f), image
    yield "default", graph_of(ops.Grayscale(), levels), image
    gray = {"x": image["x"][..., :1].copy()}
    yield "default", graph_of(ops.LocalBinaryPattern(), TensorType((None, 6, 7, 1), Domain.UINT8)), gray


def stored(values: Array, tensor_type: TensorType) -> Array:
    return packing.pack(values > 0) if tensor_type.domain is Domain.BIT else values


def run(backend: Backend, kind: DeviceKind) -> tuple[int, set[str]]:
    """Number of wrong results, and the kernels that ran as on a device of ``kind``."""
    device = dataclasses.replace(backend.info, kind=kind)
    open_executors: list[Executor] = []
    wrong, ran = 0, set()
    for variant, graph, feeds in cases(np.random.default_rng(0)):
        executor = Executor(backend, make_plan(graph, device, BATCH, variant))
        open_executors.append(executor)
        result = executor.run({name: stored(x, graph.inputs[name]) for name, x in feeds.items()})
        expected = reference.run(graph, feeds)
        ran |= {spec.entry for step in executor.plan.steps for spec in step.launches}
        if not all(np.array_equal(result[n], stored(y, graph.types[n])) for n, y in expected.items()):
            wrong += 1
            print(f"wrong: {graph.nodes[0].op}, {variant}", file=sys.stderr)
    for executor in open_executors:
        executor.close()
    return wrong, ran


def entries(language: Language, kind: DeviceKind, bit_tensor_cores: bool) -> set[str]:
    """Names of all kernels that a device of this kind can run."""
    found = set()
    # Vectors of lanes are made for CPUs, rows that vote for GPUs.
    others = ["no plan launches", "for GPUs" if kind is DeviceKind.CPU else "for CPUs"]
    if not bit_tensor_cores:
        others.append("on 1-bit tensor cores")
    for folder in ("common", language.value):
        for path in resources.files("bnnrt.kernels").joinpath(folder).iterdir():
            text = path.read_text(encoding="utf-8")
            if not any(other in text for other in others):
                found |= set(re.findall(r"^KERNEL (\w+)", text, re.MULTILINE))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="opencl")
    parser.add_argument("--kind", choices=["cpu", "gpu"], help="plan as for a device of this kind")
    arguments = parser.parse_args()
    backend = open_backend(arguments.backend)
    kind = DeviceKind(arguments.kind) if arguments.kind else backend.info.kind
    wrong, ran = run(backend, kind)
    missing = entries(backend.info.language, kind, backend.info.bit_tensor_cores) - ran
    backend.close()
    print(f"{len(ran)} kernels on {backend.info.backend} ({backend.info.name}): {', '.join(sorted(ran))}")
    for name in sorted(missing):
        print(f"did not run: {name}", file=sys.stderr)
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
