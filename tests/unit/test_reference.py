"""The definition of every operator against ONNX Runtime, or, where ONNX has no such operator or order, plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from bnnrt import ops, reference
from bnnrt.errors import GraphError, InputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import OPS, Domain, TensorType, Window

Array = npt.NDArray[Any]

few = settings(max_examples=20)
FLOAT, BIT, INT, PIXEL = Domain.FLOAT32, Domain.BIT, Domain.INT32, Domain.UINT8


def by_onnx_runtime(operator: str, *inputs: Array, opset: int = 17, **attributes: Any) -> Array:
    """The operator on arrays of the same layout. Vectors of int64 are constants, as Reshape and Pad want them."""
    values, initializers, names = [], [], []
    for index, array in enumerate(inputs):
        names.append(f"i{index}")
        if array.dtype == np.int64:
            initializers.append(numpy_helper.from_array(array, names[-1]))
        else:
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(names[-1], dtype, array.shape))
    of_indices = operator in ("ArgMax", "ArgMin")
    kind = onnx.TensorProto.INT64 if of_indices else onnx.TensorProto.FLOAT
    output = helper.make_tensor_value_info("y", kind, None)
    node = helper.make_node(operator, names, ["y"], **attributes)
    graph = helper.make_graph([node], "one", values, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array.dtype != np.int64}
    (found,) = session.run(None, feeds)
    result: Array = found
    return result


def run(op: ops.Op, x: Array, domain: Domain, *constants: Constant) -> Array:
    """One operator; bits go in and come out as +1 and -1."""
    named = {f"c{i}": constant for i, constant in enumerate(constants)}
    graph = Graph(
        {"x": TensorType((None, *x.shape[1:]), domain)}, (Node("n", op, ("x", *named), ("y",)),), ("y",), named
    )
    before = x.copy()
    found = reference.run(graph, {"x": x})["y"]
    np.testing.assert_array_equal(x, before)
    out = graph.types["y"]
    assert found.shape == out.with_batch(len(x))
    assert found.dtype == {FLOAT: np.float32, BIT: np.float32, INT: np.int32, PIXEL: np.uint8}[out.domain]
    return found


def channels_first(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def channels_last(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def signs(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice(np.array([-1, 1], np.float32), shape)


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Float32 whose products and sums are exact."""
    return rng.integers(-20, 21, shape).astype(np.float32)


def reals(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32) * np.float32(10) ** rng.integers(-3, 4, shape).astype(np.float32)


seeds = st.integers(0, 2**32 - 1)


