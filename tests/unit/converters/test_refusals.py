"""Every refusal is one line that names node and operator and says what could be done."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from bnnrt import reference
from bnnrt.errors import ConversionError, OutputError, printable

from .models import Net, converted, signs

RNG = np.random.default_rng(37)


def graph_of(operator):
    inner = helper.make_node(operator, ["x"], ["inner_out"], name="inner")
    return helper.make_graph([inner], "g", [], [helper.make_tensor_value_info("inner_out", TensorProto.FLOAT, None)])


def a_loop(net):
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Relu", ["v"], ["v2"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("c2", TensorProto.BOOL), ("v2", TensorProto.FLOAT))],
    )
    return net.op("Loop", net.constant(3, np.int64), net.constant(True, np.bool_), "x", body=body)


def a_scan(net):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in ("a", "e", "s", "o")]
    nodes = [helper.make_node("Add", ["a", "e"], ["s"]), helper.make_node("Identity", ["s"], ["o"])]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    return net.op("Scan", net.constant(np.zeros(8)), "x", body=body, num_scan_inputs=1, outputs=2)


def an_lstm(net):
    x = net.op("Unsqueeze", "x", net.constant([1], np.int64))
    return net.op("LSTM", x, net.constant(signs(RNG, 1, 8, 8)), net.constant(signs(RNG, 1, 8, 2)), hidden_size=2)


def quantized(net):
    return net.op("QuantizeLinear", "x", net.constant(0.1), net.constant(0, np.int8))


def finn(net):
    return net.op("MVAU_hls", "x", domain="finn.custom_op.fpgadataflow.hls")


@pytest.mark.parametrize(
    ("make", "operator", "words"),
    [
        (a_loop, "Loop", "control flow"),
        (a_scan, "Scan", "control flow"),
        (an_lstm, "LSTM", "recurrent layers"),
        (quantized, "QuantizeLinear", "several bits"),
        (lambda net: net.op("Round", "x"), "Round", "several bits"),
        (lambda net: net.op("Greater", "x", net.constant(0.0)), "Greater", "+1"),
        (
            lambda net: net.op("LessOrEqual", "x", net.op("ReduceMean", "x", axes=[1])),
            "LessOrEqual",
            "compare the difference",
        ),
        (lambda net: net.op("Tanh", "x"), "Tanh", "leave it out in front of a sign"),
        (lambda net: net.op("Bernoulli", "x"), "Bernoulli", "evaluation mode"),
        (lambda net: net.op("Erf", "x"), "Erf", ""),
        (lambda net: net.op("FFT", "x", domain="com.acme"), "com.acme.FFT", "other domains"),
        (finn, "finn.custom_op.fpgadataflow.hls.MVAU_hls", "FINN"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_operators_without_a_handler(make, operator, words):
    net = Net(8)
    made = make(net)
    node = net.nodes[-1].name
    with pytest.raises(ConversionError) as caught:
        converted(net.model(made))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{operator}: ")
    assert f"(node {node})" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.fix


def test_a_branch_that_depends_on_the_input_is_refused():
    net = Net(8)
    net.inputs.append(helper.make_tensor_value_info("flag", TensorProto.FLOAT, ["N", 8]))
    then, other = graph_of("Relu"), graph_of("Neg")
    net.nodes.append(helper.make_node("If", ["flag"], ["y"], name="branch", then_branch=then, else_branch=other))
    with pytest.raises(ConversionError, match=r"If: control flow.*node branch"):
        converted(net.model("y"))


@pytest.mark.parametrize(("taken", "sign"), [(True, 1), (False, -1)])
def test_a_branch_that_is_known_is_taken(taken, sign):
    net = Net(8)
    then, other = graph_of("Identity"), graph_of("Neg")
    net.nodes.append(
        helper.make_node("If", [net.constant(taken, np.bool_)], ["y"], then_branch=then, else_branch=other)
    )
    bundle, _ = converted(net.model(net.op("Add", "y", net.constant(1.0))))

    (found,) = reference.run(bundle.model, {"x": np.full((1, 8), 3, dtype=np.float32)}).values()
    np.testing.assert_array_equal(found, np.full((1, 8), 3 * sign + 1))


NAMES = ["[red]a[/red]", "a\x1b[31mb\x07", "line\nbreak\ttab", "right\u202eleft", "x" * 5000]


@pytest.mark.parametrize("name", NAMES, ids=["markup", "terminal", "lines", "direction", "long"])
def test_odd_names_are_shown_and_steer_nothing(name):
    net = Net(8)
    net.op("Erf", "x")
    net.nodes[-1].name = name
    with pytest.raises(ConversionError) as caught:
        converted(net.model(net.nodes[-1].output[0]))
    assert f"(node {printable(name)})" in str(caught.value)
    assert str(caught.value).isprintable()
    net = Net(8)
    y = net.matmul("x", signs(RNG, 8, 3))
    net.nodes[-1].name = name
    assert converted(net.model(y))[1].layers[0].name == printable(name)


def test_errors_never_hold_control_characters():
    error = OutputError("a\x1b[2Jb\nc", "\x00", "\u2028d")
    assert str(error) == "a\\x1b[2Jb c (\\x00): d"
