"""Models as people write and export them: what was found by converting networks that no fixture has."""

import itertools

import numpy as np
import onnx
import pytest

from bnnrt import reference
from bnnrt.converters.convert import Options
from bnnrt.converters.verify.bounds import bounds
from bnnrt.errors import ConversionError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Conv, Domain, TensorType, Window

from .models import Net, check, converted, expected, kinds, signs

FLOAT = onnx.TensorProto.FLOAT
INT64 = onnx.TensorProto.INT64
X = np.array([[-np.inf, -3, -1, -0.5, -1e-40, -0.0, 0.0, 1e-40, 0.25, 0.5, 3, np.inf]], dtype=np.float32)
SIZE = X.shape[1]
RNG = np.random.default_rng(7)


def pixels(count):
    return RNG.integers(0, 256, (count, 3, 5, 5)).astype(np.float32)


def cast(net, x, to=FLOAT):
    return net.op("Cast", x, to=to)


def compared(net, operator):
    return net.op(operator, "x", net.constant(0.0))


def two_comparisons(net):
    """(x > 0) - (x <= 0): NaN is neither."""
    return net.op("Sub", cast(net, compared(net, "Greater")), cast(net, compared(net, "LessOrEqual")))


def bytes_between(net):
    """2 * (x > 0).byte() - 1."""
    bit = cast(net, cast(net, compared(net, "Greater"), onnx.TensorProto.UINT8))
    return net.op("Sub", net.op("Mul", bit, net.constant(2.0)), net.constant(1.0))


def masked(net, x, mask, number, expanded=True):
    """x[mask] = number, as torch.export writes it."""
    flat = net.constant([-1], np.int64)
    count = net.op("ReduceSum", cast(net, net.op("Reshape", mask, flat), INT64))
    updates = net.op("Expand", net.constant(number), count) if expanded else net.constant(number)
    places = net.op("Transpose", net.op("NonZero", mask), perm=[1, 0])
    return net.op("ScatterND", x, places, net.op("Reshape", updates, flat))


def sign_with_its_zeros_replaced(net):
    s = net.op("Sign", "x")
    return masked(net, s, net.op("Equal", s, net.constant(0.0)), 1.0)


def two_masks(net):
    """x[x >= 0] = 1; x[x < 0] = -1."""
    y = masked(net, "x", compared(net, "GreaterOrEqual"), 1.0)
    return masked(net, y, net.op("Less", y, net.constant(0.0)), -1.0)


def detached_by_a_difference(net):
    """f(x) - f(x).detach() + sign(x).detach()."""
    first, second = (net.op("Tanh", "x") for _ in range(2))
    return net.op("Add", net.op("Sub", first, second), net.sign("x"))