@st.composite
def windows(draw: st.DrawFn, pooling: bool = False) -> tuple[Window, int, int]:
    """A window, and an image that it fits. ONNX's pooling pads less than the kernel."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]))
    most = [min(2, k - 1) if pooling else 2 for k in (*kernel, *kernel)]
    pads = draw(st.tuples(*(st.integers(0, m) for m in most)))
    window = Window(kernel, draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), pads, dilations)
    # At least as large as the window, so that every output sees the image.
    height, width = (dilations[i] * (kernel[i] - 1) + 1 + draw(st.integers(0, 5)) for i in range(2))
    return window, height, width


def attributes(window: Window) -> dict[str, Any]:
    return {
        "kernel_shape": window.kernel,
        "strides": window.strides,
        "pads": window.pads,
        "dilations": window.dilations,
    }


# Convolutions


@few
@given(
    windows(), st.integers(1, 5), st.sampled_from([1, 1, 2, 3]), st.integers(1, 3), st.sampled_from([-1, 0, 1]), seeds
)
def test_binary_conv(
    shape: tuple[Window, int, int], per_group: int, groups: int, per_output: int, pad_value: int, seed: int
) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    x = signs(rng, 2, height, width, per_group * groups)
    weights = signs(rng, per_output * groups, *window.kernel, per_group)
    found = run(ops.BinaryConv(window, groups, pad_value), x, BIT, Constant.bits(weights > 0))
    top, left, bottom, right = window.pads
    padded = np.pad(
        channels_first(x), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=np.float32(pad_value)
    )
    wanted = by_onnx_runtime(
        *("Conv", padded, channels_first(weights)),
        **{**attributes(window), "pads": (0, 0, 0, 0)},
        group=groups,
    )
    np.testing.assert_array_equal(found, channels_last(wanted))


@few
@given(windows(), st.integers(1, 5), st.sampled_from([1, 1, 2, 3]), st.integers(1, 3), st.booleans(), seeds)
def test_real_conv(
    shape: tuple[Window, int, int], per_group: int, groups: int, per_output: int, binary: bool, seed: int
) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    x = integers(rng, 2, height, width, per_group * groups)
    size = (per_output * groups, *window.kernel, per_group)
    weights = signs(rng, *size) if binary else integers(rng, *size)
    constant = Constant.bits(weights > 0) if binary else Constant.of(weights)
    op = ops.BinaryWeightConv(window, groups) if binary else ops.Conv(window, groups)
    wanted = by_onnx_runtime("Conv", channels_first(x), channels_first(weights), **attributes(window), group=groups)
    np.testing.assert_array_equal(run(op, x, FLOAT, constant), channels_last(wanted))


@few
@given(windows(), st.integers(1, 4), st.sampled_from([1, 2]), st.booleans(), seeds)
def test_real_conv_rounds_every_product_and_sum_in_order(
    shape: tuple[Window, int, int], per_group: int, groups: int, binary: bool, seed: int
) -> None:
    """Float32 one by one, over rows, then columns, then channels."""
    window, height, width = shape
    rng = np.random.default_rng(seed)
    x = reals(rng, 1, height, width, per_group * groups)
    weights = (
        signs(rng, 2 * groups, *window.kernel, per_group)
        if binary
        else reals(rng, 2 * groups, *window.kernel, per_group)
    )
    constant = Constant.bits(weights > 0) if binary else Constant.of(weights)
    op = ops.BinaryWeightConv(window, groups) if binary else ops.Conv(window, groups)
    found = run(op, x, FLOAT, constant)
    for y, column, output in np.ndindex(found.shape[1:]):
        total = np.float32(0)
        for ky, kx, channel in np.ndindex(*window.kernel, per_group):
            row = y * window.strides[0] + ky * window.dilations[0] - window.pads[0]
            col = column * window.strides[1] + kx * window.dilations[1] - window.pads[1]
            if 0 <= row < height and 0 <= col < width:
                seen = x[0, row, col, output // 2 * per_group + channel]
                total = np.float32(total + np.float32(seen * weights[output, ky, kx, channel]))
        assert found[0, y, column, output] == total


def test_real_conv_of_a_large_image_is_that_of_each_output() -> None:
    """Such outputs are computed a few at a time."""
    rng = np.random.default_rng(7)
    x, weights = reals(rng, 2, 260, 260, 4), reals(rng, 10, 2, 2, 2)
    window = Window((2, 2), pads=(0, 1, 1, 0))
    found = run(ops.Conv(window, 2), x, FLOAT, Constant.of(weights))
    for output in range(10):
        group = slice(output // 5 * 2, output // 5 * 2 + 2)
        seen, weight = np.ascontiguousarray(x[..., group]), Constant.of(weights[output : output + 1])
        np.testing.assert_array_equal(found[..., output : output + 1], run(ops.Conv(window), seen, FLOAT, weight))


# Dense layers


@few
@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 3), seeds)
def test_dense(length: int, outputs: int, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, numbers = signs(rng, batch, length), integers(rng, batch, length)
    sign_weights, weights = signs(rng, outputs, length), integers(rng, outputs, length)
    packed = Constant.bits(sign_weights > 0)
    for op, x, domain, constant, w in (
        (ops.BinaryDense(), bits, BIT, packed, sign_weights),
        (ops.BinaryWeightDense(), numbers, FLOAT, packed, sign_weights),
        (ops.Dense(), numbers, FLOAT, Constant.of(weights), weights),
    ):
        found = run(op, x, domain, constant)
        np.testing.assert_array_equal(found, by_onnx_runtime("MatMul", x, np.ascontiguousarray(w.T)))
        np.testing.assert_array_equal(found, by_onnx_runtime("Gemm", x, w, transB=1))


@few
@given(st.integers(1, 40), st.booleans(), seeds)
def test_dense_rounds_every_product_and_sum_in_order(length: int, binary: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = reals(rng, 2, length)
    weights = signs(rng, 3, length) if binary else reals(rng, 3, length)
    constant = Constant.bits(weights > 0) if binary else Constant.of(weights)
    found = run(ops.BinaryWeightDense() if binary else ops.Dense(), x, FLOAT, constant)
    for n, output in np.ndindex(2, 3):
        total = np.float32(0)
        for k in range(length):
            total = np.float32(total + np.float32(x[n, k] * weights[output, k]))
        assert found[n, output] == total


# Bits


@few
@given(st.integers(1, 40), st.booleans(), seeds)
def test_threshold(channels: int, pixels: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (2, 3, channels)).astype(np.uint8 if pixels else np.int32)
    thresholds = rng.integers(-1, 258, channels).astype(np.int32)
    thresholds[0] = x[0, 0, 0]  # a tie
    thresholds[-1] = rng.choice(np.array([-(2**31), 2**31 - 1]))
    falling = rng.random(channels) < 0.5
    found = run(ops.Threshold(), x, PIXEL if pixels else INT, Constant.of(thresholds), Constant.bits(falling))
    for index in np.ndindex(x.shape):
        reached = int(x[index]) >= int(thresholds[index[-1]])
        assert found[index] == (1 if reached != falling[index[-1]] else -1)


@few
@given(st.integers(1, 5), st.integers(1, 9), seeds)
def test_several_thresholds_a_channel_of_pixels(channels: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (2, 3, channels)).astype(np.uint8)
    thresholds = rng.integers(-1, 258, channels * levels).astype(np.int32)
    falling = rng.random(channels * levels) < 0.5
    found = run(ops.Threshold(), x, PIXEL, Constant.of(thresholds), Constant.bits(falling))
    assert found.shape == (2, 3, channels * levels)
    for n, w, plane in np.ndindex(found.shape):
        reached = int(x[n, w, plane % channels]) >= int(thresholds[plane])
        assert found[n, w, plane] == (1 if reached != falling[plane] else -1)


def test_threshold_of_extreme_accumulators() -> None:
    x = np.array([[-(2**31), -1, 0, 1, 2**31 - 1]], np.int32)
    for threshold, wanted in ((-(2**31), [1] * 5), (2**31 - 1, [-1] * 4 + [1]), (0, [-1, -1, 1, 1, 1])):
        constant = Constant.of(np.full(5, threshold, np.int32))
        np.testing.assert_array_equal(run(ops.Threshold(), x, INT, constant, Constant.bits([False] * 5)), [wanted])
        np.testing.assert_array_equal(
            run(ops.Threshold(), x, INT, constant, Constant.bits([True] * 5)), -np.array([wanted])
        )


SPECIAL = np.array([[0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, np.inf, -np.inf, np.nan]], np.float32)


@pytest.mark.parametrize(
    ("zero", "wanted"),
    [
        (ops.SignOfZero.GE, [1, 1, 1, -1, 1, -1, 1, -1, -1]),
        (ops.SignOfZero.GT, [-1, -1, 1, -1, 1, -1, 1, -1, -1]),
    ],
)
def test_sign_of_special_numbers(zero: ops.SignOfZero, wanted: list[int]) -> None:
    np.testing.assert_array_equal(run(ops.Sign(zero), SPECIAL, FLOAT), [wanted])


@few
@given(seeds)
def test_sign(seed: int) -> None:
    x = reals(np.random.default_rng(seed), 2, 3, 40)
    assert (x != 0).all()
    for zero in ops.SignOfZero:
        np.testing.assert_array_equal(run(ops.Sign(zero), x, FLOAT), by_onnx_runtime("Sign", x))


# Pooling


@few
@given(windows(pooling=True), st.integers(1, 5), st.booleans(), seeds)
def test_max_pool(shape: tuple[Window, int, int], channels: int, integer: bool, seed: int) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    x = integers(rng, 2, height, width, channels) - np.float32(30)  # below zero, so that a 0 of the padding shows
    wanted = channels_last(by_onnx_runtime("MaxPool", channels_first(x), **attributes(window)))
    found = run(ops.MaxPool(window), x.astype(np.int32) if integer else x, INT if integer else FLOAT)
    np.testing.assert_array_equal(found, wanted)


@few
@given(windows(pooling=True), st.integers(1, 5), seeds)
def test_bit_pool(shape: tuple[Window, int, int], channels: int, seed: int) -> None:
    window, height, width = shape
    rng = np.random.default_rng(seed)
    x = signs(rng, 2, height, width, channels)
    minimum = rng.random(channels) < 0.5
    most = channels_last(by_onnx_runtime("MaxPool", channels_first(x), **attributes(window)))
    least = -channels_last(by_onnx_runtime("MaxPool", channels_first(-x), **attributes(window)))
    found = run(ops.BitPool(window), x, BIT, Constant.bits(minimum))
    np.testing.assert_array_equal(found, np.where(minimum, least, most))


def test_max_pool_of_special_numbers() -> None:
    """NaN never exceeds anything, and of two zeros the first stays."""
    pool = ops.MaxPool(Window((1, 2), (1, 2)))
    x = np.array([np.nan, 1, 1, np.nan, np.nan, np.nan, -np.inf, -np.inf, 0.0, -0.0, -0.0, 0.0], np.float32)
    found = run(pool, x.reshape(1, 1, -1, 1), FLOAT).ravel()
    np.testing.assert_array_equal(found, np.array([1, 1, -np.inf, -np.inf, 0, 0], np.float32))
    np.testing.assert_array_equal(np.signbit(found[-2:]), [False, True])
    lowest = np.full((1, 1, 2, 1), -(2**31), np.int32)
    assert run(pool, lowest, INT).item() == -(2**31)


@few
@given(windows(pooling=True), st.integers(1, 5), st.booleans(), seeds)
def test_average_pool(shape: tuple[Window, int, int], channels: int, counted: bool, seed: int) -> None:
    window, height, width = shape
    x = reals(np.random.default_rng(seed), 2, height, width, channels)
    op = ops.AveragePool(window, window.pads) if counted else ops.AveragePool(window)
    how = {**attributes(window), "count_include_pad": int(counted)}
    wanted = channels_last(by_onnx_runtime("AveragePool", channels_first(x), opset=19, **how))
    np.testing.assert_allclose(run(op, x, FLOAT), wanted, rtol=1e-5, atol=1e-2)


def test_average_pool_rounds_every_sum_in_order() -> None:
    x = np.array([1, 2**24, 1, -(2**24), 3], np.float32).reshape(1, 5, 1, 1)
    # 1 + 2**24 is 2**24, to which 1 is added in vain again; 3 is left.
    assert run(ops.AveragePool(Window((5, 1))), x, FLOAT).item() == np.float32(3) / np.float32(5)


def test_average_pool_counts_some_pads() -> None:
    x = np.ones((1, 2, 1, 1), np.float32)
    pool = ops.AveragePool(Window((3, 1), pads=(2, 0, 2, 0)), (1, 0, 0, 0))
    # Taps in the image, over taps in the image and the row above it: 1 of 2, 2 of 3, 2 of 2, 1 of 1.
    np.testing.assert_array_equal(run(pool, x, FLOAT).ravel(), np.array([1 / 2, 2 / 3, 1, 1], np.float32))


def test_average_pool_counts_no_more_than_it_pads() -> None:
    with pytest.raises(GraphError, match="not within the pads"):
        ops.AveragePool(Window((2, 2)), (1, 0, 0, 0))


# Element by element


ODD = np.array([[np.nan, -0.0, 0.0, -1, 2, np.inf, -np.inf, 3.4e38, -1e-45]], np.float32)


@pytest.mark.parametrize("bounds", [(-0.5, 1.5), (0.0, 6.0), (1.0, -1.0)])
def test_activations_keep_what_no_comparison_holds_for(bounds: tuple[float, float]) -> None:
    for op, operator, extra in (
        (ops.Relu(), "Relu", ()),
        (ops.Clip(*bounds), "Clip", [np.array(bound, np.float32) for bound in bounds]),
    ):
        found = run(op, ODD, FLOAT)
        wanted = by_onnx_runtime(operator, ODD, *extra)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[0, 1:]), np.signbit(wanted[0, 1:]))
    slopes = np.linspace(-1, 2, 9, dtype=np.float32)
    for constant in (slopes, slopes[:1]):
        found = run(ops.PRelu(), ODD, FLOAT, Constant.of(constant))
        np.testing.assert_array_equal(found, by_onnx_runtime("PRelu", ODD, constant))


def test_a_bound_is_a_number() -> None:
    with pytest.raises(GraphError, match="no number"):
        ops.Clip(0.0, float("nan"))


def test_exponential_is_off_by_less_than_2_ulp() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([np.linspace(-104, 89, 200_001), rng.normal(size=200_000)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    with np.errstate(over="ignore"):
        found = reference.exponential(x)
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], np.inf)
    ulps = np.abs(found[finite] - exact[finite]) / np.spacing(rounded[finite]).astype(np.float64)
    assert ulps.max() < 2


def test_logarithm_is_off_by_less_than_2_ulp() -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.integers(0x3F800000, 0x7F800000, 1 << 20).astype(np.int32).view(np.float32)])
    x = np.concatenate([x, 1 + rng.random(1 << 18).astype(np.float32) * np.float32(1e-3)])
    exact = np.log(x.astype(np.float64))
    off = np.abs(reference.logarithm(x).astype(np.float64) - exact) / np.spacing(exact.astype(np.float32))
    assert off[x > 1].max() < 2
    special = np.array([1, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(reference.logarithm(special), np.array([0, np.inf, np.nan], np.float32))


def test_exponential_of_special_numbers() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(reference.exponential(x), np.array([np.nan, np.inf, 0, 1, 1, np.inf, 0], "f"))


@few
@given(st.integers(1, 40), seeds)
def test_sigmoid_and_softmax(channels: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(3, channels)).astype(np.float32) * 5
    exact = x.astype(np.float64)
    np.testing.assert_allclose(run(ops.Sigmoid(), x, FLOAT), 1 / (1 + np.exp(-exact)), rtol=1e-6)
    powers = np.exp(exact - exact.max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(ops.Softmax(), x, FLOAT), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def test_softmax_of_special_numbers() -> None:
    x = np.array([[1, np.nan, 2], [np.inf, 1, 2], [-np.inf, -np.inf, -np.inf], [-np.inf, 3e38, 3e38]], np.float32)
    wanted = np.array([[np.nan] * 3, [np.nan] * 3, [np.nan] * 3, [0, 0.5, 0.5]], np.float32)
    found = run(ops.Softmax(), x, FLOAT)
    np.testing.assert_array_equal(found[[0, 2, 3]], wanted[[0, 2, 3]])
    assert np.isnan(found[1, 0])


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Reals with zeros, infinities and numbers that overflow among them."""
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, 3e38, 1e-45], np.float32)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), reals(rng, *shape))


