"""Every operator on every backend and every variant, against the unpacked reference, on poisoned memory."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from bnnrt import ops, packing, reference
from bnnrt.backends.base import Backend, DeviceInfo
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window
from bnnrt.plan import make_plan

Array = npt.NDArray[Any]

# Each example compiles kernels; a longer search is BNNRT_EXAMPLES=200 away.
checked = settings(
    max_examples=int(os.environ.get("BNNRT_EXAMPLES", "8")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
conv_variants = pytest.mark.parametrize("variants", ["default", "paper", "conv_lanes", "direct_threshold", "direct"])
PRODUCTS = ("matmul_naive", "matmul_tiled", "matmul_two", "matmul_blocks")
real_conv_variants = pytest.mark.parametrize("variants", ["default", "real_conv", *PRODUCTS])
real_dense_variants = pytest.mark.parametrize("variants", ["default", "real_dense", *PRODUCTS])
dense_variants = pytest.mark.parametrize("variants", ["default", "dense_segments", "dense_direct"])
WINDOW = Window((3, 3), pads=(1, 1, 1, 1))


def as_stored(values: Array, tensor_type: TensorType) -> Array:
    return packing.pack(values > 0) if tensor_type.domain is Domain.BIT else values


def check(
    backend: Backend,
    graph: Graph,
    feeds: dict[str, Array],
    variants: str = "default",
    device: DeviceInfo | None = None,
) -> None:
    """Run on fresh memory, then on other data and again, on poisoned memory; every element must be the reference's.

    ``device``: what to take the backend's for.
    """
    batch = len(next(iter(feeds.values())))
    executor = Executor(backend, make_plan(graph, device or backend.info, batch, variants))
    reversed_feeds = {name: np.ascontiguousarray(x[::-1]) for name, x in feeds.items()}
    for poisoned, given_feeds in ((False, feeds), (True, reversed_feeds), (True, feeds)):
        if poisoned:
            executor.poison()
        results = executor.run({n: as_stored(x, graph.inputs[n]) for n, x in given_feeds.items()})
        for name, expected in reference.run(graph, given_feeds).items():
            np.testing.assert_array_equal(results[name], as_stored(expected, graph.types[name]), err_msg=name)
    executor.close()


def one_node(op: ops.Op, x: TensorType, *constants: Constant) -> Graph:
    names = [f"c{i}" for i in range(len(constants))]
    node = Node("node", op, ("x", *names), ("y",))
    return Graph({"x": x}, (node,), ("y",), dict(zip(names, constants, strict=True)))


def bits(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice(np.array([-1, 1], dtype=np.float32), shape)


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


@st.composite
def windows(draw: st.DrawFn, pads: bool = True) -> tuple[Window, int, int]:
    """A window and an image that it fits."""
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]))
    margins = draw(st.tuples(*[st.integers(0, 3)] * 4)) if pads else (0, 0, 0, 0)
    window = Window(kernel, draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), margins, dilations)
    sizes = []
    for axis in range(2):
        span = dilations[axis] * (kernel[axis] - 1) + 1
        least = max(1, span - margins[axis] - margins[axis + 2])
        sizes.append(draw(st.integers(least, least + 12)))
    return window, sizes[0], sizes[1]


@conv_variants
@checked
@given(
    shape=windows(),
    per_group=st.one_of(st.integers(1, 6), st.integers(1, 130)),
    groups=st.sampled_from([1, 1, 1, 2, 3]),
    per_output=st.sampled_from([1, 2, 5, 31, 32, 33, 70]),
    pad_value=st.sampled_from([-1, 0, 1]),
    batch=st.integers(1, 5),
    pool=st.sampled_from(["accumulators", "bits", (2, 2), (3, 1)]),
    seed=seeds(),
)
def test_binary_conv(
    backend: Backend,
    variants: str,
    shape: tuple[Window, int, int],
    per_group: int,
    groups: int,
    per_output: int,
    pad_value: int,
    batch: int,
    pool: str | tuple[int, int],
    seed: int,
) -> None:
    window, height, width = shape
    if groups > 1:
        per_group = per_group % 40 + 1
    rng = np.random.default_rng(seed)
    x = bits(rng, batch, height, width, per_group * groups)
    outputs = per_output * groups
    weights = Constant.bits(bits(rng, outputs, *window.kernel, per_group) > 0)
    tensor_type = TensorType((None, *x.shape[1:]), Domain.BIT)
    nodes = [Node("conv", ops.BinaryConv(window, groups, pad_value), ("x", "w"), ("acc",))]
    constants = {"w": weights}
    if pool != "accumulators":
        reach = window.taps * per_group
        constants["t"] = Constant.of(rng.integers(-reach, reach + 2, outputs).astype(np.int32))
        constants["f"] = Constant.bits(bits(rng, outputs) > 0)
        nodes.append(Node("threshold", ops.Threshold(), ("acc", "t", "f"), ("bits",)))
    if isinstance(pool, tuple) and all(p <= n for p, n in zip(pool, window.output_size(height, width), strict=True)):
        constants["m"] = Constant.bits(bits(rng, outputs) > 0)
        nodes.append(Node("pool", ops.BitPool(Window(pool, strides=pool)), ("bits", "m"), ("y",)))
    graph = Graph({"x": tensor_type}, tuple(nodes), nodes[-1].outputs, constants)
    check(backend, graph, {"x": x}, variants)


@pytest.mark.parametrize(("kernel", "channels"), [((32, 32), 1), ((33, 17), 1), ((40, 9), 3), ((31, 32), 1)])
def test_binary_conv_of_large_windows(backend: Backend, kernel: tuple[int, int], channels: int) -> None:
    """As many differing bits as there can be: partial counts must not overflow."""
    taps = kernel[0] * kernel[1] * channels
    weights = Constant.bits(np.zeros((40, *kernel, channels), dtype=np.bool_))
    thresholds = Constant.of((np.arange(40) * 2 - taps).astype(np.int32))
    constants = {"w": weights, "t": thresholds, "f": Constant.bits(np.zeros(40, dtype=np.bool_))}
    nodes = (
        Node("conv", ops.BinaryConv(Window(kernel), 1, -1), ("x", "w"), ("acc",)),
        Node("threshold", ops.Threshold(), ("acc", "t", "f"), ("y",)),
    )
    x = np.ones((2, kernel[0] + 1, kernel[1] + 2, channels), dtype=np.float32)
    graph = Graph({"x": TensorType((None, *x.shape[1:]), Domain.BIT)}, nodes, ("y",), constants)
    check(backend, graph, {"x": x})


@dense_variants
@checked
@given(st.integers(1, 3000), st.integers(1, 70), st.integers(1, 5), st.booleans(), seeds())
def test_binary_dense(
    backend: Backend, variants: str, length: int, outputs: int, batch: int, thresholded: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights = Constant.bits(bits(rng, outputs, length) > 0)
    x = TensorType((None, length), Domain.BIT)
    graph = one_node(ops.BinaryDense(), x, weights)
    if thresholded:
        thresholds = Constant.of(rng.integers(-length, length + 2, outputs).astype(np.int32))
        constants = {"w": weights, "t": thresholds, "f": Constant.bits(bits(rng, outputs) > 0)}
        nodes = (
            Node("dense", ops.BinaryDense(), ("x", "w"), ("acc",)),
            Node("threshold", ops.Threshold(), ("acc", "t", "f"), ("y",)),
        )
        graph = Graph({"x": x}, nodes, ("y",), constants)
    check(backend, graph, {"x": bits(rng, batch, length)}, variants)


def reals(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers whose sums round, with some special ones."""
    x = rng.normal(size=shape).astype(np.float32) * np.float32(10) ** rng.integers(-3, 4, shape).astype(np.float32)
    special = np.array([0, -0.0, 1, -1, 255, np.inf], dtype=np.float32)
    return np.where(rng.random(shape) < 0.1, rng.choice(special, shape), x)


