"""QONNX's and FINN's quantizers of one bit, against QONNX's definitions, and the refusal of the others."""

import numpy as np
import pytest

from bnnrt import reference
from bnnrt.errors import ConversionError

from .models import Net, computing, converted, expected, signs

RNG = np.random.default_rng(11)
DOMAINS = ["onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general", ""]
TINY = np.float32(1e-45)
EDGES = np.array([0.0, -0.0, TINY, -TINY, 1.0, -1.0, np.inf, -np.inf], dtype=np.float32)
HALF = np.float32(0.5)
TIES = np.array(
    [*EDGES, np.nan, HALF, np.nextafter(HALF, 1, dtype="f"), np.nextafter(HALF, 0, dtype="f"), 0.25, 1.5, -0.5, 3],
    dtype=np.float32,
)


def bipolar_quant(x, scale):
    return np.where(x >= 0, np.float32(1), np.float32(-1)) * np.float32(scale)


def quant(x, scale):
    with np.errstate(all="ignore"):
        return bipolar_quant(x / np.float32(scale), scale)


def unsigned_quant(x, scale, mode="ROUND"):
    rounding = {"ROUND": np.round, "HALF_EVEN": np.round, "CEIL": np.ceil, "FLOOR": np.floor}[mode]
    with np.errstate(all="ignore"):
        y = x / np.float32(scale)
    return rounding(np.where(y < 0, np.float32(0), np.where(y > 1, np.float32(1), y))) * np.float32(scale)


def multi_threshold(x, thresholds, out_scale=1.0, out_bias=0.0, axis=1):
    """The number of thresholds [C or 1, count] that x, whose channels are ``axis``, reaches; scaled and shifted."""
    moved = np.moveaxis(x, axis, -1)[..., None]
    count = (moved >= thresholds).sum(axis=-1).astype(np.float32)
    return np.float32(out_scale) * np.moveaxis(count, -1, axis) + np.float32(out_bias)


def add_quant(net, x, scale=1.0, zero=0.0, bits=1.0, domain="onnx.brevitas", **attributes):
    attributes = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND", **attributes}
    parameters = [net.constant(p) for p in (scale, zero, bits)]
    return net.op("Quant", x, *parameters, domain=domain, **attributes)


def add_bipolar(net, x, scale=1.0, domain="onnx.brevitas"):
    return net.op("BipolarQuant", x, net.constant(scale), domain=domain)


def add_thresholds(net, x, thresholds, domain="finn.custom_op.general", **attributes):
    constant = net.constant(thresholds)
    return net.op("MultiThreshold", x, constant, domain=domain, out_dtype="BIPOLAR", **attributes)


def run(model, x):
    bundle, _ = converted(model)
    (name,), (output,) = bundle.model.inputs, bundle.model.outputs
    return reference.run(bundle.model, {name: x})[output], bundle.model


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("opset", [7, 9, 17])
@pytest.mark.parametrize("add", [add_bipolar, add_quant])
def test_of_an_activation_at_zero(domain, opset, add):
    net = Net(len(EDGES), opset=opset)  # which imports no other domain
    found, graph = run(net.model(add(net, "x", domain=domain)), EDGES[None])
    np.testing.assert_array_equal(found[0], [1, 1, 1, -1, 1, -1, 1, -1])
    assert computing(graph) == ["Sign", "ToFloat"]


@pytest.mark.parametrize("scale", [0.5, 3.0, -2.0, [0.25, 1, 2, 3, -1, 5, 6, 7]])
@pytest.mark.parametrize(("add", "defined"), [(add_bipolar, bipolar_quant), (add_quant, quant)])
def test_scales(scale, add, defined):
    net = Net(len(EDGES))
    found, graph = run(net.model(add(net, "x", scale)), EDGES[None])
    np.testing.assert_array_equal(found, defined(EDGES[None], scale))
    divided = ["Arithmetic"] if add is add_quant else []
    assert computing(graph) == [*divided, "Sign", "ToFloat", "Arithmetic"]


def test_a_quotient_that_rounds_to_minus_zero():
    net = Net(2)
    found, _ = run(net.model(add_quant(net, "x", 4.0)), np.array([[-TINY, -1.0]], dtype=np.float32))
    np.testing.assert_array_equal(found, [[4, -4]])


