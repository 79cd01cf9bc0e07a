"""Sizes that a model leaves free: what is given for them, and what a bundle then has."""

import numpy as np
import onnx
import pytest

from bnnrt import reference
from bnnrt.converters.convert import Options
from bnnrt.converters.sizes import parse_shapes
from bnnrt.errors import ConversionError, InputError

from .models import Net, converted, expected, signs

RNG = np.random.default_rng(31)


def network(batch="N", height="H", width="W"):
    """A convolution whose result is flattened by the sizes that it has at run time."""
    net = Net(3, "H", "W", batch=batch)
    for index, size in enumerate((height, width), 2):
        dim = net.inputs[0].type.tensor_type.shape.dim[index]
        dim.Clear()
        if size is not None:
            setattr(dim, "dim_param" if isinstance(size, str) else "dim_value", size)
    y = net.conv(net.sign("x"), signs(RNG, 4, 3, 3, 3))
    size = net.op("Slice", net.op("Shape", y), *(net.constant([i], np.int64) for i in (0, 1)))
    y = net.op("Reshape", y, net.op("Concat", size, net.constant([-1], np.int64), axis=0))
    return net.model(y)


def inputs(bundle):
    return [port.shape for port in bundle.inputs]


def refused(model, options, *words):
    with pytest.raises(ConversionError) as caught:
        converted(model, options)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("sizes", [{"x": ("N", 3, 8, 9)}, {"H": (8,), "W": (9,)}, {"x": ("N", 3, 8, "W"), "W": (9,)}])
def test_sizes_by_input_and_by_name(sizes):
    model = network()
    bundle, _ = converted(model, Options(shapes=sizes))
    assert inputs(bundle) == [("N", 3, 8, 9)]
    x = RNG.normal(size=(5, 3, 8, 9)).astype(np.float32)
    (found,) = reference.run(bundle.model, {"x": x}).values()
    np.testing.assert_array_equal(found, expected(model, x)[0])


def test_sizes_that_have_no_name():
    model = network(None, None, None)
    assert inputs(converted(model, Options(shapes={"x": ("N", 3, 8, 9)}))[0]) == [(None, 3, 8, 9)]
    assert inputs(converted(model, Options(shapes={"x": (2, 3, 8, 9)}))[0]) == [(2, 3, 8, 9)]


def test_an_input_without_a_shape():
    model = network()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    refused(model, Options(), "an input has no shape (input x)", "--shape x=")
    assert inputs(converted(model, Options(shapes={"x": ("N", 3, 8, 9)}))[0]) == [(None, 3, 8, 9)]


def test_free_sizes_are_refused_with_the_option_that_gives_them():
    refused(network(), Options(), "a dimension other than the batch is free (input x)", "--shape x=N,3,SIZE,SIZE")


@pytest.mark.parametrize("size", [-1, 0])
def test_sizes_that_are_no_sizes(size):
    model = network("N", 8, 9)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    if size == 0:
        refused(model, Options(), "a size is 0 (input x)")
    else:  # as some exporters write a free size
        assert inputs(converted(model)[0]) == [(None, 3, 8, 9)]
    assert inputs(converted(model, Options(batch=4))[0]) == [(4, 3, 8, 9)]


@pytest.mark.parametrize("batch", ["N", None, 4])
def test_a_batch_for_a_free_one_and_in_place_of_a_fixed_one(batch):
    model = network(batch, 8, 9)
    bundle, _ = converted(model, Options(batch=2))
    assert inputs(bundle) == [(2, 3, 8, 9)]
    assert [port.shape for port in bundle.outputs] == [(2, 4 * 6 * 7)]
    assert inputs(converted(model)[0]) == [(batch, 3, 8, 9)]


def test_a_size_is_the_same_wherever_its_name_stands():
    net = Net("H")
    net.inputs.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["N", "H"]))
    model = net.model(net.op("Add", "x", "z"))
    assert inputs(converted(model, Options(shapes={"x": ("N", 8)}))[0]) == [("N", 8), ("N", 8)]
    refused(model, Options(shapes={"x": ("N", 8), "z": ("N", 9)}), "the size H would be 8 and 9")
    refused(model, Options(batch=3, shapes={"x": (2, 8)}), "the size N would be 2 and 3")


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"y": ("N", 3, 8, 9)}, "there is no input and no free size y"),
        ({"x": (8, 9)}, "2 sizes are given for 4 dimensions (input x)"),
        ({"x": ("N", 4, 8, 9)}, "the size 4 is given where the model has 3 (input x)"),
        ({"x": ("N", 3, 8, "W")}, "a dimension other than the batch is free"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, words):
    refused(network(), Options(shapes=sizes), words)


def test_inputs_of_different_batches_are_refused_by_name():
    net = Net(8, batch=1)
    net.inputs.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2, 8]))
    refused(net.model(net.op("Add", "x", "z")), Options(), "different batches: x 1, z 2")


def test_how_shapes_are_written():
    assert parse_shapes(["x=N,3,8, 9", "H=7", "a=b=2"]) == {"x": ("N", 3, 8, 9), "H": (7,), "a=b": (2,)}


@pytest.mark.parametrize("text", ["x", "=3", "x=", "x=0", "x=-1", "x=1,,2", "x=1.5", "x=99999999999", "x=²"])
def test_other_shapes_are_refused(text):
    with pytest.raises(InputError) as caught:
        parse_shapes([text])
    assert caught.value.fix
    with pytest.raises(InputError, match="given twice"):
        parse_shapes(["x=1", "x=2"])
