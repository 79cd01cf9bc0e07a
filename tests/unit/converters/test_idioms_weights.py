"""Binary weights as exporters write them: what remains of them is bits, and what a layer gives is what ONNX says."""

import numpy as np
import onnx
import pytest
from onnx import helper

from bnnrt import reference
from bnnrt.converters.cleanup.clean import clean
from bnnrt.converters.importer import import_graph
from bnnrt.converters.passes.binarize import layers_on_bits, signed_weights
from bnnrt.converters.passes.bits import KeepBits
from bnnrt.converters.signs.recognise import recognise

from .models import Net, check, computing, converted, expected, kinds, signs

FLOAT = onnx.TensorProto.FLOAT
BINARY = {"BinaryConv", "BinaryDense"}


def latent(rng, *shape):
    """Weights as training leaves them."""
    return rng.normal(size=shape).astype("f") * np.float32(0.3)


def image(rng, *shape):
    return signs(rng, *shape)


def mean_size(net, weights):
    return net.op("ReduceMean", net.op("Abs", weights), axes=[1, 2, 3], keepdims=1)


def reactnet(net, weights, scale):
    """The signs times their mean size, by way of the weights themselves: equal in size up to rounding."""
    clip = net.op("Clip", weights, net.constant(-1.0), net.constant(1.0))
    return net.op("Add", net.op("Sub", net.op("Mul", scale, net.op("Sign", weights)), clip), clip)


UNFOLDED = {
    "15 Sign": lambda n, w: n.op("Sign", w),
    "15 Sign, Add, Sign": lambda n, w: n.op("Sign", n.op("Add", n.op("Sign", w), n.constant(0.1))),
    "15 GreaterOrEqual, Where": lambda n, w: n.sign(w),
    "15 Greater, Cast, Mul, Sub": lambda n, w: n.op(
        "Sub",
        n.op("Mul", n.op("Cast", n.op("Greater", w, n.constant(0.0)), to=FLOAT), n.constant(2.0)),
        n.constant(1.0),
    ),
    "15 detached": lambda n, w: n.op(
        "Add",
        n.op("Sub", n.op("Sign", w), n.op("Clip", w, n.constant(-1.0), n.constant(1.0))),
        n.op("Clip", w, n.constant(-1.0), n.constant(1.0)),
    ),
}


@pytest.mark.parametrize("how", UNFOLDED)
def test_signs_of_weights(how):
    rng = np.random.default_rng(1)
    net = Net(33, 6, 6)
    weights = UNFOLDED[how](net, net.constant(latent(rng, 9, 33, 3, 3)))
    y = net.sign(net.op("Conv", net.sign("x"), weights, pads=[1, 1, 1, 1]))
    y = net.op("Flatten", net.op("Conv", y, UNFOLDED[how](net, net.constant(latent(rng, 4, 9, 3, 3)))))
    dense = net.op("Transpose", UNFOLDED[how](net, net.constant(latent(rng, 5, 64))), perm=[1, 0])
    bundle = check(net.model(net.op("MatMul", net.sign(y), dense)), image(rng, 3, 33, 6, 6))
    layers = [kind for kind in kinds(bundle.model) if kind in BINARY]
    assert layers == ["BinaryConv", "BinaryConv", "BinaryDense"]


def allowed(weights, x):
    """How far apart two sums of the products of ``weights`` [O, ...] and +-1 may be."""
    terms = weights[0].size
    return 2 * terms * 2.0**-24 * np.abs(weights).sum(axis=(1, 2, 3))[:, None, None] / (1 - terms * 2.0**-24)


@pytest.mark.parametrize("how", ["15 XNOR-Net", "15 ReActNet"])
def test_scaled_signs_of_weights(how):
    rng = np.random.default_rng(2)
    net = Net(64, 6, 6)
    given = latent(rng, 9, 64, 3, 3)
    constant = net.constant(given)
    if how == "15 XNOR-Net":
        weights = net.op("Mul", net.op("Sign", constant), mean_size(net, constant))
    else:
        weights = reactnet(net, constant, mean_size(net, constant))
    model = net.model(net.op("Conv", net.sign("x"), weights), weights)
    x = image(rng, 3, 64, 6, 6)
    want, folded = expected(model, x)
    del model.graph.output[1]
    assert (np.ptp(np.abs(folded), axis=(1, 2, 3)) > 0).any() == (how == "15 ReActNet")
    bundle, _ = converted(model)
    assert computing(bundle.model) == ["Sign", "BinaryConv", "ToFloat", "Arithmetic"]
    (got,) = reference.run(bundle.model, {"x": x}).values()
    assert (np.abs(got.astype("d") - want) <= allowed(folded.astype("d"), x)).all()


