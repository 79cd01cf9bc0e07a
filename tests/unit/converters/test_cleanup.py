import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bnnrt.converters.cleanup.clean import clean
from bnnrt.errors import ConversionError

from .models import Net, check, converted, kinds, signs

RNG = np.random.default_rng(1)


def operators(model):
    return [node.op_type for node in clean(model).graph]


def test_weights_fold_through_sign_cast_and_transpose():
    net = Net(18432)
    latent = RNG.normal(size=(100, 18432))
    weights = net.op("Transpose", net.op("Sign", net.constant(latent)), perm=[1, 0])
    model = net.model(net.op("MatMul", net.sign("x"), weights))
    assert operators(model) == ["GreaterOrEqual", "Where", "MatMul"]
    assert kinds(converted(model)[0].model) == ["Sign", "BinaryDense", "ToFloat"]


def test_weights_of_8_bits_fold():
    weights = signs(RNG, 33, 64).astype(np.int8)
    for scheme in ("Cast", "DequantizeLinear", "DequantizeLinear with zero point"):
        net = Net(64)
        stored = net.constant(weights, np.int8)
        if scheme == "Cast":
            floats = net.op("Cast", stored, to=onnx.TensorProto.FLOAT)
        else:
            zero = (net.constant(0, np.int8),) if "zero" in scheme else ()
            floats = net.op("DequantizeLinear", stored, net.constant(1.0), *zero)
        bundle = check(net.model(net.op("Gemm", net.sign("x"), floats, transB=1)), signs(RNG, 3, 64))
        assert "BinaryDense" in kinds(bundle.model)


def test_0_and_1_weights_fold():
    net = Net(64)
    stored = net.op("Cast", net.constant(RNG.integers(0, 2, (64, 5)), np.int8), to=onnx.TensorProto.FLOAT)
    plus_minus = net.op("Sub", net.op("Mul", stored, net.constant(2.0)), net.constant(1.0))
    bundle = check(net.model(net.op("MatMul", net.sign("x"), plus_minus)), signs(RNG, 3, 64))
    assert "BinaryDense" in kinds(bundle.model)


def test_initializers_listed_as_inputs_are_initializers():
    net = Net(8)
    model = net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3)))
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    bundle, _ = converted(model)
    assert list(bundle.model.inputs) == ["x"]
    assert kinds(bundle.model) == ["Sign", "BinaryDense", "ToFloat"]


def test_nodes_in_any_order():
    net = Net(8)
    model = net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3)))
    shuffled = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(shuffled)
    assert kinds(converted(model)[0].model) == ["Sign", "BinaryDense", "ToFloat"]


def test_functions_are_inlined():
    net = Net(8)
    body = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "b"], ["r"])]
    function = helper.make_function("local", "AddMul", ["a", "b"], ["r"], body, [helper.make_opsetid("", 17)])
    net.domains.append("local")
    model = net.model(net.op("AddMul", "x", net.constant(2.0), domain="local"))
    model.functions.append(function)
    check(model, RNG.normal(size=(2, 8)).astype(np.float32))


def with_function(operator, version, **attributes):
    """A model of version 17 whose only node calls a function in another version."""
    net = Net(8)
    body = [helper.make_node(operator, ["a"], ["r"], name="inside", **attributes)]
    function = helper.make_function("local", "F", ["a"], ["r"], body, [helper.make_opsetid("", version)])
    net.domains.append("local")
    model = net.model(net.op("F", "x", domain="local"))
    model.functions.append(function)
    return model


def test_functions_of_another_version_of_the_same_operators_are_inlined():
    check(with_function("LeakyRelu", 16, alpha=0.25), RNG.normal(size=(2, 8)).astype(np.float32))


def test_functions_of_operators_that_changed_are_refused():
    with pytest.raises(ConversionError, match=r"Softmax: function F uses version 11.*version 17.*node inside"):
        converted(with_function("Softmax", 11, axis=1))


def test_functions_in_functions_are_inlined():
    model = with_function("Relu", 17)
    outer = helper.make_function(
        "local",
        "Outer",
        ["a"],
        ["r"],
        [helper.make_node("F", ["a"], ["r"], domain="local")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )
    model.functions.append(outer)
    model.graph.node[0].op_type = "Outer"
    check(model, RNG.normal(size=(2, 8)).astype(np.float32))


def test_functions_that_are_called_without_an_input_that_they_need_are_refused():
    model = with_function("Sign", 17)
    del model.graph.node[0].input[:]
    with pytest.raises(ConversionError, match="Sign: input 0 is missing"):
        converted(model)


def test_functions_that_call_themselves_are_refused():
    model = with_function("Relu", 17)
    model.functions[0].node[0].op_type = "F"
    model.functions[0].node[0].domain = "local"
    model.functions[0].opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(ConversionError, match="Cyclic dependency"):
        converted(model)


def test_what_nothing_needs_is_no_reason_to_refuse():
    net = Net(8)
    net.op("Erf", "x")
    assert kinds(converted(net.model(net.op("Add", "x", net.constant(1.0))))[0].model) == ["Arithmetic"]


def test_missing_imports_of_other_domains_are_no_reason_to_refuse():
    net = Net(8)
    net.op("Unknown", "x", domain="somewhere.else")
    assert operators(net.model(net.op("Add", "x", net.constant(1.0)))) == ["Add"]


@pytest.mark.parametrize("damage", ["cycle", "unknown name"])
def test_inconsistent_graphs_are_refused_in_one_line(damage):
    first, second = ("a", "b") if damage == "cycle" else ("nowhere", "b")
    nodes = [helper.make_node("Add", ["x", second if damage == "cycle" else first], ["a"])]
    nodes += [helper.make_node("Add", ["a", "x"], ["b"])]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", 4]) for n in ("x", "b")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(np.zeros(1), "unused")])
    with pytest.raises(ConversionError) as caught:
        converted(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("opset", [13, 19])
def test_constants_that_are_quantized_and_dequantized(dtype, axis, opset):
    rng = np.random.default_rng(8)
    net = Net(4, opset=opset)
    size = () if axis is None else ((4, 3)[axis],)
    scale, zero = net.constant(rng.uniform(0.01, 0.5, size)), net.constant(rng.integers(0, 9, size), dtype)
    how = {} if axis is None else {"axis": axis}
    # Some halves, which round to even, and some that are beyond the limits.
    weights = net.constant(np.round(rng.normal(size=(4, 3)) * 20) / 4)
    weights = net.op("QuantizeLinear", weights, scale, zero, **how)
    weights = net.op("DequantizeLinear", weights, scale, zero, **how)
    check(net.model(net.op("MatMul", "x", weights)), np.eye(4, dtype=np.float32))


@pytest.mark.parametrize("opset", [13, 19])
def test_dequantized_biases_of_32_bits(opset):
    net = Net(4, opset=opset)
    stored = net.constant(np.array([2**24 + 1, -(2**31), 7, 2**31 - 1]), np.int32)
    check(net.model(net.op("Add", "x", net.op("DequantizeLinear", stored, net.constant(0.1)))), np.eye(4, dtype="f"))