FORMS = {
    "two comparisons": two_comparisons,
    "bytes between": bytes_between,
    "sign with its zeros replaced": sign_with_its_zeros_replaced,
    "two masks": two_masks,
    "detached by a difference": detached_by_a_difference,
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_sign(form):
    net = Net(SIZE, opset=18)
    bundle = check(net.model(FORMS[form](net)), X)
    assert "Sign" in kinds(bundle.model)
    assert set(kinds(bundle.model)) <= {"Arithmetic", "Sign", "ToFloat"}


def test_a_mask_of_another_shape_is_refused():
    net = Net(4, 4)
    net.inputs.append(onnx.helper.make_tensor_value_info("y", FLOAT, ["N", 4, 4]))
    mask = net.op("Greater", net.op("ReduceMax", "x", axes=[1], keepdims=1), net.constant(0.0))
    with pytest.raises(ConversionError):
        converted(net.model(masked(net, "y", mask, 1.0)))


def test_masks_with_several_numbers_are_refused():
    net = Net(SIZE)
    mask = compared(net, "Greater")
    with pytest.raises(ConversionError):
        converted(net.model(masked(net, "x", mask, np.arange(6), expanded=False)))


@pytest.mark.parametrize("scaled", [False, True])
def test_sigmoid_rounded_to_one_bit(scaled):
    net = Net(SIZE)
    bit = net.op("Round", net.op("Sigmoid", "x"))
    if scaled:
        bit = net.op("Sub", net.op("Mul", bit, net.constant(2.0)), net.constant(1.0))
    bundle = check(net.model(bit), X)
    assert "Sign" in kinds(bundle.model)


def test_sigmoid_rounded_to_two_bits_is_refused():
    net = Net(SIZE)
    with pytest.raises(ConversionError, match="several bits"):
        converted(net.model(net.op("Round", net.op("Mul", net.op("Sigmoid", "x"), net.constant(3.0)))))


def halves(net, x, axis=1):
    """chunk(2) of a tensor whose batch is free, as the legacy exporter writes it: bounds computed of the shape."""
    one = net.constant([axis], np.int64)
    size = net.op("Gather", net.op("Shape", x), one, axis=0)
    half = net.op("Div", net.op("Add", size, net.constant([1], np.int64)), net.constant([2], np.int64))
    bounds = [net.constant([0], np.int64), *(net.op("Mul", half, net.constant([n], np.int64)) for n in (1, 2))]
    return [net.op("Slice", x, first, last, one) for first, last in itertools.pairwise(bounds)]


@pytest.mark.parametrize("batch", ["N", 2])
def test_halves_of_channels_are_exchanged_between_binary_layers(batch):
    net = Net(4, 5, 5, batch=batch)
    x = net.sign(net.conv(net.sign("x"), signs(RNG, 6, 4, 3, 3)))
    first, second = halves(net, x)
    y = net.sign(net.conv(net.op("Concat", second, first, axis=1), signs(RNG, 4, 6, 1, 1)))
    model = net.model(net.conv(y, signs(RNG, 3, 4, 1, 1)))
    bundle = check(model, RNG.normal(size=(2, 4, 5, 5)).astype(np.float32))
    assert kinds(bundle.model).count("BinaryConv") == 3


def test_a_slice_at_the_batch_is_refused():
    net = Net(4)
    batch = net.op("Gather", net.op("Shape", "x"), net.constant([0], np.int64), axis=0)
    sliced = net.op("Slice", "x", net.constant([0], np.int64), batch, net.constant([1], np.int64))
    with pytest.raises(ConversionError, match=r"ends \(input 2\) depends on the batch"):
        converted(net.model(sliced))


def test_a_name_that_nothing_computes():
    net = Net(SIZE)
    clipped = net.op("Clip", "x", net.constant(0.0), "lost")
    with pytest.raises(ConversionError, match="Clip: it reads lost, which is no input or constant"):
        converted(net.model(net.op("Relu", clipped)))


def test_a_recurrent_layer_is_named_before_what_stands_in_front_of_it():
    net = Net(6, 4)
    state = net.op(
        "ConstantOfShape", net.op("Slice", net.op("Shape", "x"), *[net.constant([n], np.int64) for n in (0, 1)])
    )
    weights = [net.constant(RNG.normal(size=(1, 12, 4))), net.constant(RNG.normal(size=(1, 12, 3)))]
    out = net.op("LSTM", net.op("Add", "x", state), *weights, hidden_size=3)
    with pytest.raises(ConversionError, match="LSTM: recurrent layers"):
        converted(net.model(out))


def two_layers(activation):
    net = Net(8)
    x = activation(net, net.matmul("x", signs(RNG, 8, 8)))
    return net.model(net.matmul(x, signs(RNG, 8, 4)))


def ternary(net, x):
    up, down = (cast(net, net.op(o, x, net.constant(c))) for o, c in (("Greater", 0.5), ("Less", -0.5)))
    return net.op("Sub", up, down)


@pytest.mark.parametrize("activation", [ternary, lambda net, x: net.op("Relu", x)], ids=["ternary", "relu"])
def test_a_network_without_a_binary_layer_warns(activation):
    model = two_layers(activation)
    check(model, RNG.integers(-3, 4, (3, 8)).astype(np.float32))
    _, report = converted(model)
    assert [warning.kind for warning in report.warnings] == ["no binary layer"]
    with pytest.raises(ConversionError, match="no layer of the network is binary"):
        converted(model, Options(strict=True))


def test_a_network_with_a_binary_layer_does_not_warn():
    assert not converted(two_layers(lambda net, x: net.sign(x)))[1].warnings


def test_nan_is_on_neither_side_of_two_comparisons():
    net = Net(1)
    model = net.model(two_comparisons(net))
    (found,) = reference.run(converted(model)[0].model, {"x": np.full((1, 1), np.nan, dtype=np.float32)}).values()
    assert (expected(model, np.full((1, 1), np.nan, dtype=np.float32))[0] == 0).all()
    assert (found == -1).all()


def test_an_input_that_nothing_reads_may_have_a_batch_of_its_own():
    net = Net(8)
    net.inputs.append(onnx.helper.make_tensor_value_info("unused", FLOAT, ["M", 3]))
    check(
        net.model(net.matmul(net.sign("x"), signs(RNG, 8, 4))),
        *(RNG.normal(size=(2, n)).astype(np.float32) for n in (8, 3)),
    )


def test_an_input_of_another_type_that_nothing_reads():
    net = Net(8)
    net.inputs.append(onnx.helper.make_tensor_value_info("unused", INT64, []))
    with pytest.raises(ConversionError, match="nothing in the model needs it: remove it"):
        converted(net.model(net.sign("x")))


def test_weights_that_a_model_computes_may_be_rounded_in_another_order():
    """A single weight has an exact sum; ONNX Runtime may have computed another one, as sign(w) * mean(abs(w))."""
    types = {"x": TensorType((None, 1, 1, 4), Domain.FLOAT32)}
    scale = np.nextafter(np.float32(1 + 2.0**-21), np.float32(2))
    found = {}
    apart = float(np.spacing(scale) / scale)
    for name, distances in (("computed", {"w": apart}), ("stored", {})):
        constants = {"w": Constant.of(np.full((1, 1, 1, 4), scale, dtype=np.float32))}
        graph = Graph(types, (Node("conv", Conv(Window((1, 1))), ("x", "w"), ("y",)),), ("y",), constants)
        x = np.array([[[[1, 0, 0, 0]]]], dtype=np.float32)
        found[name] = bounds(graph, {"x": x}, {}, (), distances).errors["y"]
    assert not found["stored"].any()
    assert (found["computed"] >= np.spacing(scale)).all()


def test_weights_of_one_size_but_for_their_rounding_are_not_exact_where_one_term_is_left():
    """A binary layer gives them one size; where all but one of its inputs are 0, ONNX Runtime's sum is one weight."""
    types = {"x": TensorType((None, 1, 1, 4), Domain.FLOAT32)}
    one, more = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    constants = {"w": Constant.of(np.array([one, more, -one, more], dtype=np.float32).reshape(1, 1, 1, 4))}
    graph = Graph(types, (Node("conv", Conv(Window((1, 1))), ("x", "w"), ("y",)),), ("y",), constants)
    found = bounds(graph, {"x": np.array([[[[1, 0, 0, 0]]]], dtype=np.float32)}, {}, ())
    assert (found.errors["y"] >= more - one).all()


def thermometer(net, x, thresholds, operator="Greater"):
    """x[:, :, None] > thresholds, as +-1."""
    ones = net.op("Cast", net.op(operator, x, net.constant(thresholds)), to=FLOAT)
    return net.op("Sub", net.op("Mul", ones, net.constant(2.0)), net.constant(1.0))


@pytest.mark.parametrize("batch", ["N", 3])
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1, 3, 4, 1, 1), (1, 3, 4, 5, 5)])
def test_a_thermometer_code_of_the_input(batch, shape):
    """Several thresholds a channel, on an axis of their own that the comparison broadcasts."""
    net = Net(3, 5, 5, batch=batch, opset=13)
    levels = thermometer(net, net.op("Unsqueeze", "x", net.constant([2], np.int64)), RNG.integers(0, 256, shape))
    planes = net.op("Reshape", levels, net.constant([0, 12, 5, 5], np.int64))
    bundle = check(net.model(net.conv(planes, signs(RNG, 6, 12, 3, 3))), pixels(3))
    assert "BinaryConv" in kinds(bundle.model)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_thermometer_code_between_layers(swapped):
    net = Net(12, opset=13)
    x = net.op("Unsqueeze", net.matmul(net.sign("x"), signs(RNG, 12, 9)), net.constant([2], np.int64))
    operands = (x, net.constant([-3.0, 0.0, 2.0]))
    above = net.op("Less", *operands[::-1]) if swapped else net.op("Greater", *operands)
    y = net.op("Where", above, net.constant(1.0), net.constant(-1.0))
    y = net.op("Reshape", y, net.constant([0, 27], np.int64))
    bundle = check(net.model(net.matmul(y, signs(RNG, 27, 4))), signs(RNG, 8, 12))
    assert kinds(bundle.model).count("BinaryDense") == 2


