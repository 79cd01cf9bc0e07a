"""What is wrong with a model as a whole, and what only looks wrong."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bnnrt.errors import ConversionError

from .models import Net, check, converted, kinds, signs

RNG = np.random.default_rng(29)


def info(name, shape=None, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def binary(opset=17):
    """Sign, dense layer: in operators that version 7 has."""
    net = Net(8, opset=opset)
    sign = net.op("Where", net.op("Less", "x", net.constant(0)), net.constant(-1), net.constant(1))
    return net.model(net.matmul(sign, signs(RNG, 8, 3)))


def refused(model, *words):
    with pytest.raises(ConversionError) as caught:
        converted(model)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("opset", range(7, 10))
def test_the_oldest_versions(opset):
    net = Net(2, 6, 6, opset=opset)
    x = net.conv("x", signs(RNG, 4, 2, 3, 3), pads=[1, 1, 1, 1])
    # All numbers are multiples of one half, so that every order of summing has one result.
    x = net.batch_norm(x, [0.5, 2, -1, 0.5], [1, -2, 0.5, 0], [1, 2, 3, 0], np.ones(4), epsilon=0.0)
    x = net.op("Clip", net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), min=-2.0, max=3.0)
    x = net.op("Dropout", x, ratio=0.5)
    x = net.op("Reshape", x, net.constant([-1, 36], np.int64))
    y = net.op("Gemm", x, net.constant(signs(RNG, 36, 5)), net.constant(np.ones(5)))
    check(net.model(net.op("Unsqueeze", y, axes=[1])), RNG.integers(-3, 4, (2, 2, 6, 6)).astype(np.float32))


@pytest.mark.parametrize("opset", [11, 13, 18, 21, 22, 23, 24, 25])
def test_versions_in_between_and_new_ones(opset):
    net = Net(8, opset=opset)
    x = net.matmul(net.sign("x") if opset >= 12 else net.op("Sign", "x"), signs(RNG, 8, 6))
    axes = (net.constant([2], np.int64),) if opset >= 13 else ()
    attributes = {} if opset >= 13 else {"axes": [2]}
    y = net.op("Unsqueeze", net.op("Relu", x), *axes, **attributes)
    check(net.model(y), signs(RNG, 3, 8))


def test_versions_that_onnx_does_not_know_are_refused():
    newest = onnx.defs.onnx_opset_version()
    refused(
        binary(newest + 1), f"version {newest + 1} of the ONNX operators", f"onnx {onnx.__version__} knows {newest}"
    )
    model = binary()
    model.ir_version = onnx.IR_VERSION + 1
    refused(model, f"version {onnx.IR_VERSION + 1} of the ONNX format")


@pytest.mark.parametrize("opset", [1, 6])
def test_versions_before_7_are_refused(opset):
    refused(binary(opset), f"version {opset} of the ONNX operators", "onnx.version_converter")


def test_an_operator_that_changed_since_is_refused(monkeypatch):
    monkeypatch.setattr("bnnrt.converters.check.NEWEST_OPSET", 12)
    refused(binary(17), "Less: version 13 of this operator is not supported", "node less0", "version 12")


def test_operators_that_the_version_does_not_have_are_refused():
    net = Net(8, opset=8)
    refused(net.model(net.op("Sign", "x")), "Sign: version 8", "node sign0", "version 9 or later")
    net = Net(8)
    refused(net.model(net.op("Signum", "x")), "Signum: version 17", "node signum0")


def test_both_names_of_the_domain_of_onnx():
    model = binary()
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert "BinaryDense" in kinds(converted(model)[0].model)


def test_two_versions_of_one_domain_are_refused():
    model = binary()
    model.opset_import.append(helper.make_opsetid("", 13))
    refused(model, "versions 17 and 13 of the operators of ONNX")
    del model.opset_import[1]
    model.opset_import.append(helper.make_opsetid("", 17))
    converted(model)


def test_missing_imports_of_custom_domains_that_are_not_needed():
    model = binary()
    model.graph.node.append(helper.make_node("Probe", ["x"], ["probe"], domain="somewhere.else"))
    assert "BinaryDense" in kinds(converted(model)[0].model)


def no_nodes(model):
    del model.graph.node[:]


def no_outputs(model):
    del model.graph.output[:]


def output_twice(model):
    model.graph.output.append(model.graph.output[0])


def input_twice(model):
    model.graph.input.append(model.graph.input[0])


def tensor_twice(model):
    model.graph.initializer.append(model.graph.initializer[0])


def output_is_input(model):
    model.graph.output.append(info("x"))


def output_is_constant(model):
    model.graph.output.append(info("c0"))


def output_is_nowhere(model):
    model.graph.output.append(info("nowhere"))


def sequence_input(model):
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["N", 8]))


def optional_input(model):
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 8])
    model.graph.input[0].CopyFrom(helper.make_value_info("x", helper.make_optional_type_proto(tensor)))


def sparse_tensor(model):
    values, indices = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.int64)
    pair = [numpy_helper.from_array(values, "w"), numpy_helper.from_array(indices, "i")]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(*pair, [4]))


def no_operator(model):
    model.graph.node[0].op_type = ""


def unknown_attribute(model):
    model.graph.node[0].attribute.append(helper.make_attribute("speed", 3))


def empty_input(model):
    model.graph.node[0].input[0] = ""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (no_nodes, "the model has no nodes, so there is nothing to compute (model.onnx)"),
        (no_outputs, "the model has no outputs (model.onnx)"),
        (output_twice, "an output is listed 2 times (output matmul2_out)"),
        (input_twice, "an input is listed 2 times (input x)"),
        (tensor_twice, "a tensor is listed 2 times (tensor c0)"),
        (output_is_input, "an output is an input (output x)"),
        (output_is_constant, "an output is constant (output c0)"),
        (output_is_nowhere, "no node computes this output (output nowhere)"),
        (sequence_input, "an input is a sequence (input x)"),
        (optional_input, "an input is an optional (input x)"),
        (sparse_tensor, "a tensor is sparse (tensor w)"),
        (no_operator, "a node names no operator (node less0)"),
        (unknown_attribute, "Less: this node is malformed: Unrecognized attribute: speed"),
        (empty_input, "Less: this node is malformed"),
    ],
)
def test_refusals_name_what_is_wrong(damage, words):
    model = binary()
    damage(model)
    refused(model, words)


@pytest.mark.parametrize("dtype", ["FLOAT16", "DOUBLE", "BFLOAT16", "INT8", "INT32", "BOOL", "STRING"])
def test_inputs_of_other_types_are_refused(dtype):
    model = binary()
    model.graph.input[0].type.tensor_type.elem_type = getattr(TensorProto, dtype)
    refused(model, "input x", dtype.lower(), "float32")


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, "bfloat16"])
def test_weights_of_other_types_behind_a_cast(dtype):
    net = Net(8)
    weights = signs(RNG, 8, 3)
    if dtype == "bfloat16":
        net.initializers.append(helper.make_tensor("w", TensorProto.BFLOAT16, [8, 3], weights.ravel().tolist()))
    else:
        net.initializers.append(numpy_helper.from_array(weights.astype(dtype), "w"))
    bundle = check(net.model(net.op("MatMul", net.sign("x"), net.op("Cast", "w", to=1))), signs(RNG, 4, 8))
    assert "BinaryDense" in kinds(bundle.model)


def test_weights_of_float16_without_a_cast_are_refused():
    net = Net(8)
    refused(net.model(net.op("MatMul", "x", net.constant(signs(RNG, 8, 3), np.float16))), "float16", "node matmul0")


def test_node_names_may_be_missing_and_doubled():
    model = binary()
    for node in model.graph.node:
        node.name = ""
    (row,) = converted(model)[1].layers
    assert row.name.startswith("MatMul_")
    for node in model.graph.node:
        node.name = "same"
    assert converted(model)[1].layers[0].name.startswith("same")


def test_nodes_of_functions_are_checked_by_name():
    net = Net(8)
    body = [helper.make_node("Relu", ["a"], ["r"], name="inside", speed=3)]
    function = helper.make_function("local", "F", ["a"], ["r"], body, [helper.make_opsetid("", 17)])
    net.domains.append("local")
    model = net.model(net.op("F", "x", domain="local"))
    model.functions.append(function)
    refused(model, "Relu: this node is malformed", "node inside")


def test_functions_of_unknown_versions_are_refused():
    net = Net(8)
    body = [helper.make_node("Relu", ["a"], ["r"], name="inside")]
    net.domains.append("local")
    model = net.model(net.op("F", "x", domain="local"))
    for version in (6, 10**6, 1 << 40):
        del model.functions[:]
        imports = [helper.make_opsetid("", version)]
        model.functions.append(helper.make_function("local", "F", ["a"], ["r"], body, imports))
        refused(model, f"version {version} of the ONNX operators", "function F")


@pytest.mark.parametrize("text", [b"less0", b"where1_out", b"N", b"labels", b"x", b"Less"])
def test_names_that_are_no_text_are_refused(text):
    model = binary()
    helper.set_model_props(model, {"labels": "a"})
    data = model.SerializeToString()
    assert text in data
    refused(data.replace(text, b"\xff" * len(text)), "not UTF-8")


def test_values_that_are_computed_twice_and_cycles_are_refused():
    model = binary()
    model.graph.node.append(model.graph.node[0])
    refused(model, "redeclared")
    model = binary()
    model.graph.node[0].input[0] = model.graph.output[0].name
    refused(model, "cycle")
