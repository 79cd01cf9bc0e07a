"""Folds DequantizeLinear of constants, as models store weights of 8 bits.

The library folds it only from version 19 of the ONNX operators on; the operator itself is older.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_node import OnnxNode, is_standard

__all__ = ["fold_dequantized"]


def fold_dequantized(model: ir.Model) -> None:
    """Replace, in place, each DequantizeLinear of constants by its result, float32: (x - zero point) * scale."""
    for node in list(model.graph):
        if is_standard(node, "DequantizeLinear"):
            result = _dequantized(OnnxNode(node, node.name or ""))
            if result is not None:
                _replace(model.graph, node, result)


def _dequantized(node: OnnxNode) -> Array | None:
    x, scale, zero = node.constant(0), node.constant(1), node.constant(2)
    if x is None or scale is None or scale.dtype != np.float32 or (node.has_input(2) and zero is None):
        return None
    if not np.issubdtype(x.dtype, np.integer) or x.dtype.itemsize > 4 or node.integer("block_size", 0):
        return None
    shape = [1] * x.ndim
    if scale.size > 1:
        shape[node.integer("axis", 1)] = -1
    difference = x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32).reshape(shape))
    result: Array = difference.astype(np.float32) * scale.reshape(shape)
    return result


def _replace(graph: ir.Graph, node: ir.Node, result: Array) -> None:
    old = node.outputs[0]
    name = f"{old.name}/dequantized"
    new = ir.Value(name=name, const_value=ir.tensor(result, name=name))
    new.type, new.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(result.shape)
    graph.register_initializer(new)
    ir.convenience.replace_all_uses_with(old, new)
