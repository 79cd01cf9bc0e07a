"""Writes into an ONNX graph: constants, and nodes in the place of another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array

__all__ = ["Replacement", "add_constant", "replace"]


def add_constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Add ``array`` to the initializers of ``graph``, under a name that none of them has."""
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    graph.register_initializer(value)
    return value


def replace(node: ir.Node, result: ir.Value, output: int = 0) -> None:
    """Let whatever reads an output of ``node`` read ``result``, which takes over its name.

    The name matters where it is an output of the graph. Nothing reads this output any more; the node stays.
    """
    old = node.outputs[output]
    ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
    result.name, old.name = old.name, f"{old.name}/replaced"


class Replacement:
    """Nodes that are written in front of ``node``, to stand in its place.

    They are named after it, their constants and outputs after its output: nodes may share a name or have none, values
    may not. ``kind`` stands for the name of a node that has none.
    """

    def __init__(self, graph: ir.Graph, node: ir.Node, kind: str) -> None:
        self._graph, self._node = graph, node
        self._output = node.outputs[0].name or ""
        self._name = node.name or f"{self._output}/{kind}"

    def constant(self, part: str, number: Array | float) -> ir.Value:
        """Add a float32 constant for the node ``part``."""
        return add_constant(self._graph, f"{self._output}/{part}/constant", np.asarray(number, dtype=np.float32))

    def add(
        self,
        operator: str,
        *inputs: ir.Value,
        part: str = "",
        domain: str = "",
        attributes: Mapping[str, str | int | float] | None = None,
    ) -> ir.Value:
        """Add the node ``part``, or without a part the one that keeps the name. Returns its output, of no type yet."""
        ending = f"/{part}" if part else ""
        new = ir.node(operator, list(inputs), domain=domain, attributes=attributes, name=self._name + ending)
        new.outputs[0].name = f"{self._output}{ending}/value"
        self._graph.insert_before(self._node, new)
        return new.outputs[0]
