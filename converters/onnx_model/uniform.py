"""Tensors that hold one number all over: constants, and those that a model fills at run time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import constant_of, is_standard, static_shape

__all__ = ["filled_with", "is_shape_of", "keeps_shape", "same_shape", "source_of", "uniform_beside"]

MOVING = ("Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def uniform_beside(value: ir.Value | None, other: ir.Value) -> Array | None:
    """The one number of ``value``, of no dimensions, in its own type.

    None if it holds several, or if an element-wise operator of it and ``other`` had another shape than ``other``.
    """
    if value is None:
        return None
    constant = constant_of(value)
    if constant is not None:
        flat = constant.reshape(-1)
        same = flat.size > 0 and bool((flat == flat[0]).all())
        return flat[:1].reshape(()) if same and keeps_shape(constant, other) else None
    node = value.producer()
    if node is None:
        return None
    if is_standard(node, "Neg"):
        negated = uniform_beside(node.inputs[0], other)
        return None if negated is None else np.asarray(-negated)
    filled = same_shape(node.outputs[0], other)
    if is_standard(node, "ConstantOfShape") and (filled or is_shape_of(node.inputs[0], other)):
        return filled_with(node)
    if is_standard(node, "Expand") and (filled or is_shape_of(node.inputs[1], other)):
        return uniform_beside(node.inputs[0], other)
    return None


def filled_with(node: ir.Node) -> Array:
    """The number that a ConstantOfShape repeats, of no dimensions."""
    fill = node.attributes.get("value")
    return np.zeros((), dtype=np.float32) if fill is None else fill.as_tensor().numpy().reshape(())


def source_of(value: ir.Value | None) -> ir.Value | None:
    """What the elements of ``value`` are taken from, by operators that only move and repeat them."""
    while value is not None and constant_of(value) is None:
        node = value.producer()
        if node is None or not is_standard(node, *MOVING):
            break
        value = node.inputs[0]
    return value


def keeps_shape(constant: Array, value: ir.Value) -> bool:
    """Whether an element-wise operator of ``value`` and ``constant`` has the shape of ``value``."""
    if constant.size == 1 and constant.ndim <= 1:
        return True
    shape = static_shape(value)
    if shape is None or constant.ndim > len(shape):
        return False
    return all(c in (1, d) for c, d in zip(constant.shape[::-1], shape[::-1], strict=False))


def is_shape_of(sizes: ir.Value | None, value: ir.Value) -> bool:
    """Whether ``sizes`` is the shape of ``value``, or of a tensor of the same shape."""
    node = None if sizes is None else sizes.producer()
    if node is None or not is_standard(node, "Shape") or node.attributes:
        return False
    of = node.inputs[0]
    return of is value or same_shape(of, value)


def same_shape(one: ir.Value | None, other: ir.Value) -> bool:
    """Whether two values are known to have one shape; free sizes by their names."""
    if one is None or one.shape is None or other.shape is None:
        return False
    dims, others = (tuple(d if isinstance(d, int) else d.value for d in v.shape or ()) for v in (one, other))
    return dims == others and None not in dims
