"""Padding, layout and shapes as exporters write them around binary layers."""

import numpy as np
import onnx
import pytest

from bnnrt.errors import ConversionError

from .models import Net, check, computing, kinds, signs

FLOAT = onnx.TensorProto.FLOAT


def binary(bundle):
    return [kind for kind in kinds(bundle.model) if kind in ("BinaryConv", "BinaryDense")]


def only_conv(bundle):
    return next(node.op for node in bundle.model.nodes if type(node.op).__name__ == "BinaryConv")


def zero_one(net, x):
    return net.op("Cast", net.op("Greater", x, net.constant(0.0)), to=FLOAT)


@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 2, 1, 0], [3, 3, 3, 3]])
@pytest.mark.parametrize("channels", [1, 5, 32])
def test_23_padding_with_0_is_neither_bit(pads, channels):
    rng = np.random.default_rng(1)
    net = Net(channels, 6, 6)
    y = net.conv(net.sign("x"), signs(rng, 7, channels, 3, 3), pads=pads)
    y = net.conv(net.sign(y), signs(rng, 4, 7, 3, 3), pads=pads)
    bundle = check(net.model(y), signs(rng, 3, channels, 6, 6))
    assert binary(bundle) == ["BinaryConv"] * 2
    assert only_conv(bundle).pad_value == 0


def computed_pads(net, sizes):
    """Pads as PyTorch's older exporter computes them: of the last axes, then zeros for the others, turned round."""
    given = net.constant(sizes, np.int64)
    zeros = net.op(
        "ConstantOfShape",
        net.constant([8 - len(sizes)], np.int64),
        value=onnx.numpy_helper.from_array(np.zeros(1, np.int64)),
    )
    pairs = net.op("Reshape", net.op("Concat", given, zeros, axis=0), net.constant([-1, 2], np.int64))
    turned = net.op(
        "Slice",
        pairs,
        net.constant([-1], np.int64),
        net.constant([np.iinfo(np.int64).min], np.int64),
        net.constant([0], np.int64),
        net.constant([-1], np.int64),
    )
    flat = net.op("Reshape", net.op("Transpose", turned, perm=[1, 0]), net.constant([-1], np.int64))
    return net.op("Cast", flat, to=onnx.TensorProto.INT64)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_24_padding_by_an_operator_of_its_own(computed, value):
    rng = np.random.default_rng(2)
    net = Net(5, 6, 6)
    pads = computed_pads(net, [1, 2, 0, 1]) if computed else net.constant([0, 0, 0, 1, 0, 0, 1, 2], np.int64)
    y = net.op("Pad", net.sign("x"), pads, net.constant(value))
    bundle = check(net.model(net.conv(y, signs(rng, 7, 5, 3, 3))), signs(rng, 3, 5, 6, 6))
    assert only_conv(bundle).pad_value == value
    assert only_conv(bundle).window.pads == (0, 1, 1, 2)


@pytest.mark.parametrize("levels", ["-1, 1", "0, 1"])
def test_25_padding_with_1_of_channels_last(levels):
    rng = np.random.default_rng(3)
    net = Net(6, 6, 5)
    y = net.sign("x") if levels == "-1, 1" else zero_one(net, "x")
    y = net.op("Pad", y, net.constant([0, 1, 1, 0, 0, 1, 1, 0], np.int64), net.constant(1.0))
    y = net.conv(net.op("Transpose", y, perm=[0, 3, 1, 2]), signs(rng, 7, 5, 3, 3))
    bundle = check(net.model(net.op("Transpose", y, perm=[0, 2, 3, 1])), signs(rng, 3, 6, 6, 5))
    assert only_conv(bundle).pad_value == 1
    assert "Transpose" not in kinds(bundle.model)