@real_conv_variants
@checked
@example((Window((1, 1)), 9, 8), 19, 1, False, 3, 1)  # no patches to be made
@example((Window((2, 2), (1, 1), (1, 0, 0, 1)), 200, 210), 2, 2, False, 2, 1)  # more than a cache holds
@given(windows(), st.integers(1, 40), st.sampled_from([1, 1, 1, 2]), st.booleans(), st.integers(1, 3), seeds())
def test_real_conv(
    backend: Backend,
    variants: str,
    shape: tuple[Window, int, int],
    channels: int,
    groups: int,
    packed: bool,
    batch: int,
    seed: int,
) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    outputs = groups * int(rng.integers(1, 40))
    weights = bits(rng, outputs, *window.kernel, channels)
    constant = Constant.bits(weights > 0) if packed else Constant.of(reals(rng, *weights.shape).clip(-1e6, 1e6))
    op = ops.BinaryWeightConv(window, groups) if packed else ops.Conv(window, groups)
    graph = one_node(op, TensorType((None, height, width, channels * groups), Domain.FLOAT32), constant)
    check(backend, graph, {"x": reals(rng, batch, height, width, channels * groups).clip(-1e6, 1e6)}, variants)


def test_weights_that_are_not_finite_leave_outside_taps_out(backend: Backend) -> None:
    """0 times infinity is no 0, so patches padded with 0 will not do."""
    weights = np.full((2, 3, 3, 1), np.inf, dtype=np.float32)
    graph = one_node(ops.Conv(WINDOW), TensorType((None, 4, 4, 1), Domain.FLOAT32), Constant.of(weights))
    for variants in ("default", "matmul_naive", "matmul_tiled"):
        check(backend, graph, {"x": np.ones((1, 4, 4, 1), dtype=np.float32)}, variants)


