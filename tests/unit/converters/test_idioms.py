"""The sign of an activation as exporters write it: its value at every edge, and the layers around it on bits.

Each idiom is converted twice: alone, on real numbers that include zeros of both signs, ties, infinities and NaN; and
between two binary layers, where it has to leave nothing but thresholds.
"""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bnnrt import reference
from bnnrt.errors import ConversionError

from .models import Net, check, computing, converted, expected, kinds, signs

FLOAT = onnx.TensorProto.FLOAT
TINY = 1e-45
EDGES = [-np.inf, -3e38, -1e20, -3, -1.5, -1, np.nextafter(-1, 0), -0.5, -0.25, -(2.0**-24), -(2.0**-25), -1e-6, -1e-40]
X = np.array([[*EDGES, -TINY, -0.0, np.nan, *(-v for v in reversed(EDGES)), TINY, 0.0, 0.1, 0.7]], dtype=np.float32)
SIZE = X.shape[1]


def where(net, condition, yes=1.0, no=-1.0, dtype=np.float32):
    return net.op("Where", condition, net.constant(yes, dtype), net.constant(no, dtype))


def cast(net, x, to=FLOAT):
    return net.op("Cast", x, to=to)


def with_numbers(net, x, *steps):
    """Operators with one number each."""
    for operator, number in steps:
        x = net.op(operator, x, net.constant(number))
    return x


def compare(net, operator, x, number=0.0):
    return net.op(operator, x, net.constant(number))


def clipped(net, x, low=-1.0, high=1.0):
    return net.op("Clip", x, net.constant(low), net.constant(high))


def detached(net, value, other):
    return net.op("Add", net.op("Sub", value, other), other)


def approx_sign(net, x):
    """The polynomial whose gradient Bi-Real networks use."""

    def masked(mask, inside, outside):
        rest = net.op("Sub", net.constant(1.0), mask)
        return net.op("Add", net.op("Mul", inside, mask), net.op("Mul", outside, rest))

    masks = [cast(net, compare(net, "Less", x, edge)) for edge in (-1.0, 0.0, 1.0)]
    rising = net.op("Add", net.op("Mul", x, x), net.op("Mul", x, net.constant(2.0)))
    falling = net.op("Add", net.op("Mul", net.op("Neg", x), x), net.op("Mul", x, net.constant(2.0)))
    y = masked(masks[0], net.constant(-1.0), rising)
    y = masked(masks[1], y, falling)
    return masked(masks[2], y, net.constant(1.0))


def rounded(net, x):
    y = with_numbers(net, clipped(net, x), ("Add", 1.0), ("Div", 2.0))
    return with_numbers(net, net.op("Round", y), ("Mul", 2.0), ("Sub", 1.0))


def heaviside(net, x):
    y = where(net, compare(net, "Less", x), 0.0, 1.0)
    y = net.op("Where", compare(net, "Equal", x), net.constant(1.0), y)
    return with_numbers(net, y, ("Mul", 2.0), ("Sub", 1.0))


def ones_like(net, x):
    one = numpy_helper.from_array(np.ones(1, dtype=np.float32))
    return net.op("ConstantOfShape", net.op("Shape", x), value=one)


def full_branches(net, x):
    ones = ones_like(net, x)
    return net.op("Where", compare(net, "GreaterOrEqual", x), ones, net.op("Neg", ones))


