"""QONNX's and FINN's quantizers of one bit: constants are evaluated, activations written in standard operators.

What they compute is QONNX's own definition (``qonnx.custom_op.general``), in float32:

- ``BipolarQuant(x, scale)``: +1 where x >= 0, else -1; times scale.
- ``Quant(x, scale, zero point, bit width)``, also called ``IntQuant``, of bit width 1 and zero point 0. Signed and
  narrow: +1 where x / scale >= 0, else -1; times scale. The quotient of a small negative x can round to -0, which gives
  +1. Neither signed nor narrow: x / scale, from 0 to 1, rounded; times scale.
- ``MultiThreshold(x, thresholds [C or 1, 1])`` of one threshold a channel: 1 where x >= threshold, else 0; times
  ``out_scale``; plus ``out_bias``.

Every other quantizer stays where it is, and the importer refuses it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers.scope import Scope
from bnnrt.converters.onnx_model.node import STANDARD_DOMAINS, OnnxNode, constant_of, static_shape
from bnnrt.converters.onnx_model.writer import Replacement, add_constant, replace

__all__ = ["OPERATORS", "QUALIFIED", "lower_quantizers", "refuse"]

DOMAINS = ("onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general")
OPERATORS = ("BipolarQuant", "Quant", "IntQuant", "MultiThreshold")
"""In older files also in ONNX's own domain, which has no such operators."""
QUALIFIED = (*OPERATORS, *(f"{domain}.{operator}" for domain in DOMAINS for operator in OPERATORS))

# From which x / scale on a quantizer to 0 and 1 gives 1, and whether it does there.
ROUNDINGS = {"ROUND": (0.5, False), "HALF_EVEN": (0.5, False), "CEIL": (0.0, False), "FLOOR": (1.0, True)}
# Where the channels are, by rank.
LAYOUTS = {2: "NC", 3: "NWC", 4: "NCHW"}


def lower_quantizers(model: ir.Model) -> None:
    """Replace, in place, each quantizer of one bit."""
    waiting = _lower(model)
    while waiting:
        # Thresholds of channels that are not last need to know how many axes there are. Inference stops at domains
        # that a model uses and does not import.
        for node in model.graph:
            model.opset_imports.setdefault(node.domain, 1)
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        before, waiting = waiting, _lower(model)
        if waiting == before:
            break


def _lower(model: ir.Model) -> int:
    """Replace what can be replaced; returns how many thresholds wait for a shape."""
    waiting = 0
    for node in list(model.graph):
        if node.domain not in (*STANDARD_DOMAINS, *DOMAINS) or _misfit(OnnxNode(node, node.name or "")) is not None:
            continue
        if node.op_type == "MultiThreshold" and _thresholds(node) is None:
            waiting += 1
            continue
        x = constant_of(node.inputs[0])
        if x is not None:
            result = add_constant(model.graph, f"{node.outputs[0].name}/quantized", _evaluated(node, x))
        else:
            result = _written(Replacement(model.graph, node, "quantizer"), node)
        replace(node, result)
        model.graph.remove(node, safe=True)
    return waiting


def refuse(scope: Scope, node: OnnxNode) -> NoReturn:
    """A quantizer that :func:`lower_quantizers` has left."""
    unknown = "the number of axes of its input is not known", "say by data_layout that the channels are last"
    what, fix = _misfit(node) or unknown
    raise node.error(what, fix)


def _misfit(node: OnnxNode) -> tuple[str, str] | None:
    """Why ``node`` is no quantizer of one bit, and what to do; None if it is one."""
    if node.node.op_type not in OPERATORS or len(node.node.outputs) != 1:
        return "this is no quantizer", ""
    if node.node.op_type == "MultiThreshold":
        return _threshold_misfit(node)
    constants = [node.constant(index) for index in range(1, 2 if node.node.op_type == "BipolarQuant" else 4)]
    if node.node.op_type != "BipolarQuant":
        width, zero = constants[2], constants[1]
        if width is None or width.size != 1 or zero is None:
            return "the bit width or the zero point is not a constant", "only constant parameters are supported"
        bits = float(width.reshape(-1)[0])
        if bits != 1:
            return f"{bits:g} bits", _several_bits(node, "only quantizers of one bit are supported")
        if zero.any():
            return "the zero point is not 0", "only 0 is supported"
        if not {"signed", "narrow"} <= node.node.attributes.keys():
            return "it does not say whether it is signed and narrow", ""
        if bool(node.integer("signed", 1)) != bool(node.integer("narrow", 1)):
            return "one bit that is signed or narrow, but not both", "only -1 and +1, and 0 and 1, are supported"
        mode = node.text("rounding_mode", "ROUND").upper()
        if _is_unsigned(node) and mode not in ROUNDINGS:
            return f"rounding_mode {mode} is not supported", f"use one of {', '.join(ROUNDINGS)}"
    scale, x = constants[0], node.constant(0)
    if scale is None:
        return "the scale (input 1) is not a constant", "only constant parameters are supported"
    # An output of another type, or of more elements than the input, is not what these stand for.
    floats = scale.dtype == np.float32 and (x is None or x.dtype == np.float32)
    if not floats or not node.has_input(0) or not np.isfinite(scale).all() or not scale.all():
        return "only float32 numbers and finite scales other than 0 are supported", ""
    return None


