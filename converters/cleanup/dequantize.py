"""Folds QuantizeLinear and DequantizeLinear of constants, as models store weights of 8 bits.

The library folds the latter only from version 19 of the ONNX operators on; the operator itself is older.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import OnnxNode, is_standard
from bnnrt.converters.onnx_model.writer import add_constant, replace

__all__ = ["fold_dequantized"]


def fold_dequantized(model: ir.Model) -> None:
    """Replace, in place, each QuantizeLinear of constants, and each DequantizeLinear of such, by its result.

    The former is round(x / scale) + zero point, half to even and within its type; the latter (x - zero point) * scale,
    float32.
    """
    for node in list(model.graph):
        if is_standard(node, "QuantizeLinear", "DequantizeLinear"):
            fold = _quantized if node.op_type == "QuantizeLinear" else _dequantized
            result = fold(OnnxNode(node, node.name or ""))
            if result is not None:
                replace(node, add_constant(model.graph, f"{node.outputs[0].name}/folded", result))
                model.graph.remove(node, safe=True)


def _along_axis(node: OnnxNode, x: Array, vector: Array) -> Array:
    """A scale or zero point as it broadcasts to ``x``."""
    shape = [1] * x.ndim
    if vector.size > 1:
        shape[node.integer("axis", 1)] = -1
    return vector.reshape(shape)


def _quantized(node: OnnxNode) -> Array | None:
    x, scale, zero = node.constant(0), node.constant(1), node.constant(2)
    if x is None or scale is None or x.dtype != np.float32 or scale.dtype != np.float32:
        return None
    if (node.has_input(2) and zero is None) or node.integer("block_size", 0) or node.integer("output_dtype", 0):
        return None
    zero = np.zeros(1, dtype=np.uint8) if zero is None else zero
    if zero.dtype not in (np.uint8, np.int8):
        return None
    limits = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        levels = np.rint(x / _along_axis(node, x, scale)) + _along_axis(node, x, zero)
    if not np.isfinite(levels).all():
        return None
    result: Array = levels.clip(limits.min, limits.max).astype(zero.dtype)
    return result


def _dequantized(node: OnnxNode) -> Array | None:
    x, scale, zero = node.constant(0), node.constant(1), node.constant(2)
    if x is None or scale is None or scale.dtype != np.float32 or (node.has_input(2) and zero is None):
        return None
    if not np.issubdtype(x.dtype, np.integer) or x.dtype.itemsize > 4 or node.integer("block_size", 0):
        return None
    difference = x.astype(np.int32) - (0 if zero is None else _along_axis(node, x, zero.astype(np.int32)))
    result: Array = difference.astype(np.float32) * _along_axis(node, x, scale)
    return result