@pytest.mark.parametrize("apart", [1, 2, 40, 400])
def test_16_weights_whose_sizes_are_nearly_one_number(apart):
    """Bits while they differ by no more than the rounding of the sum itself, with 64 terms; float beyond."""
    rng = np.random.default_rng(3)
    weights = signs(rng, 9, 64, 1, 1) * np.float32(0.75)
    steps = rng.integers(0, apart + 1, weights.shape)
    steps[:, :2] = np.array([0, apart])[None, :, None, None]
    weights = (weights.view(np.int32) + steps.astype(np.int32)).view(np.float32)
    net = Net(64, 6, 6)
    model = net.model(net.conv(net.sign("x"), weights))
    x = image(rng, 3, 64, 6, 6)
    bundle, _ = converted(model)
    (got,), (want,) = reference.run(bundle.model, {"x": x}).values(), expected(model, x)
    assert ("BinaryConv" in kinds(bundle.model)) == (apart < 400)
    assert (np.abs(got.astype("d") - want) <= allowed(weights.astype("d"), x)).all()


def test_16_weights_that_are_nearly_equal_are_real_on_real_input():
    rng = np.random.default_rng(4)
    weights = signs(rng, 9, 64, 1, 1)
    weights[:, ::2] *= np.float32(1 + 2.0**-23)
    assert not signed_weights(weights).is_exact
    net = Net(64, 6, 6)
    assert computing(converted(net.model(net.conv("x", weights)))[0].model) == ["Conv"]


def test_16_a_norm_fused_into_the_weights():
    """+-a an output, of both signs, and a bias: powers of two, so that ONNX Runtime rounds nothing either."""
    rng = np.random.default_rng(5)
    net = Net(16, 6, 6)
    factor = signs(rng, 33, 1, 1, 1) * 2.0 ** rng.integers(-4, 4, (33, 1, 1, 1))
    y = net.conv(net.sign("x"), signs(rng, 33, 16, 3, 3) * factor, rng.integers(-20, 20, 33) / 8)
    y = net.op("Flatten", net.sign(y))
    weights = signs(rng, 5, 528) * 2.0 ** rng.integers(-4, 4, (5, 1))
    y = net.op("Gemm", y, net.constant(weights), net.constant(rng.normal(size=5)), transB=1)
    bundle = check(net.model(y), image(rng, 3, 16, 6, 6))
    assert computing(bundle.model)[:4] == ["Sign", "BinaryConv", "Threshold", "BinaryDense"]


@pytest.mark.parametrize("pool_first", [True, False])
def test_17_a_pool_between_a_layer_and_its_norm(pool_first):
    rng = np.random.default_rng(6)
    net = Net(16, 8, 8)
    y = net.conv(net.sign("x"), signs(rng, 33, 16, 3, 3), pads=[1] * 4)
    norm = (signs(rng, 33) * rng.uniform(0.5, 2, 33), rng.normal(size=33), rng.normal(size=33), rng.uniform(1, 9, 33))
    for step in ("pool", "norm") if pool_first else ("norm", "pool"):
        y = net.batch_norm(y, *norm) if step == "norm" else net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv(net.sign(y), signs(rng, 8, 33, 3, 3))
    bundle = check(net.model(y), image(rng, 3, 16, 8, 8))
    assert computing(bundle.model) == ["Sign", "BinaryConv", "Threshold", "BitPool", "BinaryConv", "ToFloat"]


def test_17_a_dense_layer_and_its_norm():
    rng = np.random.default_rng(7)
    net = Net(64)
    y = net.matmul(net.sign("x"), signs(rng, 64, 33))
    norm = (signs(rng, 33), rng.normal(size=33), rng.normal(size=33), rng.uniform(1, 9, 33))
    y = net.matmul(net.sign(net.batch_norm(y, *norm)), signs(rng, 33, 5))
    bundle = check(net.model(y), signs(rng, 3, 64))
    assert computing(bundle.model) == ["Sign", "BinaryDense", "Threshold", "BinaryDense", "ToFloat"]


