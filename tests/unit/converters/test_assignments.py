"""Assignment to parts of a tensor, in the forms that PyTorch's exporters give it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from bnnrt.errors import ConversionError

from .models import Net, check, computing, converted, signs

RNG = np.random.default_rng(23)
X = RNG.integers(-9, 9, (3, 6, 4, 5)).astype(np.float32)
INT64 = np.int64


def doubled(net, x, axis, positions):
    return net.op("Mul", net.op("Gather", x, net.constant(positions, INT64), axis=axis), net.constant(2.0))


def scattered_in_front(net, x, axis, positions, updates, **how):
    """As the newer exporter writes ``x[:, positions] = updates``: with the axis in front."""
    order = [axis, *(i for i in range(4) if i != axis)]
    rows = net.constant(np.reshape(positions, (-1, 1)), INT64)
    moved = [net.op("Transpose", value, perm=order) for value in (x, updates)]
    y = net.op("ScatterND", moved[0], rows, moved[1], **how)
    return net.op("Transpose", y, perm=[int(i) for i in np.argsort(order)])


def scattered_on_a_grid(net, x, vectors, updates):
    """As the older exporter writes it: at the grid of all images and of positions along the next axes."""
    count = len(vectors) + 1
    batch = net.op("Gather", net.op("Shape", x), net.constant(0, INT64))
    images = net.op("Range", net.constant(0, INT64), batch, net.constant(1, INT64))
    parts = [net.op("Reshape", images, net.constant([-1, *[1] * (count - 1)], INT64))]
    for axis, vector in enumerate(vectors, 1):
        parts.append(net.constant(np.reshape(vector, (-1, *[1] * (count - 1 - axis))), INT64))
    whole = parts[0]
    for part in parts[1:]:
        whole = net.op("Add", whole, part)
    sizes = net.op("Shape", whole)
    last = net.constant([-1], INT64)
    indices = [net.op("Unsqueeze", net.op("Expand", part, sizes), last) for part in parts]
    rest = net.constant(X.shape[count:], INT64)
    target = net.op("Concat", sizes, rest, axis=0) if X.shape[count:] else sizes
    return net.op("ScatterND", x, net.op("Concat", *indices, axis=-1), net.op("Reshape", updates, target))


def filled(net, like, number):
    value = helper.make_tensor("fill", TensorProto.FLOAT, [1], [number])
    return net.op("ConstantOfShape", net.op("Shape", like), value=value)


@pytest.mark.parametrize("batch", ["N", 3])
@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("positions", [[0, 1, 2], [3], [2, 0], [-1, 1], [0, 1, 2, 3]])
def test_the_axis_in_front(batch, axis, positions):
    net = Net(*X.shape[1:], batch=batch)
    updates = doubled(net, "x", axis, positions)
    bundle = check(net.model(scattered_in_front(net, "x", axis, positions, updates, reduction="none")), X)
    assert "Concat" in computing(bundle.model) or len(positions) == X.shape[axis]


@pytest.mark.parametrize("batch", ["N", 3])
@pytest.mark.parametrize(
    "vectors", [[[0, 1, 2]], [[2, -1]], [range(6), [1, 2]], [[1], [3, 0], [4]], [[5, 0], [2], range(5)]]
)
def test_a_grid(batch, vectors):
    net = Net(*X.shape[1:], batch=batch)
    updates = "x"
    for axis, vector in enumerate(vectors, 1):
        updates = doubled(net, updates, axis, list(vector))
    check(net.model(scattered_on_a_grid(net, "x", [list(v) for v in vectors], updates)), X)


def test_a_grid_with_an_axis_that_the_updates_lack():
    net = Net(*X.shape[1:])
    updates = net.op("Gather", "x", net.constant(4, INT64), axis=1)
    check(net.model(scattered_on_a_grid(net, "x", [[2]], net.op("Neg", updates))), X)


@pytest.mark.parametrize("axis", [1, 3, -1, -2])
def test_one_index(axis):
    net = Net(*X.shape[1:])
    updates = doubled(net, "x", axis, [1])
    index = net.op("Expand", net.constant(-1, INT64), net.op("Shape", updates))
    check(net.model(net.op("ScatterElements", "x", index, updates, axis=axis)), X)


@pytest.mark.parametrize("number", [0.0, -1.5])
@pytest.mark.parametrize("form", ["in front", "grid", "one index"])
def test_one_number(form, number):
    net = Net(*X.shape[1:])
    positions = [1] if form == "one index" else [0, 4]
    updates = filled(net, net.op("Gather", "x", net.constant(positions, INT64), axis=1), number)
    if form == "in front":
        y = scattered_in_front(net, "x", 1, positions, updates)
    elif form == "grid":
        y = scattered_on_a_grid(net, "x", [positions], updates)
    else:
        index = net.op("Expand", net.constant(1, INT64), net.op("Shape", updates))
        y = net.op("ScatterElements", "x", index, updates, axis=1)
    bundle = check(net.model(y), X)
    assert "Concat" not in computing(bundle.model)


def test_between_binary_layers():
    net = Net(*X.shape[1:])
    y = net.conv(net.sign("x"), signs(RNG, 8, 6, 3, 3), pads=[1] * 4)
    y = scattered_in_front(net, y, 1, [0, 1, 2, 3], net.op("Slice", y, *[net.constant([n], INT64) for n in (4, 8, 1)]))
    check(net.model(net.conv(net.sign(y), signs(RNG, 4, 8, 3, 3))), X)


@pytest.mark.parametrize("case", ["twice", "added", "in the batch"])
def test_what_is_no_such_assignment_is_refused(case):
    net = Net(*X.shape[1:], opset=18)
    positions = [1, 1] if case == "twice" else [0, 1]
    if case == "in the batch":
        first = net.op("Slice", "x", *[net.constant([n], INT64) for n in (0, 1, 0)])
        y = net.op("ScatterND", "x", net.constant([[0]], INT64), first)
    else:
        how = {"reduction": "add"} if case == "added" else {}
        y = scattered_in_front(net, "x", 1, positions, doubled(net, "x", 1, positions), **how)
    with pytest.raises(ConversionError, match=r"batch|torch\.cat"):
        converted(net.model(y))
