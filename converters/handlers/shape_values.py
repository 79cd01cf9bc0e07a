"""Shapes that a model computes: Shape, Gather, Slice, Concat, Mul and their like on the sizes of a tensor.

With a free batch they are no constants, but they are known all the same, but for the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import add, floordiv, mul, sub

import numpy as np
import onnx_ir as ir

from bnnrt.converters.onnx_model.node import OnnxNode, constant_of, is_standard

__all__ = ["computes_shape", "integers"]

Sizes = list[int | None]

SAME = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {"Add": add, "Div": floordiv, "Mul": mul, "Sub": sub}
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


def computes_shape(node: ir.Node) -> bool:
    """Whether ``node`` computes sizes, not data. Whoever reads them evaluates them by :func:`integers`."""
    if is_standard(node, "Shape"):
        return True
    sized = is_standard(node, "Gather", "Slice", "Concat", "ReduceProd", *ARITHMETIC, *SAME)
    if not sized or node.outputs[0].dtype not in INTEGERS:
        return False
    sources = node.inputs if is_standard(node, "Concat", *ARITHMETIC) else node.inputs[:1]
    return all(_is_size(source) for source in sources if source is not None)


def _is_size(value: ir.Value) -> bool:
    producer = value.producer()
    return constant_of(value) is not None or (producer is not None and computes_shape(producer))


def integers(value: ir.Value, shapes: Mapping[str, Sequence[int | None]], batch: int | None) -> Sizes | None:
    """The elements of an integer vector or scalar, None standing for the free batch; None if they are not known.

    Args:
        shapes: the shapes of computed tensors by name, without the batch.
        batch: the batch, where it is fixed.
    """
    constant = constant_of(value)
    if constant is not None:
        return [int(v) for v in constant.reshape(-1)]
    node = value.producer()
    if node is None:
        return None
    if is_standard(node, "Shape"):
        return _sizes(node, shapes, batch)
    parts = []
    for source in node.inputs if is_standard(node, "Concat", *ARITHMETIC) else node.inputs[:1]:
        part = None if source is None else integers(source, shapes, batch)
        if part is None:
            return None
        parts.append(part)
    if is_standard(node, "Concat"):
        return [size for part in parts for size in part]
    if is_standard(node, *SAME):
        return parts[0]
    if is_standard(node, *ARITHMETIC):
        return _combined(node, parts[0], parts[1])
    if is_standard(node, "ReduceProd"):
        return None if None in parts[0] else [prod(size for size in parts[0] if size is not None)]
    return _picked(node, parts[0])


def _sizes(node: ir.Node, shapes: Mapping[str, Sequence[int | None]], batch: int | None) -> Sizes | None:
    source = node.inputs[0]
    shape = None if source is None else shapes.get(source.name or "")
    if shape is None:
        return None
    named = OnnxNode(node, node.name or "")
    end = named.integer("end", len(shape) + 1)
    return [batch, *shape][named.integer("start", 0) : end]


def _combined(node: ir.Node, a: Sizes, b: Sizes) -> Sizes | None:
    """Arithmetic of sizes, element by element; of the free batch, only what leaves it as it is."""
    count = max(len(a), len(b))
    if not a or not b or {len(a), len(b)} - {1, count}:
        return None
    result: Sizes = []
    for x, y in zip(a * (count // len(a)), b * (count // len(b)), strict=True):
        neutral = 1 if node.op_type in ("Mul", "Div") else 0
        if x is not None and y is not None:
            if node.op_type == "Div" and (x < 0 or y <= 0):
                return None  # rounded towards 0, and not down
            result.append(ARITHMETIC[node.op_type](x, y))
        elif y == neutral or (x == neutral and node.op_type in ("Mul", "Add")):
            result.append(None)
        else:
            return None
    return result


def _picked(node: ir.Node, sizes: Sizes) -> Sizes | None:
    """Gather and Slice of a vector, with constant positions."""
    given = [constant_of(source) for source in node.inputs[1:]]
    positions = np.arange(len(sizes))
    if any(array is None for array in given) or not given:
        return None
    numbers = [array.reshape(-1) for array in given if array is not None]
    if is_standard(node, "Gather"):
        if not ((numbers[0] >= -len(sizes)) & (numbers[0] < len(sizes))).all():
            return None
        return [sizes[i] for i in positions[numbers[0]]]
    if not is_standard(node, "Slice") or any(len(part) != 1 for part in numbers):
        return None
    step = int(numbers[3][0]) if len(numbers) > 3 else 1
    return [sizes[i] for i in positions[int(numbers[0][0]) : int(numbers[1][0]) : step]]