@real_dense_variants
@checked
@given(st.integers(1, 300), st.integers(1, 50), st.booleans(), st.integers(1, 40), seeds())
def test_real_dense(
    backend: Backend, variants: str, length: int, outputs: int, packed: bool, batch: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights = reals(rng, outputs, length).clip(-1e6, 1e6)
    constant = Constant.bits(weights > 0) if packed else Constant.of(weights)
    op = ops.BinaryWeightDense() if packed else ops.Dense()
    graph = one_node(op, TensorType((None, length), Domain.FLOAT32), constant)
    check(backend, graph, {"x": reals(rng, batch, length).clip(-1e6, 1e6)}, variants)


@checked
@given(windows(), st.integers(1, 100), st.integers(1, 4), seeds())
def test_bit_pool(backend: Backend, shape: tuple[Window, int, int], channels: int, batch: int, seed: int) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    assume(window.sees_image(height, width))
    minimum = Constant.bits(bits(rng, channels) > 0)
    graph = one_node(ops.BitPool(window), TensorType((None, height, width, channels), Domain.BIT), minimum)
    check(backend, graph, {"x": bits(rng, batch, height, width, channels)})


@checked
@given(windows(), st.integers(1, 40), st.booleans(), st.integers(1, 3), seeds())
def test_max_pool(
    backend: Backend, shape: tuple[Window, int, int], channels: int, integer: bool, batch: int, seed: int
) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    assume(window.sees_image(height, width))
    size = (batch, height, width, channels)
    x = rng.integers(-(2**31), 2**31, size).astype(np.int32) if integer else reals(rng, *size)
    if not integer:
        x[rng.random(size) < 0.05] = np.nan
    tensor_type = TensorType((None, *size[1:]), Domain.INT32 if integer else Domain.FLOAT32)
    check(backend, one_node(ops.MaxPool(window), tensor_type), {"x": x})


@checked
@given(windows(), st.integers(1, 40), st.sampled_from(["none", "all", "some"]), st.integers(1, 3), seeds())
def test_average_pool(
    backend: Backend, shape: tuple[Window, int, int], channels: int, counted: str, batch: int, seed: int
) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    assume(window.sees_image(height, width))
    share = {"none": [0] * 4, "all": [1] * 4, "some": [1, 0, 0, 1]}[counted]
    top, left, bottom, right = (p * s for p, s in zip(window.pads, share, strict=True))
    op = ops.AveragePool(window, (top, left, bottom, right))
    graph = one_node(op, TensorType((None, height, width, channels), Domain.FLOAT32))
    check(backend, graph, {"x": with_nan(rng, reals(rng, batch, height, width, channels))})


def with_nan(rng: np.random.Generator, x: Array) -> Array:
    x[rng.random(x.shape) < 0.03] = np.nan
    return x


@checked
@given(st.integers(1, 40), st.integers(1, 3), st.booleans(), seeds())
def test_activations(backend: Backend, channels: int, batch: int, shared: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensor_type = TensorType((None, 2, 3, channels), Domain.FLOAT32)
    x = {"x": with_nan(rng, reals(rng, batch, 2, 3, channels))}
    low, high = (float(bound) for bound in rng.normal(size=2).astype(np.float32))
    slopes = Constant.of(reals(rng, 1 if shared else channels))
    check(backend, one_node(ops.Relu(), tensor_type), x)
    check(backend, one_node(ops.PRelu(), tensor_type, slopes), x)
    for bounds in ((low, high), (0.0, 6.0), (-0.0, 3.4028234663852886e38), (-1.0, 1.0)):
        check(backend, one_node(ops.Clip(*bounds), tensor_type), x)


@checked
@given(st.integers(1, 200), st.integers(1, 5), seeds())
def test_sigmoid_and_softmax(backend: Backend, channels: int, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # From powers that are 1 to such as are subnormal or 0.
    x = rng.normal(size=(batch, 3, channels)).astype(np.float32) * np.float32(rng.choice([0.1, 3, 50]))
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3e38], dtype=np.float32)
    rows = rng.random((batch, 3, 1)) < 0.3
    x = np.where(rows & (rng.random(x.shape) < 0.3), rng.choice(special, x.shape), x)
    for op in (ops.Sigmoid(), ops.Softmax(), ops.LogSoftmax()):
        check(backend, one_node(op, TensorType((None, 3, channels), Domain.FLOAT32)), {"x": x})


@checked
@given(st.integers(1, 100), st.integers(1, 6), st.integers(1, 4), st.booleans(), st.integers(1, 12), seeds())
def test_threshold(
    backend: Backend, channels: int, width: int, batch: int, pixels: bool, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    size = (batch, width, width + 1, channels)
    low, high = (0, 256) if pixels else (-50, 51)
    x = rng.integers(low, high, size).astype(np.uint8 if pixels else np.int32)
    planes = channels * levels if pixels else channels  # several thresholds a channel of pixels
    thresholds = rng.integers(low - 1, high + 2, planes).astype(np.int32)
    thresholds[rng.random(planes) < 0.1] = rng.choice(np.array([-(2**31), 2**31 - 1]))
    tensor_type = TensorType((None, *size[1:]), Domain.UINT8 if pixels else Domain.INT32)
    falling = Constant.bits(bits(rng, planes) > 0)
    check(backend, one_node(ops.Threshold(), tensor_type, Constant.of(thresholds), falling), {"x": x})


def images(rng: np.random.Generator, *shape: int) -> Array:
    """8-bit pixels of all levels, or of so few that neighbours are often equal."""
    lowest, levels = rng.choice(np.array([[0, 256], [0, 2], [254, 2], [100, 3]]))
    return rng.integers(lowest, lowest + levels, shape).astype(np.uint8)


@checked
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), seeds())
def test_grayscale(backend: Backend, height: int, width: int, batch: int, seed: int) -> None:
    x = images(np.random.default_rng(seed), batch, height, width, 3)
    check(backend, one_node(ops.Grayscale(), TensorType((None, height, width, 3), Domain.UINT8)), {"x": x})