@pytest.mark.parametrize("how", ["Gemm, transB=1", "Gemm", "MatMul"])
def test_18_where_the_outputs_of_a_dense_layer_stand(how):
    rng = np.random.default_rng(8)
    net = Net(40)
    weights = signs(rng, 40, 9) * 2.0 ** rng.integers(-3, 3, 9)  # a size an output: rows would not be binary
    x = net.sign("x")
    if how == "MatMul":
        y = net.matmul(x, weights)
    else:
        turned = how.endswith("1")
        y = net.op("Gemm", x, net.constant(weights.T if turned else weights), transB=int(turned))
    assert "BinaryDense" in kinds(check(net.model(y), signs(rng, 3, 40)).model)


@pytest.mark.parametrize("how", ["Flatten", "Reshape", "Reshape of a shape", "Squeeze"])
@pytest.mark.parametrize("last", [False, True])
def test_19_features_of_an_image(how, last):
    rng = np.random.default_rng(9)
    size = 1 if how == "Squeeze" else 3
    net = Net(5, size + 2, size + 2)
    y = net.sign(net.conv(net.sign("x"), signs(rng, 33, 5, 3, 3)))
    if last:
        y = net.op("Transpose", y, perm=[0, 2, 3, 1])
    features = 33 * size * size
    if how == "Flatten":
        y = net.op("Flatten", y)
    elif how == "Reshape":
        y = net.op("Reshape", y, net.constant([-1, features], np.int64))
    elif how == "Squeeze":
        y = net.op("Squeeze", y, net.constant([1, 2] if last else [2, 3], np.int64))
    else:
        first = net.op("Gather", net.op("Shape", y), net.constant(0, np.int64), axis=0)
        first = net.op("Unsqueeze", first, net.constant([0], np.int64))
        y = net.op("Reshape", y, net.op("Concat", first, net.constant([features], np.int64), axis=0))
    bundle = check(net.model(net.matmul(y, signs(rng, features, 7))), image(rng, 3, 5, size + 2, size + 2))
    assert [kind for kind in kinds(bundle.model) if kind in BINARY] == ["BinaryConv", "BinaryDense"]
    assert kinds(bundle.model).count("Transpose") == 1  # of the input


def test_20_weights_that_have_lost_their_signs_stay_float_and_are_warned_of():
    rng = np.random.default_rng(10)
    net = Net(16, 6, 6)
    y = net.sign(net.conv(net.sign("x"), signs(rng, 33, 16, 3, 3)))
    y = net.sign(net.conv(y, latent(rng, 9, 33, 1, 1)))
    _, report = converted(net.model(net.conv(y, signs(rng, 8, 9, 1, 1))))
    assert [layer.kind for layer in report.layers] == ["binary", "float", "binary"]
    assert [warning.node for warning in report.warnings] == [report.layers[1].name]


def test_20_which_layers_read_bits_whatever_their_weights():
    rng = np.random.default_rng(11)
    net = Net(16, 6, 6)
    zero_one = net.op("Cast", net.op("Greater", net.conv("x", latent(rng, 33, 16, 3, 3)), net.constant(0.0)), to=FLOAT)
    y = net.conv(zero_one, latent(rng, 9, 33, 1, 1), pads=[1, 0, 0, 1])
    y = net.conv(net.op("Concat", net.sign(y), net.sign(y), axis=1), latent(rng, 4, 18, 3, 3), pads=[1, 0, 0, 1])
    model = clean(net.model(net.conv(net.op("Relu", y), latent(rng, 5, 4, 1, 1))))
    recognise(model)
    graph = KeepBits().apply(import_graph(model).graph)
    layers = [node.name for node in graph.nodes if type(node.op).__name__ == "Conv"]
    assert layers_on_bits(graph) == set(layers[1:3])


