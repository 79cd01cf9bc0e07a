"""Handlers of arithmetic: of computed tensors, and of them with constants, which broadcast as in ONNX."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnnrt import reference
from bnnrt.converters.draft import Array, Draft
from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.picking import picked
from bnnrt.converters.handlers.scope import Handler, Scope, float32, listed
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import Arithmetic, ArithmeticKind, Op, PRelu

__all__ = [
    "absolute",
    "arithmetic",
    "combined",
    "mean",
    "negative",
    "power",
    "reciprocal",
    "variadic",
    "with_constant",
    "with_operand",
]


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

    ``constant`` float32, of no more axes than [batch, *value.shape]. ``part`` says which part of the ONNX node this is,
    where it becomes several.
    """
    value = _enlarged(scope, node, value, constant)
    return with_operand(scope, node, value, Arithmetic(kind), constant, first=first, part=part)


def with_operand(
    scope: Scope, node: OnnxNode, value: Value, op: Op, constant: Array, *, first: bool = False, part: str = ""
) -> Value:
    """An operator of ``value`` and a constant of a shape that broadcasts to it, which takes that as [C] or [1]."""
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
    return replace(value, tensor=tensor)


def _enlarged(scope: Scope, node: OnnxNode, value: Value, constant: Array) -> Value:
    """The value, repeated along those of its axes that have one element where the constant has more."""
    for behind in range(1, min(constant.ndim, len(value.shape)) + 1):
        size, axis = constant.shape[-behind], len(value.shape) - behind
        if size > 1 and value.shape[axis] == 1:
            value = picked(scope, node, value, axis, np.zeros(size, dtype=np.int32))
    return value


def _without_batch(scope: Scope, node: OnnxNode, value: Value, constant: Array) -> Array:
    """The constant as it broadcasts to ``value.shape``."""
    sizes = (scope.batch, *value.shape)
    fits = constant.ndim <= len(sizes) and all(
        c in (1, v) for c, v in zip(constant.shape[::-1], sizes[::-1], strict=False)
    )
    if not fits or constant.size == 0:
        raise node.error(
            f"a constant of shape {list(constant.shape)} does not fit [N, {listed(value.shape)}]",
            "give it no more axes than the tensor, of equal sizes or 1",
        )
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


def combined(
    scope: Scope, node: OnnxNode, kind: ArithmeticKind, a: Value | Array, b: Value | Array, part: str = ""
) -> Value | Array:
    """``a kind b``, of computed values and constants."""
    if isinstance(a, Value) and isinstance(b, Value):
        return _of_values(scope, node, kind, a, b, f"{node.name}/{part}" if part else node.name)
    if isinstance(a, Value):
        assert not isinstance(b, Value)
        return with_constant(scope, node, a, kind, b, part=part)
    if isinstance(b, Value):
        return with_constant(scope, node, b, kind, a, first=True, part=part)
    return reference.pointwise(Arithmetic(kind), a, b)


def _of_values(scope: Scope, node: OnnxNode, kind: ArithmeticKind, a: Value, b: Value, name: str) -> Value:
    draft = scope.draft
    if a.shape == b.shape:
        a, b = layout.like(draft, node.name, a, b)
        return replace(a, tensor=draft.emit(name, Arithmetic(kind), a.tensor, b.tensor))
    shapes = f"[N, {listed(a.shape)}] and [N, {listed(b.shape)}]"
    if len(a.shape) != len(b.shape):
        raise node.error(f"{shapes} mix the images of a batch", "give both as many axes, with Unsqueeze or Reshape")
    if not all(x == y or 1 in (x, y) for x, y in zip(a.shape, b.shape, strict=True)):
        raise node.error(f"{shapes} do not fit", "make their axes equal, or 1")
    first, second, order = axes.broadcast(draft, node.name, a, b)
    shape = tuple(y if x == 1 else x for x, y in zip(a.shape, b.shape, strict=True))
    return axes.in_order(draft.emit(name, Arithmetic(kind), first, second), shape, order)


def _operands(scope: Scope, node: OnnxNode) -> list[Value | Array]:
    return [
        scope.value(node, index) if node.constant(index) is None else float32(node, index, "constants")
        for index in range(len(node.node.inputs))
    ]


def _computed(result: Value | Array) -> Value:
    assert isinstance(result, Value)  # a node of constants alone has been evaluated
    return result


def arithmetic(kind: ArithmeticKind) -> Handler:
    """Add, Sub, Mul, Div: of computed tensors and constants that broadcast."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        a, b = _operands(scope, node)
        return _computed(combined(scope, node, kind, a, b))

    return handler


def variadic(kind: ArithmeticKind) -> Handler:
    """Sum, Max, Min: of any number of operands, from the first on."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        return _computed(_folded(scope, node, kind))

    return handler


def _folded(scope: Scope, node: OnnxNode, kind: ArithmeticKind, last: str = "") -> Value | Array:
    result, *others = _operands(scope, node)
    for number, operand in enumerate(others, 2):
        part = last if number == len(others) + 1 else f"of {number}"
        result = combined(scope, node, kind, result, operand, part)
    return result


def mean(scope: Scope, node: OnnxNode) -> Value:
    """Mean, as ONNX Runtime computes it: the sum times 1 / n."""
    total, count = _folded(scope, node, ArithmeticKind.ADD, last="sum"), len(node.node.inputs)
    if count == 1:
        return _computed(total)
    share = np.float32(1) / np.float32(count)
    return with_constant(scope, node, _computed(total), ArithmeticKind.MUL, np.full(1, share))


def negative(scope: Scope, node: OnnxNode) -> Value:
    """Neg: a multiplication by -1."""
    return with_constant(scope, node, scope.value(node, 0), ArithmeticKind.MUL, np.full(1, -1, dtype=np.float32))


def absolute(scope: Scope, node: OnnxNode) -> Value:
    """Abs: -1 times what is below 0; adding 0 makes -0.0 positive."""
    slope = np.full(1, -1, dtype=np.float32)
    value = with_operand(scope, node, scope.value(node, 0), PRelu(), slope, part="positive")
    return with_constant(scope, node, value, ArithmeticKind.ADD, np.zeros(1, dtype=np.float32))


def reciprocal(scope: Scope, node: OnnxNode) -> Value:
    """Reciprocal: 1 / x."""
    one = np.ones(1, dtype=np.float32)
    return with_constant(scope, node, scope.value(node, 0), ArithmeticKind.DIV, one, first=True)


def power(scope: Scope, node: OnnxNode) -> Value:
    """Pow with the exponents 1, 2 and 3, which ONNX Runtime writes as products where the exponent is a single number.

    Every other power is its C library's, which no other device has.
    """
    value = scope.value(node, 0)
    exponent = node.required_constant(1, "the exponent")
    _without_batch(scope, node, value, exponent.astype(np.float32))
    wanted = float(exponent.reshape(-1)[0])
    if not (exponent == wanted).all() or wanted not in (1, 2, 3) or (exponent.size > 1 and wanted != 1):
        shown = f"{wanted:g}" if (exponent == wanted).all() else "several numbers"
        raise node.error(
            f"to the power of {shown} is not supported",
            "only one of 1, 2, 3 is; write others as Mul and Reciprocal",
        )
    result = value
    for number in range(2, int(wanted) + 1):
        part = "" if number == wanted else "square"
        result = _computed(combined(scope, node, ArithmeticKind.MUL, result, value, part))
    return result