@pytest.mark.parametrize(("add", "defined"), [(add_bipolar, bipolar_quant), (add_quant, quant)])
@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("turned", [False, True])
def test_of_weights(add, defined, scale, turned):
    weights = RNG.normal(size=(5, 8)).astype(np.float32)
    weights[:, 3], weights[0] = 0, EDGES
    weights[1, 4] = -0.0
    net = Net(8)
    given = net.constant(weights.T if turned else weights)
    if turned:
        given = net.op("Transpose", given, perm=[1, 0])
    quantized = net.op("Transpose", add(net, given, scale), perm=[1, 0])
    x = signs(RNG, 3, 8)
    found, graph = run(net.model(net.op("MatMul", add_bipolar(net, "x"), quantized)), x)
    np.testing.assert_array_equal(found, x @ defined(weights, scale).T)
    assert "BinaryDense" in computing(graph)


def test_a_network_becomes_thresholds():
    net = Net(40)
    y = "x"
    for outputs, inputs in ((9, 40), (4, 9)):
        weights = net.op("Transpose", add_bipolar(net, net.constant(signs(RNG, outputs, inputs))), perm=[1, 0])
        y = net.op("MatMul", add_bipolar(net, y), weights)
    root = net.op("Pow", net.constant([4.0]), net.constant(0.5))
    _, graph = run(net.model(net.op("Div", y, root)), signs(RNG, 2, 40))
    assert computing(graph) == ["Sign", "BinaryDense", "Threshold", "BinaryDense", "ToFloat", "Arithmetic"]


def test_a_quantizer_of_several_bits_at_the_input_says_what_to_do():
    """As Brevitas' CNV has it: 8 bits in front of the first layer."""
    net = Net(4)
    first = add_quant(net, "x", bits=8.0, scale=1 / 128, narrow=0)
    with pytest.raises(ConversionError, match=r"Quant: 8 bits.*export the model without it and feed it what it would"):
        converted(net.model(net.matmul(add_bipolar(net, first, 1.0), signs(RNG, 4, 3))))
    net = Net(4)
    with pytest.raises(ConversionError, match=r"only quantizers of one bit are supported$"):
        converted(net.model(add_quant(net, net.op("Relu", "x"), bits=8.0)))


def test_names_of_outputs_stay():
    net = Net(4)
    y = add_bipolar(net, "x", 2.0)
    bundle, _ = converted(net.model(y, net.op("Neg", y)))
    assert bundle.model.outputs[0] == y


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"bits": 2.0}, "Quant: 2 bits"),
        ({"bits": 8.0, "domain": ""}, "Quant: 8 bits"),
        ({"bits": 0.5}, "Quant: 0.5 bits"),
        ({"zero": 1.0}, "Quant: the zero point is not 0"),
        ({"signed": 0}, "but not both"),
        ({"narrow": 0}, "but not both"),
        ({"signed": 0, "narrow": 0, "rounding_mode": "UP"}, "rounding_mode UP"),
        ({"scale": 0.0}, "finite scales other than 0"),
        ({"scale": np.inf}, "finite scales other than 0"),
    ],
)
@pytest.mark.parametrize("of_weights", [False, True])
def test_other_quantizers_are_refused(how, message, of_weights):
    net = Net(4)
    y = add_quant(net, net.constant(signs(RNG, 4, 3)) if of_weights else "x", **how)
    if of_weights:
        y = net.op("MatMul", "x", y)
    with pytest.raises(ConversionError, match=message) as caught:
        converted(net.model(y))
    assert "Quant" in str(caught.value)
    assert "quant0" in str(caught.value)


@pytest.mark.parametrize("mode", ["ROUND", "round", "HALF_EVEN", "CEIL", "FLOOR"])
@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0, -2.0])
@pytest.mark.parametrize("opset", [9, 17])
def test_13_of_one_bit_that_is_0_or_1(mode, scale, opset):
    net = Net(len(TIES), opset=opset)
    y = add_quant(net, "x", scale, signed=0, narrow=0, rounding_mode=mode)
    found, graph = run(net.model(y), TIES[None])
    want = unsigned_quant(TIES[None], scale, mode.upper())
    # NaN stays NaN there, which a bit cannot hold.
    np.testing.assert_array_equal(found[~np.isnan(want)], want[~np.isnan(want)])
    assert "Sign" in computing(graph)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "onnx.brevitas"])
def test_13_of_a_newer_name(domain):
    net = Net(len(EDGES))
    constants = [net.constant(v) for v in (2.0, 0.0, 1.0)]
    y = net.op("IntQuant", "x", *constants, domain=domain, signed=1, narrow=1, rounding_mode="ROUND")
    found, _ = run(net.model(y), EDGES[None])
    np.testing.assert_array_equal(found, quant(EDGES[None], 2.0))