STORED = {
    "21 int8": lambda n, w: n.op("Cast", n.constant(w, np.int8), to=FLOAT),
    "21 bool, Mul, Sub": lambda n, w: n.op(
        "Sub",
        n.op("Mul", n.op("Cast", n.constant(w > 0, np.bool_), to=FLOAT), n.constant(2.0)),
        n.constant(1.0),
    ),
    "21 0 and 1 of int8, Mul, Sub": lambda n, w: n.op(
        "Cast",
        n.op("Sub", n.op("Mul", n.constant(w > 0, np.int8), n.constant(2, np.int8)), n.constant(1, np.int8)),
        to=FLOAT,
    ),
    "21 0 and 1, Where": lambda n, w: n.op(
        "Where", n.op("Cast", n.constant(w > 0, np.uint8), to=onnx.TensorProto.BOOL), n.constant(1.0), n.constant(-1.0)
    ),
    "21 DequantizeLinear": lambda n, w: n.op("DequantizeLinear", n.constant(w, np.int8), n.constant(1.0)),
    "21 DequantizeLinear of an axis": lambda n, w: n.op(
        "DequantizeLinear", n.constant(w, np.int8), n.constant(2.0 ** (np.arange(len(w)) % 4)), axis=0
    ),
    "21 DequantizeLinear of 0 and 1": lambda n, w: n.op(
        "Sub",
        n.op("DequantizeLinear", n.constant(w > 0, np.uint8), n.constant(2.0), n.constant(0, np.uint8)),
        n.constant(1.0),
    ),
    "21 DequantizeLinear with a zero point": lambda n, w: n.op(
        "DequantizeLinear", n.constant(w + 128, np.uint8), n.constant(0.5), n.constant(128, np.uint8)
    ),
}


@pytest.mark.parametrize("how", STORED)
def test_stored_weights(how):
    rng = np.random.default_rng(12)
    net = Net(16, 6, 6)
    y = net.op("Conv", net.sign("x"), STORED[how](net, signs(rng, 9, 16, 3, 3)), pads=[1] * 4)
    bundle = check(net.model(y), image(rng, 3, 16, 6, 6))
    assert computing(bundle.model)[:3] == ["Sign", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("levels", [(1.0, 0.0), (1.0, -1.0)])
def test_21_weights_of_0_and_1_that_nothing_scales_stay_numbers(levels):
    rng = np.random.default_rng(13)
    net = Net(16, 6, 6)
    bits = net.op("Where", net.op("Greater", "x", net.constant(0.0)), *(net.constant(v) for v in levels))
    bundle = check(net.model(net.conv(bits, signs(rng, 9, 16, 3, 3) > 0)), image(rng, 3, 16, 6, 6))
    assert "Conv" in kinds(bundle.model)


def test_22_initializers_that_are_inputs_too():
    rng = np.random.default_rng(14)
    net = Net(16, 6, 6)
    model = net.model(net.conv(net.sign("x"), signs(rng, 9, 16, 3, 3)))
    for initializer in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(initializer.name, initializer.data_type, list(initializer.dims))
        )
    model.ir_version = 3
    bundle, _ = converted(model)
    assert list(bundle.model.inputs) == ["x"]
    x = image(rng, 3, 16, 6, 6)
    (got,) = reference.run(bundle.model, {"x": x}).values()
    del model.graph.input[1:]
    np.testing.assert_array_equal(got, expected(model, x)[0])


def test_22_domains_that_are_not_imported():
    rng = np.random.default_rng(15)
    net = Net(40)
    y = net.op("BipolarQuant", "x", net.constant(1.0), domain="onnx.brevitas")
    weights = net.op("BipolarQuant", net.constant(latent(rng, 5, 40)), net.constant(1.0), domain="onnx.brevitas")
    model = net.model(net.op("MatMul", y, net.op("Transpose", weights, perm=[1, 0])))
    assert [entry.domain for entry in model.opset_import] == [""]
    assert computing(converted(model)[0].model) == ["Sign", "BinaryDense", "ToFloat"]


@pytest.mark.parametrize(("size", "on_bits"), [(3e38, False), (2e36, False), (1e36, True)])
def test_sums_that_may_overflow_stay_in_float(size, on_bits):
    """ONNX Runtime's sum of 288 products may be infinite on its way; a count of bits is not."""
    rng = np.random.default_rng(2)
    net = Net(32, 5, 5)
    weights = signs(rng, 8, 32, 3, 3) * np.float32(size)
    bundle, _ = converted(net.model(net.conv(net.sign("x"), weights)))
    assert ("BinaryConv" in kinds(bundle.model)) == on_bits
