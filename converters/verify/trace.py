"""Which ONNX value a tensor of a converted graph holds: what a comparison with ONNX Runtime rests on.

The importer knows how each ONNX value lies in a tensor. Every pass keeps a tensor's name for as long as it holds the
same numbers (:func:`converters.draft.rewrite`), so that tensors are followed through the passes by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from bnnrt import reference
from bnnrt.converters.convert import BINARIZING, FOLDING
from bnnrt.converters.draft import Array, Draft
from bnnrt.converters.handlers import layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.importer import Imported, InputBinding, import_graph
from bnnrt.graph import Constant, Graph
from bnnrt.ops import Arithmetic, Clip, Relu, Reshape, Sign, ToFloat

__all__ = ["Carried", "Trace", "bound_input", "carried", "differing_constants", "trace"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Trace:
    """A conversion, and for the tensors of its graph the tensor of the imported graph that holds the same numbers."""

    imported: Imported
    graph: Graph
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Carried:
    """The ONNX value that a tensor holds, and in which order. Of bits, ``one``: what +1 stands for, if not itself."""

    name: str
    value: Value
    one: float | None = None

    def laid(self, array: Array) -> Array:
        """What ONNX Runtime gives, [images, elements] in the tensor's order."""
        dims, perm = self.value.dims, self.value.perm
        moved = array.reshape(len(array), *dims).transpose(0, *(p + 1 for p in perm))
        if self.one is not None:
            moved = np.where(moved == self.one, np.float32(1), np.float32(-1))
        return np.ascontiguousarray(moved.reshape(len(array), -1))

    def index(self, element: int) -> tuple[int, ...]:
        """Where an element of the tensor stands in the ONNX value, without the batch."""
        shape = self.value.shape
        order = self.value.laid(np.arange(int(np.prod(shape))).reshape(shape))
        return tuple(int(i) for i in np.unravel_index(int(order[element]), shape))


def trace(model: ir.Model, binding: InputBinding | None = None) -> Trace:
    """Convert ``model`` (cleaned up, its signs recognised), and follow its tensors."""
    imported = import_graph(model, binding)
    graph = imported.graph
    origins = {name: name for name in graph.types if name not in graph.constants}
    for step in (*BINARIZING, *FOLDING):
        graph = step.apply(graph)
        known = {n: o for n, o in origins.items() if n in graph.types and n not in graph.constants}
        origins = _spread(graph, known)
    return Trace(imported, graph, origins)


def carried(imported: Imported, visible: Collection[str]) -> dict[str, Carried]:
    """For tensors of the imported graph, the ONNX value in it, of those named ``visible``."""
    known: dict[str, Carried] = {}
    for name, value in imported.values.items():
        if name in visible and value.tensor in imported.graph.types and value.tensor not in imported.graph.inputs:
            known.setdefault(value.tensor, Carried(name, value))
    known = _spread(imported.graph, known)
    return _spread(imported.graph, {**known, **_bits_of_levels(imported.graph, known)})


def _bits_of_levels(graph: Graph, known: Mapping[str, Carried]) -> dict[str, Carried]:
    """The bits of signs of which only other numbers are known, made of them by operators that treat all alike."""
    readers, found = graph.consumers(), {}
    for node in graph.nodes:
        if not isinstance(node.op, Sign) or node.outputs[0] in known:
            continue
        tensor, levels = node.outputs[0], np.array([-1, 1], dtype=np.float32)
        while tensor not in known and len(readers.get(tensor, [])) == 1:
            (reader,) = readers[tensor]
            if not isinstance(reader.op, (Arithmetic, Clip, Relu, ToFloat)):
                break
            operands = [levels if name == tensor else graph.constants.get(name) for name in reader.inputs]
            numbers = [o.data if isinstance(o, Constant) else o for o in operands]
            if any(n is None or (n is not levels and n.size != 1) for n in numbers):
                break
            if not isinstance(reader.op, ToFloat):
                levels = reference.pointwise(reader.op, *(n for n in numbers if n is not None))
            tensor = reader.outputs[0]
        if tensor in known and levels[0] != levels[1]:
            found[node.outputs[0]] = replace(known[tensor], one=float(levels[1]))
    return found


def _spread(graph: Graph, known: Mapping[str, T]) -> dict[str, T]:
    """ToFloat and Reshape hold the same numbers as what they read, in the same order."""
    spread = dict(known)
    for nodes in (graph.nodes, graph.nodes[::-1], graph.nodes):
        for node in nodes:
            if isinstance(node.op, (ToFloat, Reshape)):
                for one, other in ((node.inputs[0], node.outputs[0]), (node.outputs[0], node.inputs[0])):
                    if one in spread:
                        spread.setdefault(other, spread[one])
    return spread


def differing_constants(graph: Graph, other: Graph) -> list[str] | None:
    """The constants of ``graph`` that differ from those of ``other``; None if more than constants differs."""
    if (dict(graph.inputs), graph.outputs, len(graph.nodes)) != (dict(other.inputs), other.outputs, len(other.nodes)):
        return None
    differing: dict[str, None] = {}
    for node, twin in zip(graph.nodes, other.nodes, strict=True):
        if (node.name, node.op, node.outputs) != (twin.name, twin.op, twin.outputs):
            return None
        if len(node.inputs) != len(twin.inputs):
            return None
        for name, twin_name in zip(node.inputs, twin.inputs, strict=True):
            constant, twin_constant = graph.constants.get(name), other.constants.get(twin_name)
            if constant is None or twin_constant is None:
                if name != twin_name or constant is not twin_constant:
                    return None
            elif constant.type != twin_constant.type:
                return None
            elif not _same(constant, twin_constant):
                differing[name] = None
    return list(differing)


def _same(one: Constant, other: Constant) -> bool:
    return one.data.tobytes() == other.data.tobytes()


def bound_input(model: ir.Model, binding: InputBinding) -> tuple[Graph, str]:
    """A graph from the inputs of ``binding`` to the model's own first input, in ONNX's order, and that input's name."""
    draft = Draft(binding.inputs(model))
    name = model.graph.inputs[0].name or ""
    value = layout.in_onnx_order(draft, name, binding.bind(draft, model)[name])
    return draft.graph((value.tensor,)), name
