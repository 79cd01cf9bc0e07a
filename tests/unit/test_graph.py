"""Graphs and constants: what they refuse, how constants are stored, and what a pass keeps."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bnnrt import ops, packing
from bnnrt.errors import BundleError, GraphError
from bnnrt.graph import STORAGE, Constant, Graph, Node, class_scores
from bnnrt.graph_json import Value, decode_graph, encode_graph
from bnnrt.ops import Arithmetic, ArithmeticKind, BinaryDense, Domain, Sign, TensorType, ToFloat

X = {"x": TensorType((None, 3), Domain.FLOAT32)}
WEIGHTS = {"w": Constant.bits([[True, False, True], [False, False, True]])}
SIGN = Node("sign", Sign(), ("x",), ("bits",))
FC = Node("fc", BinaryDense(), ("bits", "w"), ("sums",))
CAST = Node("cast", ToFloat(), ("sums",), ("y",))


def graph(*nodes: Node, outputs: tuple[str, ...] = ("y",)) -> Graph:
    return Graph(X, nodes, outputs, WEIGHTS)


def test_types_of_all_tensors() -> None:
    types = graph(SIGN, FC, CAST).types
    assert {name: str(tensor_type) for name, tensor_type in types.items()} == {
        "x": "float32[N, 3]",
        "w": "bit[2, 3]",
        "bits": "bit[N, 3]",
        "sums": "int32[N, 2]",
        "y": "float32[N, 2]",
    }


@pytest.mark.parametrize(
    ("nodes", "outputs", "problem", "where"),
    [
        ((FC, SIGN, CAST), ("y",), "bits is read before it is written", "fc"),
        ((SIGN, FC), ("y",), "output y is not computed", ""),
        ((SIGN, FC, CAST), ("w",), "output w is not computed", ""),
        ((SIGN, SIGN, FC, CAST), ("y",), "bits is written twice", "sign"),
        ((SIGN, FC, dataclasses.replace(CAST, outputs=("x",))), ("x",), "x is written twice", "cast"),
        ((SIGN, FC, dataclasses.replace(CAST, outputs=("w",))), ("x",), "w is written twice", "cast"),
        ((SIGN, FC, dataclasses.replace(CAST, outputs=("y", "z"))), ("y",), "has 1 outputs, not 2", "cast"),
        ((SIGN, FC, dataclasses.replace(CAST, outputs=())), ("x",), "has 1 outputs, not 0", "cast"),
        ((dataclasses.replace(SIGN, inputs=("w",)), FC, CAST), ("y",), "input 0 is bit", "sign"),
        ((dataclasses.replace(SIGN, inputs=("y",)), FC, CAST), ("y",), "y is read before it is written", "sign"),
    ],
)
def test_an_inconsistent_graph_is_refused(
    nodes: tuple[Node, ...], outputs: tuple[str, ...], problem: str, where: str
) -> None:
    with pytest.raises(GraphError) as caught:
        graph(*nodes, outputs=outputs)
    assert problem in caught.value.what
    assert caught.value.where == where


def test_an_input_cannot_be_a_constant() -> None:
    with pytest.raises(GraphError, match="both an input and a constant"):
        Graph({**X, "w": X["x"]}, (SIGN, FC, CAST), ("y",), WEIGHTS)


def test_an_input_may_leave_as_it_is() -> None:
    assert Graph(X, (), ("x",)).types == X


def test_a_graph_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph(SIGN, FC, CAST).nodes = ()  # type: ignore[misc]


def test_producers_and_consumers() -> None:
    twice = Node("twice", Arithmetic(ArithmeticKind.MUL), ("y", "y"), ("square",))
    found = graph(SIGN, FC, CAST, twice)
    assert found.producers() == {"bits": SIGN, "sums": FC, "y": CAST, "square": twice}
    assert found.consumers() == {"x": [SIGN], "bits": [FC], "w": [FC], "sums": [CAST], "y": [twice]}


def test_a_node_of_constants_is_refused() -> None:
    folded = Node("folded", BinaryDense(), ("w", "w"), ("square",))
    with pytest.raises(GraphError, match="only constants"):
        graph(SIGN, FC, CAST, folded)


def test_rebuilt_drops_what_nothing_needs() -> None:
    dead = [
        Node("dead", BinaryDense(), ("bits", "v"), ("dead.sums",)),
        Node("dead.cast", ToFloat(), ("dead.sums",), ("dead.y",)),
    ]
    constants = {**WEIGHTS, "v": WEIGHTS["w"], "unused": WEIGHTS["w"]}
    found = graph(SIGN, FC, CAST).rebuilt([SIGN, dead[0], FC, *dead[1:], CAST], constants)
    assert found.nodes == (SIGN, FC, CAST)
    assert found.constants == WEIGHTS
    assert found.inputs == X
    assert found.outputs == ("y",)


def test_rebuilt_keeps_constants_unless_others_are_given() -> None:
    whole = graph(SIGN, FC, CAST)
    assert whole.rebuilt(whole.nodes).constants == WEIGHTS
    with pytest.raises(GraphError, match="w is read before it is written"):
        whole.rebuilt(whole.nodes, {})


def test_rebuilt_keeps_inputs_that_nothing_reads() -> None:
    inputs = {**X, "unread": X["x"]}
    assert Graph(inputs, (SIGN, FC, CAST), ("y",), WEIGHTS).rebuilt([SIGN, FC, CAST]).inputs == inputs


shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=9)


@given(bits=hnp.arrays(np.bool_, shapes))
def test_bits_are_stored_in_rows(bits: npt.NDArray[np.bool_]) -> None:
    constant = Constant.bits(bits)
    rows = bits.reshape(len(bits), -1) if bits.ndim > 1 else bits.reshape(1, -1)
    assert constant.type == TensorType(bits.shape, Domain.BIT)
    assert constant.data.dtype == np.uint32
    assert constant.data.shape == (len(rows), packing.words_for(rows.shape[1]))
    assert np.array_equal(packing.unpack(constant.data, rows.shape[1]), rows)
    assert np.array_equal(constant.unpacked(), bits)


@given(values=st.sampled_from([np.float32, np.int32, np.uint8]).flatmap(lambda dtype: hnp.arrays(dtype, shapes)))
def test_other_constants_are_stored_as_they_are(values: npt.NDArray[np.generic]) -> None:
    constant = Constant.of(values)
    assert STORAGE[constant.type.domain] == values.dtype
    assert constant.type.shape == values.shape
    assert constant.data.tobytes() == values.tobytes()
    assert constant.unpacked() is constant.data


def test_a_constant_is_contiguous() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    constant = Constant.of(values)
    assert constant.data.flags.c_contiguous
    assert np.array_equal(constant.data, values)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int16, np.int8, np.uint32, np.bool_])
def test_a_constant_needs_a_domain(dtype: npt.DTypeLike) -> None:
    with pytest.raises(GraphError, match="has no domain"):
        Constant.of(np.zeros(3, dtype))


@pytest.mark.parametrize(
    ("shape", "domain", "data", "problem"),
    [
        ((None, 3), Domain.FLOAT32, np.zeros((1, 3), np.float32), "free shape"),
        ((3,), Domain.FLOAT32, np.zeros(3, np.int32), "stored as int32"),
        ((3,), Domain.FLOAT32, np.zeros((1, 3), np.float32), "stored as float32[1, 3]"),
        ((2, 33), Domain.BIT, np.zeros((2, 1), np.uint32), "stored as uint32[2, 1]"),
        ((33,), Domain.BIT, np.zeros(2, np.uint32), "stored as uint32[2]"),
        ((3,), Domain.BIT, np.zeros((1, 1), np.int32), "stored as int32"),
        ((2, 3), Domain.BIT, np.array([[7], [8]], np.uint32), "bits set beyond its 3 elements"),
        ((31,), Domain.BIT, np.array([[1 << 31]], np.uint32), "bits set beyond its 31 elements"),
        ((33,), Domain.BIT, np.array([[0, 2]], np.uint32), "bits set beyond its 33 elements"),
    ],
)
def test_a_constant_refuses_what_does_not_fit(
    shape: tuple[int | None, ...], domain: Domain, data: npt.NDArray[np.generic], problem: str
) -> None:
    with pytest.raises(GraphError) as caught:
        Constant(TensorType(shape, domain), data)
    assert problem in str(caught.value)


def test_whole_words_have_no_tail() -> None:
    full = np.full((2, 2), 0xFFFFFFFF, np.uint32)
    assert Constant(TensorType((2, 64), Domain.BIT), full).unpacked().all()


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
def test_an_index_is_within_its_axis(index: int) -> None:
    x = TensorType((None, 3), Domain.FLOAT32)
    node = Node("pick", ops.Gather(1), ("x", "i"), ("y",))
    with pytest.raises(GraphError, match=r"an index is not between 0 and 2.*pick"):
        Graph({"x": x}, (node,), ("y",), {"i": Constant.of(np.array([0, index], dtype=np.int32))})


def scored(*steps: ops.Op) -> Graph:
    names = ["x", *(f"t{i}" for i in range(len(steps)))]
    nodes = tuple(Node(b, op, (a,), (b,)) for op, a, b in zip(steps, names, names[1:], strict=False))
    return Graph({"x": TensorType((None, 5), Domain.FLOAT32)}, nodes, (names[-1],))


@pytest.mark.parametrize(
    ("steps", "scores"),
    [
        ([ops.Relu()], "t0"),
        ([ops.Relu(), ops.ArgMax(), ops.Reshape(()), ops.ToInt64()], "t0"),
        ([ops.Relu(), ops.ArgMax(), ops.ToFloat()], "t0"),
        ([ops.Relu(), ops.TopK(2, picked=ops.Picked.INDICES), ops.ToInt64()], "t0"),
        ([ops.Relu(), ops.TopK(2)], "t0"),
        ([ops.Relu(), ops.TopK(2, ops.Extreme.LEAST)], None),
        ([ops.Relu(), ops.ArgMax(ops.Extreme.LEAST)], None),
    ],
)
def test_where_the_scores_of_the_classes_are(steps: list[ops.Op], scores: str | None) -> None:
    assert class_scores(scored(*steps)) == scores


def test_an_index_of_a_bundle_is_within_its_axis() -> None:
    x = TensorType((None, 3), Domain.FLOAT32)
    good, bad = (Constant.of(np.array([2, index], dtype=np.int32)) for index in (0, 3))
    graph = Graph({"x": x}, (Node("pick", ops.Gather(1), ("x", "i"), ("y",)),), ("y",), {"i": good})
    document = Value(encode_graph(graph, {"i": "i"}), "graph")
    assert decode_graph(document, {"i": good}).nodes == graph.nodes
    with pytest.raises(BundleError, match="an index is not between 0 and 2"):
        decode_graph(document, {"i": bad})
