"""Which elements of a row are the greatest or the least: what stands at the end of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bnnrt.errors import GraphError
from bnnrt.ops.base import FLOAT32, INT32, Op, expect
from bnnrt.ops.types import Domain, TensorType

__all__ = ["ArgMax", "Extreme", "Picked", "Ties", "ToInt64", "TopK"]


class Extreme(Enum):
    """What is looked for."""

    GREATEST = "greatest"
    LEAST = "least"


class Ties(Enum):
    """Which of equal elements is taken."""

    FIRST = "first"
    LAST = "last"


class Picked(Enum):
    """What is given of the elements found."""

    VALUES = "values"
    INDICES = "indices"


@dataclass(frozen=True)
class ArgMax(Op):
    """ONNX ArgMax and ArgMin over the last axis. Input: float32 [N, ..., C]. Output: int32 [N, ..., 1].

    The first element is the best at first; each other in order takes its place if it is greater (less), with
    ``Ties.LAST`` also if it is equal. So NaN never takes a place, and in the first one keeps it.
    """

    extreme: Extreme = Extreme.GREATEST
    ties: Ties = Ties.FIRST

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        if len(inputs[0].shape) < 2:
            raise GraphError(f"ArgMax takes [N, ..., channels] and has {inputs[0]}")
        return (TensorType((*inputs[0].shape[:-1], 1), Domain.INT32),)


@dataclass(frozen=True)
class TopK(Op):
    """ONNX TopK over the last axis, sorted. Input: float32 [N, ..., C]. Output: [N, ..., k], values or int32 indices.

    The ``k`` greatest (least) elements, best first; of equal ones the first is first. NaN is greater than any number.
    """

    k: int
    extreme: Extreme = Extreme.GREATEST
    picked: Picked = Picked.VALUES

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        x = inputs[0]
        if len(x.shape) < 2 or not 1 <= self.k <= x.channels:
            raise GraphError(f"TopK: {self.k} elements cannot be taken of {x}")
        domain = Domain.FLOAT32 if self.picked is Picked.VALUES else Domain.INT32
        return (TensorType((*x.shape[:-1], self.k), domain),)


@dataclass(frozen=True)
class ToInt64(Op):
    """Indices as ONNX gives them: int32 to int64."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, INT32)
        return (TensorType(inputs[0].shape, Domain.INT64),)