@checked
@example(1, 1, 1, 0)
@example(1, 1, 3, 0)
@example(1, 37, 2, 0)
@example(37, 1, 2, 0)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), seeds())
def test_local_binary_pattern(backend: Backend, height: int, width: int, batch: int, seed: int) -> None:
    x = images(np.random.default_rng(seed), batch, height, width, 1)
    check(backend, one_node(ops.LocalBinaryPattern(), TensorType((None, height, width, 1), Domain.UINT8)), {"x": x})


@checked
@given(st.integers(1, 100), st.integers(1, 4), st.sampled_from(list(ops.SignOfZero)), seeds())
def test_sign(backend: Backend, channels: int, batch: int, zero: ops.SignOfZero, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = reals(rng, batch, 3, channels)
    x[rng.random(x.shape) < 0.1] = np.nan
    check(backend, one_node(ops.Sign(zero), TensorType((None, 3, channels), Domain.FLOAT32)), {"x": x})


@checked
@given(
    st.sampled_from(list(ops.ArithmeticKind)),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from(["channel", "scalar", "whole", "left channel", "left scalar"]),
    seeds(),
)
def test_arithmetic(
    backend: Backend, kind: ops.ArithmeticKind, channels: int, batch: int, operand: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tensor_type = TensorType((None, 2, 3, channels), Domain.FLOAT32)
    x = reals(rng, batch, 2, 3, channels)
    if operand == "whole":
        node = Node("node", ops.Arithmetic(kind), ("x", "z"), ("y",))
        check(
            backend, Graph({"x": tensor_type, "z": tensor_type}, (node,), ("y",)), {"x": x, "z": reals(rng, *x.shape)}
        )
        return
    constant = Constant.of(reals(rng, channels if operand.endswith("channel") else 1))
    names = ("c", "x") if operand.startswith("left") else ("x", "c")
    graph = Graph({"x": tensor_type}, (Node("node", ops.Arithmetic(kind), names, ("y",)),), ("y",), {"c": constant})
    check(backend, graph, {"x": x})


@checked
@given(
    st.sampled_from(list(ops.ArithmeticKind)),
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["both", "both", "a", "b"])), min_size=1, max_size=4),
    st.integers(1, 3),
    seeds(),
)
def test_arithmetic_of_tensors_that_repeat(
    backend: Backend, kind: ops.ArithmeticKind, axes: list[tuple[int, str]], batch: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shapes = {name: tuple(size if kept in ("both", name) else 1 for size, kept in axes) for name in "ab"}
    feeds = {name: with_nan(rng, reals(rng, batch, *shape)) for name, shape in shapes.items()}
    types = {name: TensorType((None, *shape), Domain.FLOAT32) for name, shape in shapes.items()}
    node = Node("node", ops.Arithmetic(kind), ("a", "b"), ("y",))
    check(backend, Graph(types, (node,), ("y",)), feeds)


@checked
@given(
    st.sampled_from(list(ops.ArithmeticKind)),
    st.sampled_from([Domain.INT32, Domain.UINT8, Domain.BIT]),
    st.sampled_from([((2, 3, 4), (2, 3, 4)), ((2, 1, 4), (1, 3, 1)), ((1, 1, 1), (2, 3, 4)), ((2, 3, 40), (1, 1, 40))]),
    st.sampled_from([("a", "b"), ("b", "a"), ("a", "a")]),
    st.integers(1, 3),
    seeds(),
)
def test_arithmetic_of_what_becomes_float(
    backend: Backend,
    kind: ops.ArithmeticKind,
    domain: Domain,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    operands: tuple[str, str],
    batch: int,
    seed: int,
) -> None:
    """ToFloat in front of the first, the second or both operands: backends may run the two operators at once."""
    rng = np.random.default_rng(seed)
    types = {"x": TensorType((None, *shapes[0]), domain), "b": TensorType((None, *shapes[1]), Domain.FLOAT32)}
    values = {Domain.INT32: (-(2**31), 2**31), Domain.UINT8: (0, 256)}
    if domain is Domain.BIT:
        x = bits(rng, batch, *shapes[0])
    else:
        x = rng.integers(*values[domain], (batch, *shapes[0])).astype(np.int32 if domain is Domain.INT32 else np.uint8)
    feeds = {"x": x, "b": with_nan(rng, reals(rng, batch, *shapes[1]))}
    nodes = (
        Node("float", ops.ToFloat(), ("x",), ("a",)),
        Node("node", ops.Arithmetic(kind), operands, ("y",)),
    )
    check(backend, Graph(types, nodes, ("y",)), feeds)


@checked
@given(
    st.sampled_from([Domain.FLOAT32, Domain.INT32, Domain.BIT]),
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 70)),
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 3),
    seeds(),
)
def test_gather(
    backend: Backend, domain: Domain, sizes: tuple[int, ...], axis: int, picked: int, batch: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    indices = Constant.of(rng.integers(0, sizes[axis - 1], picked).astype(np.int32))
    if domain is Domain.BIT:
        x = bits(rng, batch, *sizes)
    elif domain is Domain.INT32:
        x = rng.integers(-(2**31), 2**31, (batch, *sizes)).astype(np.int32)
    else:
        x = with_nan(rng, reals(rng, batch, *sizes))
    check(backend, one_node(ops.Gather(axis), TensorType((None, *sizes), domain), indices), {"x": x})


def rankings(rng: np.random.Generator, *shape: int) -> Array:
    """Few different numbers, so that many are equal; and NaN, infinities and both zeros."""
    x = rng.integers(-2, 3, shape).astype(np.float32)
    special = np.array([-0.0, np.inf, -np.inf, np.nan], dtype=np.float32)
    return np.where(rng.random(shape) < rng.choice([0, 0.2, 0.9]), rng.choice(special, shape), x)


@checked
@example(1, 1, ops.Extreme.LEAST, 0)
@given(st.integers(1, 70), st.integers(1, 4), st.sampled_from(list(ops.Extreme)), seeds())
def test_arg_max(backend: Backend, channels: int, batch: int, extreme: ops.Extreme, seed: int) -> None:
    x = rankings(np.random.default_rng(seed), batch, 3, channels)
    for ties in ops.Ties:
        graph = one_node(ops.ArgMax(extreme, ties), TensorType((None, *x.shape[1:]), Domain.FLOAT32))
        check(backend, graph, {"x": x})


@checked
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 4), st.sampled_from(list(ops.Extreme)), seeds())
def test_top_k(backend: Backend, channels: int, k: int, batch: int, extreme: ops.Extreme, seed: int) -> None:
    x = rankings(np.random.default_rng(seed), batch, 3, channels)
    for picked in ops.Picked:
        op = ops.TopK(min(k, channels), extreme, picked)
        check(backend, one_node(op, TensorType((None, *x.shape[1:]), Domain.FLOAT32)), {"x": x})


