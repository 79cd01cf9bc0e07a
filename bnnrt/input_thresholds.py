"""The thresholds T of a network's input, where a bundle keeps them, and the same bundle with others.

The pixel graph holds T as integers: bit = (pixel >= level) xor falling, a ``Threshold`` on 8-bit pixels. The graph of
the model's own input holds it in float32, as a number that is added in front of a sign, unless the model takes planes
of bits. Both are changed together, so that they stay one function: what the second graph does is compared with the
first at all 256 pixel levels, before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import reference
from bnnrt.bundle import Bundle, PixelBinding
from bnnrt.errors import InputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    Clip,
    Domain,
    Grayscale,
    LocalBinaryPattern,
    MaxPool,
    PRelu,
    Relu,
    Sign,
    SignOfZero,
    Threshold,
    ToFloat,
    Transpose,
)

__all__ = ["InputThresholds"]

Array = npt.NDArray[Any]

_LEVELS = np.arange(256)
_CONVERT_AGAIN = "convert the model again"


class InputThresholds:
    """The input thresholds of a bundle: one level for each plane of bits, in the order of :attr:`names`.

    A level is the first of the 256 pixel values at which the bit changes, 1 to 255; at others the plane is constant.

    Raises InputError where the network takes no images or thresholds none, and where the graph of the model's own
    input does not hold the same thresholds in a form that can be changed.
    """

    def __init__(self, bundle: Bundle) -> None:
        source = bundle.provenance.source
        if bundle.pixels is None or bundle.pipeline is None:
            raise InputError("the network does not take images", source, "give a network that thresholds pixels")
        self._bundle = bundle
        self._pixels = bundle.pixels
        self._nodes = [
            node
            for node in self._pixels.nodes
            if isinstance(node.op, Threshold) and self._pixels.types[node.inputs[0]].domain is Domain.UINT8
        ]
        if not self._nodes:
            patterns = any(isinstance(node.op, LocalBinaryPattern) for node in self._pixels.nodes)
            what = "local binary patterns have" if patterns else "the network's input has"
            raise InputError(
                f"{what} no thresholds", source, "give a network whose input is thresholded (docs/binarization.md)"
            )
        self.names = tuple(name for node in self._nodes for name in self._plane_names(node))
        self.levels = tuple(int(level) for node in self._nodes for level in self._constant(node, 1))
        """The levels that the bundle has."""
        binding = bundle.binding
        if binding is None:
            raise InputError("the bundle does not say how pixels become the model's input", source, _CONVERT_AGAIN)
        self._heads: list[Node] = []
        if not binding.binarized:
            self._values = _bound(binding)
            self._heads = [self._head(node) for node in self._nodes]

    def _constant(self, node: Node, index: int) -> Array:
        return self._pixels.constants[node.inputs[index]].unpacked().reshape(-1)

    def _plane_names(self, node: Node) -> list[str]:
        """What people call the planes of a threshold."""
        assert self._bundle.pipeline is not None  # __init__
        count = self._pixels.types[node.outputs[0]].channels
        maker = self._pixels.producers().get(node.inputs[0])
        if isinstance(maker, Node) and isinstance(maker.op, Grayscale):
            names = ["gray"]
        elif count == 3:
            names = ["blue", "green", "red"] if self._bundle.pipeline.color == "bgr" else ["red", "green", "blue"]
        else:
            names = ["gray"] if count == 1 else [f"plane {i}" for i in range(count)]
        return names if len(self._nodes) == 1 else [f"{node.name}: {name}" for name in names]

    def _head(self, node: Node) -> Node:
        """The node of the model's graph that makes the same bits as ``node`` does of pixels."""
        model = self._bundle.model
        found = [n for n in model.nodes if n.name == node.name and isinstance(n.op, Sign | Threshold)]
        wanted = _levels_to_bits(self._constant(node, 1), self._constant(node, 2))
        if len(found) != 1 or not _same(_bits(model, found[0], self._values), wanted):
            raise InputError(
                "the graph of the model's own input does not hold this threshold",
                f"{self._bundle.provenance.source}, node {node.name}",
                _CONVERT_AGAIN,
            )
        return found[0]

    def _split(self, levels: Sequence[int]) -> list[Array]:
        """The levels of each node."""
        counts = [self._constant(node, 1).size for node in self._nodes]
        return np.split(np.asarray(levels, dtype=np.int32), np.cumsum(counts)[:-1])

    def pixel_graph(self, levels: Sequence[int]) -> Graph:
        """The network from pixels, with other levels."""
        graph = self._pixels
        for node, part in zip(self._nodes, self._split(levels), strict=True):
            graph = _with_constant(graph, node.outputs[0], 1, part)
        return graph

    def bundle(self, levels: Sequence[int]) -> Bundle:
        """The bundle with other levels, in both of its graphs. Everything else in it is as it was.

        Raises InputError where the model's own arithmetic does not tell the levels apart.
        """
        model = self._bundle.model
        for head, node, part in zip(self._heads, self._nodes, self._split(levels), strict=bool(self._heads)):
            changed = part != self._constant(node, 1)
            if not changed.any():
                continue
            model = _moved(model, head, self._values, part, changed)
            (moved,) = (n for n in model.nodes if n.outputs == head.outputs)
            if not _same(_bits(model, moved, self._values), _levels_to_bits(part, self._constant(node, 2))):
                raise InputError(
                    "in float32 the model does not tell neighbouring pixel values apart",
                    f"{self._bundle.provenance.source}, node {node.name}",
                    "leave its thresholds as they are",
                )
        return replace(self._bundle, model=model, pixels=self.pixel_graph(levels))


