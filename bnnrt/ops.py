"""The operators of a graph: typed parameters and shape inference.

Activations are NHWC, [batch, height, width, channels], or [batch, features]; the batch is ``None`` where it is free.
Constants are ordinary inputs of a node. An operator is a frozen dataclass whose fields are numbers, tuples of integers,
members of an enumeration, or a :class:`Window`; :mod:`bnnrt.bundle` stores them by name, so renaming one changes the
format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import isnan, prod
from typing import ClassVar

from bnnrt.errors import GraphError

__all__ = [
    "OPS",
    "Arithmetic",
    "ArithmeticKind",
    "AveragePool",
    "BinaryConv",
    "BinaryDense",
    "BinaryWeightConv",
    "BinaryWeightDense",
    "BitPool",
    "Clip",
    "Concat",
    "Conv",
    "Dense",
    "Domain",
    "Grayscale",
    "LocalBinaryPattern",
    "MaxPool",
    "Op",
    "PRelu",
    "Pad",
    "Relu",
    "Reshape",
    "Shape",
    "Sigmoid",
    "Sign",
    "SignOfZero",
    "Softmax",
    "TensorType",
    "Threshold",
    "ToFloat",
    "Transpose",
    "Window",
]

Shape = tuple[int | None, ...]

# A single image's tensor beyond this is a mistake or an attack, not a network for an embedded GPU.
MAX_ELEMENTS = 1 << 30


class Domain(Enum):
    """What the elements of a tensor are."""

    BIT = "bit"  # +1 or -1, packed along the last axis
    UINT8 = "uint8"  # pixels
    INT32 = "int32"  # accumulators, exact
    FLOAT32 = "float32"


@dataclass(frozen=True)
class TensorType:
    """Shape and domain of a tensor; a first dimension of ``None`` is the free batch."""

    shape: Shape
    domain: Domain

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 6:
            raise GraphError(f"a tensor has {len(self.shape)} dimensions", fix="between 1 and 6 are supported")
        sizes = [1 if d is None and i == 0 else d for i, d in enumerate(self.shape)]
        known = [d for d in sizes if d is not None and d >= 1]
        if len(known) != len(sizes) or prod(known) > MAX_ELEMENTS:
            raise GraphError(f"shape {list(self.shape)} is out of range", fix="check the model's input shape")

    @property
    def channels(self) -> int:
        """Size of the last axis, along which bits are packed."""
        last = self.shape[-1]
        return 1 if last is None else last

    def with_batch(self, batch: int) -> tuple[int, ...]:
        """The shape with a free batch replaced by ``batch``."""
        return tuple(batch if d is None else d for d in self.shape)

    def __str__(self) -> str:
        return f"{self.domain.value}[{', '.join('N' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Window:
    """A sliding window: the attributes of ONNX Conv and MaxPool, for two spatial axes.

    ``pads`` is (top, left, bottom, right).
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        for name, values, count, least in (
            ("kernel", self.kernel, 2, 1),
            ("strides", self.strides, 2, 1),
            ("pads", self.pads, 4, 0),
            ("dilations", self.dilations, 2, 1),
        ):
            if len(values) != count or not all(least <= v <= 1 << 15 for v in values):
                raise GraphError(f"window {name} {list(values)} is out of range")

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the output (ONNX Conv with explicit pads)."""
        sizes = []
        for axis, size in enumerate((height, width)):
            span = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            free = size + self.pads[axis] + self.pads[axis + 2] - span
            if free < 0:
                raise GraphError(f"a window of {span} does not fit a padded axis of {free + span}")
            sizes.append(free // self.strides[axis] + 1)
        return sizes[0], sizes[1]

    def sees_image(self, height: int, width: int) -> bool:
        """Whether every output has a tap inside the image: what pooling needs, since padding is no value there."""
        for axis, (size, count) in enumerate(zip((height, width), self.output_size(height, width), strict=True)):
            step = self.dilations[axis]
            for index in range(count):
                first = index * self.strides[axis] - self.pads[axis]
                skipped = max(0, -(first // step))  # taps before the image
                if skipped >= self.kernel[axis] or first + skipped * step >= size:
                    return False
        return True


class Op(ABC):
    """Base of all operators."""

    constant_inputs: ClassVar[tuple[int, ...]] = ()
    """Inputs that have to be constants, since backends pack them beforehand."""

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises GraphError where the inputs do not fit."""