# What it gives at 0, and how it is written. None: 0, of which the converter makes +1. (13 and 14: test_qonnx.py.)
IDIOMS = {
    "1 Sign": (None, lambda n, x: n.op("Sign", x)),
    "2 GreaterOrEqual, Where": (1, lambda n, x: where(n, compare(n, "GreaterOrEqual", x))),
    "2 GreaterOrEqual, Where of full tensors": (1, full_branches),
    "2 GreaterOrEqual, Where of integers, Cast": (
        1,
        lambda n, x: cast(n, where(n, compare(n, "GreaterOrEqual", x), 1, -1, np.int64)),
    ),
    "3 Greater, Cast, Mul, Sub": (
        -1,
        lambda n, x: with_numbers(n, cast(n, compare(n, "Greater", x)), ("Mul", 2.0), ("Sub", 1.0)),
    ),
    "3 LessOrEqual, Cast, Mul, Add": (
        -1,
        lambda n, x: with_numbers(n, cast(n, compare(n, "LessOrEqual", x)), ("Mul", -2.0), ("Add", 1.0)),
    ),
    "3 Less, Not, Where": (1, lambda n, x: where(n, n.op("Not", compare(n, "Less", x)))),
    "3 Less, Where": (1, lambda n, x: where(n, compare(n, "Less", x), -1.0, 1.0)),
    "4 Sign, Add, Sign": (1, lambda n, x: n.op("Sign", with_numbers(n, n.op("Sign", x), ("Add", 0.1)))),
    "5 Add a little, Sign": (1, lambda n, x: n.op("Sign", with_numbers(n, x, ("Add", 1e-6)))),
    "6 detached from Clip": (None, lambda n, x: detached(n, n.op("Sign", x), clipped(n, x))),
    "6 detached, the other way round": (
        None,
        lambda n, x: (lambda c: n.op("Add", c, n.op("Sub", n.op("Sign", x), c)))(clipped(n, x)),
    ),
    "6 detached, subtracted": (
        None,
        lambda n, x: (lambda c: n.op("Sub", c, n.op("Sub", c, n.op("Sign", x))))(clipped(n, x)),
    ),
    "6 detached from Clip computed twice": (
        None,
        lambda n, x: n.op("Add", n.op("Sub", n.op("Sign", x), clipped(n, x)), clipped(n, x)),
    ),
    "6 detached, of GreaterOrEqual": (
        1,
        lambda n, x: detached(n, where(n, compare(n, "GreaterOrEqual", x)), clipped(n, x)),
    ),
    "6 detached from Tanh": (None, lambda n, x: detached(n, n.op("Sign", x), n.op("Tanh", x))),
    "7 detached from a polynomial": (None, lambda n, x: detached(n, n.op("Sign", x), approx_sign(n, x))),
    "8 Clip, Round": (-1, rounded),
    "9 heaviside": (1, heaviside),
    "10 Add of all channels, Sign": (None, lambda n, x: n.op("Sign", with_numbers(n, x, ("Add", 0.0)))),
    "11 Where": (-1, lambda n, x: where(n, compare(n, "Greater", x))),
    "12 Clip, Sign": (None, lambda n, x: n.op("Sign", clipped(n, x))),
    "12 Clip, Greater": (-1, lambda n, x: where(n, compare(n, "Greater", clipped(n, x, -2.0, 0.5)))),
}


def compared(model, x):
    """Convert, and compare with ONNX Runtime wherever it gives +1 or -1; elsewhere what one bit can hold."""
    bundle, report = converted(model)
    (got,) = reference.run(bundle.model, {"x": x}).values()
    (want,) = expected(model, x)
    settled = np.abs(want) == 1
    np.testing.assert_array_equal(got[settled], want[settled])
    np.testing.assert_array_equal(got[want == 0], np.ones((want == 0).sum()))
    assert np.isin(got, [-1, 1]).all()
    return bundle, report, settled


@pytest.mark.parametrize("idiom", IDIOMS)
def test_a_sign_of_real_numbers(idiom):
    at_zero, write = IDIOMS[idiom]
    net = Net(SIZE)
    bundle, report, settled = compared(net.model(write(net, "x")), X)
    assert "Sign" in kinds(bundle.model)
    assert set(kinds(bundle.model)) <= {"Arithmetic", "Sign", "ToFloat"}
    zeros = (X == 0)[0]
    (got,) = reference.run(bundle.model, {"x": X}).values()
    np.testing.assert_array_equal(got[0, zeros], np.full(zeros.sum(), 1 if at_zero is None else at_zero))
    assert bool(report.warnings) == (idiom.startswith("5") or at_zero is None)
    # ONNX's own sign, Clip and Round keep NaN, and the polynomial is NaN where its square overflows.
    unsettled = np.isnan(X) & (at_zero is None or idiom[0] in "4568")
    unsettled |= (X == 0) & (at_zero is None)
    unsettled |= np.isclose(X, -1e-6) & idiom.startswith("5")
    unsettled |= (np.abs(X) > 1e19) & idiom.startswith("7")
    assert (settled | unsettled).all()


