"""From numbers and pixels to bits, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from bnnrt.errors import GraphError
from bnnrt.ops.base import BIT, FLOAT32, INT32, UINT8, Op, expect, image, per_channel
from bnnrt.ops.types import Domain, TensorType

__all__ = ["Grayscale", "LocalBinaryPattern", "Sign", "SignOfZero", "Threshold", "ToFloat"]


class SignOfZero(Enum):
    """The bit that sign gives at 0 (ONNX Sign gives 0 there, which one bit cannot hold)."""

    GE = "ge"  # +1
    GT = "gt"  # -1


@dataclass(frozen=True)
class Sign(Op):
    """Real numbers to bits. Input: float32 [..., C]. Output: bit [..., C]. -0.0 counts as 0; NaN gives -1."""

    zero: SignOfZero = SignOfZero.GE

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32)
        return (TensorType(inputs[0].shape, Domain.BIT),)


@dataclass(frozen=True)
class Threshold(Op):
    """Integers to bits: ``(x >= threshold) != falling``, per channel.

    Inputs: x int32 or uint8 [..., C], threshold int32 [C], falling bit [C]. Output: bit [..., C]. A constant channel
    has a threshold that no value, or every value, reaches. Pixels (uint8) may have several thresholds a channel: with
    threshold int32 [D] and falling bit [D], D a multiple of C, output channel d is of x's channel d mod C.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1, 2)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, INT32 + UINT8, INT32, BIT)
        x, threshold, falling = inputs
        out = TensorType(x.shape, Domain.BIT)
        if x.domain is Domain.UINT8 and len(threshold.shape) == 1 and threshold.channels % x.channels == 0:
            out = TensorType((*x.shape[:-1], threshold.channels), Domain.BIT)
        per_channel(self, out, threshold)
        per_channel(self, out, falling)
        return (out,)


def _pixels(op: Op, x: TensorType, channels: int) -> tuple[int | None, int, int]:
    """Batch, height and width of an image of so many channels."""
    n, h, w, c = image(op, x)
    if c != channels:
        raise GraphError(f"{type(op).__name__} takes [N, height, width, {channels}] and has {x}")
    return n, h, w


@dataclass(frozen=True)
class Grayscale(Op):
    """Luma of 8-bit pixels whose channels are red, green, blue: ``(19595 R + 38470 G + 7471 B + 32768) >> 16``.

    Input: uint8 [N, H, W, 3]. Output: uint8 [N, H, W, 1].
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, UINT8)
        n, h, w = _pixels(self, inputs[0], channels=3)
        return (TensorType((n, h, w, 1), Domain.UINT8),)


@dataclass(frozen=True)
class LocalBinaryPattern(Op):
    """Whether the neighbours top-left, right and bottom-left of a pixel, in that order, are greater than the pixel.

    Input: uint8 [N, H, W, 1]. Output: bit [N, H, W, 3]. A neighbour outside the image is not greater.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, UINT8)
        n, h, w = _pixels(self, inputs[0], channels=1)
        return (TensorType((n, h, w, 3), Domain.BIT),)


@dataclass(frozen=True)
class ToFloat(Op):
    """Bits (as +-1), pixels or accumulators to float32, exactly (an accumulator has fewer than 2**24 terms)."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, BIT + INT32 + UINT8)
        return (TensorType(inputs[0].shape, Domain.FLOAT32),)
