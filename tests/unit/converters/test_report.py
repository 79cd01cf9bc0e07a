import json
from pathlib import Path

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


def test_latent_weights_between_binary_layers_name_the_way_out():
    _, report = converted(network(RNG.normal(size=(8, 16, 3, 3))))
    assert "--binarize-weights" in report.warnings[0].what
    _, report = converted(network(RNG.integers(-1, 2, (8, 16, 3, 3))))
    assert "--binarize-weights" not in report.warnings[0].what


def perceptron(*weights, sign="GreaterOrEqual"):
    """Dense layers of these weights, each behind a sign."""
    net = Net(len(weights[0]))
    x = "x"
    for matrix in weights:
        x = net.matmul(net.sign(x) if sign == "GreaterOrEqual" else net.op("Sign", x), matrix)
    return net.model(x)


def test_a_network_of_latent_weights_only():
    report = converted(perceptron(RNG.normal(size=(32, 9)), RNG.normal(size=(9, 5))))[1]
    assert [(w.kind, w.node) for w in report.warnings] == [("latent weights", "matmul2"), ("latent weights", "matmul5")]
    assert "--binarize-weights" in report.warnings[0].what


def test_a_last_layer_in_float_behind_binary_ones_is_no_warning():
    assert not converted(perceptron(signs(RNG, 32, 9), RNG.normal(size=(9, 5))))[1].warnings
    # The same in front of them is one.
    (warning,) = converted(perceptron(RNG.normal(size=(32, 9)), signs(RNG, 9, 5)))[1].warnings
    assert (warning.kind, warning.node) == ("latent weights", "matmul2")


@pytest.mark.parametrize(
    ("weights", "levels"),
    [
        (RNG.integers(-7, 8, (400, 6)) * np.float32(0.07), 15),  # 4 bits
        (np.array([-0.9, -0.3, 0.3, 0.9])[RNG.integers(0, 4, (64, 3))], 4),  # 2 bits, no 0
        (np.array([-1.1, -0.2, 0.2, 0.7])[RNG.integers(0, 4, (64, 3))], 4),  # 2 bits, of unequal steps
        (np.arange(-100, 101, 4).repeat(2)[:, None] * np.float32(0.01), 51),  # 8 bits, of few weights
        (RNG.integers(-1, 2, (64, 3)), 3),  # ternary
    ],
)
def test_quantizers_of_several_bits(weights, levels):
    (warning,) = converted(perceptron(signs(RNG, 32, len(weights)), weights))[1].warnings
    assert (warning.kind, warning.node) == ("multi-bit quantizer", "matmul5")
    assert f"{levels} values" in warning.what
    with pytest.raises(ConversionError, match="node matmul5"):
        converted(perceptron(signs(RNG, 32, len(weights)), weights), Options(strict=True))


def with_zeros(weights, count):
    weights.reshape(-1)[RNG.choice(weights.size, count, replace=False)] = 0
    return weights


@pytest.mark.parametrize(("count", "text"), [(1, "1 of its 1152 weights is 0"), (70, "70 of its 1152 weights are 0")])
def test_a_few_weights_of_0_are_counted_and_the_way_out_is_named(count, text):
    weights = with_zeros(signs(RNG, 8, 16, 3, 3) * np.float32(0.3), count)
    (warning,) = converted(network(weights))[1].warnings
    assert warning.kind == "float between binary layers"
    assert text in warning.what
    assert "w[w == 0] = 1e-8" in warning.what
    assert "--binarize-weights" not in warning.what  # it would lose the scale


def test_a_few_weights_of_0_in_a_first_and_a_last_layer():
    report = converted(perceptron(with_zeros(signs(RNG, 64, 9), 2), signs(RNG, 9, 8), with_zeros(signs(RNG, 8, 9), 1)))[
        1
    ]
    assert [(w.kind, w.node) for w in report.warnings] == [("weights of 0", "matmul2"), ("weights of 0", "matmul8")]
    assert "2 of its 576 weights are 0" in report.warnings[0].what


