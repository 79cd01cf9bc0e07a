"""Pooling under a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bnnrt.errors import GraphError
from bnnrt.ops.base import BIT, FLOAT32, INT32, Op, expect, image, per_channel
from bnnrt.ops.types import Domain, Shape, TensorType, Window

__all__ = ["AveragePool", "BitPool", "MaxPool"]


def _pooled(op: MaxPool | BitPool | AveragePool, x: TensorType) -> Shape:
    n, h, w, c = image(op, x)
    out = op.window.output_size(h, w)
    if not op.window.sees_image(h, w):
        raise GraphError(f"{type(op).__name__}: a window of {op.window} sees nothing of {x}", fix="pad less")
    return (n, *out, c)


@dataclass(frozen=True)
class BitPool(Op):
    """Pooling of bits: OR (the maximum of +-1), or AND in the channels of ``minimum``.

    Inputs: x bit [N, H, W, C], minimum bit [C]. Output: bit [N, OH, OW, C]. A maximum over accumulators that then meets
    a falling threshold is the AND of the final bits. Taps outside the image are left out.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    window: Window

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, BIT, BIT)
        per_channel(self, inputs[0], inputs[1])
        return (TensorType(_pooled(self, inputs[0]), Domain.BIT),)


@dataclass(frozen=True)
class MaxPool(Op):
    """ONNX MaxPool. Input: float32 or int32 [N, H, W, C]. Taps outside the image are left out."""

    window: Window

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32 + INT32)
        return (TensorType(_pooled(self, inputs[0]), inputs[0].domain),)


@dataclass(frozen=True)
class AveragePool(Op):
    """ONNX AveragePool. Input: float32 [N, H, W, C].

    The taps inside the image are summed from 0 over (row, column) in that order, and the sum is divided once, by the
    number of taps that lie in the image or in ``counted_pads`` (top, left, bottom, right) rows and columns around it.
    """

    window: Window
    counted_pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        counted, pads = self.counted_pads, self.window.pads
        if len(counted) != 4 or not all(0 <= c <= p for c, p in zip(counted, pads, strict=True)):
            raise GraphError(f"AveragePool: counted pads {list(counted)} are not within the pads {list(pads)}")

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        return (TensorType(_pooled(self, inputs[0]), Domain.FLOAT32),)