def _expect(op: Op, inputs: Sequence[TensorType], *allowed: tuple[Domain, ...]) -> None:
    """Check the number of inputs and the domain of each."""
    name = type(op).__name__
    if len(inputs) != len(allowed):
        raise GraphError(f"{name} takes {len(allowed)} inputs and has {len(inputs)}")
    for i, (given, domains) in enumerate(zip(inputs, allowed, strict=True)):
        if given.domain not in domains:
            wanted = " or ".join(d.value for d in domains)
            raise GraphError(f"{name}: input {i} is {given}, not {wanted}")


def _image(op: Op, x: TensorType) -> tuple[int | None, int, int, int]:
    """The NHWC shape of ``x``."""
    if len(x.shape) == 4:
        n, h, w, c = x.shape
        if h is not None and w is not None and c is not None:
            return n, h, w, c
    raise GraphError(f"{type(op).__name__} takes [N, height, width, channels] and has {x}")


def _pixels(op: Op, x: TensorType, channels: int) -> tuple[int | None, int, int]:
    """Batch, height and width of an image of so many channels."""
    n, h, w, c = _image(op, x)
    if c != channels:
        raise GraphError(f"{type(op).__name__} takes [N, height, width, {channels}] and has {x}")
    return n, h, w


def _pooled(op: MaxPool | BitPool | AveragePool, x: TensorType) -> Shape:
    n, h, w, c = _image(op, x)
    out = op.window.output_size(h, w)
    if not op.window.sees_image(h, w):
        raise GraphError(f"{type(op).__name__}: a window of {op.window} sees nothing of {x}", fix="pad less")
    return (n, *out, c)


def _per_channel(op: Op, x: TensorType, constant: TensorType) -> None:
    if len(x.shape) < 2 or constant.shape != (x.channels,):
        raise GraphError(f"{type(op).__name__}: {constant} does not fit the {x.channels} channels of {x}")


_BIT, _INT32, _FLOAT32, _UINT8 = (Domain.BIT,), (Domain.INT32,), (Domain.FLOAT32,), (Domain.UINT8,)


def _exact_sum(op: Op, inner: int) -> None:
    """An accumulator of fewer than 2**24 terms is exact as float32 too."""
    if inner >= 1 << 24:
        raise GraphError(f"{type(op).__name__} adds {inner} terms", fix="fewer than 16777216 are supported")


def _conv_shape(op: BinaryConv | BinaryWeightConv | Conv, x: TensorType, weights: TensorType) -> Shape:
    n, h, w, c = _image(op, x)
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
        _expect(self, inputs, _BIT, _BIT)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.INT32),)


