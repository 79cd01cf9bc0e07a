"""What the handlers of ONNX operators work on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from bnnrt.converters.draft import Array, Draft
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.shape_values import integers
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import Domain

__all__ = ["MOVED", "OTHER_AXES", "Handler", "Scope", "axis_of", "float32", "listed"]


class Scope:
    """What a handler sees: the graph under construction and the values known so far."""

    def __init__(self, draft: Draft, batch: int | None, opset: int) -> None:
        self.draft, self.batch, self.opset = draft, batch, opset
        self.values: dict[str, Value] = {}
        self.operators: dict[str, str] = {}
        """The ONNX operator behind each node of the graph, by node name."""
        self.open_signs: list[str] = []
        """Names of Sign nodes that are ONNX signs, with 0 at 0."""
        self.limited_signs: list[str] = []
        """Names of Sign nodes that are the model's function only for numbers smaller than 2**23 in size."""

    def value(self, node: OnnxNode, index: int, domains: Collection[Domain] = (Domain.FLOAT32,)) -> Value:
        """An input that the network computes, in one of some domains."""
        value = node.input(index)
        found = self.values.get(value.name or "")
        if found is None:
            if node.constant(index) is not None:
                raise node.error(f"input {index} is a constant", "only computed tensors are supported there")
            raise node.error(
                f"input {index} ({value.name}) has no supported type", "only float32 tensors are supported"
            )
        if self.draft.types[found.tensor].domain not in domains:
            raise node.error(
                f"input {index} ({value.name}) is made of indices",
                "they can be moved and cast, not computed with",
            )
        return found

    def sizes(self, node: OnnxNode, index: int) -> list[int | None]:
        """A shape that is an input: constant, or computed from the shapes of other tensors. None is the free batch."""
        shapes = {name: value.shape for name, value in self.values.items()}
        found = integers(node.input(index), shapes, self.batch)
        if found is None:
            what = "the shape is not a constant"
            raise node.error(what, "only shapes computed from sizes and constants are supported")
        return found

    def fixed_integers(self, node: OnnxNode, name: str, index: int) -> tuple[int, ...] | None:
        """Integers in the attribute ``name`` or in an input, which is constant or computed of sizes, not of the batch.

        None if neither is there.
        """
        if name in node.node.attributes or not node.has_input(index):
            return node.integers(name)
        shapes = {known: value.shape for known, value in self.values.items()}
        found = integers(node.input(index), shapes, self.batch)
        if found is None or None in found:
            fix = "only constants and what is computed of sizes other than the batch are supported"
            raise node.error(f"{name} (input {index}) depends on the batch or on data", fix)
        return tuple(size for size in found if size is not None)


MOVED = (Domain.FLOAT32, Domain.INT32)
"""What operators take that only move elements: numbers, and indices."""

OTHER_AXES = "only the other axes are supported"
"""What to do about an operator that would mix the images of a batch."""

Handler = Callable[[Scope, OnnxNode], Value | Sequence[Value]]
"""Emits what an ONNX node becomes and returns the value of its first output, or of each output."""


def axis_of(node: OnnxNode, value: Value, default: int) -> int:
    """The attribute ``axis`` of an operator of ``value``, as an axis of its shape, which lacks the batch."""
    (axis,) = node.axes([node.integer("axis", default)], len(value.shape) + 1)
    if axis == 0:
        raise node.error("over the batch", OTHER_AXES)
    return axis - 1


def float32(node: OnnxNode, index: int, what: str) -> Array:
    """An input that must be a float32 constant; an error calls it ``what``."""
    array = node.required_constant(index, what)
    if array.dtype != np.float32:
        raise node.error(f"{what} are {array.dtype}", "only float32 is supported")
    return array


def listed(shape: tuple[int, ...]) -> str:
    """A shape in words, without brackets."""
    return ", ".join(map(str, shape))
