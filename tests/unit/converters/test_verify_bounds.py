"""Bounds hold for sums in other orders, and are 0 where no order rounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bnnrt import reference
from bnnrt.converters.verify.bounds import bounds
from bnnrt.converters.verify.rounding import lowest_bit
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    Clip,
    Concat,
    Conv,
    Domain,
    Gather,
    LogSoftmax,
    MaxPool,
    Pad,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    Softmax,
    TensorType,
    ToFloat,
    Window,
)

INPUT = {"x": TensorType((None, 5, 5, 40), Domain.FLOAT32)}
WINDOW = Window((2, 2))
OPS = [
    (Relu(), None),
    (Clip(-0.5, 0.75), None),
    (PRelu(), [-1.5]),
    (PRelu(), [0.1, 2.0, -3.0]),
    (AveragePool(WINDOW), None),
    (MaxPool(WINDOW), None),
    (Pad((1, 0, 2, 1), -1.0), None),
    (Reshape((3 * 25,)), None),
    (Softmax(), None),
    (LogSoftmax(), None),
    (Sigmoid(), None),
    (Arithmetic(ArithmeticKind.ADD), [0.1, 0.2, 0.3]),
    (Arithmetic(ArithmeticKind.SUB), [7.1]),
    (Arithmetic(ArithmeticKind.MUL), [-0.3]),
    (Arithmetic(ArithmeticKind.DIV), [0.3, -7.0, 11.0]),
    (Arithmetic(ArithmeticKind.MAX), [0.3, -7.0, 11.0]),
    (Arithmetic(ArithmeticKind.MIN), [0.5]),
    (Gather(2), np.array([4, 0, 0], dtype=np.int32)),
]


def network(op, constant, rng):
    """A convolution of real numbers, then ``op``."""
    constants = {"w": Constant.of(rng.normal(size=(3, 1, 1, 40)).astype(np.float32))}
    inputs = ["y"]
    if constant is not None:
        array = constant if isinstance(constant, np.ndarray) else np.asarray(constant, dtype=np.float32)
        constants["c"] = Constant.of(array)
        inputs.append("c")
    nodes = (Node("conv", Conv(Window((1, 1))), ("x", "w"), ("y",)), Node("op", op, tuple(inputs), ("z",)))
    return Graph(INPUT, nodes, ("y", "z"), constants)


@pytest.mark.parametrize(("op", "constant"), OPS, ids=lambda part: type(part).__name__)
def test_sums_in_another_order_stay_within_the_bound(op, constant):
    rng = np.random.default_rng(41)
    graph = network(op, constant, rng)
    x = (rng.normal(size=(4, 5, 5, 40)) * 10).astype(np.float32)
    # The same sum from the other end, with the weights turned around.
    turned = {**graph.constants, "w": Constant.of(np.ascontiguousarray(graph.constants["w"].data[..., ::-1]))}
    other = Graph(graph.inputs, graph.nodes, graph.outputs, turned)
    theirs = reference.run(other, {"x": np.ascontiguousarray(x[..., ::-1])})
    ours = reference.run(graph, {"x": x})
    found = bounds(graph, {"x": x}, {name: array.reshape(4, -1) for name, array in theirs.items()}, ())
    for name in ("y", "z"):
        apart = np.abs(ours[name].astype(np.float64) - theirs[name])
        assert found.errors[name].shape == apart.shape
        assert (apart <= found.errors[name]).all()
        assert found.errors[name].max() < 1e-2
    assert (ours["y"] != theirs["y"]).any()
    # Not far beyond what happens: the sums of 40 terms round by less than their bound, but not by 1000 times less.
    assert np.abs(ours["y"].astype(np.float64) - theirs["y"]).max() > found.errors["y"].max() / 1000


def test_a_number_that_both_sides_share_leaves_no_error_behind_it():
    rng = np.random.default_rng(45)
    graph = network(Arithmetic(ArithmeticKind.MUL), [0.3], rng)
    nodes = (*graph.nodes, Node("add", Arithmetic(ArithmeticKind.ADD), ("z", "y"), ("s",)))
    graph = Graph(graph.inputs, nodes, ("s",), graph.constants)
    x = rng.normal(size=(1, 5, 5, 40)).astype(np.float32)
    ours = reference.run(graph, {"x": x}, everything=True)
    known = {name: ours[name].reshape(1, -1) for name in ("y", "z", "s")}
    free, shared, all_shared = (bounds(graph, {"x": x}, known, forced) for forced in ((), {"z"}, {"y", "z"}))
    for found, forced in ((shared, {"z"}), (all_shared, {"y", "z"})):  # with the help of others, the same
        helped = bounds(graph, {"x": x}, known, forced, others=free)
        for name in found.computed:
            np.testing.assert_array_equal(helped.values[name], found.values[name])
            np.testing.assert_array_equal(helped.computed[name], found.computed[name])
            np.testing.assert_array_equal(helped.errors[name], found.errors[name])
    for found in (free, shared, all_shared):
        assert found.computed["y"].all()
        np.testing.assert_array_equal(found.computed["y"], free.computed["y"])
    assert (shared.computed["z"] == free.computed["z"]).all()
    assert not shared.errors["z"].any()
    assert (shared.computed["s"] < free.computed["s"]).all()
    assert (shared.computed["s"] > free.computed["y"]).all()
    assert not all_shared.computed["z"].any()
    assert not all_shared.computed["s"].any()


def test_a_layer_behind_it_has_another_bound_than_without():
    rng = np.random.default_rng(46)
    graph = network(Conv(Window((1, 1))), rng.normal(size=(2, 1, 1, 3)).astype(np.float32), rng)
    x = rng.normal(size=(2, 5, 5, 40)).astype(np.float32)
    ours = reference.run(graph, {"x": x}, everything=True)
    known = {name: ours[name].reshape(2, -1) for name in ("y", "z")}
    free, shared = bounds(graph, {"x": x}, known, ()), bounds(graph, {"x": x}, known, {"y"})
    helped = bounds(graph, {"x": x}, known, {"y"}, others=free)
    assert (shared.computed["z"] < free.computed["z"]).all()
    np.testing.assert_array_equal(helped.computed["z"], shared.computed["z"])
    np.testing.assert_array_equal(bounds(graph, {"x": x}, known, (), others=shared).computed["z"], free.computed["z"])


@pytest.mark.parametrize("size", [1.0, 0.3])
def test_bounds_of_signs_are_those_of_each_image_alone(size):
    """Images whose numbers have the same size share their sums."""
    rng = np.random.default_rng(47)
    window = Window((3, 3), pads=(1, 0, 2, 1))
    constants = {"w": Constant.of((rng.normal(size=(3, 3, 3, 40)) * size).astype(np.float32))}
    graph = Graph(INPUT, (Node("conv", Conv(window), ("x", "w"), ("y",)),), ("y",), constants)
    x = rng.choice(np.array([-size, size], np.float32), (3, 5, 5, 40))
    together = bounds(graph, {"x": x}, {}, ()).computed["y"]
    alone = np.concatenate([bounds(graph, {"x": image[None]}, {}, ()).computed["y"] for image in x])
    np.testing.assert_array_equal(together, alone)


def test_lowest_bit():
    rng = np.random.default_rng(48)
    rows = rng.integers(0, 2**32, (4000, 2), dtype=np.uint32).view(np.float32)
    rows[::5, 0], rows[::7, 1] = 0.0, -0.0
    rows[1::5] = (rng.integers(-300, 300, rows[1::5].shape) * 2.0 ** rng.integers(-150, 90)).astype(np.float32)
    rows[:6] = [[0, 0], [2.0**-149, 1], [2.0**127, 0], [np.inf, 1], [np.nan, 0], [3.4028235e38, -0.0]]

    def by_fractions(row):
        if not np.isfinite(row).all():
            return 0.0
        ratios = [Fraction(float(number)) for number in row if number != 0]
        # Of n / 2**k in lowest terms, n is odd or k is 0.
        return min((float(Fraction(r.numerator & -r.numerator, r.denominator)) for r in ratios), default=np.inf)

    assert lowest_bit(rows).tolist() == [by_fractions(row) for row in rows]


def test_concat_keeps_the_bound_of_each_part():
    graph = network(Relu(), None, np.random.default_rng(43))
    nodes = (*graph.nodes, Node("c", Concat(), ("x", "z"), ("joined",)))
    graph = Graph(graph.inputs, nodes, ("joined",), graph.constants)
    x = np.random.default_rng(44).normal(size=(2, 5, 5, 40)).astype(np.float32)
    found = bounds(graph, {"x": x}, {}, ())
    assert not found.errors["joined"][..., :40].any()
    np.testing.assert_array_equal(found.errors["joined"][..., 40:], found.errors["z"])
    assert found.errors["z"].any()


@pytest.mark.parametrize(
    ("x", "weights", "exact"),
    [
        ([255, 254], [1, -1], True),  # pixels
        ([0.5, 0.25], [0.125, 3.0], True),
        ([0.1, 1.0], [1.0, 1.0], False),
        ([2.0**24, 1.0], [1.0, 1.0], False),
        ([2.0**24, 2.0], [1.0, 1.0], True),  # multiples of 2
        ([2.0**23, 2.0**23], [1.0, 1.0], True),
        ([1.0, -1.0], [0.1, 0.1], False),  # so it is, but for another reason
        ([1.0, -1.0], [0.375, 0.375], True),
        ([0.0, 0.0], [0.1, 0.3], True),
    ],
)
def test_when_a_sum_is_exact(x, weights, exact):
    types = {"x": TensorType((None, 1, 1, 2), Domain.FLOAT32)}
    constants = {"w": Constant.of(np.array(weights, dtype=np.float32).reshape(1, 1, 1, 2))}
    graph = Graph(types, (Node("conv", Conv(Window((1, 1))), ("x", "w"), ("y",)),), ("y",), constants)
    found = bounds(graph, {"x": np.array(x, dtype=np.float32).reshape(1, 1, 1, 2)}, {}, ())
    assert (found.errors["y"] == 0).all() == exact


def test_near_a_threshold_and_behind_it():
    rng = np.random.default_rng(42)
    graph = network(Sign(), None, rng)
    nodes = (*graph.nodes, Node("float", ToFloat(), ("z",), ("f",)))
    graph = Graph(graph.inputs, nodes, ("f",), graph.constants)
    x = np.ones((1, 5, 5, 40), dtype=np.float32)
    x[0, 0, 0] = 0.1
    theirs = reference.run(graph, {"x": x}, everything=True)["y"].copy()
    theirs[0, 0, 0, 1] = 1e-7
    known = {"y": theirs.reshape(1, -1)}
    found = bounds(graph, {"x": x}, known, {"z"})
    assert found.near["z"][0, 0, 0].tolist() == [False, True, False]
    assert not found.errors["f"].any()
    assert bounds(graph, {"x": x}, known, ()).errors["f"][0, 0, 0].tolist() == [0.0, 2.0, 0.0]