@dataclass(frozen=True)
class BinaryDense(Op):
    """Fully connected layer on bits (ONNX Gemm and MatMul on +-1).

    Inputs: x bit [N, K], weights bit [O, K]. Output: int32 [N, O].
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _BIT, _BIT)
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
        _expect(self, inputs, _FLOAT32, _BIT)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class BinaryWeightDense(Op):
    """Fully connected layer of real numbers with +-1 weights.

    Inputs: x float32 [N, K], weights bit [O, K]. Output: float32 [N, O], summed from 0 in order of K.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32, _BIT)
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
        _expect(self, inputs, _FLOAT32, _FLOAT32)
        return (TensorType(_conv_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class Dense(Op):
    """Full-precision fully connected layer (ONNX Gemm and MatMul without bias).

    Inputs: x float32 [N, K], weights float32 [O, K]. Output: float32 [N, O], rounded and summed as in :class:`Conv`.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32, _FLOAT32)
        return (TensorType(_dense_shape(self, inputs[0], inputs[1]), Domain.FLOAT32),)


@dataclass(frozen=True)
class Threshold(Op):
    """Integers to bits: ``(x >= threshold) != falling``, per channel.

    Inputs: x int32 or uint8 [..., C], threshold int32 [C], falling bit [C]. Output: bit [..., C]. A constant channel
    has a threshold that no value, or every value, reaches. Pixels (uint8) may have several thresholds a channel: with
    threshold int32 [D] and falling bit [D], D a multiple of C, output channel d is of x's channel d mod C.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1, 2)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _INT32 + _UINT8, _INT32, _BIT)
        x, threshold, falling = inputs
        out = TensorType(x.shape, Domain.BIT)
        if x.domain is Domain.UINT8 and len(threshold.shape) == 1 and threshold.channels % x.channels == 0:
            out = TensorType((*x.shape[:-1], threshold.channels), Domain.BIT)
        _per_channel(self, out, threshold)
        _per_channel(self, out, falling)
        return (out,)


@dataclass(frozen=True)
class Grayscale(Op):
    """Luma of 8-bit pixels whose channels are red, green, blue: ``(19595 R + 38470 G + 7471 B + 32768) >> 16``.

    Input: uint8 [N, H, W, 3]. Output: uint8 [N, H, W, 1].
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _UINT8)
        n, h, w = _pixels(self, inputs[0], channels=3)
        return (TensorType((n, h, w, 1), Domain.UINT8),)


@dataclass(frozen=True)
class LocalBinaryPattern(Op):
    """Whether the neighbours top-left, right and bottom-left of a pixel, in that order, are greater than the pixel.

    Input: uint8 [N, H, W, 1]. Output: bit [N, H, W, 3]. A neighbour outside the image is not greater.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _UINT8)
        n, h, w = _pixels(self, inputs[0], channels=1)
        return (TensorType((n, h, w, 3), Domain.BIT),)


class SignOfZero(Enum):
    """The bit that sign gives at 0 (ONNX Sign gives 0 there, which one bit cannot hold)."""

    GE = "ge"  # +1
    GT = "gt"  # -1


@dataclass(frozen=True)
class Sign(Op):
    """Real numbers to bits. Input: float32 [..., C]. Output: bit [..., C]. -0.0 counts as 0; NaN gives -1."""

    zero: SignOfZero = SignOfZero.GE

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32)
        return (TensorType(inputs[0].shape, Domain.BIT),)


@dataclass(frozen=True)
class BitPool(Op):
    """Pooling of bits: OR (the maximum of +-1), or AND in the channels of ``minimum``.

    Inputs: x bit [N, H, W, C], minimum bit [C]. Output: bit [N, OH, OW, C]. A maximum over accumulators that then meets
    a falling threshold is the AND of the final bits. Taps outside the image are left out.
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    window: Window

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _BIT, _BIT)
        _per_channel(self, inputs[0], inputs[1])
        return (TensorType(_pooled(self, inputs[0]), Domain.BIT),)


@dataclass(frozen=True)
class MaxPool(Op):
    """ONNX MaxPool. Input: float32 or int32 [N, H, W, C]. Taps outside the image are left out."""

    window: Window

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32 + _INT32)
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
        _expect(self, inputs, _FLOAT32)
        return (TensorType(_pooled(self, inputs[0]), Domain.FLOAT32),)


@dataclass(frozen=True)
class Relu(Op):
    """ONNX Relu, float32: 0 where x < 0, else x. So -0.0 and NaN stay what they are."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class PRelu(Op):
    """ONNX PRelu and LeakyRelu: ``slope * x``, rounded, where x < 0, else x. NaN stays what it is.

    Inputs: x float32 [..., C], slope float32 [C] or [1].
    """

    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32, _FLOAT32)
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
        _expect(self, inputs, _FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class Sigmoid(Op):
    """1 / (1 + exp(-x)), float32, each operation rounded; exp as :func:`bnnrt.reference.exponential` computes it."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32)
        return (inputs[0],)


@dataclass(frozen=True)
class Softmax(Op):
    """Softmax over the last axis, float32 [..., C].

    First e = exp(x - m), where m is the greatest element (as in MaxPool, NaN is never greater); then e / s, where s is
    the sum of e from 0 in order of channels. Each operation is rounded; exp is :func:`bnnrt.reference.exponential`.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32)
        if len(inputs[0].shape) < 2:
            raise GraphError(f"Softmax takes [N, ..., channels] and has {inputs[0]}")
        return (inputs[0],)


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
        _expect(self, inputs, _FLOAT32)
        n, h, w, c = _image(self, inputs[0])
        top, left, bottom, right = self.pads
        return (TensorType((n, h + top + bottom, w + left + right, c), Domain.FLOAT32),)