@pytest.mark.parametrize("idiom", IDIOMS)
def test_a_sign_between_binary_layers(idiom):
    """Sums of an odd number of terms, and a half of them, so that no sum is 0 but all other ties occur."""
    rng = np.random.default_rng(5)
    net = Net(3, 6, 6)
    y = net.conv(net.sign("x"), signs(rng, 40, 3, 3, 3))
    y = net.op("Mul", y, net.constant(2.0 ** rng.integers(-26, 1, (40, 1, 1))))
    y = IDIOMS[idiom][1](net, y)
    bundle = check(net.model(net.conv(y, signs(rng, 8, 40, 3, 3))), signs(rng, 4, 3, 6, 6))
    assert computing(bundle.model) == ["Sign", "BinaryConv", "Threshold", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("idiom", [name for name, (at_zero, _) in IDIOMS.items() if at_zero is not None])
def test_a_sign_of_sums_that_are_0(idiom):
    rng = np.random.default_rng(6)
    net = Net(4, 6, 6)
    y = net.conv(net.sign("x"), signs(rng, 40, 4, 3, 3), pads=[1, 0, 1, 2])
    y = IDIOMS[idiom][1](net, y)
    bundle = check(net.model(net.conv(y, signs(rng, 8, 40, 3, 3), pads=[1, 1, 1, 1])), signs(rng, 4, 4, 6, 6))
    assert computing(bundle.model) == ["Sign", "BinaryConv", "Threshold", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("idiom", IDIOMS)
def test_a_sign_before_a_pool(idiom):
    rng = np.random.default_rng(7)
    net = Net(3, 9, 9)
    y = net.conv(net.sign("x"), signs(rng, 10, 3, 3, 3), pads=[1, 1, 1, 1])
    y = IDIOMS[idiom][1](net, with_numbers(net, y, ("Add", 0.5)))
    y = net.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    bundle = check(net.model(net.conv(y, signs(rng, 8, 10, 3, 3))), signs(rng, 4, 3, 9, 9))
    assert computing(bundle.model) == ["Sign", "BinaryConv", "Threshold", "BitPool", "BinaryConv", "ToFloat"]


UNBOUNDED = {
    "Sign": (None, lambda n, x: n.op("Add", x, n.op("Sub", n.op("Sign", x), x))),
    "GreaterOrEqual": (1, lambda n, x: detached(n, n.sign(x), x)),
    "Greater, Cast": (0, lambda n, x: detached(n, cast(n, compare(n, "Greater", x)), x)),
    "Greater 0.5, Cast": (0, lambda n, x: detached(n, cast(n, compare(n, "Greater", x, 0.5)), x)),
}


@pytest.mark.parametrize("form", UNBOUNDED)
def test_6_detached_from_the_number_itself(form):
    """Exact up to 2**24; beyond, where ONNX Runtime's rounding loses the sign, it is kept, and warned of."""
    at_zero, write = UNBOUNDED[form]
    rng = np.random.default_rng(15)
    numbers = np.concatenate(
        [rng.normal(size=500) * 10.0 ** rng.integers(-3, 7, 500), 2.0 ** np.arange(-149, 24), X[0]]
    )
    x = np.concatenate([numbers, -numbers]).astype(np.float32)[None]
    net = Net(x.size)
    model = net.model(write(net, "x"))
    bundle, report = converted(model)
    (got,), (want,) = reference.run(bundle.model, {"x": x}).values(), expected(model, x)
    held = (np.abs(x) < 2.0**23) & ((x != 0) | (at_zero is not None))
    np.testing.assert_array_equal(got[held], want[held])
    assert np.isin(got, [-1, 1] if at_zero != 0 else [0, 1]).all()
    assert any("2**24" in warning.what for warning in report.warnings)


@pytest.mark.parametrize("form", UNBOUNDED)
@pytest.mark.parametrize("scale", [1.0, 0.37, 2.0**20])
def test_6_detached_from_a_sum(form, scale):
    """A sum is bounded, so that there is nothing to warn of as long as nothing scales it up."""
    rng = np.random.default_rng(16)
    net = Net(3, 6, 6)
    y = net.conv(net.sign("x"), signs(rng, 40, 3, 3, 3))
    y = UNBOUNDED[form][1](net, with_numbers(net, y, ("Mul", scale)))
    model = net.model(net.conv(y, signs(rng, 8, 40, 3, 3)))
    bundle = check(model, signs(rng, 4, 3, 6, 6)) if scale < 2 else converted(model)[0]
    assert computing(bundle.model).count("BinaryConv") == 2
    assert bool(converted(model)[1].warnings) == (scale > 2)


@pytest.mark.parametrize("full", [False, True])
def test_10_a_bias_a_channel_before_a_sign(full):
    """RSign: the bias is [1, C, 1, 1], or expanded to the whole image."""
    rng = np.random.default_rng(8)
    net = Net(3, 6, 6)
    y = net.conv(net.sign("x"), signs(rng, 9, 3, 3, 3))
    bias = rng.integers(-9, 9, (1, 9, 1, 1)) + 0.5
    y = net.op("Sign", net.op("Add", y, net.constant(np.broadcast_to(bias, (1, 9, 4, 4)) if full else bias)))
    bundle = check(net.model(net.conv(y, signs(rng, 8, 9, 3, 3))), signs(rng, 4, 3, 6, 6))
    assert computing(bundle.model) == ["Sign", "BinaryConv", "Threshold", "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("write", [Net.sign, lambda n, x: n.op("Sign", x)])
def test_12_a_relu_before_a_sign_is_no_sign_of_what_stands_before_it(write):
    """It is +1 everywhere, or 0 and 1 where ONNX's sign of 0 is 0."""
    rng = np.random.default_rng(9)
    net = Net(4, 6, 6)
    y = write(net, net.op("Relu", net.conv(net.sign("x"), signs(rng, 9, 4, 3, 3))))
    z = where(net, compare(net, "Greater", net.op("Relu", net.conv(y, signs(rng, 8, 9, 1, 1)))))
    bundle = check(net.model(z), signs(rng, 4, 4, 6, 6))
    assert kinds(bundle.model).count("Threshold") == 2


# {0, 1} and its like: numbers that a bit decides, and that are not +-1.
LEVELS = {
    "Greater, Cast": lambda n, x: cast(n, compare(n, "Greater", x)),
    "GreaterOrEqual, Cast": lambda n, x: cast(n, compare(n, "GreaterOrEqual", x)),
    "Less, Cast": lambda n, x: cast(n, compare(n, "Less", x)),
    "Less, Not, Cast": lambda n, x: cast(n, n.op("Not", compare(n, "Less", x))),
    "Where 1, 0": lambda n, x: where(n, compare(n, "Greater", x), 1.0, 0.0),
    "Where 0, 1": lambda n, x: where(n, compare(n, "GreaterOrEqual", x, 0.5), 0.0, 1.0),
    "Where 0, -1": lambda n, x: where(n, compare(n, "Greater", x), 0.0, -1.0),
    "Where 0.5, 0": lambda n, x: where(n, compare(n, "Greater", x, -0.25), 0.5, 0.0),
    "Where 2, -2": lambda n, x: where(n, compare(n, "Greater", x), 2.0, -2.0),
    "Where -4, 4": lambda n, x: where(n, compare(n, "Greater", x), -4.0, 4.0),
    "Clip, Round": lambda n, x: n.op("Round", clipped(n, x, 0.0, 1.0)),
    "Clip, Floor": lambda n, x: n.op("Floor", clipped(n, x, 0.0, 1.0)),
    "Clip, Ceil": lambda n, x: n.op("Ceil", clipped(n, x, 0.0, 1.0)),
    "detached from Clip": lambda n, x: detached(n, cast(n, compare(n, "Greater", x)), clipped(n, x, 0.0, 1.0)),
    "sign of a Relu": lambda n, x: n.op("Sign", n.op("Relu", x)),
    "Relu of Sign": lambda n, x: n.op("Relu", n.op("Sign", x)),
    "hard sigmoid, Round": lambda n, x: n.op("Round", clipped(n, with_numbers(n, x, ("Mul", 0.2), ("Add", 0.5)), 0.0)),
    "HardSigmoid, Round": lambda n, x: n.op("Round", n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
    "Min, Max, Round": lambda n, x: n.op("Round", n.op("Max", n.op("Min", x, n.constant(1.0)), n.constant(0.0))),
    "Max of Sign": lambda n, x: n.op("Max", n.constant(0.0), n.op("Sign", x)),
    "(sign + 1) / 2": lambda n, x: with_numbers(n, n.sign(x), ("Add", 1.0), ("Div", 2.0)),
    "Relu of a sign": lambda n, x: n.op("Relu", n.sign(x)),
}


KEEPS_BITS = [form for form in LEVELS if "Cast" in form or "Where" in form or "a sign" in form or "(sign" in form]


@pytest.mark.parametrize("form", LEVELS)
def test_two_numbers_of_real_numbers(form):
    net = Net(SIZE)
    model = net.model(LEVELS[form](net, "x"))
    bundle, report = converted(model)
    (got,) = reference.run(bundle.model, {"x": X}).values()
    (want,) = expected(model, X)
    settled = ~np.isnan(want)
    np.testing.assert_array_equal(got[settled], want[settled])
    assert not report.warnings
    assert settled[~np.isnan(X)].all()
    assert settled.all() or form not in KEEPS_BITS  # the others keep NaN


@pytest.mark.parametrize("form", LEVELS)
@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 2, 1]])
def test_two_numbers_between_binary_convolutions(form, bias, pads):
    """A padding of 0 is one of the two numbers, or left out."""
    rng = np.random.default_rng(10)
    net = Net(4, 7, 7)
    y = net.conv(net.sign("x"), signs(rng, 33, 4, 3, 3), bias=np.full(33, bias))
    y = LEVELS[form](net, y)
    y = net.conv(y, signs(rng, 9, 33, 3, 3), pads=pads)
    y = net.batch_norm(y, rng.normal(size=9), rng.normal(size=9), rng.normal(size=9) * 9, rng.uniform(1, 9, 9))
    y = net.conv(net.sign(y), signs(rng, 8, 9, 1, 1))
    bundle = check(net.model(y), signs(rng, 4, 4, 7, 7))
    layers = ["BinaryConv", "Threshold"]
    assert computing(bundle.model) == ["Sign", *layers, *layers, "BinaryConv", "ToFloat"]


@pytest.mark.parametrize("form", LEVELS)
def test_two_numbers_through_a_pool_to_a_dense_layer(form):
    rng = np.random.default_rng(11)
    net = Net(4, 8, 8)
    y = LEVELS[form](net, net.conv(net.sign("x"), signs(rng, 10, 4, 3, 3), pads=[1, 1, 1, 1]))
    y = net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("Flatten", y)
    y = LEVELS[form](net, net.matmul(y, signs(rng, 160, 12)))
    bundle = check(
        net.model(net.op("Div", net.constant(1.0), net.matmul(y, signs(rng, 12, 5)))), signs(rng, 4, 4, 8, 8)
    )
    assert kinds(bundle.model).count("BinaryDense") == 2
    assert not {"Dense", "BinaryWeightDense", "MaxPool"} & set(kinds(bundle.model))


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 0.5])
def test_padding_of_zeros_and_ones(value):
    rng = np.random.default_rng(12)
    net = Net(4, 7, 7)
    y = cast(net, compare(net, "Greater", "x"))
    y = net.op("Pad", y, net.constant([0, 0, 1, 2, 0, 0, 0, 1], np.int64), net.constant(value))
    bundle = check(net.model(net.conv(y, signs(rng, 8, 4, 3, 3))), rng.integers(-1, 2, (4, 4, 7, 7)).astype("f"))
    assert ("BinaryConv" in kinds(bundle.model)) == (value in (0, 1))