@pytest.mark.parametrize("thresholds", [np.arange(6.0).reshape(2, 1, 3), np.arange(8.0).reshape(2, 1, 1, 4)])
def test_thresholds_that_repeat_the_batch_are_refused(thresholds):
    net = Net(1, 4, batch=1, opset=13)
    x = "x" if thresholds.ndim == 4 else net.op("Reshape", "x", net.constant([1, 4, 1], np.int64))
    with pytest.raises(ConversionError, match="Greater"):
        converted(net.model(thermometer(net, x, thresholds)))


def test_parts_of_constant_weights():
    """Weights that a model splits, and scales of several layers in one tensor, as iterating over a parameter gives."""
    net = Net(8, 6, 6, opset=13)
    net.op("Split", net.constant(signs(RNG, 9, 4, 3, 3)), net.constant([5, 4], np.int64), axis=0, outputs=2)
    weights = net.nodes[-1].output
    net.op("Split", net.sign("x"), axis=1, outputs=2)
    halved = net.nodes[-1].output
    net.op("Split", net.constant([0.5, 4.0]), axis=0, outputs=2)
    scales = net.nodes[-1].output
    layers = [net.op("Conv", x, w) for x, w in zip(halved, weights, strict=True)]
    scaled = [net.op("Mul", layer, scale) for layer, scale in zip(layers, scales, strict=True)]
    bundle = check(net.model(net.op("Concat", *scaled, axis=1)), RNG.normal(size=(2, 8, 6, 6)).astype(np.float32))
    assert kinds(bundle.model).count("BinaryConv") == 2


