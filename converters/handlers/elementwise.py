"""Handlers of activations and normalization: what treats every element alike, or every channel or row."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.arithmetic import with_constant, with_operand
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import MOVED, Handler, Scope, axis_of, float32
from bnnrt.converters.onnx_model.node import LARGEST_FLOAT32, OnnxNode
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    Clip,
    Domain,
    LogSoftmax,
    Op,
    PRelu,
    Relu,
    Sign,
    SignOfZero,
    Softmax,
    ToFloat,
)

__all__ = [
    "batch_normalization",
    "cast",
    "clip",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "prelu",
    "same",
    "sign",
    "softmax",
    "unary",
]


def batch_normalization(scope: Scope, node: OnnxNode) -> Value:
    """BatchNormalization as ONNX Runtime computes it: x * s + (bias - mean * s), s = scale * (1 / sqrt(var + epsilon)).

    All in float32, each operation rounded.
    """
    if node.integer("training_mode", 0) or len(node.node.outputs) > 1:
        raise node.error("this is training mode", "export the model in evaluation mode")
    value = scope.value(node, 0)
    scale, bias, mean, variance = (float32(node, i, "parameters") for i in range(1, 5))
    if any(p.shape != (value.shape[0],) for p in (scale, bias, mean, variance)):
        raise node.error(f"parameters do not fit {value.shape[0]} channels")
    with np.errstate(all="ignore"):
        factor = scale * (np.float32(1) / np.sqrt(variance + np.float32(node.number("epsilon", 1e-5))))
        offset = bias - mean * factor
    per_channel = (-1,) + (1,) * (len(value.shape) - 1)
    result = with_constant(scope, node, value, ArithmeticKind.MUL, factor.reshape(per_channel), part="scale")
    return with_constant(scope, node, result, ArithmeticKind.ADD, offset.reshape(per_channel), part="offset")


def unary(op: Op) -> Handler:
    """An operator of one tensor and no attributes."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        return _unary(scope, node, op, scope.value(node, 0))

    return handler


def _unary(scope: Scope, node: OnnxNode, op: Op, value: Value) -> Value:
    return replace(value, tensor=scope.draft.emit(node.name, op, value.tensor))


def prelu(scope: Scope, node: OnnxNode) -> Value:
    """PRelu: the slope is a constant that broadcasts to the tensor."""
    return with_operand(scope, node, scope.value(node, 0), PRelu(), float32(node, 1, "slopes"))


def leaky_relu(scope: Scope, node: OnnxNode) -> Value:
    """LeakyRelu: a PRelu with one slope."""
    slope = np.full(1, node.number("alpha", 0.01), dtype=np.float32)
    return with_operand(scope, node, scope.value(node, 0), PRelu(), slope)


def clip(scope: Scope, node: OnnxNode) -> Value:
    """Clip; a bound that is left out is float32's least or greatest finite number, as ONNX has it."""
    bounds = []
    for index, name, default in ((1, "min", -LARGEST_FLOAT32), (2, "max", LARGEST_FLOAT32)):
        if node.has_input(index):
            array = float32(node, index, "bounds")
            if array.size != 1:
                raise node.error(f"a bound has {array.size} elements", "only single numbers are supported")
            bounds.append(float(array.reshape(-1)[0]))
        else:
            bounds.append(float(np.float32(node.number(name, default))))
    minimum, maximum = bounds
    value = scope.value(node, 0)
    if (minimum, maximum) == (0.0, np.inf):
        return _unary(scope, node, Relu(), value)
    if np.isnan(bounds).any():
        raise node.error("a bound is nan", "leave that bound out")
    if np.isfinite(bounds).all():
        return _unary(scope, node, Clip(minimum, maximum), value)
    # One bound after the other; an infinite one changes nothing, but for the infinity of the other sign.
    for kind, bound, part in ((ArithmeticKind.MAX, minimum, "min"), (ArithmeticKind.MIN, maximum, "max")):
        value = with_constant(scope, node, value, kind, np.full(1, bound, dtype=np.float32), part=part)
    return value


def hard_sigmoid(scope: Scope, node: OnnxNode) -> Value:
    """HardSigmoid: alpha * x + beta, not below 0 and not above 1."""
    return _hard_sigmoid(scope, node, node.number("alpha", 0.2), node.number("beta", 0.5))


