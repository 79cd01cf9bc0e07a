"""Typed access to the attributes, constants and shapes of an ONNX node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.errors import ConversionError

__all__ = [
    "COMPARISONS",
    "LARGEST_FLOAT32",
    "STANDARD_DOMAINS",
    "OnnxNode",
    "clip_limits",
    "constant_of",
    "is_standard",
    "qualified",
    "static_shape",
    "unsqueezed",
]

STANDARD_DOMAINS = ("", "ai.onnx")

COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
}

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def constant_of(value: ir.Value | None) -> Array | None:
    """The elements of a constant, or None."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array: Array = np.asarray(value.const_value.numpy())
    return array


def clip_limits(node: ir.Node) -> tuple[float, float] | None:
    """The least and the greatest number that a Clip lets through; None if these are no constants, or NaN.

    A limit that is left out is float32's least or greatest finite number, as ONNX has it.
    """
    limits = []
    for index, name, default in ((1, "min", -LARGEST_FLOAT32), (2, "max", LARGEST_FLOAT32)):
        if name in node.attributes:
            limits.append(node.attributes[name].as_float())
        elif len(node.inputs) > index and node.inputs[index] is not None:
            constant = constant_of(node.inputs[index])
            if constant is None or constant.size != 1 or np.isnan(constant).any():
                return None
            limits.append(float(constant.reshape(())))
        else:
            limits.append(default)
    return limits[0], limits[1]


def static_shape(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """The shape with None where a dimension is free, or None where even the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else None for d in value.shape)


def unsqueezed(value: ir.Value | None, last: int) -> ir.Value | None:
    """What ``value``, whose last axis is ``last``, is with an axis added behind the others; None if it is not that."""
    node = None if value is None else value.producer()
    if node is None or not is_standard(node, "Unsqueeze"):
        return None
    given = constant_of(node.inputs[1]) if len(node.inputs) > 1 else np.array(node.attributes["axes"].as_ints())
    return node.inputs[0] if given is not None and given.reshape(-1).tolist() in ([-1], [last]) else None


def qualified(node: ir.Node) -> str:
    """The operator with its domain, as error texts name it."""
    return node.op_type if node.domain in STANDARD_DOMAINS else f"{node.domain}.{node.op_type}"


def is_standard(node: ir.Node | None, *operators: str) -> bool:
    """Whether ``node`` is one of some standard operators."""
    return node is not None and node.domain in STANDARD_DOMAINS and node.op_type in operators


class OnnxNode:
    """An ONNX node under a unique name."""

    def __init__(self, node: ir.Node, name: str) -> None:
        self.node, self.name = node, name

    @property
    def operator(self) -> str:
        return qualified(self.node)

    def error(self, what: str, fix: str = "") -> ConversionError:
        """An error that names this node and its operator."""
        return ConversionError(f"{self.operator}: {what}", f"node {self.name}", fix)

    def has_input(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def reads_more(self) -> bool:
        """Whether another output than the first is used."""
        return any(output.uses() or output.is_graph_output() for output in self.node.outputs[1:])

    def input(self, index: int) -> ir.Value:
        """An input that must be there."""
        value = self.node.inputs[index] if self.has_input(index) else None
        if value is None:
            raise self.error(f"input {index} is missing")
        return value

    def constant(self, index: int) -> Array | None:
        """The elements of an input, if it is there and constant."""
        return constant_of(self.node.inputs[index]) if self.has_input(index) else None

    def required_constant(self, index: int, what: str) -> Array:
        """The elements of an input that must be constant."""
        array = self.constant(index)
        if array is None:
            raise self.error(f"{what} (input {index}) is not a constant", "only constant parameters are supported")
        return array

    def integer(self, name: str, default: int) -> int:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def number(self, name: str, default: float) -> float:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_float()

    def text(self, name: str, default: str) -> str:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_string()

    def integers(self, name: str) -> tuple[int, ...] | None:
        attribute = self.node.attributes.get(name)
        return None if attribute is None else tuple(attribute.as_ints())

    def integers_or_input(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers that older operator versions take as an attribute and newer ones as an input."""
        if name in self.node.attributes or not self.has_input(index):
            return self.integers(name)
        return tuple(int(v) for v in self.required_constant(index, name).reshape(-1))

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes of a tensor of ``rank`` dimensions, counted from the front; none out of range or twice."""
        counted = tuple(axis + rank if axis < 0 else axis for axis in values)
        if len(set(counted)) != len(counted) or any(not 0 <= axis < rank for axis in counted):
            raise self.error(f"axes {list(values)} do not fit {rank} dimensions")
        return counted

    def pair(self, name: str, default: Sequence[int], axes: int) -> tuple[int, int]:
        """An attribute of one integer a spatial axis, of rows and columns; where ``axes`` is 1, of columns alone."""
        values = self.integers(name) or tuple(default)[-axes:]
        if len(values) != axes:
            raise self.error(f"{name} {list(values)} is not for {axes} axes", "give one number a spatial axis")
        return (1, values[0]) if axes == 1 else (values[0], values[1])