@pytest.mark.parametrize("bipolar", [True, False])
def test_13_between_layers(bipolar):
    """Quantizers to -1 and +1, and to 0 and 1, with a scale; weights too."""
    net = Net(4, 6, 6)
    x = RNG.integers(-3, 4, (3, 4, 6, 6)).astype(np.float32)
    weights = RNG.normal(size=(33, 4, 3, 3)).astype(np.float32)
    second = RNG.normal(size=(5, 33, 3, 3)).astype(np.float32)
    how = {} if bipolar else {"signed": 0, "narrow": 0}
    define = quant if bipolar else unsigned_quant
    y = net.op("Conv", add_quant(net, "x", 0.5, **how), add_bipolar(net, net.constant(weights)), pads=[1] * 4)
    y = net.op("Conv", add_quant(net, y, 2.0, **how), add_bipolar(net, net.constant(second), 0.25))
    found, graph = run(net.model(y), x)
    assert computing(graph).count("BinaryConv") == 2
    assert "Threshold" in computing(graph)
    plain = Net(4, 6, 6)
    (y,) = expected(plain.model(plain.conv("x", bipolar_quant(weights, 1.0), pads=[1] * 4)), define(x, 0.5))
    plain = Net(33, 6, 6)
    (want,) = expected(plain.model(plain.conv("x", bipolar_quant(second, 0.25))), define(y, 2.0))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("domain", ["finn.custom_op.general", "qonnx.custom_op.general", ""])
@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("threshold", [0.0, 0.5, -1e-6, TINY])
def test_14_of_real_numbers(domain, opset, threshold):
    net = Net(len(TIES), opset=opset)
    y = add_thresholds(net, "x", [[threshold]], domain, out_scale=2.0, out_bias=-1.0)
    found, graph = run(net.model(y), TIES[None])
    np.testing.assert_array_equal(found, multi_threshold(TIES[None], np.float32([[threshold]]), 2.0, -1.0))
    assert {"Sign", "ToFloat"} <= set(computing(graph)) <= {"Sign", "ToFloat", "Arithmetic"}


@pytest.mark.parametrize(
    ("shape", "layout", "axis"),
    [
        ((5, 6, 4), "NCHW", 1),
        ((6, 4, 5), "NHWC", 3),
        ((5, 6, 4), "", 1),
        ((6, 5), "", 2),
        ((6, 5), "NWC", 2),
        ((5,), "", 1),
        ((5,), "NC", 1),
        ((5,), "NCHW", 1),
    ],
)
@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("scales", [(2.0, -1.0), (1.0, 0.0), (-0.5, 0.0)])
def test_14_of_a_threshold_a_channel(shape, layout, axis, inferred, scales):
    net = Net(*shape)
    thresholds = RNG.integers(-2, 3, (5, 1)) / np.float32(2)
    x = net.op("Mul", "x", net.constant(0.5)) if inferred else "x"
    attributes = {"data_layout": layout} if layout else {}
    y = add_thresholds(net, x, thresholds, out_scale=scales[0], out_bias=scales[1], **attributes)
    given = RNG.integers(-5, 6, (3, *shape)).astype(np.float32)
    found, graph = run(net.model(y), given)
    want = multi_threshold(given * np.float32(0.5 if inferred else 1), thresholds, *scales, axis)
    np.testing.assert_array_equal(found, want)
    assert "Sign" in computing(graph)


@pytest.mark.parametrize("scales", [(2.0, -1.0), (1.0, 0.0)])
def test_14_between_layers(scales):
    net = Net(4, 6, 6)
    weights, second = signs(RNG, 33, 4, 3, 3), signs(RNG, 5, 33, 3, 3)
    thresholds = RNG.integers(-9, 10, (33, 1)).astype(np.float32)
    y = net.conv(add_thresholds(net, "x", [[0.0]], out_scale=2.0, out_bias=-1.0), weights)
    y = add_thresholds(net, y, thresholds, out_scale=scales[0], out_bias=scales[1], data_layout="NCHW")
    y = net.conv(y, second, pads=[1] * 4)
    x = RNG.integers(-3, 4, (3, 4, 6, 6)).astype(np.float32)
    found, graph = run(net.model(y), x)
    assert computing(graph)[:4] == ["Sign", "BinaryConv", "Threshold", "BinaryConv"]
    plain = Net(4, 6, 6)
    (y,) = expected(plain.model(plain.conv("x", weights)), multi_threshold(x, np.zeros((1, 1)), 2.0, -1.0))
    plain = Net(33, 4, 4)
    model = plain.model(plain.conv("x", second, pads=[1] * 4))
    np.testing.assert_array_equal(found, expected(model, multi_threshold(y, thresholds, *scales))[0])


