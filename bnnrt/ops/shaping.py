"""Operators that move elements: to other places, or to another shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, prod
from typing import Any, ClassVar

import numpy.typing as npt

from bnnrt.errors import GraphError
from bnnrt.ops.base import BIT, FLOAT32, INT32, Op, expect, image
from bnnrt.ops.types import Domain, TensorType

__all__ = ["Concat", "Gather", "Pad", "Reshape", "Transpose"]


@dataclass(frozen=True)
class Pad(Op):
    """ONNX Pad, constant mode, over rows and columns. Input: float32 [N, H, W, C]; ``pads`` as in :class:`Window`."""

    pads: tuple[int, int, int, int]
    value: float = 0.0

    def __post_init__(self) -> None:
        if len(self.pads) != 4 or not all(0 <= p <= 1 << 15 for p in self.pads):
            raise GraphError(f"Pad: pads {list(self.pads)} are out of range")
        if isnan(self.value):
            raise GraphError("Pad: the value is no number")

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        n, h, w, c = image(self, inputs[0])
        top, left, bottom, right = self.pads
        return (TensorType((n, h + top + bottom, w + left + right, c), Domain.FLOAT32),)


@dataclass(frozen=True)
class Concat(Op):
    """ONNX Concat along the last axis. Inputs: two or more float32 [N, ..., C], of one shape but for C."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(inputs) < 2:
            raise GraphError(f"Concat takes 2 or more inputs and has {len(inputs)}")
        expect(self, inputs, *[FLOAT32] * len(inputs))
        first = inputs[0].shape
        for x in inputs:
            if len(x.shape) < 2 or x.shape[:-1] != first[:-1]:
                raise GraphError(f"Concat: {inputs[0]} and {x} do not fit")
        return (TensorType((*first[:-1], sum(x.channels for x in inputs)), Domain.FLOAT32),)


@dataclass(frozen=True)
class Gather(Op):
    """ONNX Gather along one axis with constant indices; Slice and Split are the same.

    Inputs: x float32, int32 or bit [N, ...], indices int32 [K]. Output: x with the K elements ``indices`` along
    ``axis``, which is not the batch; they are counted from 0.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32 + INT32 + BIT, INT32)
        x, indices = inputs
        if not 1 <= self.axis < len(x.shape) or len(indices.shape) != 1:
            raise GraphError(f"Gather: {indices} along axis {self.axis} does not fit {x}")
        return (TensorType((*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :]), x.domain),)

    def check_constants(self, inputs: Sequence[TensorType], constants: Sequence[npt.NDArray[Any] | None]) -> None:
        size, indices = inputs[0].with_batch(1)[self.axis], constants[1]
        if indices is not None and ((indices < 0) | (indices >= size)).any():
            raise GraphError(f"Gather: an index is not between 0 and {size - 1}")


@dataclass(frozen=True)
class Transpose(Op):
    """ONNX Transpose of float32 or int32. ``perm`` keeps the batch first."""

    perm: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32 + INT32)
        shape = inputs[0].shape
        if sorted(self.perm) != list(range(len(shape))) or self.perm[0] != 0:
            raise GraphError(f"Transpose: {list(self.perm)} does not fit {inputs[0]}")
        return (TensorType(tuple(shape[p] for p in self.perm), inputs[0].domain),)


@dataclass(frozen=True)
class Reshape(Op):
    """Another shape for each image, elements in the same order. ``shape`` is without the batch."""

    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32 + INT32 + BIT)
        x = inputs[0]
        if not self.shape and x.domain is Domain.BIT:
            raise GraphError("Reshape: bits are packed along an axis other than the batch")
        out = TensorType((x.shape[0], *self.shape), x.domain)
        if prod(self.shape) != prod(x.with_batch(1)[1:]):
            raise GraphError(f"Reshape: {x} has other elements than {out}")
        return (out,)
