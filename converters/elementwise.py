"""Handlers of operators that treat every element alike, or every channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from bnnrt.converters import layout
from bnnrt.converters.draft import Array, Draft
from bnnrt.converters.layout import Value
from bnnrt.converters.onnx_node import OnnxNode
from bnnrt.converters.scope import Handler, Scope, float32, listed
from bnnrt.ops import Arithmetic, ArithmeticKind, Clip, Op, PRelu, Relu, Sign, SignOfZero, Softmax, ToFloat

__all__ = [
    "arithmetic",
    "batch_normalization",
    "cast",
    "clip",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "negative",
    "prelu",
    "same",
    "sign",
    "softmax",
    "unary",
    "with_constant",
]

LARGEST = float(np.finfo(np.float32).max)


def with_constant(
    scope: Scope,
    node: OnnxNode,
    value: Value,
    kind: ArithmeticKind,
    constant: Array,
    *,
    first: bool = False,
    part: str = "",
) -> Value:
    """``value kind constant``, or the constant ``first``, broadcast as ONNX does.

    ``constant`` float32, of a shape that broadcasts to [batch, *value.shape] without enlarging it. ``part`` says which
    part of the ONNX node this is, where it becomes several.
    """
    return _with_operand(scope, node, value, Arithmetic(kind), constant, first=first, part=part)


def _with_operand(
    scope: Scope, node: OnnxNode, value: Value, op: Op, constant: Array, *, first: bool = False, part: str = ""
) -> Value:
    """An operator of ``value`` and a constant, which takes that as [C] or [1]."""
    draft = scope.draft
    constant = _without_batch(scope, node, value, constant)
    if constant.size > 1:
        rows = np.broadcast_to(constant, value.shape)
        vector = _last_axis(draft, value, rows)
        if vector is None and len(value.shape) == 3:
            # Channels elsewhere than last: an image that has not met a convolution yet.
            image = layout.as_image(draft, node.name, value)
            vector = _last_axis(draft, image, rows)
            value = value if vector is None else image
        if vector is None:
            value = layout.as_matrix(draft, node.name, value)
            vector = value.laid(rows)
    else:
        vector = constant.reshape(1)
    vector = vector[:1] if _identical(vector, vector[0]) else vector
    name = f"{node.name}/{part}" if part else node.name
    operand = draft.constant(f"{name}/constant", np.ascontiguousarray(vector))
    pair = (operand, value.tensor) if first else (value.tensor, operand)
    tensor = draft.emit(name, op, *pair)
    return Value(tensor, value.shape, value.dims, value.perm)


def _without_batch(scope: Scope, node: OnnxNode, value: Value, constant: Array) -> Array:
    """The constant as it broadcasts to ``value.shape``."""
    sizes = (scope.batch, *value.shape)
    fits = constant.ndim <= len(sizes) and all(
        c in (1, v) for c, v in zip(constant.shape[::-1], sizes[::-1], strict=False)
    )
    if not fits or constant.size == 0:
        raise node.error(f"a constant of shape {list(constant.shape)} does not fit [N, {listed(value.shape)}]")
    if constant.ndim < len(sizes):
        return constant
    if not _identical(constant, constant[:1]):
        raise node.error("a constant differs from one image of the batch to the next", "export with batch size 1")
    first: Array = constant[0]
    return first


def _last_axis(draft: Draft, value: Value, rows: Array) -> Array | None:
    """``rows`` as a vector over the last axis of the value's tensor; None if it depends on other axes too."""
    channels = draft.types[value.tensor].channels
    laid = value.laid(rows).reshape(-1, channels)
    return laid[0] if _identical(laid, laid[0]) else None


def _identical(array: Array, model: Array) -> bool:
    """Whether all rows of a float32 array are ``model``, bit for bit (0.0 is not -0.0, and NaN is itself)."""
    return bool((array.view(np.uint32) == model.view(np.uint32)).all())


