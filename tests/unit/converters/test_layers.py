"""Which convolutions and dense layers become binary, with which padding; always against ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt.converters.passes.binarize import signed_weights
from bnnrt.errors import ConversionError

from .models import Net, check, computing, converted, kinds, signs

RNG = np.random.default_rng(9)
BITS = signs(RNG, 3, 6, 7, 7)


def op(bundle, kind):
    return next(n.op for n in bundle.model.nodes if type(n.op).__name__ == kind)


def test_weights_of_plus_and_minus_1():
    found = signed_weights(np.array([[1, -1], [-1, 1]], dtype=np.float32))
    assert (found.scale == 1).all()
    np.testing.assert_array_equal(found.bits, [[True, False], [False, True]])


@pytest.mark.parametrize("scales", [(0.5, 2.0), (0.3, 0.7), (1.0, 0.0)])
def test_weights_with_a_scale_an_output(scales):
    found = signed_weights(np.array([[1, -1, 1], [-1, 1, 1]]).astype("f") * np.array(scales, dtype="f")[:, None])
    np.testing.assert_array_equal(found.scale, np.array(scales, dtype="f"))
    assert (found.scale != 1).any()
    assert found.is_exact == (scales == (0.5, 2.0))


@pytest.mark.parametrize(
    ("row", "why"), [([1, 0, -1], "are 0"), ([1, 2, -1], "differ in size"), ([1, np.nan, 1], "not finite")]
)
def test_other_weights(row, why):
    assert why in signed_weights(np.array([row], dtype=np.float32))


def test_nearly_equal_weights_are_not_equal():
    assert isinstance(signed_weights(np.array([[1, np.nextafter(np.float32(1), np.float32(2))]], dtype="f")), str)


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_binary_convolutions(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 2, 3, 6]))
    kernel = [int(k) for k in rng.integers(1, 4, 2)]
    net = Net(6, 7, 7)
    y = net.conv(
        net.sign("x"),
        signs(rng, groups * 2, 6 // groups, *kernel),
        group=groups,
        strides=[int(s) for s in rng.integers(1, 4, 2)],
        dilations=[int(d) for d in rng.integers(1, 3, 2)],
        pads=[int(p) for p in rng.integers(0, 4, 4)],
    )
    bundle = check(net.model(y), BITS)
    assert computing(bundle.model) == ["Sign", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_padding_before_a_binary_convolution(value):
    net = Net(6, 7, 7)
    padded = net.op("Pad", net.sign("x"), net.constant([0, 0, 1, 2, 0, 0, 0, 3], np.int64), net.constant(value))
    bundle = check(net.model(net.conv(padded, signs(RNG, 8, 6, 3, 3))), BITS)
    found = op(bundle, "BinaryConv")
    assert found.pad_value == value
    assert found.window.pads == (1, 2, 0, 3)
    assert "Pad" not in kinds(bundle.model)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0, 0.5])
def test_padding_twice(value):
    net = Net(6, 7, 7)
    padded = net.op("Pad", net.sign("x"), net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), net.constant(value))
    bundle = check(net.model(net.conv(padded, signs(RNG, 8, 6, 3, 3), pads=[0, 1, 2, 0])), BITS)
    if value == 0:
        assert op(bundle, "BinaryConv").window.pads == (1, 2, 3, 1)
    else:
        assert ("BinaryConv" if abs(value) == 1 else "BinaryWeightConv") in kinds(bundle.model)
        assert "Pad" in kinds(bundle.model)


def test_padding_of_channels_last():
    net = Net(7, 7, 6)
    padded = net.op("Pad", net.sign("x"), net.constant([0, 1, 1, 0, 0, 1, 1, 0], np.int64), net.constant(1.0))
    y = net.conv(net.op("Transpose", padded, perm=[0, 3, 1, 2]), signs(RNG, 8, 6, 3, 3))
    bundle = check(
        net.model(net.op("Transpose", y, perm=[0, 2, 3, 1])), np.ascontiguousarray(BITS.transpose(0, 2, 3, 1))
    )
    assert kinds(bundle.model) == ["Sign", "BinaryConv", "ToFloat"]


def test_padding_with_0_before_a_real_convolution():
    net = Net(6, 7, 7)
    padded = net.op("Pad", "x", net.constant([0, 0, 1, 2, 0, 0, 0, 3], np.int64))
    bundle = check(net.model(net.conv(padded, RNG.integers(-3, 4, (8, 6, 3, 3)))), BITS)
    assert computing(bundle.model) == ["Conv"]


@pytest.mark.parametrize("scales", ["powers of two", "any", "with 0"])
def test_scaled_weights_on_bits(scales):
    rng = np.random.default_rng(10)
    scale = {"powers of two": 2.0 ** rng.integers(-3, 3, 8), "any": np.full(8, 0.75), "with 0": np.arange(8) / 4}[
        scales
    ]
    net = Net(6, 7, 7)
    y = net.conv(
        net.sign("x"), signs(rng, 8, 6, 3, 3) * scale[:, None, None, None], rng.integers(-9, 9, 8), pads=[1] * 4
    )
    bundle = check(net.model(net.op("Div", net.constant(1.0), y)), BITS)
    assert "BinaryConv" in kinds(bundle.model)


@pytest.mark.parametrize(("scale", "kind"), [(1.0, "BinaryWeightConv"), (0.25, "BinaryWeightConv"), (0.3, "Conv")])
def test_scaled_weights_on_real_input(scale, kind):
    net = Net(6, 7, 7)
    x = RNG.integers(-128, 128, (3, 6, 7, 7)).astype(np.float32) / 128
    model = net.model(net.conv("x", signs(RNG, 8, 6, 3, 3) * scale))
    if kind == "Conv":
        x = np.where(x > 0, x * 0 + 1, x * 0).astype(np.float32)
        x[:, 1:] = 0
        x[:, :, 1:] = 0
    assert kind in kinds(check(model, x).model)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_dense_layers(scale):
    net = Net(70)
    real = net.matmul("x", signs(RNG, 70, 33) * scale)
    y = net.matmul(net.sign(real), signs(RNG, 33, 10) * scale)
    bundle = check(net.model(y), RNG.integers(-9, 9, (5, 70)).astype(np.float32) + np.float32(0.5))
    assert [k for k in kinds(bundle.model) if k != "Arithmetic"] == [
        "BinaryWeightDense",
        "Sign",
        "BinaryDense",
        "ToFloat",
    ]


def test_weights_with_zeros_stay_float():
    weights = RNG.integers(-1, 2, (8, 6, 3, 3))
    net = Net(6, 7, 7)
    assert "Conv" in kinds(check(net.model(net.conv(net.sign("x"), weights)), BITS).model)


def test_bits_stay_bits_through_pools_and_layout():
    rng = np.random.default_rng(11)
    net = Net(7, 8, 6)
    x = net.op("Transpose", net.sign("x"), perm=[0, 3, 1, 2])
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 1])
    x = net.op("MaxPool", net.op("Identity", x), kernel_shape=[2, 2], ceil_mode=1)
    x = net.op("Flatten", net.op("Transpose", x, perm=[0, 2, 3, 1]))
    bundle = check(net.model(net.matmul(net.sign(x), signs(rng, 36, 5))), signs(rng, 4, 7, 8, 6))
    assert kinds(bundle.model) == ["Sign", "BitPool", "BitPool", "Reshape", "BinaryDense", "ToFloat"]


def test_bits_in_a_layout_of_their_own_are_brought_into_order_before_the_sign():
    rng = np.random.default_rng(12)
    net = Net(6, 7, 7)
    x = net.sign(net.op("Mul", net.op("Flatten", "x"), net.constant(-2.0)))
    x = net.op("Reshape", x, net.constant([0, 6, 7, 7], np.int64))
    bundle = check(net.model(net.conv(x, signs(rng, 8, 6, 3, 3))), BITS)
    assert "BinaryConv" in kinds(bundle.model)


def test_one_sign_for_two_layers_is_computed_once():
    rng = np.random.default_rng(13)
    net = Net(6, 7, 7)
    bits = net.sign("x")
    bundle = check(net.model(net.conv(bits, signs(rng, 8, 6, 3, 3)), net.conv(bits, signs(rng, 8, 6, 1, 1))), BITS)
    assert kinds(bundle.model).count("Sign") == 1


def test_residual_sums_stay_float_between_binary_layers():
    rng = np.random.default_rng(14)
    net = Net(6, 7, 7)
    bits = net.sign("x")
    y = net.op("Add", net.conv(bits, signs(rng, 6, 6, 3, 3), pads=[1] * 4), "x")
    z = net.conv(net.sign(net.op("Add", y, net.constant(0.5))), signs(rng, 8, 6, 3, 3))
    bundle = check(net.model(z), BITS)
    assert kinds(bundle.model).count("BinaryConv") == 2


EQUATIONS = {
    "bi,io->bo": ((7,), (7, 4)),
    "bi, oi -> bo": ((7,), (4, 7)),
    "bti,oi->bto": ((3, 7), (4, 7)),
    "bti,oi->bot": ((3, 7), (4, 7)),
    "nchw,oc->nohw": ((5, 4, 3), (6, 5)),
    "nchw,co->nhwo": ((5, 4, 3), (5, 6)),
    "nchw,wo->nohc": ((5, 4, 3), (3, 6)),
    "...i,oi->...o": ((3, 2, 7), (4, 7)),
    "b...i,io->bo...": ((3, 2, 7), (7, 4)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("of", ["bits", "integers"])
def test_einsum_of_a_tensor_and_a_matrix(equation, first, of):
    shape, weights = EQUATIONS[equation]
    net = Net(*shape)
    x = net.sign("x") if of == "bits" else "x"
    matrix = net.constant(signs(RNG, *weights) if of == "bits" else RNG.integers(-9, 9, weights))
    if first:
        terms, out = equation.split("->")
        equation = ",".join(terms.split(",")[::-1]) + "->" + out
    pair = (matrix, x) if first else (x, matrix)
    bundle = check(net.model(net.op("Einsum", *pair, equation=equation)), RNG.integers(-9, 9, (2, *shape)).astype("f"))
    if of == "bits":
        assert {"BinaryConv", "BinaryDense"} & set(kinds(bundle.model))


def test_an_einsum_between_convolutions_moves_nothing():
    net = Net(6, 7, 7)
    y = net.op(
        "Einsum",
        net.sign(net.conv("x", signs(RNG, 8, 6, 3, 3))),
        net.constant(signs(RNG, 4, 8)),
        equation="nchw,oc->nohw",
    )
    bundle = check(net.model(net.conv(net.sign(y), signs(RNG, 4, 4, 3, 3))), BITS)
    assert kinds(bundle.model).count("Transpose") == 2  # at the ends


@pytest.mark.parametrize(
    ("equation", "shape", "weights", "what"),
    [
        ("nchw,co->no", (5, 4, 3), (5, 6), "sums over axes that the matrix does not have"),
        ("bi,bo->io", (5,), (3, 6), "mixes the images of a batch"),
        ("bi,ij,jo->bo", (5,), (5, 5), "is no product of a tensor and a constant matrix"),
        ("bi,ijk->bjk", (5,), (5, 2, 3), "is no product of a tensor and a constant matrix"),
        ("bi,io", (5,), (5, 3), "is no product of a tensor and a constant matrix"),
        ("bii,io->bo", (5, 5), (5, 3), "is no product of a tensor and a constant matrix"),
        ("bi,io->ob", (5,), (5, 3), "keep the batch first"),
    ],
)
def test_other_einsums_are_refused(equation, shape, weights, what):
    net = Net(*shape)
    matrices = [net.constant(RNG.normal(size=weights)) for _ in range(equation.count(","))]
    with pytest.raises(ConversionError, match=f"Einsum.*({what})"):
        converted(net.model(net.op("Einsum", "x", *matrices, equation=equation)))
