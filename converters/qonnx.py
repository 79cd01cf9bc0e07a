"""QONNX's quantizers of one bit: constants are evaluated, activations written in standard operators.

What they compute is QONNX's own definition (``qonnx.custom_op.general``), in float32:

- ``BipolarQuant(x, scale)``: +1 where x >= 0, else -1; times scale.
- ``Quant(x, scale, zero point, bit width)`` of bit width 1, signed, narrow and with zero point 0: +1 where
  x / scale >= 0, else -1; times scale. The quotient of a small negative x can round to -0, which gives +1.

Every other Quant stays where it is, and the importer refuses it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_node import STANDARD_DOMAINS, OnnxNode, constant_of
from bnnrt.converters.scope import Scope

__all__ = ["OPERATORS", "QUALIFIED", "lower_quantizers", "refuse"]

DOMAINS = ("onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general")
OPERATORS = ("BipolarQuant", "Quant")
"""In older files also in ONNX's own domain, which has no such operators."""
QUALIFIED = (*OPERATORS, *(f"{domain}.{operator}" for domain in DOMAINS for operator in OPERATORS))

LEVELS = (("zero", 0), ("plus", 1), ("minus", -1))


def lower_quantizers(model: ir.Model) -> None:
    """Replace, in place, each quantizer of one bit."""
    for node in list(model.graph):
        if node.domain not in (*STANDARD_DOMAINS, *DOMAINS) or _misfit(OnnxNode(node, node.name or "")) is not None:
            continue
        scale = constant_of(node.inputs[1])
        assert scale is not None
        x = constant_of(node.inputs[0])
        divided = node.op_type == "Quant"
        if x is None:
            result = _written(model.graph, node, scale, divided=divided)
        else:
            result = _constant(model.graph, f"{node.outputs[0].name}/quantized", _evaluated(x, scale, divided=divided))
        ir.convenience.replace_all_uses_with(node.outputs[0], result, replace_graph_outputs=True)
        if x is None:
            # An output of the graph keeps its name.
            result.name, node.outputs[0].name = node.outputs[0].name, f"{node.outputs[0].name}/quantizer"
        model.graph.remove(node, safe=True)


def refuse(scope: Scope, node: OnnxNode) -> NoReturn:
    """A quantizer that :func:`lower_quantizers` has left."""
    what, fix = _misfit(node) or ("this quantizer is not supported", "")
    raise node.error(what, fix)


def _misfit(node: OnnxNode) -> tuple[str, str] | None:
    """Why ``node`` is no quantizer of one bit, and what to do; None if it is one."""
    if node.node.op_type not in OPERATORS or len(node.node.outputs) != 1:
        return "this is no quantizer", ""
    constants = [node.constant(index) for index in range(1, 4 if node.node.op_type == "Quant" else 2)]
    if node.node.op_type == "Quant":
        width, zero = constants[2], constants[1]
        if width is None or width.size != 1 or zero is None:
            return "the bit width or the zero point is not a constant", "only constant parameters are supported"
        bits = float(width.reshape(-1)[0])
        if bits != 1:
            return f"{bits:g} bits", "only quantizers of one bit are supported"
        if zero.any():
            return "the zero point is not 0", "only 0 is supported"
        if not (node.integer("signed", 0) and node.integer("narrow", 0)):
            return "a quantizer of one bit that is not signed and narrow", "only -1 and +1 are supported, not 0 and 1"
    scale, x = constants[0], node.constant(0)
    if scale is None:
        return "the scale (input 1) is not a constant", "only constant parameters are supported"
    # An output of another type, or of more elements than the input, is not what these stand for.
    floats = scale.dtype == np.float32 and (x is None or x.dtype == np.float32)
    if not floats or not node.has_input(0) or not np.isfinite(scale).all() or not scale.all():
        return "only float32 numbers and finite scales other than 0 are supported", ""
    return None


def _evaluated(x: Array, scale: Array, *, divided: bool) -> Array:
    with np.errstate(all="ignore"):
        signed = x / scale if divided else x
    result: Array = np.where(signed >= 0, np.float32(1), np.float32(-1)) * scale
    return result


def _constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    array = np.asarray(array, dtype=np.float32)
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    graph.register_initializer(value)
    return value


def _written(graph: ir.Graph, node: ir.Node, scale: Array, *, divided: bool) -> ir.Value:
    """The quantizer of an activation in operators of ONNX, which stand before ``node``; returns the result."""
    name = node.name or f"{node.outputs[0].name}/quantizer"
    plain = bool((scale == 1).all()) and scale.size == 1

    def add(operator: str, *inputs: ir.Value | None, part: str = "") -> ir.Value:
        new = ir.Node("", operator, inputs, name=f"{name}/{part}" if part else name)
        new.outputs[0].name = f"{name}/{part or 'sign'}"
        graph.insert_before(node, new)
        return new.outputs[0]

    x = node.inputs[0]
    factor = None if plain else _constant(graph, f"{name}/factor", scale)
    if divided and factor is not None:
        x = add("Div", x, factor, part="divided")
    zero, plus, minus = (_constant(graph, f"{name}/{part}", np.full((), level)) for part, level in LEVELS)
    # Less is older than GreaterOrEqual.
    signed = add("Where", add("Less", x, zero, part="below"), minus, plus)
    return signed if factor is None else add("Mul", signed, factor, part="scaled")
