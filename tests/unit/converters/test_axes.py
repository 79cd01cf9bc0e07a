"""One axis of a value in any layout: found, brought to the end, resized, repeated, against NumPy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import reference
from bnnrt.converters.draft import Draft
from bnnrt.converters.handlers.axes import along, broadcast, in_order, last, ordered, resized
from bnnrt.converters.handlers.layout import Value, in_onnx_order, reshaped, transposed
from bnnrt.ops import Arithmetic, ArithmeticKind, Domain, Gather, Relu, Reshape, TensorType


@st.composite
def laid_out(draw):
    """A draft, a value in it, its array, and what feeds it."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    x = np.arange(2 * np.prod(shape), dtype=np.float32).reshape(2, *shape)
    draft = Draft({"x": TensorType((None, *shape), Domain.FLOAT32)})
    value, array = Value.plain("x", shape), x
    for _ in range(draw(st.integers(0, 2))):
        order = tuple(draw(st.permutations(range(len(value.shape)))))
        value, array = transposed(value, order), array.transpose(0, *(axis + 1 for axis in order))
        if len(value.shape) > 1 and draw(st.booleans()):
            first = draw(st.integers(0, len(value.shape) - 2))
            size = value.shape[first] * value.shape[first + 1]
            merged = (*value.shape[:first], size, *value.shape[first + 2 :])
            value, array = reshaped(draft, "merge", value, merged), array.reshape(2, *merged)
    return draft, value, array, x


def computed(draft, value, x):
    out = draft.emit("out", Reshape(value.shape), in_onnx_order(draft, "out", value).tensor)
    return reference.run(draft.graph((out,)), {"x": x})[out]


def picked(draft, value, axis, indices):
    held, number = along(draft, "pick", value, axis)
    operand = draft.constant("indices", np.array(indices, dtype=np.int32))
    return resized(held, axis, len(indices), draft.emit("pick", Gather(number), held.tensor, operand))


@given(laid_out(), st.data())
@settings(max_examples=200, deadline=None)
def test_along_and_resized(laid, data):
    draft, value, array, x = laid
    axis = data.draw(st.integers(0, len(value.shape) - 1))
    indices = data.draw(st.lists(st.integers(0, value.shape[axis] - 1), min_size=1, max_size=5))
    found = picked(draft, value, axis, indices)
    np.testing.assert_array_equal(computed(draft, found, x), array.take(indices, axis=axis + 1))


@given(laid_out(), st.data())
@settings(max_examples=200, deadline=None)
def test_last_and_in_order(laid, data):
    draft, value, array, x = laid
    order = last(value.shape, data.draw(st.integers(0, len(value.shape) - 1)))
    tensor = draft.emit("relu", Relu(), ordered(draft, "relu", value, order))
    assert draft.types[tensor].shape == (None, *(value.shape[axis] for axis in order))
    np.testing.assert_array_equal(computed(draft, in_order(tensor, value.shape, order), x), array)


@given(laid_out(), st.data())
@settings(max_examples=200, deadline=None)
def test_broadcast(laid, data):
    draft, value, array, x = laid
    part, of_array = value, array
    for axis, size in enumerate(value.shape):
        if size > 1 and data.draw(st.booleans()):
            part, of_array = picked(draft, part, axis, [0]), of_array.take([0], axis=axis + 1)
    pair = (value, part) if data.draw(st.booleans()) else (part, value)
    first, second, order = broadcast(draft, "sum", *pair)
    tensor = draft.emit("sum", Arithmetic(ArithmeticKind.ADD), first, second)
    found = computed(draft, in_order(tensor, value.shape, order), x)
    np.testing.assert_array_equal(found, array + of_array)