@pytest.mark.parametrize("weights", [with_zeros(signs(RNG, 8, 16, 3, 3), 300), RNG.integers(-2, 3, (8, 16, 3, 3))])
def test_ternary_weights_and_others_with_zeros_are_no_latent_ones(weights):
    (warning,) = converted(network(weights))[1].warnings
    assert "w[w == 0]" not in warning.what


def test_weights_behind_dequantize_linear_are_those_of_a_quantizer():
    net = Net(48)
    parameters = [net.constant(RNG.integers(-90, 90, (48, 5)), np.int8), net.constant(0.02)]
    y = net.op("MatMul", net.sign("x"), net.op("DequantizeLinear", *parameters))
    assert [w.kind for w in converted(net.model(y))[1].warnings] == ["multi-bit quantizer"]


@pytest.mark.parametrize("shape", [(9, 4), (64, 1), (3, 2), (1024, 2)])
def test_trained_weights_are_no_quantizer(shape):
    report = converted(perceptron(signs(RNG, 32, shape[0]), RNG.normal(size=shape)))[1]
    assert not report.warnings


def test_ternary_risk():
    bits = converted(perceptron(signs(RNG, 32, 8), signs(RNG, 8, 5)))[1]
    assert [row.kind for row in bits.layers] == ["binary", "binary"]
    # A 0 reaches the sign of the input, and, since 32 is even, that of the first sum; not the sum of 33 terms.
    for inner, kinds in ((32, ["ternary risk", "ternary risk"]), (33, ["ternary risk", "binary"])):
        report = converted(perceptron(signs(RNG, inner, 8), signs(RNG, 8, 5), sign="Sign"))[1]
        assert [row.kind for row in report.layers] == kinds
        assert report.total("bit_operations") == inner * 8 + 8 * 5
        assert "can give 0" in report.layers[0].why


def test_ternary_risk_is_followed_through_pooling_and_reshaping():
    net = Net(3, 8, 8)
    x = net.op("MaxPool", net.op("Sign", "x"), kernel_shape=[2, 2], strides=[2, 2])
    x = net.matmul(net.op("Flatten", x), signs(RNG, 48, 5))
    assert [row.kind for row in converted(net.model(x))[1].layers] == ["ternary risk"]


def test_ternary_risk_is_followed_where_bits_are_moved_as_numbers():
    for inner, kind in ((32, "ternary risk"), (33, "binary")):
        net = Net(inner)
        parts = [net.op("Sign", net.matmul(net.sign("x"), signs(RNG, inner, 4))) for _ in range(2)]
        x = net.matmul(net.op("Concat", *parts, axis=1), signs(RNG, 8, 5))
        assert [row.kind for row in converted(net.model(x))[1].layers] == ["binary", "binary", kind]


@pytest.mark.parametrize("pads", [(0.0, 1.0), (0.5,)])
def test_bits_that_are_padded_with_another_number(pads):
    net = Net(3, 6, 6)
    x = net.sign("x")
    for number in pads:
        x = net.op("Pad", x, net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), net.constant(number))
    (row,) = converted(net.model(net.conv(x, 3 * signs(RNG, 4, 3, 3, 3))))[1].layers
    assert row.kind == "float"
    assert row.why == "its input is bits, padded with another number"


def test_large_numbers_are_a_warning_of_their_own():
    net = Net(8)
    detached = net.op("Add", net.op("Sub", net.op("Sign", "x"), "x"), "x")
    y = net.matmul(detached, signs(RNG, 8, 5))
    assert {w.kind for w in converted(net.model(y))[1].warnings} == {"sign of 0", "sign of large numbers"}


def test_the_document_has_the_form_that_the_docs_give():
    _, report = converted(perceptron(RNG.normal(size=(32, 9)), RNG.normal(size=(9, 5))), Options(binarize_weights=True))
    data = report.as_json()
    assert data["schema"] == "bnnrt-conversion-1"
    text = (Path(__file__).parents[3] / "docs" / "converter.md").read_text(encoding="utf-8")
    for name in ("bnnrt-conversion-1", *data, *data["layers"][0], *data["totals"], *data["notes"][0]):
        assert f"`{name}`" in text


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
