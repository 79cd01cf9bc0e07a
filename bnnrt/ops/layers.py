"""Convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bnnrt.errors import GraphError
from bnnrt.ops.base import BIT, FLOAT32, Op, expect, image
from bnnrt.ops.types import Domain, Shape, TensorType, Window

__all__ = ["BinaryConv", "BinaryDense", "BinaryWeightConv", "BinaryWeightDense", "Conv", "Dense"]


def _exact_sum(op: Op, inner: int) -> None:
    """An accumulator of fewer than 2**24 terms is exact as float32 too."""
    if inner >= 1 << 24:
        raise GraphError(f"{type(op).__name__} adds {inner} terms", fix="fewer than 16777216 are supported")


def _conv_shape(op: BinaryConv | BinaryWeightConv | Conv, x: TensorType, weights: TensorType) -> Shape:
    n, h, w, c = image(op, x)
    if op.groups < 1 or c % op.groups or len(weights.shape) != 4:
        raise GraphError(f"{type(op).__name__}: {op.groups} groups do not divide {x} and {weights}")
    out, kh, kw, per_group = weights.with_batch(0)
    if out == 0 or out % op.groups or (kh, kw, per_group) != (*op.window.kernel, c // op.groups):
        raise GraphError(f"{type(op).__name__}: weights {weights} do not fit {x} in {op.groups} groups")
    _exact_sum(op, inner=per_group * kh * kw)
    return (n, *op.window.output_size(h, w), out)


def _dense_shape(op: Op, x: TensorType, weights: TensorType) -> Shape:
    if len(x.shape) != 2 or len(weights.shape) != 2 or x.shape[1] != weights.shape[1] or weights.shape[0] is None:
        raise GraphError(f"{type(op).__name__}: weights {weights} do not fit {x}")
    _exact_sum(op, inner=x.channels)
    return (x.shape[0], weights.shape[0])


@dataclass(frozen=True)
class BinaryConv(Op):
    """Convolution of bits with bits (ONNX Conv on +-1): exact integer accumulators.

    Inputs: x bit [N, H, W, C], weights bit [O, kh, kw, C / groups]. Output: int32 [N, OH, OW, O]. ``pad_value`` is what
    a tap outside the image counts as: -1, 0 or +1.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    window: Window
    groups: int = 1
    pad_value: int = 0

    def __post_init__(self) -> None:
        if self.pad_value not in (-1, 0, 1):
            raise GraphError(f"BinaryConv pads with {self.pad_value}", fix="-1, 0 and +1 are supported")

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, BIT, BIT)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.INT32),)


@dataclass(frozen=True)
class BinaryDense(Op):
    """Fully connected layer on bits (ONNX Gemm and MatMul on +-1).

    Inputs: x bit [N, K], weights bit [O, K]. Output: int32 [N, O].
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, BIT, BIT)
        return (TensorType(_dense_shape(self, inputs[0], inputs[1]), Domain.INT32),)


@dataclass(frozen=True)
class BinaryWeightConv(Op):
    """Convolution of real numbers with +-1 weights, padded with 0: the first layer of most networks.

    Inputs: x float32 [N, H, W, C], weights bit [O, kh, kw, C / groups]. Output: float32 [N, OH, OW, O], summed from 0
    over (row, column, channel) in that order.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    window: Window
    groups: int = 1

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, BIT)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class BinaryWeightDense(Op):
    """Fully connected layer of real numbers with +-1 weights.

    Inputs: x float32 [N, K], weights bit [O, K]. Output: float32 [N, O], summed from 0 in order of K.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, BIT)
        return (TensorType(_dense_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class Conv(Op):
    """Full-precision convolution, padded with 0 (ONNX Conv without bias).

    Inputs: x float32 [N, H, W, C], weights float32 [O, kh, kw, C / groups]. Output: float32 [N, OH, OW, O]; products
    are rounded, then summed from 0 over (row, column, channel) in that order.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    window: Window
    groups: int = 1

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, FLOAT32)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class Dense(Op):
    """Full-precision fully connected layer (ONNX Gemm and MatMul without bias).

    Inputs: x float32 [N, K], weights float32 [O, K]. Output: float32 [N, O], rounded and summed as in :class:`Conv`.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, inputs, FLOAT32, FLOAT32)
        return (TensorType(_dense_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)
