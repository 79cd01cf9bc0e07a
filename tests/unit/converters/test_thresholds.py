"""Chains between accumulators and a sign, folded to thresholds, against ONNX Runtime at every accumulator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt.converters.passes.chains import Chain, Operation
from bnnrt.converters.passes.thresholds import FoldThresholds, fold
from bnnrt.graph import Graph, Node
from bnnrt.ops import Arithmetic, ArithmeticKind, Domain, MaxPool, Sign, SignOfZero, TensorType, ToFloat, Window

from .models import Net, check, computing, kinds, norm, signs

K = 9
EVERY_INPUT = np.array(list(itertools.product((-1, 1), repeat=K)), dtype=np.float32)
KINDS = list(ArithmeticKind)


def dense_chain(chain, outputs=24, seed=0):
    """Bits -> dense layer with every accumulator from -K to K -> chain -> sign -> dense layer."""
    rng = np.random.default_rng(seed)
    net = Net(K)
    x = chain(net, net.matmul(net.sign("x"), signs(rng, K, outputs)))
    return net.model(net.matmul(net.sign(x), signs(rng, outputs, 16)))


def folded(model):
    bundle = check(model, EVERY_INPUT)
    assert kinds(bundle.model) == ["Sign", "BinaryDense", "Threshold", "BinaryDense", "ToFloat"]
    threshold = next(n for n in bundle.model.nodes if n.op.__class__.__name__ == "Threshold")
    return tuple(bundle.model.constants[name].unpacked() for name in threshold.inputs[1:])


def test_without_a_chain_the_threshold_is_0():
    threshold, falling = folded(dense_chain(lambda net, x: x))
    # K is odd, so 0 does not occur and the first value that counts is 1.
    np.testing.assert_array_equal(threshold, 1)
    assert not falling.any()


def test_batch_normalization_with_scales_of_both_signs_and_0():
    parameters = norm(np.random.default_rng(3), 24)
    threshold, falling = folded(dense_chain(lambda net, x: net.batch_norm(x, *parameters)))
    assert falling.any()
    assert not falling.all()
    assert (threshold >= -K).all()
    assert (threshold <= K + 1).all()


@pytest.mark.parametrize("bias", [2.0, -2.0, 0.0])
def test_constant_channels(bias):
    threshold, falling = folded(dense_chain(lambda net, x: net.batch_norm(x, *np.zeros((2, 24)), *np.ones((2, 24)))))
    assert (threshold == -K).all()
    assert not falling.any()
    chain = [0.0] * 24, [bias] * 24, [1.0] * 24, [1.0] * 24
    threshold, falling = folded(dense_chain(lambda net, x: net.batch_norm(x, *chain)))
    assert (threshold == (K + 1 if bias < 0 else -K)).all()


@pytest.mark.parametrize("operator", ["GreaterOrEqual", "Greater", "Less", "LessOrEqual"])
@pytest.mark.parametrize("factor", [1.0, -1.0, 0.5])
def test_ties(operator, factor):
    def chain(net, x):
        x = net.op("Sub", net.op("Mul", x, net.constant(factor)), net.constant(np.arange(24) * factor - 7 * factor))
        condition = net.op(operator, x, net.constant(0.0))
        values = (1.0, -1.0) if operator.startswith("G") else (-1.0, 1.0)
        return net.op("Where", condition, *map(net.constant, values))

    check(dense_chain(chain), EVERY_INPUT)


@given(
    st.lists(
        st.tuples(st.sampled_from(["Add", "Sub", "Mul", "Div"]), st.booleans(), st.booleans(), st.integers(0, 10**6)),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_random_chains(steps):
    def chain(net, x):
        for operator, first, scalar, seed in steps:
            rng = np.random.default_rng(seed)
            c = net.constant(rng.normal(size=() if scalar else 24) * rng.choice([0.1, 1, 5]))
            x = net.op(operator, *((c, x) if first else (x, c)))
        return x

    bundle = check(dense_chain(chain), EVERY_INPUT)
    if not any(operator == "Div" and first for operator, first, _, _ in steps):
        assert "Threshold" in kinds(bundle.model)


def test_a_chain_that_changes_twice_stays():
    def chain(net, x):
        # 1 / x - 0.4 is positive at 1 only.
        return net.op("Sub", net.op("Div", net.constant(1.0), x), net.constant(0.4))

    bundle = check(dense_chain(chain), EVERY_INPUT)
    assert kinds(bundle.model)[2:6] == ["ToFloat", "Arithmetic", "Arithmetic", "Sign"]


def test_an_accumulator_that_is_read_twice_is_folded_all_the_same():
    rng = np.random.default_rng(4)
    net = Net(K)
    x = net.matmul(net.sign("x"), signs(rng, K, 24))
    y = net.batch_norm(x, *norm(rng, 24))
    bundle = check(net.model(net.matmul(net.sign(y), signs(rng, 24, 3)), y), EVERY_INPUT)
    assert "Threshold" in kinds(bundle.model)


POOLS = ["conv, pool, norm", "conv, norm, pool", "conv, norm, pool, norm", "conv, pool", "conv, norm, sign, pool"]


@pytest.mark.parametrize("order", POOLS)
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 1)])
@pytest.mark.parametrize("zero_padding", [False, True])
def test_pools_in_every_place(order, pads, zero_padding):
    rng = np.random.default_rng(5)
    net = Net(5, 8, 7)
    x = net.conv(net.sign("x"), signs(rng, 40, 5, 3, 3), pads=[int(zero_padding)] * 4)
    for step in order.split(", ")[1:]:
        if step == "norm":
            x = net.batch_norm(x, *norm(rng, 40))
        elif step == "sign":
            x = net.sign(x)
        else:
            x = net.op("MaxPool", x, kernel_shape=[2, 3], strides=[2, 2], pads=pads)
    bundle = check(net.model(net.conv(net.sign(x), signs(rng, 4, 40, 2, 2))), signs(rng, 6, 5, 8, 7))
    assert computing(bundle.model)[-5:] == ["BinaryConv", "Threshold", "BitPool", "BinaryConv", "ToFloat"]
    pool = next(n for n in bundle.model.nodes if n.name.startswith("maxpool"))
    minimum = bundle.model.constants[pool.inputs[1]].unpacked()
    # A norm behind the pool turns it into a minimum where its scale is negative; one before it does not.
    assert minimum.any() == (order.endswith("pool, norm"))


def test_two_pools_stay():
    rng = np.random.default_rng(6)
    net = Net(5, 8, 8)
    x = net.conv(net.sign("x"), signs(rng, 40, 5, 3, 3))
    for _ in range(2):
        x = net.batch_norm(net.op("MaxPool", x, kernel_shape=[2, 2]), *norm(rng, 40))
    bundle = check(net.model(net.conv(net.sign(x), signs(rng, 4, 40, 2, 2))), signs(rng, 6, 5, 8, 8))
    assert kinds(bundle.model).count("MaxPool") == 2


def test_a_flatten_between_norm_and_sign():
    rng = np.random.default_rng(7)
    net = Net(5, 4, 4)
    x = net.conv(net.sign("x"), signs(rng, 12, 5, 3, 3))
    x = net.op(
        "Add", net.op("Flatten", net.batch_norm(x, *norm(rng, 12))), net.constant(np.repeat(rng.normal(size=12), 4))
    )
    bundle = check(net.model(net.matmul(net.sign(x), signs(rng, 48, 3))), signs(rng, 4, 5, 4, 4))
    assert kinds(bundle.model)[-4:] == ["Threshold", "Reshape", "BinaryDense", "ToFloat"]


def test_a_threshold_a_position_stays_exact():
    rng = np.random.default_rng(8)
    net = Net(5, 4, 4)
    x = net.conv(net.sign("x"), signs(rng, 12, 5, 3, 3))
    x = net.op("Add", x, net.constant(rng.normal(size=(12, 2, 2))))
    check(net.model(net.conv(net.sign(x), signs(rng, 3, 12, 2, 2))), signs(rng, 4, 5, 4, 4))


ACTIVATIONS = {
    "Relu": lambda n, x: n.op("Relu", x),
    "LeakyRelu": lambda n, x: n.op("LeakyRelu", x, alpha=0.1),
    "PRelu": lambda n, x: n.op("PRelu", x, n.constant(np.linspace(0.1, 1.5, 12).reshape(12, 1, 1))),
    "Clip": lambda n, x: n.op("Clip", x, n.constant(-2.5), n.constant(6.0)),
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("pooled", [False, True])
def test_activations_are_folded(kind, pooled):
    rng = np.random.default_rng(9)
    net = Net(5, 6, 6)
    x = ACTIVATIONS[kind](net, net.conv(net.sign("x"), signs(rng, 12, 5, 3, 3)))
    if pooled:
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.sign(net.batch_norm(x, *norm(rng, 12)))
    bundle = check(net.model(net.conv(x, signs(rng, 3, 12, 2, 2))), signs(rng, 20, 5, 6, 6))
    thresholds = ["Threshold", *["BitPool"] * pooled]
    assert computing(bundle.model) == ["Sign", "BinaryConv", *thresholds, "BinaryConv", "ToFloat"]


def test_an_activation_that_turns_around_stays():
    """A negative slope makes a sum rise again where it is negative."""
    rng = np.random.default_rng(10)
    net = Net(9)
    x = net.op("LeakyRelu", net.matmul(net.sign("x"), signs(rng, 9, 8)), alpha=-1.0)
    x = net.sign(net.op("Sub", x, net.constant(4.0)))
    bundle = check(net.model(net.matmul(x, signs(rng, 8, 3))), signs(rng, 50, 9))
    assert "PRelu" in kinds(bundle.model)


def small_chain(before, after, pool, values):
    node = Node("pool", MaxPool(Window((2, 2))), ("a",), ("b",)) if pool else None
    return Chain("acc", np.array(values, dtype=np.int32), 1, before, node, after)


def step(kind, constant, first=False):
    return Operation(Arithmetic(kind), np.array([constant], dtype=np.float32), first)


def test_nan_gives_bit_0():
    # 0 / 0 is NaN at 0; below and above it is 0.
    chain = small_chain((step(ArithmeticKind.DIV, 0.0, first=True),), (), False, [0, 2])
    result = fold(chain, Sign(SignOfZero.GE))
    assert (result.threshold.tolist(), result.falling.tolist()) == ([2], [False])


def test_nan_before_a_pool_is_not_folded():
    chain = small_chain((step(ArithmeticKind.DIV, 0.0, first=True),), (), True, [0, 2])
    assert fold(chain, Sign()) is None


def test_a_pool_behind_a_chain_that_falls():
    # The larger the accumulator, the smaller what is pooled; the bit rises with it.
    chain = small_chain((step(ArithmeticKind.MUL, -1.0),), (step(ArithmeticKind.ADD, 1.0),), True, [-3, -1, 1, 3])
    result = fold(chain, Sign())
    assert (result.threshold.tolist(), result.falling.tolist(), result.minimum.tolist()) == ([3], [True], [False])
    chain = small_chain((step(ArithmeticKind.MUL, -1.0),), (step(ArithmeticKind.MUL, -1.0),), True, [-3, -1, 1, 3])
    result = fold(chain, Sign())
    assert (result.threshold.tolist(), result.falling.tolist(), result.minimum.tolist()) == ([1], [False], [True])


def test_pixels_are_integers_too():
    graph = Graph(
        {"p": TensorType((None, 2, 2, 3), Domain.UINT8)},
        (Node("f", ToFloat(), ("p",), ("f",)), Node("s", Sign(SignOfZero.GT), ("f",), ("s",))),
        ("s",),
    )
    result = FoldThresholds().apply(graph)
    assert kinds(result) == ["Threshold"]
    assert result.constants[result.nodes[0].inputs[1]].data.tolist() == [1, 1, 1]