@checked
@given(st.integers(1, 70), st.integers(1, 4), seeds())
def test_to_int64(backend: Backend, channels: int, batch: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-(2**31), 2**31, (batch, channels)).astype(np.int32)
    check(backend, one_node(ops.ToInt64(), TensorType((None, channels), Domain.INT32)), {"x": x})


@checked
@given(seeds())
def test_division_on_a_device_whose_own_is_not_exact(backend: Backend, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensor_type = TensorType((None, 4096), Domain.FLOAT32)
    special = np.array([0, -0.0, 1, -1, 3, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38, 3.4028235e38], np.float32)
    special = np.concatenate([special, np.array([np.inf, -np.inf, np.nan], np.float32)])
    # Every exponent: of numbers, of results that are subnormal, and of ties to even (short fractions).
    a, b = rng.integers(0, 1 << 32, (2, 2, 4096), dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        near = np.ldexp(a, rng.integers(-30, 150, b.shape))
    b = np.where(rng.random(b.shape) < 0.5, near, b)
    b = np.where(rng.random(b.shape) < 0.2, (b.view(np.uint32) & np.uint32(0xFFF00000)).view(np.float32), b)
    a, b = (np.where(rng.random(x.shape) < 0.1, rng.choice(special, x.shape), x) for x in (a, b))
    graph = Graph(
        {"a": tensor_type, "b": tensor_type},
        (Node("node", ops.Arithmetic(ops.ArithmeticKind.DIV), ("a", "b"), ("y",)),),
        ("y",),
    )
    inexact = dataclasses.replace(backend.info, exact_division=False)
    with np.errstate(all="ignore"):
        check(backend, graph, {"a": a, "b": b}, device=inexact)
    real = TensorType((None, 5, 5, 3), Domain.FLOAT32)
    x = {"x": rng.normal(size=(2, 5, 5, 3)).astype(np.float32)}
    for op in (ops.AveragePool(WINDOW), ops.Sigmoid(), ops.Softmax()):
        check(backend, one_node(op, real), x, device=inexact)


@checked
@given(st.sampled_from([Domain.BIT, Domain.INT32, Domain.UINT8]), st.integers(1, 100), st.integers(1, 4), seeds())
def test_to_float(backend: Backend, domain: Domain, channels: int, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if domain is Domain.BIT:
        x = bits(rng, batch, 5, channels)
    elif domain is Domain.INT32:
        x = rng.integers(-(2**24), 2**24, (batch, 5, channels)).astype(np.int32)
    else:
        x = rng.integers(0, 256, (batch, 5, channels)).astype(np.uint8)
    check(backend, one_node(ops.ToFloat(), TensorType((None, 5, channels), domain)), {"x": x})


@checked
@given(st.tuples(*[st.integers(1, 40)] * 3), st.booleans(), st.sampled_from(list(ops.SignOfZero)), seeds())
def test_sign_of_planes(backend: Backend, sizes: tuple[int, ...], whole: bool, zero: ops.SignOfZero, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (2, *sizes)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.nan
    addend = Constant.of(rng.integers(-3, 4, 1 if whole else sizes[0]).astype(np.float32))
    nodes = (
        Node("t", ops.Transpose((0, 2, 3, 1)), ("x",), ("nhwc",)),
        Node("a", ops.Arithmetic(ops.ArithmeticKind.ADD), ("nhwc", "c"), ("sum",)),
        Node("s", ops.Sign(zero), ("sum",), ("y",)),
    )
    tensor_type = TensorType((None, *sizes), Domain.FLOAT32)
    check(backend, Graph({"x": tensor_type}, nodes, ("y",), {"c": addend}), {"x": x})


@checked
@given(st.permutations([1, 2, 3]), st.tuples(*[st.integers(1, 9)] * 3), st.integers(1, 4), seeds())
def test_transpose(backend: Backend, axes: list[int], sizes: tuple[int, ...], batch: int, seed: int) -> None:
    x = reals(np.random.default_rng(seed), batch, *sizes)
    graph = one_node(ops.Transpose((0, *axes)), TensorType((None, *sizes), Domain.FLOAT32))
    check(backend, graph, {"x": x})


@checked
@given(st.tuples(*[st.integers(0, 3)] * 4), st.floats(width=32, allow_nan=False), st.integers(1, 20), seeds())
def test_pad(backend: Backend, pads: tuple[int, int, int, int], value: float, channels: int, seed: int) -> None:
    x = reals(np.random.default_rng(seed), 2, 4, 5, channels)
    check(backend, one_node(ops.Pad(pads, value), TensorType((None, *x.shape[1:]), Domain.FLOAT32)), {"x": x})


@checked
@given(st.lists(st.integers(1, 70), min_size=2, max_size=4), st.booleans(), st.integers(1, 3), st.booleans(), seeds())
def test_concat(backend: Backend, channels: list[int], flat: bool, batch: int, again: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = () if flat else (3, 5)
    feeds = {f"x{i}": reals(rng, batch, *sizes, count) for i, count in enumerate(channels)}
    types = {name: TensorType((None, *x.shape[1:]), Domain.FLOAT32) for name, x in feeds.items()}
    parts = (*feeds, "x0") if again else tuple(feeds)
    # Behind it one more operator: the last part is not the last launch.
    nodes = (Node("c", ops.Concat(), parts, ("joined",)), Node("r", ops.Relu(), ("joined",), ("y",)))
    check(backend, Graph(types, nodes, ("joined", "y"), {}), feeds)


@checked
@given(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 70)), st.booleans(), st.integers(1, 3), seeds())
def test_reshape(backend: Backend, sizes: tuple[int, ...], of_bits: bool, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = sizes
    x = bits(rng, batch, a, b, c) if of_bits else reals(rng, batch, a, b, c)
    tensor_type = TensorType((None, a, b, c), Domain.BIT if of_bits else Domain.FLOAT32)
    for shape in ((a * b * c,), (c, a * b), (a, b * c), (c, b, a)):
        check(backend, one_node(ops.Reshape(shape), tensor_type), {"x": x})
