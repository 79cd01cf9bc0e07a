import json

import numpy as np
import pytest

from bnnrt.converters.convert import Options
from bnnrt.errors import ConversionError

from .models import Net, converted, signs

RNG = np.random.default_rng(17)


def network(middle):
    """A real first layer, a binary one, one with the weights ``middle``, a binary one."""
    net = Net(3, 8, 8)
    x = net.conv("x", signs(RNG, 8, 3, 3, 3))
    x = net.conv(net.sign(x), signs(RNG, 16, 8, 3, 3))
    x = net.conv(net.sign(x), middle)
    return net.model(net.matmul(net.op("Flatten", net.sign(x)), signs(RNG, 4 * len(middle), 10)))


def test_a_row_a_layer():
    _, report = converted(network(signs(RNG, 8, 16, 3, 3)))
    assert [(row.operator, row.kind) for row in report.layers] == [
        ("Conv", "binary weights"),
        ("Conv", "binary"),
        ("Conv", "binary"),
        ("MatMul", "binary"),
    ]
    second = report.layers[1]
    assert second.name == "conv3"
    assert second.parameters == 16 * 8 * 9
    assert second.bytes_before == 4 * second.parameters
    assert second.bytes_after == 16 * 3 * 4
    assert (second.bit_operations, second.float_operations) == (16 * 16 * 8 * 9, 0)
    assert report.layers[0].float_operations == 36 * 8 * 27
    assert report.total("parameters") == sum(row.parameters for row in report.layers)
    assert not report.warnings


def test_the_report_is_plain_data():
    _, report = converted(network(RNG.integers(-1, 2, (8, 16, 3, 3))))
    data = json.loads(json.dumps(report.as_json()))
    assert [row["name"] for row in data["layers"]] == [row.name for row in report.layers]
    assert data["totals"]["bytes_after"] == report.total("bytes_after")
    assert data["warnings"][0]["node"] == report.layers[2].name


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (RNG.integers(-1, 2, (8, 16, 3, 3)), "some weights of an output are 0"),
        (RNG.normal(size=(8, 16, 3, 3)), "the weights of an output differ in size"),
    ],
)
def test_float_between_binary_is_a_warning_and_strict_refuses_it(weights, why):
    model = network(weights)
    _, report = converted(model)
    (warning,) = report.warnings
    assert report.layers[2].kind == "float"
    assert warning.node == report.layers[2].name
    assert why in warning.what
    with pytest.raises(ConversionError, match=f"{why}.*node {warning.node}"):
        converted(model, Options(strict=True))


def test_float_at_the_ends_is_no_warning():
    net = Net(3, 8, 8)
    x = net.conv("x", RNG.normal(size=(8, 3, 3, 3)))
    x = net.conv(net.sign(x), signs(RNG, 16, 8, 3, 3))
    x = net.matmul(net.op("Flatten", net.sign(x)), signs(RNG, 256, 10))
    net.op("MatMul", x, net.constant(RNG.normal(size=(10, 4))))
    _, report = converted(net.model(net.nodes[-1].output[0]), Options(strict=True))
    assert [row.kind for row in report.layers] == ["float", "binary", "binary", "float"]
    assert "differ in size" in report.layers[0].why


def test_why_a_layer_is_float():
    net = Net(3, 8, 8)
    y = net.conv("x", signs(RNG, 8, 3, 3, 3) * 0.3)
    _, report = converted(net.model(y))
    assert report.layers[0].why == "inputs are real, and the size of the weights is not a power of two"


def test_strict_counts_the_other_warnings():
    net = Net(8)
    x = net.op("Sign", net.op("Sign", net.matmul(net.op("Sign", "x"), signs(RNG, 8, 8))))
    y = net.matmul(x, signs(RNG, 8, 8))
    with pytest.raises(ConversionError, match=r"and 1 more"):
        converted(net.model(y), Options(strict=True))