def test_weights_that_a_model_sorts():
    """Those above the median are +1."""
    net = Net(40)
    latent = net.constant(RNG.normal(size=(6, 40)))
    net.op("TopK", latent, net.constant([20], np.int64), axis=1, outputs=2)
    greatest = net.nodes[-1].output[0]
    least = net.op("Slice", greatest, *(net.constant([n], np.int64) for n in (19, 20, 1)))
    upper = net.op("GreaterOrEqual", latent, least)
    weights = net.op("Where", upper, net.constant(1.0), net.constant(-1.0))
    bundle = check(net.model(net.op("Gemm", net.sign("x"), weights, transB=1)), signs(RNG, 3, 40))
    assert "BinaryDense" in kinds(bundle.model)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("of", ["Dropout", "Bernoulli"])
def test_weights_drawn_at_random_are_refused(of, outputs):
    """They are not drawn once, by the converter."""
    net = Net(40)
    weights = net.constant(np.ones((40, 6)))
    if of == "Dropout":
        drawn = net.op(of, weights, net.constant(0.5), net.constant(True, np.bool_), outputs=outputs)
    else:
        drawn = net.op(of, weights)
    with pytest.raises(ConversionError, match=f"{of}: .*evaluation mode"):
        converted(net.model(net.op("MatMul", net.sign("x"), drawn)))