def arithmetic(kind: ArithmeticKind) -> Handler:
    """Add, Sub, Mul, Div: of a computed tensor and a constant, or of two computed tensors of one shape."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        for index in (0, 1):
            if node.constant(index) is not None:
                constant, value = float32(node, index, "constants"), scope.value(node, 1 - index)
                return with_constant(scope, node, value, kind, constant, first=index == 0)
        a, b = scope.value(node, 0), scope.value(node, 1)
        if a.shape != b.shape:
            raise node.error(
                f"[N, {listed(a.shape)}] and [N, {listed(b.shape)}] would be broadcast",
                "only tensors of one shape are supported",
            )
        a, b = layout.like(scope.draft, node.name, a, b)
        return Value(scope.draft.emit(node.name, Arithmetic(kind), a.tensor, b.tensor), a.shape, a.dims, a.perm)

    return handler


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
    axes = (-1,) + (1,) * (len(value.shape) - 1)
    result = with_constant(scope, node, value, ArithmeticKind.MUL, factor.reshape(axes), part="scale")
    return with_constant(scope, node, result, ArithmeticKind.ADD, offset.reshape(axes), part="offset")


def unary(op: Op) -> Handler:
    """An operator of one tensor and no attributes."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        return _unary(scope, node, op, scope.value(node, 0))

    return handler


def _unary(scope: Scope, node: OnnxNode, op: Op, value: Value, part: str = "") -> Value:
    name = f"{node.name}/{part}" if part else node.name
    return replace(value, tensor=scope.draft.emit(name, op, value.tensor))


def prelu(scope: Scope, node: OnnxNode) -> Value:
    """PRelu: the slope is a constant that broadcasts to the tensor."""
    return _with_operand(scope, node, scope.value(node, 0), PRelu(), float32(node, 1, "slopes"))


def leaky_relu(scope: Scope, node: OnnxNode) -> Value:
    """LeakyRelu: a PRelu with one slope."""
    slope = np.full(1, node.number("alpha", 0.01), dtype=np.float32)
    return _with_operand(scope, node, scope.value(node, 0), PRelu(), slope)


def negative(scope: Scope, node: OnnxNode) -> Value:
    """Neg: a multiplication by -1."""
    return with_constant(scope, node, scope.value(node, 0), ArithmeticKind.MUL, np.full(1, -1, dtype=np.float32))


def clip(scope: Scope, node: OnnxNode) -> Value:
    """Clip; a bound that is left out is float32's least or greatest finite number, as ONNX has it."""
    bounds = []
    for index, name, default in ((1, "min", -LARGEST), (2, "max", LARGEST)):
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
    if not np.isfinite(bounds).all():
        raise node.error(f"a bound is {minimum if np.isfinite(maximum) else maximum}", "leave that bound out")
    return _unary(scope, node, Clip(minimum, maximum), value)


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


def softmax(scope: Scope, node: OnnxNode) -> Value:
    """Softmax over the last axis, or over the channels of an image."""
    value = scope.value(node, 0)
    rank = len(value.shape) + 1
    old = scope.opset < 13
    (axis,) = node.axes([node.integer("axis", 1 if old else -1)], rank)
    if axis == 0:
        raise node.error("over the batch", "only over the last axis, or over the channels of an image")
    if old and axis != rank - 1 and rank > 2:
        raise node.error(
            f"over all axes from {axis} on, before version 13 of the ONNX operators", "export with a newer one"
        )
    if rank == 2:
        value = layout.as_matrix(scope.draft, node.name, value)
    elif rank == 4 and axis == 1:
        value = layout.as_image(scope.draft, node.name, value)
    elif axis == rank - 1:
        value = layout.in_onnx_order(scope.draft, node.name, value)
    else:
        raise node.error(f"over axis {axis} of {rank}", "only over the last axis, or over the channels of an image")
    return _unary(scope, node, Softmax(), value)


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
    return Value(scope.draft.emit(f"{node.name}/float", ToFloat(), bits), value.shape, value.dims, value.perm)


def same(scope: Scope, node: OnnxNode) -> Value:
    """Identity and Dropout in evaluation mode."""
    if len([output for output in node.node.outputs if output.uses() or output.is_graph_output()]) > 1:
        raise node.error("the mask is read", "export the model in evaluation mode")
    training = node.constant(2)
    if node.has_input(2) and (training is None or training.any()):
        raise node.error("this is training mode", "export the model in evaluation mode")
    return scope.value(node, 0)


def cast(scope: Scope, node: OnnxNode) -> Value:
    """Cast of float32 (or of the 8-bit input) to float32."""
    target = ir.DataType(node.integer("to", 0))
    if target != ir.DataType.FLOAT:
        raise node.error(f"to {target.name} is not supported", "only float32 is supported")
    return scope.value(node, 0)
