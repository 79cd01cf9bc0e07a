import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import reference
from bnnrt.converters.draft import Draft
from bnnrt.converters.handlers import layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.ops import Domain, Reshape, TensorType

SHAPES = [(6, 4, 2), (2, 3, 8), (48,), (8, 6), (6, 8), (4, 12), (1, 48), (3, 1, 16), (16, 3, 1), (5, 1, 1), (1, 1, 1)]


def started(shape):
    draft = Draft({"x": TensorType((None, *shape), Domain.FLOAT32)})
    return draft, Value.plain("x", shape)


def evaluated(draft, value, x):
    """The graph tensor of a value, and the same value in ONNX's own order."""
    final = layout.in_onnx_order(draft, "end", value)
    output = draft.emit("copy", Reshape(final.shape), final.tensor)
    graph = draft.graph((output,))
    return reference.run(graph, {"x": x})[output]


@st.composite
def programs(draw):
    shape = draw(st.sampled_from(SHAPES))
    current, steps = shape, []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["transpose", "reshape", "image", "matrix"]))
        if kind == "transpose":
            order = tuple(draw(st.permutations(range(len(current)))))
            steps.append((kind, order))
            current = tuple(current[i] for i in order)
        elif kind == "reshape":
            fitting = [s for s in SHAPES if np.prod(s) == np.prod(current)]
            current = draw(st.sampled_from(fitting))
            steps.append((kind, current))
        elif kind == "matrix" or len(current) == 3:
            steps.append((kind, None))
    return shape, steps


@given(programs())
@settings(max_examples=200, deadline=None)
def test_followed_layout_is_that_of_moved_data(program):
    shape, steps = program
    draft, value = started(shape)
    x = np.arange(2 * np.prod(shape), dtype=np.float32).reshape(2, *shape)
    want = x
    for kind, argument in steps:
        if kind == "transpose":
            value, want = layout.transposed(value, argument), want.transpose(0, *(1 + a for a in argument))
        elif kind == "reshape":
            value, want = layout.reshaped(draft, "r", value, argument), want.reshape(2, *argument)
        elif kind == "image":
            value = layout.as_image(draft, "i", value)
            assert draft.types[value.tensor].shape[1:] == (value.shape[1], value.shape[2], value.shape[0])
        else:
            value = layout.as_matrix(draft, "m", value)
        assert value.shape == want.shape[1:]
        laid = reference.run(draft.graph((value.tensor,)), {"x": x})[value.tensor] if value.tensor != "x" else x
        np.testing.assert_array_equal(laid[0].reshape(-1), value.laid(want[0]))
    np.testing.assert_array_equal(evaluated(draft, value, x), want)


def test_transposes_and_flattening_move_nothing():
    draft, value = started((4, 4, 6))
    value = layout.transposed(value, (2, 0, 1))
    value = layout.as_image(draft, "i", value)
    value = layout.as_matrix(draft, "m", layout.reshaped(draft, "r", value, (96,)))
    assert {type(n.op) for n in draft.graph((value.tensor,)).nodes} == {Reshape}


@given(st.permutations(range(3)), st.permutations(range(3)))
@settings(max_examples=40, deadline=None)
def test_two_values_are_brought_into_one_order(first, second):
    draft, value = started((2, 3, 4))
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    perms = [tuple(first), tuple(second)]
    values = [layout.moved(draft, "p", value, p, tuple((2, 3, 4)[i] for i in p)) for p in perms]
    a, b = layout.like(draft, "l", *values)
    assert a.perm == b.perm
    assert draft.types[a.tensor] == draft.types[b.tensor]
    for v in (a, b):
        np.testing.assert_array_equal(evaluated(draft, v, x), x)


def test_values_whose_axes_cross_are_brought_into_onnx_order():
    draft, value = started((6, 4))
    turned = layout.reshaped(draft, "r", layout.transposed(value, (1, 0)), (6, 4))
    a, b = layout.like(draft, "l", turned, value)
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    np.testing.assert_array_equal(evaluated(draft, a, x), x.transpose(0, 2, 1).reshape(1, 6, 4))
    np.testing.assert_array_equal(evaluated(draft, b, x), x)