@pytest.mark.parametrize("levels", ["-1, 1", "0, 1"])
@pytest.mark.parametrize(
    "how", [{"pads": [0, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}]
)
def test_26_padding_of_one_side(how, levels):
    rng = np.random.default_rng(4)
    net = Net(5, 7, 8)
    y = net.sign("x") if levels == "-1, 1" else zero_one(net, "x")
    y = net.conv(y, signs(rng, 7, 5, 3, 3), strides=[2, 2], **how)
    assert binary(check(net.model(y), signs(rng, 3, 5, 7, 8))) == ["BinaryConv"]


def split_and_joined(net, x):
    """Channel shuffle: two groups of channels, interleaved."""
    y = net.op("Reshape", x, net.constant([0, 2, 17, 6, 6], np.int64))
    return net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3, 4]), net.constant([0, 34, 6, 6], np.int64))


MOVES = {
    "Transpose to and fro": lambda n, x: n.op("Transpose", n.op("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]),
    "rows and columns exchanged": lambda n, x: n.op("Transpose", x, perm=[0, 1, 3, 2]),
    "Unsqueeze, Squeeze": lambda n, x: n.op(
        "Squeeze", n.op("Unsqueeze", x, n.constant([2], np.int64)), n.constant([2], np.int64)
    ),
    "Flatten, Reshape": lambda n, x: n.op("Reshape", n.op("Flatten", x), n.constant([0, 34, 6, 6], np.int64)),
    "Reshape to other channels": lambda n, x: n.op("Reshape", x, n.constant([-1, 6, 34, 6], np.int64)),
    "channel shuffle": split_and_joined,
    "Identity": lambda n, x: n.op("Identity", x),
    "Dropout": lambda n, x: n.op("Dropout", x),
    "MaxPool": lambda n, x: n.op("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1]),
    "MaxPool of channels last": lambda n, x: n.op(
        "MaxPool", n.op("Transpose", n.op("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]), kernel_shape=[2, 2]
    ),
}


@pytest.mark.parametrize("levels", ["-1, 1", "0, 1", "-1, 1 of Less", "-2, 2"])
@pytest.mark.parametrize("move", MOVES)
def test_27_bits_stay_bits_through_operators_that_move_them(move, levels):
    rng = np.random.default_rng(5)
    net = Net(3, 8, 8)
    y = net.conv(net.sign("x"), signs(rng, 34, 3, 3, 3))
    if levels == "0, 1":
        y = zero_one(net, y)
    elif levels == "-1, 1 of Less":
        y = net.op("Where", net.op("Less", y, net.constant(0.5)), net.constant(1.0), net.constant(-1.0))
    else:
        y = net.sign(y)
        y = net.op("Mul", y, net.constant(2.0)) if levels == "-2, 2" else y
    y = MOVES[move](net, y)
    channels = 6 if "other channels" in move else 34
    y = net.conv(y, signs(rng, 4, channels, 3, 3), pads=[1, 1, 1, 1])
    bundle = check(net.model(y), signs(rng, 3, 3, 8, 8))
    assert binary(bundle) == ["BinaryConv"] * 2
    assert not {"Conv", "BinaryWeightConv", "MaxPool"} & set(kinds(bundle.model))


@pytest.mark.parametrize("levels", ["-1, 1", "0, 1", "two kinds"])
@pytest.mark.parametrize("last", [False, True])
def test_27_bits_that_are_joined_are_bits_to_the_next_layer(levels, last):
    """They are joined in float32, and their sign taken again."""
    rng = np.random.default_rng(6)
    net = Net(3, 6, 6)
    write = zero_one if levels == "0, 1" else Net.sign
    parts = [write(net, net.conv(net.sign("x"), signs(rng, c, 3, 3, 3), pads=[1] * 4)) for c in (5, 32)]
    if levels == "two kinds":
        parts.append(zero_one(net, net.conv(net.sign("x"), signs(rng, 4, 3, 1, 1))))
    if last:
        parts = [net.op("Transpose", part, perm=[0, 2, 3, 1]) for part in parts]
    y = net.op("Concat", *parts, axis=-1 if last else 1)
    if last:
        y = net.op("Transpose", y, perm=[0, 3, 1, 2])
    y = net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv(y, signs(rng, 8, 41 if levels == "two kinds" else 37, 3, 3), pads=[1, 0, 1, 0])
    bundle = check(net.model(y), signs(rng, 3, 3, 6, 6))
    assert len(binary(bundle)) == 3
    assert ("Conv" in kinds(bundle.model) or "BinaryWeightConv" in kinds(bundle.model)) == (levels == "two kinds")


@pytest.mark.parametrize("batch", ["N", 1, 3])
def test_28_a_batch_that_is_free_or_fixed(batch):
    rng = np.random.default_rng(7)
    net = Net(3, 6, 6, batch=batch)
    y = net.sign(net.conv(net.sign("x"), signs(rng, 9, 3, 3, 3)))
    y = net.op("Reshape", y, net.constant([-1 if batch == "N" else batch, 144], np.int64))
    images = 3 if batch == "N" else batch
    bundle = check(net.model(net.matmul(y, signs(rng, 144, 5))), signs(rng, images, 3, 6, 6))
    assert binary(bundle) == ["BinaryConv", "BinaryDense"]


def test_29_a_first_layer_on_normalized_pixels():
    """Its weights are bits; the chain in front of it stays, one float32 operation after the other."""
    rng = np.random.default_rng(8)
    net = Net(3, 6, 6)
    y = net.op("Sub", net.op("Div", "x", net.constant(64.0)), net.constant([[[0.5]], [[0.25]], [[1.0]]]))
    y = net.op("Mul", y, net.constant(2.0))
    y = net.sign(net.op("Add", net.conv(y, signs(rng, 33, 3, 3, 3), pads=[1] * 4), net.constant(2.0**-9)))
    bundle = check(net.model(net.conv(y, signs(rng, 8, 33, 3, 3))), rng.integers(0, 256, (3, 3, 6, 6)).astype("f"))
    found = computing(bundle.model)
    assert [k for k in found if k != "Arithmetic"] == ["BinaryWeightConv", "Sign", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("how", ["sizes", "a product of sizes", "a quotient", "one size", "a slice"])
def test_30_shapes_that_are_computed(how):
    rng = np.random.default_rng(9)
    net = Net(3, 6, 6)
    y = net.sign(net.conv(net.sign("x"), signs(rng, 9, 3, 3, 3)))
    shape = net.op("Shape", y)

    def size(index):
        found = net.op("Gather", shape, net.constant(index, np.int64), axis=0)
        return net.op("Unsqueeze", found, net.constant([0], np.int64))

    if how == "sizes":
        product = net.op("Mul", net.op("Mul", size(1), size(2)), size(3))
        target = net.op("Concat", size(0), product, axis=0)
    elif how == "a product of sizes":
        rest = net.op("Slice", shape, net.constant([1], np.int64), net.constant([4], np.int64))
        target = net.op("Concat", size(0), net.op("ReduceProd", rest, keepdims=1), axis=0)
    elif how == "a quotient":
        half = net.op("Div", size(1), net.constant([2], np.int64))
        grown = net.op("Add", net.op("Mul", half, net.constant([32], np.int64)), net.op("Sub", size(2), size(3)))
        same = net.op("Mul", size(0), net.constant([1], np.int64))
        target = net.op("Concat", same, net.op("Add", grown, net.constant([16], np.int64)), axis=0)
    elif how == "one size":
        target = net.op("Concat", size(0), net.constant([-1], np.int64), axis=0)
    else:
        first = net.op("Slice", shape, net.constant([0], np.int64), net.constant([1], np.int64))
        target = net.op("Concat", first, net.constant([144], np.int64), axis=0)
    bundle = check(net.model(net.matmul(net.op("Reshape", y, target), signs(rng, 144, 5))), signs(rng, 3, 3, 6, 6))
    assert binary(bundle) == ["BinaryConv", "BinaryDense"]


def test_a_batch_that_is_moved_is_refused():
    net = Net(4, 5)
    with pytest.raises(ConversionError, match="moves the batch"):
        check(net.model(net.op("Transpose", net.sign("x"), perm=[1, 0, 2])), np.ones((3, 4, 5), dtype="f"))