def test_14_of_weights():
    weights = RNG.normal(size=(5, 40)).astype(np.float32)
    net = Net(40)
    quantized = add_thresholds(net, net.constant(weights), [[0.0]], out_scale=2.0, out_bias=-1.0)
    y = net.op("Gemm", add_bipolar(net, "x"), quantized, transB=1)
    x = signs(RNG, 3, 40)
    found, graph = run(net.model(y), x)
    np.testing.assert_array_equal(found, x @ bipolar_quant(weights, 1.0).T)
    assert "BinaryDense" in computing(graph)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([[0.0, 1.0]], "MultiThreshold: 2 thresholds a channel"),
        (np.zeros((4, 3)), "MultiThreshold: 3 thresholds a channel"),
        ([0.0], r"thresholds of shape \[1\]"),
        (np.zeros((4, 0)), "thresholds of shape"),
        ([[np.inf]], "finite thresholds"),
    ],
)
def test_14_other_thresholds_are_refused(thresholds, message):
    net = Net(4)
    with pytest.raises(ConversionError, match=message) as caught:
        converted(net.model(add_thresholds(net, "x", thresholds)))
    assert "multithreshold0" in str(caught.value)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "finn.custom_op.general"])
def test_a_product_of_bits_by_xnor(domain):
    """FINN's network after its own lowering: thresholds to 0 and 1, and a count of bits that agree."""

    def product(x, weights):
        return ((2 * x - 1) @ (2 * weights - 1) + np.float32(len(weights))) * np.float32(0.5)

    first, second = (signs(RNG, *shape) > 0 for shape in ((40, 33), (33, 5)))
    levels = RNG.integers(10, 30, (33, 1)).astype(np.float32)
    net = Net(40)
    y = net.op("XnorPopcountMatMul", add_thresholds(net, "x", [[0.0]]), net.constant(first), domain=domain)
    y = net.op("XnorPopcountMatMul", add_thresholds(net, y, levels), net.constant(second), domain=domain)
    x = RNG.integers(-3, 4, (4, 40)).astype(np.float32)
    found, graph = run(net.model(y), x)
    hidden = product(multi_threshold(x, np.float32([[0]])), first.astype(np.float32))
    np.testing.assert_array_equal(found, product(multi_threshold(hidden, levels), second.astype(np.float32)))
    assert computing(graph)[:4] == ["Sign", "BinaryDense", "Threshold", "BinaryDense"]


def test_a_product_of_bits_that_are_both_computed_is_refused():
    net = Net(4)
    with pytest.raises(ConversionError, match="XnorPopcountMatMul: the weights"):
        converted(net.model(net.op("XnorPopcountMatMul", "x", "x", domain="qonnx.custom_op.general")))


@pytest.mark.parametrize("name", ["same", ""])
def test_nodes_of_one_name_or_none(name):
    weights = [signs(RNG, 6, 6) > 0 for _ in range(2)]
    net = Net(6)
    y = add_quant(net, net.op("Add", add_bipolar(net, "x", 2.0), net.constant(0.7)), 3.0)
    y = add_thresholds(net, add_thresholds(net, y, [[-1.0]]), [[1.0]])
    for part in weights:
        y = net.op("XnorPopcountMatMul", y, net.constant(part), domain="qonnx.custom_op.general")
    model = net.model(y)
    for node in model.graph.node:
        node.name = name
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    wanted = quant(bipolar_quant(x, 2) + np.float32(0.7), 3)
    wanted = multi_threshold(multi_threshold(wanted, np.float32([[-1]])), np.float32([[1]]))
    for part in weights:
        wanted = ((2 * wanted - 1) @ (2 * part.astype(np.float32) - 1) + np.float32(6)) * HALF
    np.testing.assert_array_equal(run(model, x)[0], wanted)


@pytest.mark.parametrize("operator", ["Quant", "BipolarQuant"])
def test_parameters_that_are_missing_or_computed(operator):
    for inputs in (["x"], ["x", "x"], ["x", "x", "x", "x"]):
        net = Net(4)
        with pytest.raises(ConversionError, match="not a constant"):
            converted(net.model(net.op(operator, *inputs, domain="onnx.brevitas", signed=1, narrow=1)))


def test_quantizers_of_other_domains_are_not_taken_for_these():
    net = Net(4)
    with pytest.raises(ConversionError, match=r"other\.BipolarQuant: this operator is not supported"):
        converted(net.model(add_bipolar(net, "x", domain="other")))
