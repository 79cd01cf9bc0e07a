"""ONNX's element-wise operators on intervals of numbers, many at once: what a computation can give, and no less.

Rounding to float32 keeps order, so the bounds are computed in float32 too, by the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import clip_limits, constant_of, is_standard

__all__ = ["LARGEST_SIGMOID", "Intervals", "applied", "cancelled", "cancelled_alone", "is_elementwise"]

Bits = npt.NDArray[np.bool_]

LARGEST_INTEGER = 1 << 24
# Of ONNX Runtime's Tanh, no more is assumed than that it has the sign of its argument and is hardly greater than 1; of
# Sigmoid, that it is not negative and hardly greater than 1.
LARGEST_TANH = LARGEST_SIGMOID = 1.001


@dataclass(frozen=True, eq=False)
class Intervals:
    """Sets of numbers: those from ``low`` to ``high``, both float32, none where these are NaN; with NaN where ``nan``.

    Truth values are 0 and 1, and integers are numbers too.
    """

    low: Array
    high: Array
    nan: Bits

    @classmethod
    def of(cls, low: Array, high: Array) -> Intervals:
        return cls(low, high, np.isnan(low))

    @property
    def empty(self) -> Bits:
        empty: Bits = np.isnan(self.low)
        return empty

    @property
    def constant(self) -> Bits:
        """Where there is at most one number."""
        constant: Bits = (self.low == self.high) | self.empty
        return constant


Function = Callable[[Sequence[Intervals]], Intervals]


def is_elementwise(node: ir.Node | None) -> bool:
    """Whether :func:`applied` knows the operator of ``node``."""
    if node is None or len(node.outputs) != 1:
        return False
    if (node.domain, node.op_type) == ("bnnrt", "Sign"):
        return not node.attributes["limited"].as_int()  # beyond the limit, it is another function
    return is_standard(node, *_FUNCTIONS, "Clip", "HardSigmoid", "Pow")


def applied(node: ir.Node, operands: Sequence[Intervals]) -> Intervals | None:
    """What ``node`` makes of its inputs; None if that is not known."""
    with np.errstate(all="ignore"):
        if node.domain == "bnnrt":
            return _bit_sign(node, operands[0])
        if node.op_type == "Cast":
            return _cast(node, operands[0])
        if node.op_type == "Clip":
            return _clip(node, operands)
        if node.op_type == "HardSigmoid":
            return _hard_sigmoid(node, operands[0])
        if node.op_type == "Pow":
            exponent = constant_of(node.inputs[1])
            return _square(operands[0]) if exponent is not None and (exponent == 2).all() else None
        if node.op_type == "Mul" and node.inputs[0] is node.inputs[1]:
            return _square(operands[0])
        result = _FUNCTIONS[node.op_type](operands)
    if node.outputs[0].dtype in (ir.DataType.INT32, ir.DataType.INT64):
        # Integers are exact here as long as they are small, and their division is not this one.
        small = np.fmax(np.abs(result.low), np.abs(result.high)) <= LARGEST_INTEGER
        if node.op_type == "Div" or not small.all():
            return None
    return result


def cancelled(kept: Intervals, other: Intervals, added: Intervals) -> Intervals:
    """``(kept - other) + other``: ``kept`` where that can be shown in every bit, elsewhere ``added``.

    It can for a power of two, kept = v > 0, and 0 <= other < 2**24 v. From v / 2 on, the difference is exact: v is a
    multiple of the last bit of other. Below that it lies between v / 2 and v and is wrong by at most v * 2**-25, which
    is half of the distance from v to the float32 number below it, and less than that to the one above: the sum is
    rounded to v, in a tie since v is even.
    """
    size, negative = np.abs(kept.low), kept.low < 0
    power = (np.frexp(size)[0] == 0.5) & (size > 2.0**-60) & (size < 2.0**60)
    size = np.where(power, size, np.float32(0))
    ends = [np.where(negative, -end, end) for end in (other.low, other.high)]
    inside = power & (np.fmin(*ends) >= 0) & (np.fmax(*ends) < LARGEST_INTEGER * size)
    zero = (kept.low == 0) & np.isfinite(other.low) & np.isfinite(other.high)
    shown = (kept.low == kept.high) & (inside | zero)
    return Intervals(np.where(shown, kept.low, added.low), np.where(shown, kept.high, added.high), added.nan)


def cancelled_alone(x: Intervals) -> Intervals:
    """``x - x``: 0, and NaN where x is not finite."""
    zero = np.where(_holds_finite(x), np.float32(0), np.float32(np.nan))
    nan: Bits = x.nan | np.isinf(x.low) | np.isinf(x.high)
    return Intervals(zero, zero, nan)


def _corners(function: Callable[[Array, Array], Array], a: Intervals, b: Intervals) -> Intervals:
    """A function that rises or falls in each of two arguments."""
    values = np.stack([function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)])
    return Intervals(np.fmin.reduce(values), np.fmax.reduce(values), a.nan | b.nan | np.isnan(values).any(axis=0))


def _of_two(function: Callable[[Array, Array], Array]) -> Function:
    return lambda operands: _corners(function, operands[0], operands[1])


def _of_several(function: Callable[[Array, Array], Array]) -> Function:
    return lambda operands: reduce(lambda a, b: _corners(function, a, b), operands)


def _rising(function: Callable[[Array], Array]) -> Function:
    return lambda operands: Intervals(function(operands[0].low), function(operands[0].high), operands[0].nan)


def _product(operands: Sequence[Intervals]) -> Intervals:
    a, b = operands
    result = _corners(np.multiply, a, b)
    # 0 times infinity hides that 0 times what is finite is 0.
    zero = _holds_zero(a) & _holds_finite(b) | _holds_zero(b) & _holds_finite(a)
    return Intervals(
        np.where(zero, np.fmin(result.low, np.float32(0)), result.low),
        np.where(zero, np.fmax(result.high, np.float32(0)), result.high),
        result.nan,
    )


def _holds_zero(x: Intervals) -> Bits:
    holds: Bits = (x.low <= 0) & (x.high >= 0)
    return holds


def _holds_finite(x: Intervals) -> Bits:
    holds: Bits = (x.low < np.inf) & (x.high > -np.inf)
    return holds


def _square(x: Intervals) -> Intervals:
    a, b = x.low * x.low, x.high * x.high
    return Intervals(np.where(_holds_zero(x), np.float32(0), np.fmin(a, b)), np.fmax(a, b), x.nan)


def _quotient(operands: Sequence[Intervals]) -> Intervals:
    a, b = operands
    result = _corners(np.true_divide, a, b)
    wild = _holds_zero(b) & ~a.empty
    return Intervals(
        np.where(wild, np.float32(-np.inf), result.low),
        np.where(wild, np.float32(np.inf), result.high),
        result.nan | wild,
    )


def _negated(x: Intervals) -> Intervals:
    return Intervals(-x.high, -x.low, x.nan)


def _absolute(operands: Sequence[Intervals]) -> Intervals:
    (x,) = operands
    a, b = np.abs(x.low), np.abs(x.high)
    return Intervals(np.where(_holds_zero(x), np.float32(0), np.fmin(a, b)), np.fmax(a, b), x.nan)


def _tanh(operands: Sequence[Intervals]) -> Intervals:
    (x,) = operands
    limit = np.float32(LARGEST_TANH)
    low = np.where(x.low < 0, -limit, np.float32(0))
    high = np.where(x.high > 0, limit, np.float32(0))
    return Intervals(np.where(x.empty, x.low, low), np.where(x.empty, x.high, high), x.nan)


def _sigmoid(operands: Sequence[Intervals]) -> Intervals:
    (x,) = operands
    low, high = np.zeros_like(x.low), np.full_like(x.high, LARGEST_SIGMOID)
    return Intervals(np.where(x.empty, x.low, low), np.where(x.empty, x.high, high), x.nan)


def _truth(always: Bits, possible: Bits) -> Intervals:
    return Intervals(always.astype(np.float32), possible.astype(np.float32), np.zeros(always.shape, dtype=np.bool_))


def _less(a: Intervals, b: Intervals) -> Intervals:
    return _truth((a.high < b.low) & ~a.nan & ~b.nan, a.low < b.high)


def _less_or_equal(a: Intervals, b: Intervals) -> Intervals:
    return _truth((a.high <= b.low) & ~a.nan & ~b.nan, a.low <= b.high)


def _equal(operands: Sequence[Intervals]) -> Intervals:
    a, b = operands
    same = (a.low == b.high) & (a.high == b.low) & ~a.nan & ~b.nan
    return _truth(same, (a.low <= b.high) & (b.low <= a.high))


def _not(operands: Sequence[Intervals]) -> Intervals:
    (x,) = operands
    return Intervals(1 - x.high, 1 - x.low, x.nan)


def _where(operands: Sequence[Intervals]) -> Intervals:
    condition, a, b = operands
    yes, no = condition.low > 0, condition.high == 0
    low = np.where(yes, a.low, np.where(no, b.low, np.fmin(a.low, b.low)))
    high = np.where(yes, a.high, np.where(no, b.high, np.fmax(a.high, b.high)))
    nan: Bits = np.where(yes, a.nan, np.where(no, b.nan, a.nan | b.nan))
    return Intervals(low, high, nan)


def _clip(node: ir.Node, operands: Sequence[Intervals]) -> Intervals | None:
    limits = clip_limits(node)
    if limits is None:
        return None
    low, high = np.float32(limits[0]), np.float32(limits[1])
    x = operands[0]
    return Intervals(np.minimum(np.maximum(x.low, low), high), np.minimum(np.maximum(x.high, low), high), x.nan)


def _hard_sigmoid(node: ir.Node, x: Intervals) -> Intervals:
    """alpha * x + beta, not below 0 and not above 1, each operation rounded."""
    alpha, beta = (
        np.float32(node.attributes[name].as_float() if name in node.attributes else default)
        for name, default in (("alpha", 0.2), ("beta", 0.5))
    )
    ends = np.stack([np.clip(alpha * end + beta, np.float32(0), np.float32(1)) for end in (x.low, x.high)])
    return Intervals(np.fmin.reduce(ends), np.fmax.reduce(ends), x.nan)


def _cast(node: ir.Node, x: Intervals) -> Intervals | None:
    try:
        target = ir.DataType(node.attributes["to"].as_int())
    except (KeyError, TypeError, ValueError):
        return None
    if target == ir.DataType.FLOAT:
        return x
    if target == ir.DataType.BOOL:
        only_zero = (x.low == 0) & (x.high == 0) & ~x.nan
        return _truth((x.low > 0) | (x.high < 0) | x.empty, ~only_zero)
    if target not in (ir.DataType.INT32, ir.DataType.INT64) or x.nan.any():
        return None
    if not (np.fmax(np.abs(x.low), np.abs(x.high)) <= LARGEST_INTEGER).all():
        return None
    return Intervals(np.trunc(x.low), np.trunc(x.high), x.nan)


def _bit_sign(node: ir.Node, x: Intervals) -> Intervals:
    """bnnrt.Sign, which is -1 for NaN, except that for ONNX's own sign that has no meaning."""
    zero = node.attributes["zero"].as_string()
    if zero == "onnx":
        return Intervals(np.sign(x.low), np.sign(x.high), x.nan)
    bit = np.greater if zero == "gt" else np.greater_equal
    low, high = bit(x.low, 0) & ~x.nan, bit(x.high, 0)
    one = np.float32(1)
    return Intervals(np.where(low, one, -one), np.where(high, one, -one), np.zeros(low.shape, dtype=np.bool_))


_FUNCTIONS: Mapping[str, Function] = {
    "Abs": _absolute,
    "Add": _of_two(np.add),
    "And": _of_two(np.minimum),
    "Cast": lambda operands: operands[0],
    "Ceil": _rising(np.ceil),
    "Div": _quotient,
    "Equal": _equal,
    "Floor": _rising(np.floor),
    "Greater": lambda operands: _less(operands[1], operands[0]),
    "GreaterOrEqual": lambda operands: _less_or_equal(operands[1], operands[0]),
    "Identity": lambda operands: operands[0],
    "Less": lambda operands: _less(operands[0], operands[1]),
    "LessOrEqual": lambda operands: _less_or_equal(operands[0], operands[1]),
    "Max": _of_several(np.maximum),
    "Min": _of_several(np.minimum),
    "Mul": _product,
    "Neg": lambda operands: _negated(operands[0]),
    "Not": _not,
    "Or": _of_two(np.maximum),
    "Relu": _rising(lambda x: np.maximum(x, np.float32(0))),
    "Round": _rising(np.rint),
    "Sigmoid": _sigmoid,
    "Sign": _rising(np.sign),
    "Sub": _of_two(np.subtract),
    "Tanh": _tanh,
    "Where": _where,
}