def _hard_sigmoid(scope: Scope, node: OnnxNode, alpha: float, beta: float) -> Value:
    value = scope.value(node, 0)
    for kind, number, part in ((ArithmeticKind.MUL, alpha, "alpha"), (ArithmeticKind.ADD, beta, "beta")):
        value = with_constant(scope, node, value, kind, np.full(1, number, dtype=np.float32), part=part)
    return _unary(scope, node, Clip(0.0, 1.0), value)


def hard_swish(scope: Scope, node: OnnxNode) -> Value:
    """HardSwish: x * HardSigmoid(x) with alpha 1/6 and beta 1/2."""
    value = scope.value(node, 0)
    factor = _hard_sigmoid(scope, node, 1 / 6, 0.5)
    tensor = scope.draft.emit(f"{node.name}/product", Arithmetic(ArithmeticKind.MUL), value.tensor, factor.tensor)
    return replace(value, tensor=tensor)


def sign(scope: Scope, node: OnnxNode) -> Value:
    """bnnrt.Sign, which :mod:`bnnrt.converters.signs` puts in the place of every form of sign."""
    value = scope.value(node, 0)
    zero = node.text("zero", "onnx")
    op = Sign(SignOfZero.GT if zero == "gt" else SignOfZero.GE)
    bits = scope.draft.emit(node.name, op, value.tensor)
    if zero == "onnx":
        scope.open_signs.append(node.name)
    if node.integer("limited", 0):
        scope.limited_signs.append(node.name)
    return replace(value, tensor=scope.draft.emit(f"{node.name}/float", ToFloat(), bits))


def same(scope: Scope, node: OnnxNode) -> Value:
    """Identity and Dropout in evaluation mode."""
    if node.reads_more():
        raise node.error("the mask is read", "export the model in evaluation mode")
    training = node.constant(2)
    if node.has_input(2) and (training is None or training.any()):
        raise node.error("this is training mode", "export the model in evaluation mode")
    return scope.value(node, 0, MOVED)


def softmax(op: Softmax | LogSoftmax) -> Handler:
    """Softmax and LogSoftmax over any axis but the batch; before version 13 of the operators, over all from one on."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        return _softmax(scope, node, op)

    return handler


def _softmax(scope: Scope, node: OnnxNode, op: Softmax | LogSoftmax) -> Value:
    value = scope.value(node, 0)
    old = scope.opset < 13
    axis = axis_of(node, value, 1 if old else -1)
    if old:
        rows = layout.reshaped(scope.draft, node.name, value, (*value.shape[:axis], prod(value.shape[axis:])))
        return layout.reshaped(scope.draft, node.name, _row_wise(scope, node, op, rows, axis), value.shape)
    return _row_wise(scope, node, op, value, axis)


def _row_wise(scope: Scope, node: OnnxNode, op: Op, value: Value, axis: int) -> Value:
    """An operator of rows, over ``axis`` of the value's shape."""
    if len(value.shape) == 1:
        # The order of the elements does not matter, so that they stay where they are.
        return _unary(scope, node, op, layout.as_matrix(scope.draft, node.name, value))
    order = axes.last(value.shape, axis)
    tensor = axes.ordered(scope.draft, node.name, value, order)
    return axes.in_order(scope.draft.emit(node.name, op, tensor), value.shape, order)


def cast(scope: Scope, node: OnnxNode) -> Value:
    """Cast of float32 (or of the 8-bit input) to float32, and of indices to float32, int32 and int64."""
    value = scope.value(node, 0, MOVED)
    target = ir.DataType(node.integer("to", 0))
    if scope.draft.types[value.tensor].domain is Domain.INT32:
        if target == ir.DataType.FLOAT:
            return _unary(scope, node, ToFloat(), value)
        if target in (ir.DataType.INT32, ir.DataType.INT64):
            return value
        raise node.error(f"of indices to {target.name} is not supported", "cast them to int64, int32 or float32")
    if target != ir.DataType.FLOAT:
        raise node.error(f"to {target.name} is not supported", "only float32 is; export the model in float32")
    return value