def test_weights_that_dropout_leaves_alone_are_weights():
    net = Net(40)
    kept = net.op("Dropout", net.constant(signs(RNG, 40, 6)), net.constant(0.5), net.constant(False, np.bool_))
    bundle = check(net.model(net.op("MatMul", net.sign("x"), kept)), signs(RNG, 3, 40))
    assert "BinaryDense" in kinds(bundle.model)


def zeros_like(net, x):
    return net.op("ConstantOfShape", net.op("Shape", x))


def expanded(net, x):
    return net.op("Expand", net.constant(-2.5), net.op("Shape", x))


def stored(net, x):
    return net.constant(np.full((2, 4, 5, 5), 0.5))


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("places", ["before", "behind", "around"])
@pytest.mark.parametrize("fill", [zeros_like, expanded, stored])
def test_a_tensor_joined_with_one_number_is_padded(fill, places, axis):
    """A shortcut to more channels: cat([x, zeros_like(x)], 1)."""
    net = Net(4, 5, 5, batch=2)
    x = net.op("Relu", "x")
    filled = fill(net, x)
    operands = {"before": [filled, x], "behind": [x, net.op("Neg", x), filled], "around": [filled, x, filled, filled]}
    y = net.op("Concat", *operands[places], axis=axis)
    bundle = check(net.model(net.op("Mul", y, net.constant(3.0))), RNG.normal(size=(2, 4, 5, 5)).astype(np.float32))
    assert "Pad" in kinds(bundle.model)


def test_a_shortcut_to_more_channels_between_binary_layers():
    net = Net(4, 6, 6, opset=13)
    y = net.conv(net.sign("x"), signs(RNG, 8, 4, 3, 3), pads=[1] * 4, strides=[2, 2])
    x = net.op("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("Add", y, net.op("Concat", x, zeros_like(net, x), axis=1))
    model = net.model(net.conv(net.sign(y), signs(RNG, 3, 8, 3, 3)))
    bundle = check(model, RNG.integers(-4, 5, (3, 4, 6, 6)).astype(np.float32))
    assert kinds(bundle.model).count("BinaryConv") == 2


def test_other_constants_cannot_be_joined():
    net = Net(4, 5, 5, batch=2)
    for other in (np.arange(200.0).reshape(2, 4, 5, 5), None):
        joined = [other] if other is not None else [np.zeros((2, 1, 5, 5)), np.ones((2, 1, 5, 5))]
        model = net.model(net.op("Concat", "x", *map(net.constant, joined), axis=1))
        with pytest.raises(ConversionError, match="Concat: input 1 is a constant"):
            converted(model)


@pytest.mark.parametrize("opset", [12, 17])
def test_a_bias_expanded_to_a_shape_that_is_not_inferred(opset):
    """RSign in older versions of the operators, for which a shape is not inferred from one that is computed."""
    net = Net(4, 5, 5, opset=opset)
    y = net.conv(net.sign("x"), signs(RNG, 6, 4, 3, 3))
    bias = net.op("Expand", net.constant(RNG.integers(-3, 4, (1, 6, 1, 1)) + 0.5), net.op("Shape", y))
    model = net.model(net.conv(net.op("Sign", net.op("Add", y, bias)), signs(RNG, 3, 6, 1, 1)))
    bundle = check(model, RNG.normal(size=(2, 4, 5, 5)).astype(np.float32))
    assert kinds(bundle.model).count("BinaryConv") == 2


def test_a_sign_that_is_one_number_is_refused():
    """ReLU, then larq's sign: +1 everywhere."""
    net = Net(8)
    y = net.op("Sign", net.op("Add", net.op("Sign", net.op("Relu", "x")), net.constant(0.1)))
    with pytest.raises(ConversionError, match="Sign: a comparison or sign that does not become two numbers"):
        converted(net.model(net.matmul(y, signs(RNG, 8, 3))))
