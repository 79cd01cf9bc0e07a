"""Operators that pick elements, against ONNX Runtime, and what is refused of them."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnnrt
from bnnrt import bundle as bundles
from bnnrt.converters.convert import Options
from bnnrt.errors import ConversionError, InputError
from bnnrt.ops import Domain

from .models import Net, check, converted, expected, kinds, signs

RNG = np.random.default_rng(4)
INT64, INT32 = onnx.TensorProto.INT64, onnx.TensorProto.INT32
END = 2**63 - 1


def integers(*shape):
    return RNG.integers(-4, 5, shape).astype(np.float32)


def typed(model, *kinds):
    """``model``, whose outputs are of other types than float32."""
    for output, kind in zip(model.graph.output, kinds, strict=True):
        output.type.tensor_type.elem_type = kind
    return model


def int64(net, *values):
    return net.constant(values[0] if len(values) == 1 and not isinstance(values[0], int) else values, np.int64)


bounds = st.one_of(st.integers(-9, 9), st.sampled_from([END, -END, 2**31 - 1]))


@given(
    st.lists(st.tuples(st.integers(1, 3), bounds, bounds, st.integers(-4, 4)), min_size=1, max_size=3), st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_slice(parts, in_layout):
    axes = [axis for axis, *_ in parts]
    if len(set(axes)) != len(axes) or any(step == 0 for *_, step in parts):
        return
    net = Net(4, 5, 6)
    x = net.conv("x", integers(4, 4, 1, 1)) if in_layout else "x"
    vectors = [[part[i] for part in parts] for i in (1, 2, 0, 3)]
    model = net.model(net.op("Slice", x, *(int64(net, vector) for vector in vectors)))
    array = integers(2, 4, 5, 6)
    if any(step < 0 and end > 9 for _, _, end, step in parts):
        with pytest.raises(ConversionError, match=r"ambiguous|nothing is left"):
            converted(model)
    elif 0 in expected(model, array)[0].shape:
        with pytest.raises(ConversionError, match=r"Slice: nothing is left of axis .*slice"):
            converted(model)
    else:
        check(model, array)


def test_slice_of_an_old_operator_set_and_of_all_axes():
    net = Net(6, 4, opset=9)
    check(net.model(net.op("Slice", "x", starts=[1], ends=[-1], axes=[1])), integers(2, 6, 4))
    net = Net(6, 4)
    check(net.model(net.op("Slice", "x", int64(net, 0, 1, 0), int64(net, 2**31 - 1, END, 3))), integers(2, 6, 4))
    net = Net(6, batch=2)
    check(net.model(net.op("Slice", "x", int64(net, 0, 1), int64(net, 2, 3))), integers(2, 6))


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
@pytest.mark.parametrize("indices", [[2, 0, -1, 2], 1, [[2, 0], [1, 1]], [0]])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_gather(axis, indices, dtype):
    net = Net(4, 5, 3)
    x = net.conv("x", integers(4, 4, 1, 1))
    check(net.model(net.op("Gather", x, net.constant(indices, dtype), axis=axis)), integers(2, 4, 5, 3))


def outputs(net):
    return net.nodes[-1].output


@pytest.mark.parametrize("axis", [1, 2, 3, -3])
@pytest.mark.parametrize("sizes", [[1, 5], [2, 3, 1], [6]])
@pytest.mark.parametrize("opset", [11, 17])
def test_split(axis, sizes, opset):
    net = Net(6, 6, 6, opset=opset)
    given = {"split": sizes} if opset < 13 else {}
    extra = () if given else (int64(net, sizes),)
    net.op("Split", net.op("Relu", "x"), *extra, axis=axis, outputs=len(sizes), **given)
    check(net.model(*outputs(net)), integers(2, 6, 6, 6))


@pytest.mark.parametrize(("size", "parts"), [(6, 2), (6, 3), (7, 3), (5, 4)])
def test_split_into_parts_of_one_size(size, parts):
    net = Net(size, opset=18)
    if size % parts and -(-size // parts) * (parts - 1) >= size:
        net.op("Split", "x", axis=1, num_outputs=parts, outputs=parts)
        with pytest.raises(ConversionError, match="Split: parts of"):
            converted(net.model(*outputs(net)))
        return
    net.op("Split", "x", axis=1, num_outputs=parts, outputs=parts)
    check(net.model(*outputs(net)), integers(2, size))


def test_tile_and_expand():
    net = Net(2, 3)
    check(net.model(net.op("Tile", "x", int64(net, 1, 2, 3))), integers(2, 2, 3))
    net = Net(1, 3)
    check(net.model(net.op("Expand", "x", int64(net, 1, 4, 3))), integers(2, 1, 3))
    net = Net(1, 3)
    check(net.model(net.op("Expand", "x", int64(net, 4, 1))), integers(2, 1, 3))


def test_bits_stay_bits_where_they_are_picked():
    # As channels are shuffled and halved between binary layers.
    net = Net(40, 6, 6)
    x = net.sign("x")
    net.op("Split", x, int64(net, 8, 32), axis=1, outputs=2)
    half = outputs(net)[1]
    strided = net.op("Slice", half, int64(net, 0, 0), int64(net, END, END), int64(net, 2, 3), int64(net, 2, 2))
    y = net.conv(strided, signs(RNG, 5, 32, 3, 3))
    bundle = check(net.model(y), integers(2, 40, 6, 6))
    types = bundle.model.types
    picks = [node for node in bundle.model.nodes if type(node.op).__name__ == "Gather"]
    assert len(picks) == 3
    assert all(types[node.outputs[0]].domain is Domain.BIT for node in picks)
    assert "BinaryConv" in kinds(bundle.model)


def test_an_identity_shortcut_of_fewer_channels():
    # Every second pixel, and channels of 0 before and behind: "option A" of residual networks.
    net = Net(4, 6, 6)
    strided = net.op("Slice", "x", int64(net, 0, 0), int64(net, END, END), int64(net, 2, 3), int64(net, 2, 2))
    shortcut = net.op("Pad", strided, int64(net, 0, 2, 0, 0, 0, 2, 0, 0), net.constant(0.0))
    y = net.op("Add", net.conv("x", integers(8, 4, 3, 3), strides=[2, 2], pads=[1] * 4), shortcut)
    check(net.model(y), integers(2, 4, 6, 6))


SPECIAL = np.array([0, -0.0, 1, 1, -2, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("select_last_index", [0, 1])
def test_arg_max(kind, axis, keepdims, select_last_index):
    net = Net(4, 3, 5)
    x = net.op("Relu", net.conv("x", integers(4, 4, 1, 1)))
    y = net.op(kind, x, axis=axis, keepdims=keepdims, select_last_index=select_last_index)
    check(typed(net.model(y), INT64), integers(2, 4, 3, 5))
    net = Net(6)
    y = net.op(kind, "x", axis=1, keepdims=keepdims, select_last_index=select_last_index)
    check(typed(net.model(y), INT64), RNG.choice(SPECIAL, (200, 6)))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 6])
def test_top_k(largest, k):
    net = Net(6)
    net.op("TopK", "x", int64(net, [k]), largest=largest, outputs=2)
    check(typed(net.model(*outputs(net)), 1, INT64), RNG.choice(SPECIAL, (200, 6)))


@pytest.mark.parametrize("opset", [9, 10, 17])
def test_top_k_of_any_operator_set_over_any_axis(opset):
    net = Net(6, 3, 4, opset=opset)
    x = net.conv("x", integers(6, 6, 1, 1))
    given = {"k": 2} if opset < 10 else {}
    net.op("TopK", x, *(() if given else (int64(net, [2]),)), axis=1, outputs=2, **given)
    check(typed(net.model(*outputs(net)), 1, INT64), integers(2, 6, 3, 4))


def test_indices_are_moved_and_cast():
    net = Net(6)
    net.op("TopK", "x", int64(net, [4]), outputs=2)
    _, indices = outputs(net)
    first = net.op("Slice", indices, int64(net, [0]), int64(net, [1]), int64(net, [1]))
    found = [
        net.op("Squeeze", first, int64(net, [1])),
        net.op("Cast", first, to=INT32),
        net.op("Cast", net.op("Reshape", indices, int64(net, -1, 2, 2)), to=1),
        net.op("Transpose", net.op("Reshape", indices, int64(net, -1, 2, 2)), perm=[0, 2, 1]),
        net.op("Identity", first),
    ]
    bundle = check(typed(net.model(*found), INT64, INT32, 1, INT64, INT64), integers(3, 6))
    assert [port.dtype for port in bundle.outputs] == ["int64", "int32", "float32", "int64", "int64"]


def classifier(*end):
    net = Net(1, 8, 8)
    x = net.op("Flatten", net.sign(net.op("Sub", "x", net.constant(128.0))))
    logits = net.op("Add", net.matmul(x, signs(RNG, 64, 3)), net.constant([0.5, 0.25, 0.0]))
    y = net.op("ArgMax", logits, axis=1, **end[0])
    return logits, typed(net.model(y, metadata={"labels": '["a", "b", "c"]'}), INT64)


@pytest.mark.parametrize("backend", ["numpy", "opencl"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_network_that_ends_in_arg_max_runs_and_classifies(backend, keepdims, tmp_path):
    _, model = classifier({"keepdims": keepdims})
    bundle, _ = converted(model, Options())
    path = tmp_path / "model.bnn"
    bundles.write(bundle, path)
    pixels = RNG.integers(0, 256, (9, 1, 8, 8)).astype(np.float32)
    (wanted,) = expected(model, pixels)
    with bnnrt.InferenceSession(path, backend) as session:
        assert [output.type for output in session.get_outputs()] == ["tensor(int64)"]
        (found,) = session.run(None, {"x": pixels})
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == np.int64
        assert session.run(None, {"x": pixels[:0]})[0].shape == wanted[:0].shape
        images = [bnnrt_image(p[0]) for p in pixels]
        answers = session.classify(images)
        assert [a.index for a in answers] == wanted.reshape(-1).tolist()
        assert [a.label for a in answers] == ["abc"[i] for i in wanted.reshape(-1)]
        assert all(abs(sum(a.scores) - 1) < 1e-6 for a in answers)


def bnnrt_image(levels):
    from PIL import Image

    return Image.fromarray(levels.astype(np.uint8))


def test_a_network_that_ends_in_the_least_gives_no_scores(tmp_path):
    net = Net(1, 4, 4)
    y = net.op("ArgMin", net.op("Flatten", "x"), axis=1)
    bundle, _ = converted(typed(net.model(y), INT64))
    bundles.write(bundle, tmp_path / "model.bnn")
    with (
        bnnrt.InferenceSession(tmp_path / "model.bnn", "numpy") as session,
        pytest.raises(InputError, match="no scores of classes"),
    ):
        session.classify([bnnrt_image(np.zeros((4, 4)))])


REFUSED = {
    "gather of the batch": (lambda n: n.op("Gather", "x", int64(n, [0]), axis=0), "Gather: over the batch"),
    "gather by a tensor": (
        lambda n: n.op("Gather", "x", n.op("ArgMax", "x", axis=1, keepdims=0), axis=1),
        "Gather: the index .* not a constant",
    ),
    "gather beyond": (lambda n: n.op("Gather", "x", int64(n, [9]), axis=1), "Gather: an index is outside an axis of 6"),
    "slice of the batch": (
        lambda n: n.op("Slice", "x", int64(n, [0]), int64(n, [1]), int64(n, [0])),
        "Slice: a part of the batch",
    ),
    "batch backwards": (
        lambda n: n.op("Slice", "x", int64(n, [-1]), int64(n, [-END]), int64(n, [0]), int64(n, [-1])),
        "Slice: a part of the batch",
    ),
    "split of the batch": (lambda n: n.op("Split", "x", axis=0, outputs=2), "Split: over the batch"),
    "tile of the batch": (lambda n: n.op("Tile", "x", int64(n, 2, 1)), "Tile: repeats"),
    "expand of the batch": (lambda n: n.op("Expand", "x", int64(n, 3, 1, 6)), "Expand: .* mixes the images"),
    "arg max of the batch": (lambda n: n.op("ArgMax", "x"), "ArgMax: over the batch"),
    "arithmetic of indices": (
        lambda n: n.op("Add", n.op("ArgMax", "x", axis=1), int64(n, [1])),
        "Add: input 0 .* is made of indices",
    ),
    "unsorted": (
        lambda n: n.op("TopK", "x", int64(n, [2]), axis=1, sorted=0, outputs=2),
        "TopK: not sorted",
    ),
    "indices to 8 bits": (
        lambda n: n.op("Cast", n.op("ArgMax", "x", axis=1), to=onnx.TensorProto.UINT8),
        "Cast: of indices to UINT8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    build, message = REFUSED[case]
    net = Net(6)
    with pytest.raises(ConversionError, match=f"{message}.*node ") as caught:
        converted(net.model(build(net)))
    assert "\n" not in str(caught.value)
