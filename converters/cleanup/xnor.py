"""FINN's product of bits, ``XnorPopcountMatMul``, in operators of ONNX.

Of a [N, K] and b [K, M], whose elements are 0 and 1, it counts in how many of K places they agree: with 2 a - 1 and
2 b - 1 of -1 and +1, that is (their product + K) / 2. QONNX's own definition computes it so, for any numbers.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers.scope import Scope
from bnnrt.converters.onnx_model.node import OnnxNode, constant_of
from bnnrt.converters.onnx_model.writer import Replacement, replace

__all__ = ["QUALIFIED", "lower_xnor", "refuse"]

OPERATOR = "XnorPopcountMatMul"
DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general")
QUALIFIED = tuple(f"{domain}.{OPERATOR}" for domain in DOMAINS)


def lower_xnor(model: ir.Model) -> None:
    """Replace, in place, each such product with constant weights."""
    for node in list(model.graph):
        weights = constant_of(node.inputs[1]) if len(node.inputs) == 2 else None
        if (node.domain, node.op_type) not in {(domain, OPERATOR) for domain in DOMAINS} or weights is None:
            continue
        x = node.inputs[0]
        if weights.dtype != np.float32 or weights.ndim != 2 or x is None or constant_of(x) is not None:
            continue
        replace(node, _written(Replacement(model.graph, node, "product"), x, weights))
        model.graph.remove(node, safe=True)


def refuse(scope: Scope, node: OnnxNode) -> NoReturn:
    """A product that :func:`lower_xnor` has left."""
    raise node.error(
        "the weights (input 1) are no float32 matrix that is constant", "only constant weights are supported"
    )


def _written(new: Replacement, tensor: ir.Value, weights: Array) -> ir.Value:
    steps: tuple[tuple[str, str, Array | float], ...] = (
        ("Mul", "doubled", 2.0),
        ("Sub", "signs", 1.0),
        ("MatMul", "product", 2 * weights - 1),
        ("Add", "places", float(len(weights))),
        ("Mul", "halved", 0.5),
    )
    for operator, part, operand in steps:
        tensor = new.add(operator, tensor, new.constant(part, operand), part=part)
    return tensor