@dataclass(frozen=True)
class Concat(Op):
    """ONNX Concat along the last axis. Inputs: two or more float32 [N, ..., C], of one shape but for C."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(inputs) < 2:
            raise GraphError(f"Concat takes 2 or more inputs and has {len(inputs)}")
        _expect(self, inputs, *[_FLOAT32] * len(inputs))
        first = inputs[0].shape
        for x in inputs:
            if len(x.shape) < 2 or x.shape[:-1] != first[:-1]:
                raise GraphError(f"Concat: {inputs[0]} and {x} do not fit")
        return (TensorType((*first[:-1], sum(x.channels for x in inputs)), Domain.FLOAT32),)


@dataclass(frozen=True)
class ToFloat(Op):
    """Bits (as +-1), pixels or accumulators to float32, exactly (an accumulator has fewer than 2**24 terms)."""

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _BIT + _INT32 + _UINT8)
        return (TensorType(inputs[0].shape, Domain.FLOAT32),)


class ArithmeticKind(Enum):
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"


@dataclass(frozen=True)
class Arithmetic(Op):
    """One float32 operation an element, rounded once: ONNX Add, Sub, Mul, Div.

    Inputs: a and b float32; either may be a vector [C] or [1] that is broadcast over the other's last axis.
    """

    kind: ArithmeticKind

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32, _FLOAT32)
        a, b = sorted(inputs, key=lambda t: (len(t.shape), t.channels), reverse=True)
        if a.shape != b.shape and b.shape not in ((1,), (a.channels,)):
            raise GraphError(f"Arithmetic: {inputs[0]} and {inputs[1]} do not fit")
        return (TensorType(a.shape, Domain.FLOAT32),)


@dataclass(frozen=True)
class Transpose(Op):
    """ONNX Transpose of float32. ``perm`` keeps the batch first."""

    perm: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32)
        shape = inputs[0].shape
        if sorted(self.perm) != list(range(len(shape))) or self.perm[0] != 0:
            raise GraphError(f"Transpose: {list(self.perm)} does not fit {inputs[0]}")
        return (TensorType(tuple(shape[p] for p in self.perm), Domain.FLOAT32),)


@dataclass(frozen=True)
class Reshape(Op):
    """Another shape for each image, elements in the same order. ``shape`` is without the batch."""

    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _expect(self, inputs, _FLOAT32 + _INT32 + _BIT)
        x = inputs[0]
        if not self.shape:
            raise GraphError("Reshape: an image has at least one dimension")
        out = TensorType((x.shape[0], *self.shape), x.domain)
        if prod(self.shape) != prod(x.with_batch(1)[1:]):
            raise GraphError(f"Reshape: {x} has other elements than {out}")
        return (out,)


OPS: dict[str, type[Op]] = {
    op.__name__: op
    for op in (
        Arithmetic,
        AveragePool,
        BinaryConv,
        BinaryDense,
        BinaryWeightConv,
        BinaryWeightDense,
        BitPool,
        Clip,
        Concat,
        Conv,
        Dense,
        Grayscale,
        LocalBinaryPattern,
        MaxPool,
        PRelu,
        Pad,
        Relu,
        Reshape,
        Sigmoid,
        Sign,
        Softmax,
        Threshold,
        ToFloat,
        Transpose,
    )
}