def test_groups_strides_and_dilations_of_zeros_and_ones():
    rng = np.random.default_rng(13)
    net = Net(6, 9, 9)
    y = cast(net, compare(net, "Greater", "x"))
    weights = signs(rng, 9, 2, 3, 2) * (2.0 ** rng.integers(-2, 3, (9, 1, 1, 1)))
    y = net.conv(y, weights, rng.integers(-3, 3, 9), group=3, strides=[2, 1], dilations=[1, 2], pads=[2, 1, 0, 1])
    bundle = check(net.model(y), rng.integers(-1, 2, (4, 6, 9, 9)).astype("f"))
    assert "BinaryConv" in kinds(bundle.model)


@pytest.mark.parametrize(
    ("levels", "binary"), [((0.3, -0.3), True), ((0.7, 0.0), True), ((0.7, 0.2), False), ((3.0, 1.0), False)]
)
def test_sizes_of_activations(levels, binary):
    """The integer sum, then one multiplication: nearer to the exact sum than any sum of rounded terms."""
    rng = np.random.default_rng(14)
    net = Net(5, 6, 6)
    weights = signs(rng, 8, 5, 3, 3)
    model = net.model(net.conv(where(net, compare(net, "Greater", "x"), *levels), weights))
    x = rng.normal(size=(3, 5, 6, 6)).astype("f")
    bundle, _ = converted(model)
    assert ("BinaryConv" in kinds(bundle.model)) == binary
    (got,), (want,) = reference.run(bundle.model, {"x": x}).values(), expected(model, x)
    np.testing.assert_allclose(got, want, rtol=0, atol=45 * 45 * 2.0**-24 * max(map(abs, levels)))


