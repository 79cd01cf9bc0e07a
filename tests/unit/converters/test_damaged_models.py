"""Models that are damaged at random: converted, or refused in one line, and never anything else."""

import random
from collections.abc import Callable
from math import prod

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bnnrt import reference
from bnnrt.converters.convert import Options
from bnnrt.errors import BnnrtError

from .models import FIXTURES, Net, converted, expected, signs

OPERATORS = (
    *("Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "Conv", "Div", "Flatten", "Gather", "Gemm"),
    *("GlobalAveragePool", "Identity", "Less", "MatMul", "MaxPool", "Mul", "PRelu", "Pad", "ReduceMean", "Relu"),
    *("Reshape", "Shape", "Sign", "Slice", "Softmax", "Squeeze", "Transpose", "Unsqueeze", "Where"),
    *("DequantizeLinear", "Quant"),
)
INTEGERS = (-(2**63), -3, -1, 0, 1, 2, 7, 1000, 2**31, 2**62)
NUMBERS = (float("nan"), float("inf"), -1.0, 0.0, 1e38, 1e-45)
DTYPES = (np.bool_, np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8)


def names(model: onnx.ModelProto) -> list[str]:
    outputs = [name for node in model.graph.node for name in node.output]
    return [*outputs, *(i.name for i in model.graph.input), *(t.name for t in model.graph.initializer), "", "nowhere"]


def a_node(model, rng):
    return rng.choice(model.graph.node)


def other_input(model, rng):
    node = a_node(model, rng)
    node.input[rng.randrange(len(node.input))] = rng.choice(names(model))


def lost_input(model, rng):
    node = a_node(model, rng)
    del node.input[rng.randrange(len(node.input))]


def more_inputs(model, rng):
    a_node(model, rng).input.append(rng.choice(names(model)))


def other_output(model, rng):
    node = a_node(model, rng)
    node.output[rng.randrange(len(node.output))] = rng.choice(names(model))


def lost_node(model, rng):
    model.graph.node.remove(a_node(model, rng))


def other_operator(model, rng):
    a_node(model, rng).op_type = rng.choice(OPERATORS)


def other_attribute(model, rng):
    attribute = rng.choice(a_node(model, rng).attribute)
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(INTEGERS)
    attribute.i, attribute.f = rng.choice(INTEGERS), rng.choice(NUMBERS)


def lost_attribute(model, rng):
    attributes = a_node(model, rng).attribute
    del attributes[rng.randrange(len(attributes))]


def change_tensor(model, rng, change: Callable[[np.ndarray], np.ndarray]):
    tensor = rng.choice(model.graph.initializer)
    with np.errstate(all="ignore"):
        changed = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))


def other_shape(model, rng):
    change_tensor(model, rng, rng.choice((np.ravel, np.transpose, lambda a: a[None], lambda a: a[:0], lambda a: a[:1])))


def other_dtype(model, rng):
    change_tensor(model, rng, lambda a: np.nan_to_num(a).astype(rng.choice(DTYPES)))


def other_number(model, rng):
    def change(array):
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(
            NUMBERS if array.dtype.kind == "f" else (-1, 0, 1, 99)
        )
        return array

    change_tensor(model, rng, change)


def other_size(model, rng):
    rng.choice(model.graph.input[0].type.tensor_type.shape.dim).dim_value = rng.choice(INTEGERS)


def other_rank(model, rng):
    dims = model.graph.input[0].type.tensor_type.shape.dim
    del dims[rng.randrange(len(dims))]


def other_input_type(model, rng):
    model.graph.input[0].type.tensor_type.elem_type = rng.randrange(25)


def other_version(model, rng):
    model.opset_import[0].version = rng.choice((6, 7, 9, 11, 13, 18, 20, 22, 25, 2**40))


DAMAGES = (
    *(other_input, lost_input, more_inputs, other_output, lost_node, other_operator, other_attribute, lost_attribute),
    *(other_shape, other_dtype, other_number, other_size, other_rank, other_input_type, other_version),
)


def dense() -> onnx.ModelProto:
    rng = np.random.default_rng(47)
    net = Net(12)
    x = net.batch_norm(net.matmul(net.sign("x"), signs(rng, 12, 9)), *rng.uniform(0.5, 2, (4, 9)))
    y = net.op("Gemm", net.sign(x), net.constant(signs(rng, 4, 9)), net.constant(np.ones(4)), transB=1)
    return net.model(net.op("Softmax", net.op("Clip", y, net.constant(-3.0), net.constant(3.0))))


MODELS = {
    "dense": dense(),
    **{path.stem: onnx.load(path) for path in sorted(FIXTURES.glob("*_dynamo.onnx"))},
    "asymmetric_legacy": onnx.load(FIXTURES / "asymmetric_legacy.onnx"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_damaged_model_converts_or_is_refused_in_one_line(name):
    rng = random.Random(name)
    for _ in range(40):
        model = onnx.ModelProto()
        model.CopyFrom(MODELS[name])
        damages = rng.sample(DAMAGES, rng.choice((1, 1, 2)))
        for damage in damages:
            # What the model has not got cannot be damaged, and protobuf refuses what is out of its range itself.
            try:
                damage(model, rng)
            except (IndexError, OverflowError, ValueError):
                continue
        try:
            bundle, report = converted(model, Options(binarize_weights=rng.random() < 0.2))
        except BnnrtError as e:
            message = str(e)
        else:
            message = "converted"
        assert message.isprintable()
        if message == "converted" and not report.notes and not report.warnings:
            compare(model, bundle.model, [damage.__name__ for damage in damages])


def compare(model, graph, damages):
    """What still converts computes what ONNX Runtime computes, if it runs it. Integers: no sum is near a threshold."""
    rng = np.random.default_rng(0)
    if any(prod(known.with_batch(2)) > 10**6 for known in graph.inputs.values()):
        return
    feeds = {name: rng.integers(-3, 4, known.with_batch(2)).astype(np.float32) for name, known in graph.inputs.items()}
    try:
        want = expected(model, *feeds.values())
    except Exception:  # ONNX Runtime's own, of no common base
        return
    for found, right in zip(reference.run(graph, feeds).values(), want, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4, err_msg=str(damages))
