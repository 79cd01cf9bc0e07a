"""Operators that treat every element alike, or every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import isnan
from typing import ClassVar

from bnnrt.errors import GraphError
from bnnrt.ops.base import FLOAT32, Op, expect
from bnnrt.ops.types import Domain, TensorType

__all__ = ["Arithmetic", "ArithmeticKind", "Clip", "LogSoftmax", "PRelu", "Relu", "Sigmoid", "Softmax"]


class ArithmeticKind(Enum):
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"  # b unless a > b; NaN if either is
    MIN = "min"  # b unless a < b; NaN if either is


@dataclass(frozen=True)
class Arithmetic(Op):
    """One float32 operation an element, rounded once: ONNX Add, Sub, Mul, Div, Max, Min.

    Inputs: a and b float32. Either may be a vector [C] or [1] that is broadcast over the other's last axis; or both
    have as many axes, and where they differ one has a single element, which is repeated.
    """

    kind: ArithmeticKind

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, FLOAT32)
        a, b = sorted(inputs, key=lambda t: (len(t.shape), t.channels), reverse=True)
        if a.shape == b.shape or b.shape in ((1,), (a.channels,)):
            return (TensorType(a.shape, Domain.FLOAT32),)
        axes = list(zip(a.shape, b.shape, strict=False))
        if len(a.shape) != len(b.shape) or axes[0][0] != axes[0][1] or not all(x == y or 1 in (x, y) for x, y in axes):
            raise GraphError(f"Arithmetic: {inputs[0]} and {inputs[1]} do not fit")
        return (TensorType(tuple(y if x == 1 else x for x, y in axes), Domain.FLOAT32),)


@dataclass(frozen=True)
class Relu(Op):
    """ONNX Relu, float32: 0 where x < 0, else x. So -0.0 and NaN stay what they are."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class PRelu(Op):
    """ONNX PRelu and LeakyRelu: ``slope * x``, rounded, where x < 0, else x. NaN stays what it is.

    Inputs: x float32 [..., C], slope float32 [C] or [1].
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, FLOAT32)
        x, slope = inputs
        if len(x.shape) < 2 or slope.shape not in ((1,), (x.channels,)):
            raise GraphError(f"PRelu: slopes {slope} do not fit the {x.channels} channels of {x}")
        return (x,)


@dataclass(frozen=True)
class Clip(Op):
    """ONNX Clip, float32: y is ``minimum`` where x < minimum, else x; then ``maximum`` where y > maximum, else y.

    NaN stays what it is. The bounds are float32 numbers.
    """

    minimum: float
    maximum: float

    def __post_init__(self) -> None:
        if isnan(self.minimum) or isnan(self.maximum):
            raise GraphError("Clip: a bound is no number")

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class Sigmoid(Op):
    """1 / (1 + exp(-x)), float32, each operation rounded; exp as :func:`bnnrt.reference.exponential` computes it."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class Softmax(Op):
    """Softmax over the last axis, float32 [..., C].

    First e = exp(x - m), where m is the greatest element (as in MaxPool, NaN is never greater); then e / s, where s is
    the sum of e from 0 in order of channels. Each operation is rounded; exp is :func:`bnnrt.reference.exponential`.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        if len(inputs[0].shape) < 2:
            raise GraphError(f"Softmax takes [N, ..., channels] and has {inputs[0]}")
        return (inputs[0],)


@dataclass(frozen=True)
class LogSoftmax(Op):
    """The logarithm of :class:`Softmax` over the last axis, float32 [..., C]: (x - m) - log(s), with its m and s.

    Each operation is rounded; log is :func:`bnnrt.reference.logarithm`.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        if len(inputs[0].shape) < 2:
            raise GraphError(f"LogSoftmax takes [N, ..., channels] and has {inputs[0]}")
        return (inputs[0],)
