"""QONNX's quantizers of one bit, against QONNX's definitions, and the refusal of the others."""

import numpy as np
import pytest

from bnnrt import reference
from bnnrt.errors import ConversionError

from .models import Net, computing, converted, signs

RNG = np.random.default_rng(11)
DOMAINS = ["onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general", ""]
TINY = np.float32(1e-45)
EDGES = np.array([0.0, -0.0, TINY, -TINY, 1.0, -1.0, np.inf, -np.inf], dtype=np.float32)


def bipolar_quant(x, scale):
    return np.where(x >= 0, np.float32(1), np.float32(-1)) * np.float32(scale)


def quant(x, scale):
    with np.errstate(all="ignore"):
        return bipolar_quant(x / np.float32(scale), scale)


def add_quant(net, x, scale=1.0, zero=0.0, bits=1.0, domain="onnx.brevitas", **attributes):
    attributes = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND", **attributes}
    parameters = [net.constant(p) for p in (scale, zero, bits)]
    return net.op("Quant", x, *parameters, domain=domain, **attributes)


def add_bipolar(net, x, scale=1.0, domain="onnx.brevitas"):
    return net.op("BipolarQuant", x, net.constant(scale), domain=domain)


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