NO_STEPS = {
    "two jumps": lambda n, x: n.op("Round", clipped(n, x)),
    "a window": lambda n, x: where(n, compare(n, "Equal", x)),
    "a window, by And": lambda n, x: where(n, n.op("And", compare(n, "Greater", x, -1.0), compare(n, "Less", x, 1.0))),
    "a slope": lambda n, x: n.op("Add", n.op("Sign", x), clipped(n, x)),
    "zero far away": lambda n, x: n.op("Mul", n.sign(x), cast(n, compare(n, "Less", n.op("Mul", x, x), 1e15))),
    "detached from another sign": lambda n, x: detached(n, n.op("Sign", x), clipped(n, n.op("Neg", x))),
    "detached from what is large": lambda n, x: detached(
        n, n.op("Sign", x), clipped(n, with_numbers(n, x, ("Mul", 1e9)), -1e9, 1e9)
    ),
}


COMPUTED = [form for form in NO_STEPS if form.startswith(("a slope", "detached", "zero far"))]


@pytest.mark.parametrize("form", NO_STEPS)
def test_what_is_no_step_is_computed_or_refused(form):
    net = Net(SIZE)
    model = net.model(NO_STEPS[form](net, "x"))
    if form not in COMPUTED:
        with pytest.raises(ConversionError, match="not supported"):
            converted(model)
        return
    bundle, _ = converted(model)
    (got,), (want,) = reference.run(bundle.model, {"x": X}).values(), expected(model, X)
    held = (X != 0) & ~np.isnan(want)
    np.testing.assert_array_equal(got[held], want[held])