def _levels_to_bits(levels: Array, falling: Array) -> Array:
    """The bits of the 256 pixel values, bool [256, C]."""
    bits: Array = (_LEVELS[:, None] >= levels) != falling.astype(np.bool_)
    return bits


def _same(bits: Array | None, wanted: Array) -> bool:
    return bits is not None and np.array_equal(bits, wanted)


def _bound(binding: PixelBinding) -> Array:
    """What the 256 pixel values are as the model's own input, float32 [256, 1]."""
    values: Array = _LEVELS.astype(np.float32)[:, None]
    with np.errstate(all="ignore"):
        if binding.scale is not None:
            values = values * np.float32(binding.scale)
        if binding.offset is not None:
            values = values + np.float32(binding.offset)
    return values


def _evaluated(graph: Graph, values: Array) -> dict[str, Array]:
    """Tensors that depend on one element of the input only, where that is each of ``values``: float32 [256, C or 1]."""
    if len(graph.inputs) != 1:
        return {}
    known = dict.fromkeys(graph.inputs, values)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if not all(name in known or name in graph.constants for name in node.inputs):
                continue
            x = known.get(node.inputs[0])
            constants = [graph.constants[name].data for name in node.inputs if name in graph.constants]
            if any(constant.ndim != 1 for constant in constants):
                continue
            if isinstance(node.op, Transpose):
                # Numbers of their own for each channel would not be the last axis any more.
                if x is not None and x.shape[1] == 1:
                    known[node.outputs[0]] = x
            elif isinstance(node.op, MaxPool | ToFloat):
                if x is not None:
                    known[node.outputs[0]] = x
            elif isinstance(node.op, Arithmetic | Clip | PRelu | Relu):
                operands = [known[n] if n in known else graph.constants[n].data for n in node.inputs]
                known[node.outputs[0]] = reference.pointwise(node.op, *operands)
    return known


def _bits(graph: Graph, node: Node, values: Array) -> Array | None:
    """The bits that a sign or threshold makes of ``values`` at the input, bool [256, C]; None where it sees others."""
    x = _evaluated(graph, values).get(node.inputs[0])
    channels = graph.types[node.outputs[0]].channels
    if x is None or x.shape[1] not in (1, channels):
        return None
    if isinstance(node.op, Threshold):  # where the model's own input has 8 bits
        level, falling = (graph.constants[name].unpacked().reshape(-1) for name in node.inputs[1:])
        bits = (x >= level) != falling.astype(np.bool_)
    else:
        assert isinstance(node.op, Sign)
        bits = x >= 0 if node.op.zero is SignOfZero.GE else x > 0
    return np.broadcast_to(bits, (len(values), channels))


def _moved(graph: Graph, head: Node, values: Array, levels: Array, changed: Array) -> Graph:
    """``graph`` with a sign or threshold that changes at other levels, in the planes that are ``changed``.

    In front of a sign, the number that is added becomes one that puts 0 midway between two pixel values. Where nothing
    is added, or another node wants the old sum, an addition is put in.
    """
    if isinstance(head.op, Threshold):
        return _with_constant(graph, head.outputs[0], 1, levels)
    known = _evaluated(graph, values)
    term, number, old = head.inputs[0], None, np.zeros(1, dtype=np.float32)
    adding = graph.producers().get(term)
    if (
        adding is not None
        and adding.op == Arithmetic(ArithmeticKind.ADD)
        and len(graph.consumers()[term]) == 1
        and term not in graph.outputs
    ):
        number = next((i for i, name in enumerate(adding.inputs) if name in graph.constants), None)
        if number is not None:
            term, old = adding.inputs[1 - number], graph.constants[adding.inputs[number]].data
    planes = np.arange(len(levels))
    x = np.broadcast_to(known[term], (len(values), len(levels))).astype(np.float64)
    first = np.where(changed, levels, 1)
    middle = (x[first - 1, planes] + x[first, planes]) / 2
    new = np.where(changed, -middle, np.broadcast_to(old, levels.shape)).astype(np.float32)
    if adding is not None and number is not None:
        return _with_constant(graph, adding.outputs[0], number, new)
    total = _unused(graph, f"{term}/calibrated")
    constant = _unused(graph, f"{total}/constant")
    added = Node(head.name, Arithmetic(ArithmeticKind.ADD), (term, constant), (total,))
    place = graph.nodes.index(head)
    nodes = (*graph.nodes[:place], added, replace(head, inputs=(total,)), *graph.nodes[place + 1 :])
    return graph.rebuilt(nodes, {**graph.constants, constant: Constant.of(new)})


def _with_constant(graph: Graph, output: str, index: int, values: Array) -> Graph:
    """``graph`` with other values in the constant that is input ``index`` of the node that writes ``output``."""
    (place,) = (i for i, node in enumerate(graph.nodes) if output in node.outputs)
    node = graph.nodes[place]
    name = node.inputs[index]
    if len(graph.consumers()[name]) > 1 or node.inputs.count(name) > 1:  # others keep theirs
        name = _unused(graph, name)
    inputs = (*node.inputs[:index], name, *node.inputs[index + 1 :])
    nodes = (*graph.nodes[:place], replace(node, inputs=inputs), *graph.nodes[place + 1 :])
    return graph.rebuilt(nodes, {**graph.constants, name: Constant.of(values)})


def _unused(graph: Graph, name: str) -> str:
    while name in graph.types:
        name += "'"
    return name
