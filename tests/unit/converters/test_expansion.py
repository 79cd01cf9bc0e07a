"""Constants that a model repeats to the shape of a tensor at run time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from bnnrt.converters.cleanup.clean import clean
from bnnrt.errors import ConversionError

from .models import Net, check, computing, converted, signs

RNG = np.random.default_rng(17)
X = RNG.normal(size=(3, 6, 4, 5)).astype(np.float32)
BIAS = RNG.normal(size=(1, 6, 1, 1))


def shape_of(net, x, exporter):
    """As PyTorch's exporters write it: of the tensor itself, or of any other with the same batch, and numbers."""
    if exporter == "legacy":
        return net.op("Shape", x)
    batch = net.op("Shape", x, start=0, end=1)
    return net.op("Concat", batch, *[net.constant([size], np.int64) for size in X.shape[1:]], axis=0)


def expanded(net, x, constant, exporter):
    return net.op("Expand", net.constant(constant), shape_of(net, x, exporter))


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("batch", ["N", 3])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_a_bias_of_the_shape_of_the_tensor_beside_it(exporter, batch, operator):
    net = Net(*X.shape[1:], batch=batch)
    pair = ["x", expanded(net, "x", BIAS, exporter)]
    bundle = check(net.model(net.op(operator, *(pair if operator in ("Add", "Div") else pair[::-1]))), X)
    assert computing(bundle.model) == ["Arithmetic"]
    if batch == "N":
        assert all(constant.data.size == 6 for constant in bundle.model.constants.values())


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_rsign_and_rprelu(exporter):
    net = Net(*X.shape[1:])
    x = net.sign(net.op("Add", "x", expanded(net, "x", BIAS, exporter)))
    x = net.conv(x, signs(RNG, 6, 6, 3, 3), pads=[1] * 4)
    x = net.op("Add", x, expanded(net, x, BIAS, exporter))
    x = net.op("PRelu", x, expanded(net, x, np.abs(BIAS), exporter))
    x = net.op("Add", x, expanded(net, x, -BIAS, exporter))
    bundle = check(net.model(x), X)
    assert computing(bundle.model)[1:] == [
        *["Sign", "BinaryConv", "ToFloat", "Arithmetic", "PRelu", "Arithmetic"],
    ]


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_two_biases_of_the_shape_of_one_tensor_with_operators_between(exporter):
    """As in RPReLU, ``p(x + a.expand_as(x)) + b.expand_as(x)``."""
    net = Net(*X.shape[1:], opset=11 if exporter == "legacy" else 17)
    x = "x"
    for _ in range(2):
        biased = net.op("Add", x, expanded(net, x, BIAS, exporter))
        bent = net.op("Relu", net.op("PRelu", biased, net.constant(RNG.normal(size=(6, 1, 1)))))
        x = net.op("Add", bent, expanded(net, x, -BIAS, exporter))
    bundle = check(net.model(x), X)
    assert computing(bundle.model) == ["Arithmetic", "PRelu", "Relu", "Arithmetic"] * 2


@pytest.mark.parametrize("fill", ["Expand", "ConstantOfShape"])
def test_a_sign_with_branches_of_a_shape_that_is_put_together(fill):
    net = Net(*X.shape[1:])
    shape = shape_of(net, "x", "dynamo")
    if fill == "Expand":
        one = net.op("Expand", net.constant(1.0), shape)
    else:
        one = net.op("ConstantOfShape", shape, value=helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]))
    x = net.op("Where", net.op("Less", "x", net.constant(0.0)), net.op("Neg", one), one)
    bundle = check(net.model(net.conv(x, signs(RNG, 4, 6, 3, 3))), X)
    assert "BinaryConv" in computing(bundle.model)


def test_an_expansion_that_enlarges_the_tensor_beside_it_stays():
    net = Net(1, 4, 5)
    large = expanded(net, "x", BIAS, "dynamo")
    model = net.model(net.op("Add", "x", large))
    assert "Expand" in [node.op_type for node in clean(model).graph]
    with pytest.raises(ConversionError, match="Expand"):
        converted(model)
