"""The graph of a network: what a converter makes, a bundle stores and a plan schedules.

A graph is immutable. A pass is a class with ``apply(graph) -> graph``; it builds new nodes and lets the constructor
check names, domains and shapes, so that no inconsistent graph can exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.errors import GraphError
from bnnrt.ops import ArgMax, Domain, Extreme, Op, Reshape, TensorType, ToFloat, ToInt64, TopK

__all__ = ["STORAGE", "Constant", "Graph", "Node", "Pass", "class_scores"]

STORAGE: Mapping[Domain, np.dtype[Any]] = {
    Domain.BIT: np.dtype(np.uint32),
    Domain.UINT8: np.dtype(np.uint8),
    Domain.INT32: np.dtype(np.int32),
    Domain.INT64: np.dtype(np.int64),
    Domain.FLOAT32: np.dtype(np.float32),
}
"""How each domain is stored: bits as words packed along the last axis."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant tensor in the bundle's layout.

    Bits are stored as uint32 rows, [first dimension, words]: each row packs all elements of the other dimensions in
    order (weights [O, kh, kw, C] are O rows of kh*kw*C bits). A bit vector [C] is one row. Everything else is stored
    as it is.
    """

    type: TensorType
    data: npt.NDArray[Any]

    def __post_init__(self) -> None:
        shape = self.type.shape
        if None in shape:
            raise GraphError(f"a constant has the free shape {list(shape)}")
        if self.data.dtype != STORAGE[self.type.domain] or self.data.shape != self.stored_shape(self.type):
            raise GraphError(f"a constant {self.type} is stored as {self.data.dtype}{list(self.data.shape)}")
        if self.type.domain is Domain.BIT:
            length = self.row_length(self.type)
            tail = length % packing.WORD_BITS
            if tail and np.any(self.data[:, -1] >> np.uint32(tail)):
                raise GraphError(f"a constant {self.type} has bits set beyond its {length} elements")

    @staticmethod
    def row_length(tensor_type: TensorType) -> int:
        """Elements in one packed row of a bit constant."""
        shape = tensor_type.with_batch(1)
        return prod(shape[1:]) if len(shape) > 1 else shape[0]

    @classmethod
    def stored_shape(cls, tensor_type: TensorType) -> tuple[int, ...]:
        shape = tensor_type.with_batch(1)
        if tensor_type.domain is not Domain.BIT:
            return shape
        return (shape[0] if len(shape) > 1 else 1, packing.words_for(cls.row_length(tensor_type)))

    @classmethod
    def bits(cls, values: npt.ArrayLike) -> Constant:
        """A bit constant from bool [...], true for +1."""
        array = np.asarray(values, dtype=np.bool_)
        tensor_type = TensorType(array.shape, Domain.BIT)
        return cls(tensor_type, packing.pack(array.reshape(cls.stored_shape(tensor_type)[0], -1)))

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Constant:
        """A float32, int32, int64 or uint8 constant."""
        for domain, dtype in STORAGE.items():
            if values.dtype == dtype and domain is not Domain.BIT:
                return cls(TensorType(values.shape, domain), np.ascontiguousarray(values))
        raise GraphError(f"a constant of {values.dtype} has no domain")

    def unpacked(self) -> npt.NDArray[Any]:
        """The elements in their own shape; bits as bool."""
        if self.type.domain is not Domain.BIT:
            return self.data
        return packing.unpack(self.data, self.row_length(self.type)).reshape(self.type.with_batch(1))


@dataclass(frozen=True)
class Node:
    """One operator applied to named tensors. ``name`` is what the model's author called it."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """A network. Nodes stand in the order in which they can run; each tensor is written once.

    Raises GraphError if a name is unknown or written twice, or a domain or shape does not fit its operator.
    """

    inputs: Mapping[str, TensorType]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    types: Mapping[str, TensorType] = field(init=False, repr=False)
    """Types of all tensors, inputs and constants included, by name."""

    def __post_init__(self) -> None:
        types = {**{name: c.type for name, c in self.constants.items()}, **self.inputs}
        if len(types) != len(self.constants) + len(self.inputs):
            raise GraphError("a tensor is both an input and a constant")
        for node in self.nodes:
            unknown = [name for name in node.inputs if name not in types]
            if unknown:
                raise GraphError(f"tensor {unknown[0]} is read before it is written", node.name)
            variable = [
                i for i in node.op.constant_inputs if i < len(node.inputs) and node.inputs[i] not in self.constants
            ]
            if variable:
                raise GraphError(f"{type(node.op).__name__}: input {variable[0]} is no constant", node.name)
            given = [types[name] for name in node.inputs]
            try:
                found = node.op.infer(given)
                node.op.check_constants(
                    given, [self.constants[n].data if n in self.constants else None for n in node.inputs]
                )
            except GraphError as e:
                raise GraphError(e.what, e.where or node.name, e.fix) from None
            if node.inputs and all(name in self.constants for name in node.inputs):
                raise GraphError(f"{type(node.op).__name__} has only constants", node.name, "fold it")
            if len(found) != len(node.outputs):
                raise GraphError(
                    f"{type(node.op).__name__} has {len(found)} outputs, not {len(node.outputs)}", node.name
                )
            for name, tensor in zip(node.outputs, found, strict=True):
                if name in types:
                    raise GraphError(f"tensor {name} is written twice", node.name)
                types[name] = tensor
        for name in self.outputs:
            if name not in types or name in self.constants:
                raise GraphError(f"output {name} is not computed")
        object.__setattr__(self, "types", types)

    def producers(self) -> dict[str, Node]:
        """The node that writes each tensor."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each tensor; a tensor that only leaves the graph has none."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(node)
        return readers

    def rebuilt(self, nodes: Iterable[Node], constants: Mapping[str, Constant] | None = None) -> Graph:
        """The same inputs and outputs over other nodes, without nodes and constants that nothing needs."""
        kept: list[Node] = []
        needed = set(self.outputs)
        for node in reversed(list(nodes)):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        everything = self.constants if constants is None else constants
        return Graph(
            inputs=self.inputs,
            nodes=tuple(reversed(kept)),
            outputs=self.outputs,
            constants={name: c for name, c in everything.items() if name in needed},
        )


def class_scores(graph: Graph) -> str | None:
    """The tensor whose last axis has a score for each class: the first output, or what its classes are picked from.

    A network may end in ArgMax or TopK, whose values are in another order. None where it takes the least of something.
    """
    name, producers = graph.outputs[0], graph.producers()
    while isinstance(producers[name].op if name in producers else None, (Reshape, ToFloat, ToInt64)):
        name = producers[name].inputs[0]
    op = producers[name].op if name in producers else None
    if isinstance(op, (ArgMax, TopK)):
        return producers[name].inputs[0] if op.extreme is Extreme.GREATEST else None
    return graph.outputs[0]


class Pass(Protocol):
    """A transformation of graphs that keeps what they compute."""

    def apply(self, graph: Graph) -> Graph: ...