@few
@given(st.sampled_from(list(ops.ArithmeticKind)), st.integers(1, 7), st.sampled_from(["channel", "scalar"]), seeds)
def test_arithmetic(kind: ops.ArithmeticKind, channels: int, operand: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, 2, 3, channels)
    constant = numbers(rng, channels if operand == "channel" else 1)
    operator, op, real = kind.name.capitalize(), ops.Arithmetic(kind), TensorType((None, 3, channels), FLOAT)
    for names in (("x", "c"), ("c", "x")):
        values = {"x": x, "c": constant}
        graph = Graph({"x": real}, (Node("n", op, names, ("y",)),), ("y",), {"c": Constant.of(constant)})
        found = reference.run(graph, {"x": x})["y"]
        np.testing.assert_array_equal(found, by_onnx_runtime(operator, *(values[name] for name in names)))
    z = numbers(rng, *x.shape)
    graph = Graph({"x": real, "z": real}, (Node("n", op, ("x", "z"), ("y",)),), ("y",))
    np.testing.assert_array_equal(reference.run(graph, {"x": x, "z": z})["y"], by_onnx_runtime(operator, x, z))


@few
@given(st.lists(st.sampled_from([(1, 1), (1, 4), (3, 1), (2, 2)]), min_size=1, max_size=4), seeds)
def test_arithmetic_of_tensors_that_repeat(axes: list[tuple[int, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (reals(rng, 2, *sizes) for sizes in zip(*axes, strict=True))
    types = {name: TensorType((None, *x.shape[1:]), FLOAT) for name, x in (("a", a), ("b", b))}
    graph = Graph(types, (Node("n", ops.Arithmetic(ops.ArithmeticKind.SUB), ("a", "b"), ("y",)),), ("y",))
    np.testing.assert_array_equal(reference.run(graph, {"a": a, "b": b})["y"], by_onnx_runtime("Sub", a, b))


@few
@given(st.integers(1, 3), st.lists(st.integers(0, 2), min_size=1, max_size=5), seeds)
def test_gather(axis: int, indices: list[int], seed: int) -> None:
    x = reals(np.random.default_rng(seed), 2, 3, 3, 3)
    found = run(ops.Gather(axis), x, FLOAT, Constant.of(np.array(indices, dtype=np.int32)))
    np.testing.assert_array_equal(found, by_onnx_runtime("Gather", x, np.array(indices, np.int64), axis=axis))


@few
@given(st.integers(1, 6), st.sampled_from(list(ops.Extreme)), st.sampled_from(list(ops.Ties)), seeds)
def test_arg_max(channels: int, extreme: ops.Extreme, ties: ops.Ties, seed: int) -> None:
    rng = np.random.default_rng(seed)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(special, (50, channels))
    operator = "ArgMax" if extreme is ops.Extreme.GREATEST else "ArgMin"
    wanted = by_onnx_runtime(operator, x, axis=1, select_last_index=int(ties is ops.Ties.LAST))
    np.testing.assert_array_equal(run(ops.ArgMax(extreme, ties), x, FLOAT), wanted)


@pytest.mark.parametrize(
    ("extreme", "wanted"), [(ops.Extreme.GREATEST, [1, 4, 2, 0, 3, 5]), (ops.Extreme.LEAST, [5, 0, 3, 2, 1, 4])]
)
def test_top_k(extreme: ops.Extreme, wanted: list[int]) -> None:
    x = np.array([[0, np.nan, 3, -0.0, np.nan, -np.inf]], np.float32)
    for k in range(1, 7):
        indices = run(ops.TopK(k, extreme, ops.Picked.INDICES), x, FLOAT)
        assert indices.tolist() == [wanted[:k]]
        np.testing.assert_array_equal(run(ops.TopK(k, extreme), x, FLOAT), x[:, wanted[:k]])


@few
@given(st.tuples(*[st.integers(0, 3)] * 4), st.floats(width=32, allow_nan=False), seeds)
def test_pad(pads: tuple[int, int, int, int], value: float, seed: int) -> None:
    x = reals(np.random.default_rng(seed), 2, 3, 4, 2)
    top, left, bottom, right = pads
    onnx_pads = np.array([0, top, left, 0, 0, bottom, right, 0], np.int64)
    wanted = by_onnx_runtime("Pad", x, onnx_pads, np.array(value, np.float32))
    np.testing.assert_array_equal(run(ops.Pad(pads, value), x, FLOAT), wanted)


@few
@given(seeds)
def test_to_float(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (2, 3, 5)).astype(np.uint8)
    sums = rng.integers(-(2**24), 2**24 + 1, (2, 3, 5)).astype(np.int32)
    for x, domain in ((pixels, PIXEL), (sums, INT)):
        np.testing.assert_array_equal(run(ops.ToFloat(), x, domain), by_onnx_runtime("Cast", x, to=1))
    bits = signs(rng, 2, 3, 5)
    np.testing.assert_array_equal(run(ops.ToFloat(), bits, BIT), bits)


@few
@given(st.permutations([1, 2, 3]), st.tuples(*[st.integers(1, 5)] * 3), seeds)
def test_transpose(axes: list[int], sizes: tuple[int, ...], seed: int) -> None:
    x = reals(np.random.default_rng(seed), 2, *sizes)
    np.testing.assert_array_equal(
        run(ops.Transpose((0, *axes)), x, FLOAT), by_onnx_runtime("Transpose", x, perm=(0, *axes))
    )


@few
@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from([FLOAT, INT, BIT]), seeds)
def test_reshape(sizes: tuple[int, ...], domain: Domain, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = signs(rng, 2, *sizes) if domain is BIT else reals(rng, 2, *sizes)
    a, b, c = sizes
    for shape in ((a * b * c,), (c, a * b), (c, b, a)):
        wanted = by_onnx_runtime("Reshape", x, np.array([2, *shape], np.int64))
        given_x = x.view(np.int32) if domain is INT else x
        found = run(ops.Reshape(shape), given_x, domain)
        np.testing.assert_array_equal(found, wanted.view(np.int32) if domain is INT else wanted)


# Images


@few
@given(st.integers(1, 5), st.integers(1, 5), seeds)
def test_grayscale(height: int, width: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3)).astype(np.uint8)
    found = run(ops.Grayscale(), x, PIXEL)
    for n, row, column in np.ndindex(2, height, width):
        red, green, blue = (int(value) for value in x[n, row, column])
        assert found[n, row, column, 0] == (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


@few
@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([2, 256]), seeds)
def test_local_binary_pattern(height: int, width: int, levels: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, levels, (2, height, width, 1)).astype(np.uint8)
    found = run(ops.LocalBinaryPattern(), x, PIXEL)
    clockwise = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    for n, row, column in np.ndindex(2, height, width):
        for channel, (down, right) in enumerate(clockwise[::3]):
            inside = 0 <= row + down < height and 0 <= column + right < width
            greater = inside and x[n, row + down, column + right, 0] > x[n, row, column, 0]
            assert found[n, row, column, channel] == (1 if greater else -1)


# Whole graphs


def two_steps() -> Graph:
    return Graph(
        {"x": TensorType((None, 3), FLOAT)},
        (
            Node("sign", ops.Sign(), ("x",), ("bits",)),
            Node("dense", ops.BinaryDense(), ("bits", "w"), ("sums",)),
            Node("float", ops.ToFloat(), ("sums",), ("y",)),
        ),
        ("y", "bits"),
        {"w": Constant.bits([[True, False, True], [False, False, True]])},
    )


def test_a_graph_gives_its_outputs_or_everything() -> None:
    x = np.array([[2, -1, 0], [-3, -3, -3]], np.float32)
    found = reference.run(two_steps(), {"x": x})
    assert list(found) == ["y", "bits"]
    np.testing.assert_array_equal(found["bits"], [[1, -1, 1], [-1, -1, -1]])
    np.testing.assert_array_equal(found["y"], [[3, 1], [-1, 1]])
    everything = reference.run(two_steps(), {"x": x}, everything=True)
    assert set(everything) == {"x", "w", "bits", "sums", "y"}
    np.testing.assert_array_equal(everything["sums"], [[3, 1], [-1, 1]])
    np.testing.assert_array_equal(everything["w"], [[1, -1, 1], [-1, -1, 1]])
    assert reference.run(two_steps(), {"x": x[:0]})["y"].shape == (0, 2)


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(InputError, match="input x is missing"):
        reference.run(two_steps(), {"z": np.zeros((1, 3), np.float32)})


def test_every_operator_is_defined() -> None:
    assert set(reference._FUNCTIONS) == set(OPS.values())