def _threshold_misfit(node: OnnxNode) -> tuple[str, str] | None:
    thresholds, x = node.constant(1), node.constant(0)
    if thresholds is None:
        return "the thresholds (input 1) are not a constant", "only constant parameters are supported"
    if thresholds.ndim != 2 or thresholds.size == 0:
        return f"thresholds of shape {list(thresholds.shape)}", "only [channels, 1] is supported"
    if thresholds.shape[1] != 1:
        what = f"{thresholds.shape[1]} thresholds a channel"
        return what, _several_bits(node, "only one, which gives one bit, is supported")
    floats = thresholds.dtype == np.float32 and (x is None or x.dtype == np.float32)
    if not floats or not node.has_input(0) or not np.isfinite(thresholds).all():
        return "only float32 numbers and finite thresholds are supported", ""
    layout = node.text("data_layout", "")
    if len(thresholds) > 1 and layout and "C" not in layout:
        return f"data_layout {layout} has no channels", "name them C"
    return None


def _several_bits(node: OnnxNode, fix: str) -> str:
    """What to do about a quantizer of several bits: at an input, it changes nothing of what is quantized already."""
    if not node.has_input(0) or not node.input(0).is_graph_input():
        return fix
    return f"{fix}; this one is of the model's input: export the model without it and feed it what it would give"


def _thresholds(node: ir.Node) -> Array | None:
    """The thresholds as they broadcast to input 0; None if its rank has to be known and is not."""
    named, thresholds = OnnxNode(node, node.name or ""), constant_of(node.inputs[1])
    assert thresholds is not None
    if len(thresholds) == 1:
        return thresholds.reshape(())
    layout, shape = named.text("data_layout", ""), static_shape(node.inputs[0])
    if layout and layout.index("C") == len(layout) - 1 and (shape is None or len(shape) == len(layout)):
        return thresholds.reshape(-1)
    if shape is None:
        return None
    axis = (layout or LAYOUTS.get(len(shape), "NC")).index("C")
    if axis >= len(shape):
        return None
    result: Array = thresholds.reshape(-1, *[1] * (len(shape) - 1 - axis))
    return result


def _evaluated(node: ir.Node, x: Array) -> Array:
    """A quantizer of constants."""
    named = OnnxNode(node, node.name or "")
    with np.errstate(all="ignore"):
        if node.op_type == "MultiThreshold":
            thresholds = _thresholds(node)
            assert thresholds is not None
            count = (x >= thresholds).astype(np.float32)
            result: Array = _number(named, "out_scale", 1.0) * count + _number(named, "out_bias", 0.0)
            return result
        scale = constant_of(node.inputs[1])
        assert scale is not None
        quotient = x if node.op_type == "BipolarQuant" else x / scale
        if _is_unsigned(named):
            limit, included = ROUNDINGS[named.text("rounding_mode", "ROUND").upper()]
            ones = quotient >= limit if included else quotient > limit
            return ones.astype(np.float32) * scale
        return np.where(quotient >= 0, np.float32(1), np.float32(-1)) * scale


def _number(node: OnnxNode, name: str, default: float) -> Array:
    return np.array(node.number(name, default), dtype=np.float32)


def _is_unsigned(node: OnnxNode) -> bool:
    return node.node.op_type != "BipolarQuant" and not node.integer("signed", 1)


def _written(new: Replacement, node: ir.Node) -> ir.Value:
    """Write the quantizer of an activation in operators of ONNX; returns the result."""
    named, x = OnnxNode(node, node.name or ""), node.inputs[0]
    assert x is not None
    if node.op_type == "MultiThreshold":
        thresholds = _thresholds(node)
        assert thresholds is not None
        count = _bit(new, x, thresholds, included=True)
        scaled = _arithmetic(new, "Mul", count, _number(named, "out_scale", 1.0), 1, "scaled")
        return _arithmetic(new, "Add", scaled, _number(named, "out_bias", 0.0), 0, "shifted")
    scale = constant_of(node.inputs[1])
    assert scale is not None
    if node.op_type != "BipolarQuant":
        x = _arithmetic(new, "Div", x, scale, 1, "divided")
    if _is_unsigned(named):
        limit, included = ROUNDINGS[named.text("rounding_mode", "ROUND").upper()]
        level = _bit(new, x, np.array(limit), included=included)
    else:
        plus, minus = new.constant("plus", 1), new.constant("minus", -1)
        level = new.add("Where", _from(new, x, np.zeros(()), included=True), plus, minus, part="sign")
    return _arithmetic(new, "Mul", level, scale, 1, "scaled")


def _from(new: Replacement, x: ir.Value, limit: Array, *, included: bool) -> ir.Value:
    """Whether x is above ``limit``, or there if ``included``. Not true of NaN."""
    level = new.constant("limit", limit)
    above = new.add("Greater", x, level, part="above")
    if not included:
        return above
    # GreaterOrEqual is newer than Or.
    return new.add("Or", above, new.add("Equal", x, level, part="at"), part="from")


def _bit(new: Replacement, x: ir.Value, limit: Array, *, included: bool) -> ir.Value:
    """The same as 0 and 1."""
    above = _from(new, x, limit, included=included)
    return new.add("Cast", above, part="bit", attributes={"to": int(ir.DataType.FLOAT)})


def _arithmetic(new: Replacement, operator: str, x: ir.Value, operand: Array, neutral: float, part: str) -> ir.Value:
    if operand.size == 1 and operand.reshape(()) == neutral:
        return x
    return new.add(operator, x, new.constant(part, operand), part=part)
