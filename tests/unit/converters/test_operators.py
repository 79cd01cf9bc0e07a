"""Each ONNX operator on real numbers, against ONNX Runtime, and what is refused of it.

Values are small integers, so that sums are exact in any order.
"""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import reference
from bnnrt.errors import ConversionError
from bnnrt.ops import AveragePool

from .models import Net, check, converted, expected, kinds, norm, signs

RNG = np.random.default_rng(2)


def integers(*shape):
    return RNG.integers(-4, 5, shape).astype(np.float32)


@st.composite
def windows(draw):
    return {
        "kernel_shape": [draw(st.integers(1, 3)), draw(st.integers(1, 3))],
        "strides": [draw(st.integers(1, 4)), draw(st.integers(1, 4))],
        "dilations": [draw(st.integers(1, 2)), draw(st.integers(1, 2))],
    }


def is_ambiguous(window, padding, size):
    """Whether ONNX Runtime and ONNX disagree about the padding."""
    steps = zip(size, window["strides"], window["kernel_shape"], strict=True)
    cropped = any((-(-rows // stride) - 1) * stride + kernel < rows for rows, stride, kernel in steps)
    return padding.startswith("SAME") and (window["dilations"] != [1, 1] or cropped)


@given(windows(), st.sampled_from(["pads", "SAME_UPPER", "SAME_LOWER", "VALID"]), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_conv(window, padding, seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    weights = integers(groups * 2, rng.integers(1, 4), *window["kernel_shape"])
    net = Net(groups * weights.shape[1], *rng.integers(5, 9, 2))
    how = {"pads": [int(p) for p in rng.integers(0, 3, 4)]} if padding == "pads" else {"auto_pad": padding}
    bias = integers(len(weights)) if seed % 2 else None
    model = net.model(net.conv("x", weights, bias, group=groups, **window, **how))
    shape = [d.dim_value for d in net.inputs[0].type.tensor_type.shape.dim[1:]]
    if is_ambiguous(window, padding, shape[1:]):
        with pytest.raises(ConversionError, match="ambiguous"):
            converted(model)
        return
    check(model, integers(2, *shape))


@given(windows(), st.sampled_from(["pads", "SAME_UPPER", "SAME_LOWER", "VALID"]), st.integers(0, 1), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_max_pool(window, padding, ceil_mode, seed):
    rng = np.random.default_rng(seed)
    net = Net(3, 7, 8)
    if padding == "pads":
        kernel = window["kernel_shape"]
        how = {"pads": [int(rng.integers(0, kernel[i % 2])) for i in range(4)], "ceil_mode": ceil_mode}
    else:
        how = {"auto_pad": padding}
    model = net.model(net.op("MaxPool", "x", **window, **how))
    if is_ambiguous(window, padding, (7, 8)):
        with pytest.raises(ConversionError, match="ambiguous"):
            converted(model)
        return
    # ONNX Runtime gives the lowest number where a window sees nothing but padding.
    x = integers(2, 3, 7, 8)
    if expected(model, x)[0].min() < -4:
        with pytest.raises(ConversionError, match="outside the image"):
            converted(model)
    else:
        check(model, x)


def near(model, *arrays, atol=1e-7):
    """Convert, and compare with ONNX Runtime up to rounding."""
    bundle, _ = converted(model)
    found = reference.run(bundle.model, dict(zip(bundle.model.inputs, arrays, strict=True)))
    for got, want in zip(found.values(), expected(model, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=atol)
    return bundle


@given(
    windows(),
    st.sampled_from(["pads", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_average_pool(window, padding, ceil_mode, count_include_pad, seed):
    rng = np.random.default_rng(seed)
    net = Net(3, 7, 8, opset=19)
    how = {"count_include_pad": count_include_pad}
    if padding == "pads":
        kernel = window["kernel_shape"]
        how |= {"pads": [int(rng.integers(0, kernel[i % 2])) for i in range(4)], "ceil_mode": ceil_mode}
    else:
        how |= {"auto_pad": padding}
    model = net.model(net.op("AveragePool", "x", **window, **how))
    if is_ambiguous(window, padding, (7, 8)):
        with pytest.raises(ConversionError, match="ambiguous"):
            converted(model)
        return
    x = rng.normal(size=(2, 3, 7, 8)).astype(np.float32)
    pools = Net(3, 7, 8, opset=19)
    del how["count_include_pad"]
    greatest = expected(pools.model(pools.op("MaxPool", "x", **window, **how)), x)[0]
    # ONNX Runtime gives the lowest number where a window sees nothing but padding.
    if greatest.min() < -100:
        with pytest.raises(ConversionError, match="outside the image"):
            converted(model)
    else:
        near(model, x)


def test_what_ceil_mode_adds_is_not_counted():
    net = Net(1, 5, 5)
    how = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1, "count_include_pad": 1}
    x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    bundle = check(net.model(net.op("AveragePool", "x", **how)), x)
    (pool,) = [node.op for node in bundle.model.nodes if isinstance(node.op, AveragePool)]
    assert pool.counted_pads == (1, 1, 0, 0)
    assert pool.window.pads == (1, 1, 1, 1)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(kind):
    net = Net(3, 5, 4)
    near(net.model(net.op("Flatten", net.op(kind, "x"))), RNG.normal(size=(2, 3, 5, 4)).astype(np.float32))


@pytest.mark.parametrize("axes", [[2, 3], [-1, -2], [1, 2], [1], [2], [-1], [1, 2, 3], [1, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("in_layout", [False, True])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"])
def test_reduce(kind, axes, keepdims, opset, in_layout):
    net = Net(3, 5, 4, opset=opset)
    x = net.op("Mul", net.conv("x", integers(6, 3, 1, 1)), net.constant(0.5)) if in_layout else "x"
    if opset < (13 if kind == "ReduceSum" else 18):
        y = net.op(kind, x, axes=axes, keepdims=keepdims)
    else:
        y = net.op(kind, x, net.constant(axes, np.int64), keepdims=keepdims)
    near(net.model(y), integers(2, 3, 5, 4))


def test_a_sum_of_bits_is_exact_and_no_layer_of_the_report():
    net = Net(8, 6, 5)
    y = net.sign(net.batch_norm(net.conv(net.sign("x"), signs(RNG, 7, 8, 3, 3)), *norm(RNG, 7)))
    summed = net.op("ReduceSum", y, net.constant([2, 3], np.int64), keepdims=0)
    model = net.model(summed, net.op("Div", summed, net.constant(12.0)))
    graph = check(model, integers(4, 8, 6, 5)).model
    assert kinds(graph).count("BinaryConv") == 2
    assert [row.operator for row in converted(model)[1].layers] == ["Conv"]
    result = check(net.model(net.op("ReduceSum", "x", net.constant([1], np.int64))), integers(2, 8, 6, 5))
    assert "Conv" not in kinds(result.model)  # the input is real, the weights are bits


def test_a_reduction_of_axes_of_one_element_computes_nothing():
    net = Net(5, 4)
    above = net.op("Greater", net.op("Unsqueeze", "x", net.constant([-1], np.int64)), net.constant([0.0]))
    summed = net.op("ReduceSum", net.op("Cast", above, to=1), net.constant([-1], np.int64), keepdims=0)
    y = net.op("Sub", net.op("Mul", summed, net.constant(2.0)), net.constant(1.0))
    graph = check(net.model(net.matmul(y, signs(RNG, 4, 3))), integers(2, 5, 4)).model
    assert "Conv" not in kinds(graph)
    assert "BinaryWeightConv" not in kinds(graph)


def test_a_mean_over_sizes_that_the_model_computes():
    """``x.view(n, c, -1).sum(2) / (x.shape[2] * x.shape[3])``."""
    net = Net(3, 5, 4)
    y = net.op("Relu", net.conv("x", integers(6, 3, 2, 2)))
    sizes = [net.op("Gather", net.op("Shape", y), net.constant(axis, np.int64)) for axis in range(4)]
    rows = [net.op("Unsqueeze", size, net.constant([0], np.int64)) for size in sizes[:2]]
    flat = net.op("Reshape", y, net.op("Concat", *rows, net.constant([-1], np.int64), axis=0))
    total = net.op("ReduceSum", flat, net.constant([2], np.int64), keepdims=0)
    area = net.op("Cast", net.op("Mul", sizes[2], sizes[3]), to=1)
    near(net.model(net.op("Div", total, area)), integers(2, 3, 5, 4))


def test_reduce_mean_of_features_and_of_nothing():
    net = Net(30)
    near(net.model(net.op("ReduceMean", "x", axes=[1])), integers(3, 30))
    net = Net(3, opset=18)
    check(net.model(net.op("ReduceMean", "x", noop_with_empty_axes=1)), integers(2, 3))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.sampled_from(["pads", "SAME_UPPER", "SAME_LOWER"]))
@settings(max_examples=40, deadline=None)
def test_one_dimension(kernel, stride, dilation, padding):
    if padding != "pads" and (dilation > 1 or kernel < stride):
        return
    window = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation]}
    how = {"pads": [kernel // 2, (kernel - 1) // 2]} if padding == "pads" else {"auto_pad": padding}
    x = integers(2, 4, 11)
    net = Net(4, 11)
    y = net.conv("x", integers(6, 2, kernel), integers(6), group=2, **window, **how)
    check(net.model(net.batch_norm(y, *np.ones((4, 6)))), x)
    net = Net(4, 11, opset=19)
    pooled = net.op("MaxPool", "x", **window, **how)
    check(net.model(pooled, net.op("Flatten", net.op("GlobalMaxPool", pooled))), x)
    net = Net(4, 11, opset=19)
    y = net.op("AveragePool", net.op("Relu", "x"), **window, **how, count_include_pad=1)
    near(net.model(y, net.op("GlobalAveragePool", y)), x)


def test_binary_layers_of_one_dimension():
    net = Net(40, 12)
    y = net.conv(net.sign("x"), signs(RNG, 6, 40, 3), pads=[1, 1])
    y = net.sign(net.batch_norm(net.op("MaxPool", y, kernel_shape=[2], strides=[2]), *norm(RNG, 6)))
    bundle = check(net.model(net.matmul(net.op("Flatten", y), signs(RNG, 36, 5))), integers(3, 40, 12))
    assert [kind for kind in kinds(bundle.model) if kind.startswith("Binary")] == ["BinaryConv", "BinaryDense"]


def test_global_pools_of_any_number_of_axes():
    for shape in ((3, 7), (3, 4, 2, 5)):
        net = Net(*shape)
        near(net.model(net.op("GlobalAveragePool", "x"), net.op("GlobalMaxPool", "x")), integers(2, *shape))


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 4), (4, 4, 4)])
@pytest.mark.parametrize("weights", [(4, 5), (1, 4, 5)])
def test_matmul_of_rows(shape, weights):
    net = Net(*shape)
    x = net.conv("x", integers(shape[0], shape[0], 1, 1)) if len(shape) == 3 else "x"
    check(net.model(net.op("Add", net.matmul(x, integers(*weights)), net.constant(integers(5)))), integers(2, *shape))


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 5), (4, 4, 4)])
@pytest.mark.parametrize("weights", [(5, 4), (1, 5, 4)])
def test_matmul_with_the_matrix_first(shape, weights):
    net = Net(*shape)
    check(net.model(net.op("MatMul", net.constant(integers(*weights)), "x")), integers(2, *shape))


def test_a_matrix_times_the_windows_of_bits():
    """As ``F.unfold`` is exported: rows and columns are gathered, [N, channels, 3, 4, 3, 3]."""
    net = Net(5, 6, 5)
    rows, columns = (np.arange(3)[:, None] + np.arange(size - 2) for size in (6, 5))
    y = net.op("Gather", net.sign("x"), net.constant(rows, np.int64), axis=2)
    y = net.op("Transpose", net.op("Gather", y, net.constant(columns, np.int64), axis=4), perm=[0, 1, 2, 4, 3, 5])
    y = net.op("Reshape", y, net.constant([-1, 45, 12], np.int64))
    y = net.op("MatMul", net.constant(signs(RNG, 8, 45)), y)
    bundle = check(net.model(net.op("Reshape", y, net.constant([-1, 8, 4, 3], np.int64))), integers(2, 5, 6, 5))
    assert "BinaryConv" in kinds(bundle.model)


@pytest.mark.parametrize(("shape", "weights"), [((4,), (5, 4)), ((4, 3), (5, 3)), ((2, 4, 3), (2, 5, 4))])
def test_other_products_with_the_matrix_first_are_refused(shape, weights):
    net = Net(*shape)
    with pytest.raises(ConversionError, match="MatMul"):
        converted(net.model(net.op("MatMul", net.constant(integers(*weights)), "x")))


def test_matmul_of_rows_of_bits():
    net = Net(3, 40)
    bundle = check(net.model(net.matmul(net.sign("x"), signs(RNG, 40, 5))), integers(2, 3, 40))
    assert "BinaryConv" in kinds(bundle.model)


def test_gemm_with_a_computed_bias():
    net = Net(4)
    y = net.op("Gemm", "x", net.constant(integers(4, 4)), "x", alpha=2.0, beta=0.5)
    check(net.model(y), integers(2, 4))


ODD = np.array([np.nan, -0.0, 0.0, -1, 2, np.inf, -np.inf, 0.5, -1e-45, 3.4e38], np.float32).reshape(2, 5)
ACTIVATIONS = {
    "Neg": lambda n: n.op("Neg", "x"),
    "Relu": lambda n: n.op("Relu", "x"),
    "LeakyRelu": lambda n: n.op("LeakyRelu", "x"),
    "LeakyRelu that rises": lambda n: n.op("LeakyRelu", "x", alpha=-0.3),
    "PRelu with one slope": lambda n: n.op("PRelu", "x", n.constant([0.1])),
    "PRelu with slopes": lambda n: n.op("PRelu", "x", n.constant([0.1, -2, 0, 1, 3])),
    "Clip": lambda n: n.op("Clip", "x", n.constant(-0.5), n.constant(1.5)),
    "Clip from below": lambda n: n.op("Clip", "x", n.constant(-1)),
    "Clip from above": lambda n: n.op("Clip", "x", "", n.constant(0.25)),
    "Clip to infinity": lambda n: n.op("Clip", "x", n.constant(0), n.constant(np.inf)),
    "Clip from infinity": lambda n: n.op("Clip", "x", n.constant(-np.inf), n.constant(1.0)),
    "Clip between infinities": lambda n: n.op("Clip", "x", n.constant(-np.inf), n.constant(np.inf)),
    "Abs": lambda n: n.op("Abs", "x"),
    "Reciprocal": lambda n: n.op("Reciprocal", "x"),
    "Pow 1": lambda n: n.op("Pow", "x", n.constant(1.0)),
    "Pow 1 of each": lambda n: n.op("Pow", "x", n.constant(np.ones(5))),
    "Pow 2": lambda n: n.op("Pow", "x", n.constant(2.0)),
    "Pow 2 in a vector": lambda n: n.op("Pow", "x", n.constant([2.0])),
    "Pow 3": lambda n: n.op("Pow", "x", n.constant(3, np.int64)),
    "Max of one number": lambda n: n.op("Max", n.constant(0.0), "x"),
    "Min of one number": lambda n: n.op("Min", "x", n.constant(-0.0)),
    "Max with NaN": lambda n: n.op("Max", "x", n.constant([0, 1, np.nan, -0.0, 1])),
    "HardSigmoid": lambda n: n.op("HardSigmoid", "x", alpha=0.3, beta=0.6),
    "HardSwish": lambda n: n.op("HardSwish", "x"),
    "Clip the wrong way round": lambda n: n.op("Clip", "x", n.constant(1), n.constant(-1)),
}


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations(case):
    net = Net(5)
    check(net.model(ACTIVATIONS[case](net)), ODD)
    net = Net(5)
    every = RNG.integers(0, 1 << 32, (2000, 5), dtype=np.uint32).view(np.float32)
    check(net.model(ACTIVATIONS[case](net)), every)


@pytest.mark.parametrize("case", ["Abs", "Relu", "Pow 3"])
def test_activations_keep_the_sign_of_zero(case):
    net = Net(5)
    model = net.model(ACTIVATIONS[case](net))
    x = np.array([[0.0, -0.0, 1.0, -1.0, -0.0]], dtype=np.float32)
    bundle, _ = converted(model)
    (found,), (wanted,) = reference.run(bundle.model, {"x": x}).values(), expected(model, x)
    assert np.signbit(found).tolist() == np.signbit(wanted).tolist()


def test_clip_of_an_old_operator_set():
    net = Net(5, opset=10)
    check(net.model(net.op("Clip", "x", min=-0.5, max=1.5)), ODD)


def test_clip_to_one_number_that_is_nan_is_refused():
    net = Net(5)
    with pytest.raises(ConversionError, match="a bound is nan"):
        converted(net.model(net.op("Clip", "x", net.constant(np.nan))))


@pytest.mark.parametrize("shape", [(3, 1, 1), (1,), (1, 1, 4), (3, 5, 4)])
def test_prelu_of_images(shape):
    net = Net(3, 5, 4)
    x = net.conv("x", integers(3, 3, 1, 1))
    check(net.model(net.op("PRelu", x, net.constant(RNG.normal(size=shape)))), integers(2, 3, 5, 4))


@pytest.mark.parametrize("kind", ["Sigmoid", "HardSigmoid", "HardSwish"])
def test_smooth_activations(kind):
    net = Net(200)
    # ONNX Runtime's own exp is an approximation, and 0 from -18 on.
    near(net.model(net.op(kind, "x")), np.linspace(-90, 90, 400, dtype=np.float32).reshape(2, 200), atol=3e-7)


@pytest.mark.parametrize("axis", [1, -1, 2, 3])
@pytest.mark.parametrize("shape", [(9,), (4, 6), (3, 5, 4)])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax(kind, shape, axis):
    if axis > len(shape):
        return
    net = Net(*shape)
    # A logarithm near 0 is a difference of numbers up to 16, each rounded.
    atol = 1e-7 if kind == "Softmax" else 2e-6
    near(net.model(net.op(kind, "x", axis=axis)), RNG.normal(size=(2, *shape)).astype(np.float32) * 4, atol=atol)


@pytest.mark.parametrize("opset", [7, 12, 13])
def test_softmax_of_any_operator_set(opset):
    net = Net(9, opset=opset)
    near(net.model(net.op("Softmax", "x")), RNG.normal(size=(2, 9)).astype(np.float32) * 4)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_of_an_old_operator_set_is_over_all_axes_from_one_on(axis):
    net = Net(3, 4, 5, opset=11)
    x = net.conv("x", integers(3, 3, 1, 1))
    near(net.model(net.op("Softmax", x, axis=axis)), RNG.normal(size=(2, 3, 4, 5)).astype(np.float32))


def test_max_pool_of_an_old_operator_set():
    net = Net(3, 6, 6, opset=8)
    check(net.model(net.op("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])), integers(1, 3, 6, 6))


@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 0.5}, {"beta": 0.25}, {"alpha": 2.0, "beta": 0.0}])
def test_gemm(attributes):
    net = Net(6)
    weights = integers(6, 5).T if attributes.get("transB") else integers(6, 5)
    bias = net.constant(integers(5))
    check(net.model(net.op("Gemm", "x", net.constant(weights), bias, **attributes)), integers(3, 6))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 4), (4, 3, 5)])
def test_batch_normalization_rounds_as_onnx_runtime_does(shape):
    channels = shape[0]
    net = Net(*shape)
    parameters = [RNG.normal(size=channels) for _ in range(3)]
    y = net.batch_norm("x", *parameters, RNG.uniform(0.01, 50, channels), epsilon=1e-3)
    check(net.model(y), RNG.normal(size=(40, *shape)).astype(np.float32))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("constant", [(), (1,), (4,), (1, 4), (3, 1, 1), (1, 3, 1, 1), (1, 1, 5, 1), (3, 5, 4)])
@pytest.mark.parametrize("first", [False, True])
def test_arithmetic_with_a_constant(kind, constant, first):
    net = Net(3, 5, 4)
    c = net.constant(RNG.uniform(1, 2, constant))
    check(net.model(net.op(kind, *((c, "x") if first else ("x", c)))), RNG.uniform(1, 2, (2, 3, 5, 4)).astype("f"))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_of_two_tensors_in_two_layouts(kind):
    net = Net(4, 5, 5)
    a = net.conv("x", integers(4, 4, 1, 1))
    b = net.op("Transpose", net.op("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 2, 1])
    model = net.model(net.op(kind, a, b), net.op(kind, b, a))
    check(model, integers(2, 4, 5, 5) + 10)


def test_constants_for_a_fixed_batch():
    net = Net(4, batch=2)
    check(net.model(net.op("Add", "x", net.constant(np.broadcast_to(integers(4), (2, 4))))), integers(2, 4))
    net = Net(4, batch=2)
    with pytest.raises(ConversionError, match="from one image of the batch to the next"):
        converted(net.model(net.op("Add", "x", net.constant([[1, 2, 3, 4], [1, 2, 3, 5]]))))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize(
    "of", [("x", "channels"), ("channels", "x"), ("x", "pixels"), ("channels", "pixels"), ("x", "all")]
)
def test_arithmetic_of_tensors_that_repeat(kind, of):
    net = Net(4, 5, 3)
    x = net.conv("x", integers(4, 4, 1, 1))
    values = {
        "x": x,
        "channels": net.op("GlobalMaxPool", x),
        "pixels": net.op("ReduceMax", x, axes=[1]),
        "all": net.op("ReduceMax", "x", axes=[1, 2, 3]),
    }
    check(net.model(net.op(kind, *(values[name] for name in of))), integers(2, 4, 5, 3) + 50)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_operators_of_many_tensors(kind, count):
    net = Net(4, 5, 3)
    x = net.conv("x", integers(4, 4, 1, 1))
    operands = [x, "x", net.constant(RNG.normal(size=(4, 1, 1))), net.op("GlobalMaxPool", "x"), net.constant(0.1)]
    check(net.model(net.op(kind, *operands[:count])), integers(2, 4, 5, 3))


def test_squeezed_and_excited():
    net = Net(4, 5, 3)
    x = net.conv("x", integers(4, 4, 1, 1))
    squeezed = net.op("Relu", net.conv(net.op("GlobalAveragePool", x), integers(2, 4, 1, 1)))
    gate = net.op("HardSigmoid", net.conv(squeezed, integers(4, 2, 1, 1)))
    bundle = near(net.model(net.op("Mul", x, gate)), integers(2, 4, 5, 3))
    # Nothing is moved but the input and the output.
    assert kinds(bundle.model).count("Transpose") == 2


@pytest.mark.parametrize("kind", ["Sub", "Max"])
@pytest.mark.parametrize("constant", [(4, 3), (3,), (1, 4, 3)])
def test_arithmetic_with_a_constant_that_enlarges(kind, constant):
    net = Net(4, 1)
    check(net.model(net.op(kind, "x", net.constant(integers(*constant)))), integers(2, 4, 1))
    net = Net(3, 5, 4)
    pooled = net.op("GlobalMaxPool", net.conv("x", integers(6, 3, 1, 1)))
    check(net.model(net.op(kind, net.constant(integers(2, 3)), pooled)), integers(2, 3, 5, 4))


def test_arithmetic_of_a_tensor_with_itself():
    net = Net(4)
    check(net.model(net.op("Mul", "x", "x")), integers(2, 4))


def test_constants_of_full_shape_that_differ_by_channel_only_become_vectors():
    net = Net(3, 4, 4)
    x = net.conv("x", integers(3, 3, 1, 1))
    model = net.model(net.op("Add", x, net.constant(np.broadcast_to([[[1]], [[-2]], [[3]]], (1, 3, 4, 4)))))
    bundle = check(model, integers(2, 3, 4, 4))
    add = next(n for n in bundle.model.nodes if type(n.op).__name__ == "Arithmetic")
    assert bundle.model.types[add.inputs[1]].shape == (3,)


PADS = {
    "rows and columns": [0, 0, 1, 2, 0, 0, 3, 0],
    "nothing": [0] * 8,
    "channels last": [0, 1, 2, 0, 0, 0, 1, 0],
}


@pytest.mark.parametrize("pads", PADS.values(), ids=PADS)
@pytest.mark.parametrize("opset", [9, 17])
def test_pad(pads, opset):
    net = Net(3, 4, 5, opset=opset)
    if opset < 11:
        y = net.op("Pad", "x", pads=pads, value=-1.0)
    else:
        y = net.op("Pad", "x", net.constant(pads, np.int64), net.constant(-1.0))
    check(net.model(y), integers(2, 3, 4, 5))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [[0, 2, 0, 1, 0, 1, 0, 0], [0, 1, 1, 1, 0, 1, 2, 3], [0, 0, -1, 2, 0, -1, 0, -2]])
@pytest.mark.parametrize("in_layout", [False, True])
def test_pad_of_any_axis_in_any_mode(mode, pads, in_layout):
    net = Net(3, 4, 5, opset=19)
    x = net.conv("x", integers(3, 3, 1, 1)) if in_layout else "x"
    check(net.model(net.op("Pad", x, net.constant(pads, np.int64), mode=mode)), integers(2, 3, 4, 5))


def test_pad_of_features_and_rows():
    net = Net(4)
    check(net.model(net.op("Pad", "x", net.constant([0, 1, 0, 2], np.int64), net.constant(7.0))), integers(2, 4))
    net = Net(4, 9)
    y = net.op("Pad", "x", net.constant([0, 0, 1, 0, 0, 2], np.int64))
    check(net.model(net.conv(y, integers(3, 4, 3))), integers(2, 4, 9))


def test_pad_of_named_axes():
    net = Net(3, 4, 5, opset=18)
    y = net.op("Pad", "x", net.constant([1, 2, 0, 1], np.int64), "", net.constant([-2, 3], np.int64))
    check(net.model(y), integers(2, 3, 4, 5))


def test_shapes_move_no_data_before_a_dense_layer():
    net = Net(3, 4, 5)
    x = net.conv("x", integers(6, 3, 1, 1))
    x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    x = net.op("Unsqueeze", x, net.constant([2], np.int64))
    x = net.op("Squeeze", x, net.constant([2], np.int64))
    x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    x = net.op("Flatten", net.op("Identity", net.op("Dropout", x)))
    bundle = check(net.model(net.matmul(x, integers(120, 7))), integers(2, 3, 4, 5))
    assert kinds(bundle.model) == ["Transpose", "Conv", "Reshape", "Dense"]


@pytest.mark.parametrize("opset", [11, 17])
def test_squeeze_and_unsqueeze_of_both_kinds(opset):
    net = Net(3, 1, 4, opset=opset)
    axes = {"axes": [2]} if opset < 13 else None
    extra = () if axes else (net.constant([2], np.int64),)
    y = net.op("Squeeze", "x", *extra, **(axes or {}))
    z = net.op("Unsqueeze", y, *extra, **(axes or {}))
    check(net.model(y, z), integers(2, 3, 1, 4))


@pytest.mark.parametrize("target", [[0, -1], [-1, 60], [-1, 12, 5], [0, 0, 20], [0, 4, 3, 5], [-1, 3, 4, 5, 1]])
def test_reshape(target):
    net = Net(3, 4, 5)
    check(net.model(net.op("Reshape", "x", net.constant(target, np.int64))), integers(2, 3, 4, 5))


@pytest.mark.parametrize("target", [[1, -1], [1, 60], [1, 4, 15]])
def test_reshape_of_a_fixed_batch(target):
    net = Net(3, 4, 5, batch=1)
    check(net.model(net.op("Reshape", "x", net.constant(target, np.int64))), integers(1, 3, 4, 5))


def computed_shape(net, x, rest):
    batch = net.op("Gather", net.op("Shape", x), net.constant(0, np.int64), axis=0)
    batch = net.op("Unsqueeze", batch, net.constant([0], np.int64))
    return net.op("Concat", batch, net.constant(rest, np.int64), axis=0)


@pytest.mark.parametrize("rest", [[-1], [60], [5, 12]])
def test_reshape_to_a_computed_shape(rest):
    net = Net(3, 4, 5)
    x = net.op("Add", "x", net.constant(1.0))
    check(net.model(net.op("Reshape", x, computed_shape(net, x, rest))), integers(2, 3, 4, 5))


def test_reshape_to_a_slice_of_a_shape():
    net = Net(3, 4, 5)
    one, two = (net.constant([i], np.int64) for i in (0, 2))
    sizes = net.op("Slice", net.op("Shape", "x"), one, two)
    shape = net.op("Concat", sizes, net.constant([-1], np.int64), axis=0)
    check(net.model(net.op("Reshape", "x", shape)), integers(2, 3, 4, 5))


def test_outputs_that_share_a_tensor_or_are_the_input():
    net = Net(4)
    y = net.op("Add", "x", net.constant(1.0))
    model = net.model(y, net.op("Identity", y), net.op("Identity", "x"), net.op("Mul", y, net.constant(2.0)))
    check(model, integers(2, 4))


def test_an_output_that_is_also_read():
    net = Net(3, 4, 4)
    y = net.conv("x", integers(5, 3, 1, 1))
    check(net.model(y, net.conv(y, integers(2, 5, 3, 3))), integers(2, 3, 4, 4))


def test_input_of_8_bits():
    net = Net(3, 4, 4, dtype=onnx.TensorProto.UINT8)
    y = net.conv(net.op("Cast", "x", to=onnx.TensorProto.FLOAT), integers(5, 3, 1, 1))
    check(net.model(y), RNG.integers(0, 256, (2, 3, 4, 4)).astype(np.uint8))


@pytest.mark.parametrize("operator", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_of_pixels_and_channels(operator, mode):
    net = Net(8, 4, 6)
    how = {"mode": mode} if operator == "DepthToSpace" else {}
    x = net.conv("x", integers(8, 8, 1, 1))
    check(net.model(net.op(operator, x, blocksize=2, **how)), integers(2, 8, 4, 6))


def test_shuffled_channels():
    net = Net(6, 4, 5)
    x = net.op("Reshape", net.conv("x", integers(6, 6, 1, 1)), net.constant([0, 2, 3, 4, 5], np.int64))
    x = net.op("Reshape", net.op("Transpose", x, perm=[0, 2, 1, 3, 4]), net.constant([0, 6, 4, 5], np.int64))
    check(net.model(net.conv(x, integers(2, 6, 3, 3))), integers(2, 6, 4, 5))


def test_flatten_behind_axes_of_one_element():
    net = Net(1, 6, 2)
    check(net.model(net.op("Flatten", "x", axis=2)), integers(2, 1, 6, 2))


def test_names_that_repeat():
    net = Net(4)
    model = net.model(net.op("Add", net.op("Mul", "x", net.constant(2.0)), net.constant(1.0)))
    for node in model.graph.node:
        node.name = "same"
    bundle, _ = converted(model)
    assert len({node.name for node in bundle.model.nodes}) == 2


def body():
    """The body of a loop that gives its condition and its value back."""
    types = {"i": onnx.TensorProto.INT64, "c": onnx.TensorProto.BOOL, "v": onnx.TensorProto.FLOAT}
    inputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    outputs = [onnx.helper.make_tensor_value_info(f"{name}2", types[name], None) for name in "cv"]
    nodes = [onnx.helper.make_node("Identity", [name], [f"{name}2"]) for name in "cv"]
    return onnx.helper.make_graph(nodes, "body", inputs, outputs)


def weights_computed(net):
    return net.op("MatMul", "x", "x")


REFUSED = {
    "unknown operator": ((4,), lambda n: n.op("Erf", "x"), "Erf"),
    "unknown domain": ((4,), lambda n: n.op("Thing", "x", domain="some.where"), "some.where.Thing"),
    "computed weights": ((4, 4), weights_computed, "MatMul"),
    "constant first": ((4,), lambda n: n.op("MatMul", n.constant(integers(4, 4)), "x"), "MatMul"),
    "flatten of the batch": ((3, 4), lambda n: n.op("Flatten", "x", axis=0), "Flatten"),
    "flatten of fewer axes": ((3, 4), lambda n: n.op("Flatten", "x", axis=2), "Flatten"),
    "transpose of the batch": ((3, 4), lambda n: n.op("Transpose", "x", perm=[1, 0, 2]), "Transpose"),
    "default transpose": ((3,), lambda n: n.op("Transpose", "x"), "Transpose"),
    "reshape of the batch": ((3, 4), lambda n: n.op("Reshape", "x", n.constant([-1, 4], np.int64)), "Reshape"),
    "reshape to batch 1": ((3, 4), lambda n: n.op("Reshape", "x", n.constant([1, -1], np.int64)), "Reshape"),
    "reshape to nothing": (
        (3, 4),
        lambda n: n.op("Reshape", "x", n.constant([0, 12], np.int64), allowzero=1),
        "Reshape",
    ),
    "squeeze of everything": ((3, 1), lambda n: n.op("Squeeze", "x"), "Squeeze"),
    "squeeze of the batch": ((3, 1), lambda n: n.op("Squeeze", "x", n.constant([0], np.int64)), "Squeeze"),
    "unsqueeze of the batch": ((3,), lambda n: n.op("Unsqueeze", "x", n.constant([0], np.int64)), "Unsqueeze"),
    "constant that does not fit": ((2, 4), lambda n: n.op("Add", "x", n.constant(integers(3, 4))), "Add"),
    "constant with more axes": ((4,), lambda n: n.op("Add", "x", n.constant(integers(3, 1, 4))), "Add"),
    "number with more axes": ((4,), lambda n: n.op("Add", "x", n.constant(np.ones((1, 1, 1)))), "Add"),
    "vector with more axes": ((4,), lambda n: n.op("Add", "x", n.constant(integers(1, 1, 4))), "Add"),
    "equal constants a batch": ((4,), lambda n: n.op("Add", "x", n.constant(np.ones((2, 4)))), "Add"),
    "empty constant": ((1,), lambda n: n.op("Add", "x", n.constant(np.ones((0,)))), "Add"),
    "a constant a batch": ((4,), lambda n: n.op("Add", "x", n.constant(integers(2, 4))), "Add"),
    "cast to double": ((4,), lambda n: n.op("Cast", "x", to=onnx.TensorProto.DOUBLE), "Cast"),
    "training": ((3, 4, 4), lambda n: n.op("Dropout", "x", n.constant(0.5), n.constant(True, np.bool_)), "Dropout"),
    "pool in padding": ((1, 2, 2), lambda n: n.op("MaxPool", "x", kernel_shape=[2, 2], pads=[2] * 4), "MaxPool"),
    "clip to a vector": ((4,), lambda n: n.op("Clip", "x", n.constant(integers(4))), "Clip"),
    "clip to a computed bound": ((4,), lambda n: n.op("Clip", "x", "x"), "Clip"),
    "slopes that enlarge": ((1, 4), lambda n: n.op("PRelu", "x", n.constant(integers(3, 4))), "PRelu"),
    "computed slopes": ((4,), lambda n: n.op("PRelu", "x", "x"), "PRelu"),
    "softmax of the batch": ((4,), lambda n: n.op("Softmax", "x", axis=0), "Softmax"),
    "broadcast over the batch": (
        (4, 4),
        lambda n: n.op("Mul", "x", n.op("ReduceMean", "x", axes=[1], keepdims=0)),
        "Mul",
    ),
    "sizes that do not fit": ((4, 6), lambda n: n.op("Mul", "x", n.op("MaxPool", "x", kernel_shape=[3])), "Mul"),
    "square root as a power": ((4,), lambda n: n.op("Pow", "x", n.constant(0.5)), "Pow"),
    "powers": ((2,), lambda n: n.op("Pow", "x", n.constant([2, 2])), "Pow"),
    "power of a number": ((2,), lambda n: n.op("Pow", n.constant(2.0), "x"), "Pow"),
    "power that enlarges": ((2,), lambda n: n.op("Pow", "x", n.constant(np.ones((1, 1, 1)))), "Pow"),
    "everything cropped": ((3, 4, 4), lambda n: n.op("Pad", "x", n.constant([0, 0, -4, 0] + [0] * 4, np.int64)), "Pad"),
    "padded batch": ((3,), lambda n: n.op("Pad", "x", n.constant([1, 0, 0, 0], np.int64)), "Pad"),
    "reflection too far": ((3,), lambda n: n.op("Pad", "x", n.constant([0, 3, 0, 0], np.int64), mode="reflect"), "Pad"),
    "loop": ((3,), lambda n: n.op("Loop", n.constant(3, np.int64), "", "x", body=body()), "Loop"),
    "sequence": ((3,), lambda n: n.op("SplitToSequence", "x", axis=1), "SplitToSequence"),
    "8 bits": ((3,), lambda n: n.op("QuantizeLinear", "x", n.constant(0.1), n.constant(0, np.int8)), "QuantizeLinear"),
    "float16": ((3,), lambda n: n.op("Cast", "x", to=onnx.TensorProto.FLOAT16), "Cast"),
    "cast to integers": ((3,), lambda n: n.op("Cast", "x", to=onnx.TensorProto.INT64), "Cast"),
    "comparison": ((3,), lambda n: n.op("Greater", "x", n.constant(0.0)), "Greater"),
    "convolution 3-D": ((2, 4, 4, 4), lambda n: n.conv("x", integers(2, 2, 2, 2, 2)), "Conv"),
    "transposed convolution": (
        (2, 4, 4),
        lambda n: n.op("ConvTranspose", "x", n.constant(integers(2, 2, 2, 2))),
        "ConvTranspose",
    ),
    "indices of maxima": (
        (2, 4, 4),
        lambda n: (n.op("MaxPool", "x", kernel_shape=[2, 2], outputs=2), n.nodes[-1].output[1])[1],
        "MaxPool",
    ),
    "average of everything": ((3, 4, 4), lambda n: n.op("ReduceMean", "x"), "ReduceMean"),
    "average 3-D": ((1, 4, 4, 4), lambda n: n.op("AveragePool", "x", kernel_shape=[2, 2, 2]), "AveragePool"),
    "pool 3-D": ((1, 4, 4, 4), lambda n: n.op("MaxPool", "x", kernel_shape=[2, 2, 2]), "MaxPool"),
    "window too large": ((3, 4, 4), lambda n: n.conv("x", integers(1, 3, 5, 5)), "Conv"),
    "groups": ((3, 4, 4), lambda n: n.conv("x", integers(2, 3, 1, 1), group=2), "Conv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_node_and_operator_in_one_line(case):
    shape, build, kind = REFUSED[case]
    net = Net(*shape)
    y = build(net)
    with pytest.raises(ConversionError) as caught:
        converted(net.model(y))
    text = str(caught.value)
    assert text.startswith(kind)
    assert f"node {net.nodes[-1].name}" in text
    assert "\n" not in text


INPUTS = {
    "double": Net(4, dtype=onnx.TensorProto.DOUBLE),
    "free size": Net("W"),
    "no batch": Net(batch=4),
    "8-bit arithmetic": Net(4, dtype=onnx.TensorProto.UINT8),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs_that_are_refused(case):
    net = INPUTS[case]
    with pytest.raises(ConversionError, match="input x"):
        converted(net.model(net.op("Add", "x", "x")))


def test_inputs_with_batches_of_their_own_are_refused():
    net = Net(4)
    net.inputs.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1, 4]))
    with pytest.raises(ConversionError, match="different batches: x N, z 1"):
        converted(net.model(net.op("Add", "x", "z")))


def test_several_inputs():
    net = Net(4)
    net.inputs.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["N", 4]))
    check(net.model(net.op("Sub", "x", "z")), integers(3, 4), integers(3, 4))


def test_old_operator_sets_are_refused():
    net = Net(4, opset=6)
    with pytest.raises(ConversionError, match="version 6 of the ONNX operators"):
        converted(net.model(net.op("Identity", "x")))


def test_constant_outputs_are_refused():
    net = Net(4)
    y = net.op("Add", net.constant(1.0), net.constant(2.0))
    with pytest.raises(ConversionError, match=f"output {y}"):
        converted(net.model(net.op("Add", "x", net.constant(1.0)), y))


@pytest.mark.parametrize("axis", [1, -3])
def test_concat_of_channels(axis):
    net = Net(3, 5, 4)
    a = net.conv("x", integers(2, 3, 1, 1))
    bundle = check(net.model(net.op("Concat", a, "x", net.op("Relu", a), axis=axis)), integers(2, 3, 5, 4))
    assert kinds(bundle.model).count("Concat") == 1


@pytest.mark.parametrize("axis", [3, -1])
def test_concat_with_channels_last(axis):
    net = Net(5, 4, 3)
    turned = net.op("Transpose", "x", perm=[0, 3, 1, 2])
    a = net.op("Transpose", net.conv(turned, integers(2, 3, 1, 1)), perm=[0, 2, 3, 1])
    joined = net.op("Concat", a, "x", axis=axis)
    y = net.conv(net.op("Transpose", joined, perm=[0, 3, 1, 2]), integers(4, 5, 3, 3))
    bundle = check(net.model(joined, y), integers(2, 5, 4, 3))
    assert kinds(bundle.model).count("Transpose") <= 1


def test_concat_of_operands_in_different_layouts():
    # A convolution's result is NHWC; a reshaped matrix is in ONNX's order.
    net = Net(3, 5, 4)
    a = net.conv("x", integers(2, 3, 1, 1))
    flat = net.op("Flatten", "x")
    b = net.op("Reshape", net.matmul(flat, integers(60, 40)), net.constant([-1, 2, 5, 4], np.int64))
    joined = net.op("Concat", a, b, axis=1)
    check(net.model(net.conv(joined, integers(3, 4, 3, 3)), net.op("Flatten", joined)), integers(2, 3, 5, 4))


def test_concat_of_features():
    # Flattened images, whose features lie in another order in their tensors.
    net = Net(3, 5, 4)
    a = net.op("Flatten", net.conv("x", integers(2, 3, 2, 2)))
    joined = net.op("Concat", a, net.op("Flatten", "x"), a, axis=1)
    check(net.model(joined, net.matmul(joined, integers(24 + 60 + 24, 7))), integers(2, 3, 5, 4))


def test_concat_over_the_last_axis_of_an_image():
    net = Net(3, 5, 4)
    a = net.conv("x", integers(3, 3, 1, 1))
    joined = net.op("Concat", a, "x", axis=3)
    check(net.model(joined, net.conv(joined, integers(2, 3, 3, 3))), integers(2, 3, 5, 4))


def test_concat_of_one():
    net = Net(3)
    assert kinds(check(net.model(net.op("Relu", net.op("Concat", "x", axis=1))), integers(2, 3)).model) == ["Relu"]


def test_concat_of_single_channels_and_pixels():
    net = Net(1, 1, 4)
    check(net.model(net.op("Concat", "x", net.op("Relu", "x"), axis=1)), integers(2, 1, 1, 4))


@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((3, 5, 4), 0, "over the batch"),
        ((3,), -2, "over the batch"),
    ],
)
def test_concat_over_the_batch(shape, axis, message):
    net = Net(*shape)
    with pytest.raises(ConversionError, match=f"Concat: {message}.*concat0"):
        converted(net.model(net.op("Concat", "x", "x", axis=axis)))


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 4), 2), ((3, 5), 1), ((3, 2, 2, 4), 2), ((2, 3, 2, 2), 1)])
def test_concat_over_any_axis(shape, axis):
    net = Net(*shape)
    check(net.model(net.op("Concat", "x", net.op("Neg", "x"), "x", axis=axis)), integers(2, *shape))


def test_concat_that_does_not_fit():
    net = Net(3, 5, 4)
    with pytest.raises(ConversionError, match=r"Concat: \[N, 3, 5, 4\] and \[N, 2, 4, 3\] differ"):
        converted(net.model(net.op("Concat", "x", net.conv("x", integers(2, 3, 2, 2)), axis=1)))
    net = Net(3, batch=2)
    with pytest.raises(ConversionError, match="Concat: input 1 is a constant"):
        converted(net.model(net.op("Concat", "x", net.constant(integers(2, 3)), axis=1)))
