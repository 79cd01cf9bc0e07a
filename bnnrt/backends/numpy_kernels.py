"""Kernels of the numpy backend: the operators on packed words, vectorized.

Each function takes the operator, then arrays as they lie on the device (bits packed along the last axis), and fills
``out``. Constants come in the bundle's layout. Float sums run in the order that :mod:`bnnrt.ops` fixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.ops import (
    ArgMax,
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    BinaryConv,
    BinaryDense,
    BitPool,
    Clip,
    Concat,
    Conv,
    Extreme,
    Gather,
    Grayscale,
    LocalBinaryPattern,
    LogSoftmax,
    MaxPool,
    Pad,
    Picked,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    SignOfZero,
    Softmax,
    Threshold,
    Ties,
    ToFloat,
    ToInt64,
    TopK,
    Transpose,
    Window,
)
from bnnrt.preprocess import binarize
from bnnrt.reference import exponential, logarithm

__all__ = [
    "arg_max",
    "arithmetic",
    "average_pool",
    "binary_conv",
    "binary_dense",
    "bit_pool",
    "clip",
    "concat",
    "gather",
    "gather_bits",
    "grayscale",
    "local_binary_pattern",
    "log_softmax",
    "max_pool",
    "pad",
    "prelu",
    "real_conv",
    "real_dense",
    "relu",
    "reshape",
    "sigmoid",
    "sign",
    "softmax",
    "threshold",
    "to_float",
    "to_int64",
    "top_k",
    "transpose",
]

Array = npt.NDArray[Any]

_CACHED = 1 << 18
"""Numbers that stay in a processor's cache between two passes over them."""


def _greater(a: Array, b: Array, out: Array) -> None:
    # np.maximum may give either of 0.0 and -0.0.
    out[...] = np.where((a > b) | np.isnan(a), a, b)


def _less(a: Array, b: Array, out: Array) -> None:
    out[...] = np.where((a < b) | np.isnan(a), a, b)


_FUNCTIONS: Mapping[ArithmeticKind, Callable[..., Any]] = {
    ArithmeticKind.ADD: np.add,
    ArithmeticKind.SUB: np.subtract,
    ArithmeticKind.MUL: np.multiply,
    ArithmeticKind.DIV: np.divide,
    ArithmeticKind.MAX: _greater,
    ArithmeticKind.MIN: _less,
}


def _tap_views(x: Array, out: Array, window: Window) -> Iterator[tuple[int, Array, Array]]:
    """For each tap: its index, the part of ``out`` [N, OH, OW, ...] that sees it inside the image, and what it sees."""
    for index in range(window.taps):
        slices: list[tuple[slice, slice]] = []
        for axis, tap in enumerate(divmod(index, window.kernel[1])):
            size, count = x.shape[1 + axis], out.shape[1 + axis]
            stride = window.strides[axis]
            offset = tap * window.dilations[axis] - window.pads[axis]
            first = max(0, -(offset // stride))
            last = min(count, (size - 1 - offset) // stride + 1)
            start = first * stride + offset
            slices.append((slice(first, max(first, last)), slice(start, start + max(0, last - first) * stride, stride)))
        (out_rows, in_rows), (out_columns, in_columns) = slices
        yield index, out[:, out_rows, out_columns], x[:, in_rows, in_columns]


def binary_conv(op: BinaryConv, channels: int, x: Array, weights: Array, out: Array) -> None:
    """x uint32 [N, H, W, words], weights uint32 [O, words of kh*kw*C/groups], out int32 [N, OH, OW, O]."""
    per_group = channels // op.groups
    per_output = out.shape[3] // op.groups
    # Taps outside the image are those that no view below covers, so start from what they count as.
    rows = packing.unpack(weights, op.window.taps * per_group).reshape(len(weights), op.window.taps, per_group)
    fill = op.pad_value * (2 * rows.sum(axis=2, dtype=np.int32) - per_group)  # [O, taps]
    out[...] = fill.sum(axis=1, dtype=np.int32)
    inside = per_group - fill
    for group in range(op.groups):
        outputs = slice(group * per_output, (group + 1) * per_output)
        if op.groups == 1:
            source = x
        else:
            bits = packing.unpack(x, channels)[..., group * per_group : (group + 1) * per_group]
            source = packing.pack(bits)
        source, packed = _in_pairs(source), _in_pairs(packing.pack(rows[outputs]))
        for image in range(len(x)):  # one at a time: its sums stay in the processor's cache
            part = slice(image, image + 1)
            for index, target, seen in _tap_views(source[part], out[part, ..., outputs], op.window):
                target += inside[outputs, index]
                for word in range(seen.shape[3]):
                    differing = np.bitwise_count(np.bitwise_xor(seen[..., word, None], packed[:, index, word]))
                    target -= differing << 1  # at most 128, which 8 bits hold


def _in_pairs(words: Array) -> Array:
    """Words of 64 bits, half as many as of 32; behind an odd number, a word of zeros."""
    even = np.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, words.shape[-1] % 2)])
    return even.view(np.uint64)


def binary_dense(op: BinaryDense, length: int, x: Array, weights: Array, out: Array) -> None:
    """x uint32 [N, words], weights uint32 [O, words], out int32 [N, O]."""
    for row, total in zip(x, out, strict=True):
        total[...] = packing.dot(row, weights, length)


def real_conv(op: Conv, channels: int, x: Array, weights: Array, out: Array) -> None:
    """x float32 [N, H, W, C], weights float32 [O, kh, kw, C / groups], out float32 [N, OH, OW, O]."""
    per_group = channels // op.groups
    per_output = out.shape[3] // op.groups
    kernels = weights.reshape(op.groups, per_output, op.window.taps, per_group, 1, 1)
    # Some outputs of one image at a time: their sums stay in the processor's cache.
    some = max(1, _CACHED // (op.groups * out.shape[1] * out.shape[2]))
    # Of a tap outside, 0 times a weight adds nothing, unless the weight is infinite.
    finite = bool(np.isfinite(weights).all())
    for image, first in product(range(len(x)), range(0, per_output, some)):
        made = slice(first, min(first + some, per_output))
        sums = np.zeros((op.groups, made.stop - first, *out.shape[1:3]), dtype=np.float32)
        products = np.empty_like(sums)
        planes = np.empty((channels + 1, *out.shape[1:3]), dtype=np.float32)  # the last says where the tap is inside
        for index, inside, seen in _tap_views(x[image, None], np.moveaxis(planes, 0, -1)[None], op.window):
            planes[...] = 0
            inside[..., :-1], inside[..., -1] = seen, 1
            grouped = planes[:-1].reshape(op.groups, per_group, 1, *out.shape[1:3])
            for channel in range(per_group):
                with np.errstate(all="ignore"):  # infinities and NaN are the model's own values
                    np.multiply(grouped[:, channel], kernels[:, made, index, channel], out=products)
                    if not finite:
                        np.copyto(products, 0, where=planes[-1] == 0)
                    sums += products
        out[image].reshape(*out.shape[1:3], op.groups, per_output)[..., made] = sums.transpose(2, 3, 0, 1)


def real_dense(x: Array, weights: Array, out: Array) -> None:
    """x float32 [N, K], weights float32 [O, K], out float32 [N, O]."""
    out[...] = 0
    for k in range(x.shape[1]):
        out += x[:, k, None] * weights[:, k]


def threshold(op: Threshold, x: Array, thresholds: Array, falling: Array, out: Array) -> None:
    """x int32 or uint8 [..., C], thresholds int32 [D], falling uint32 [1, words], out uint32 [..., words]."""
    above = x[..., None, :] >= thresholds.reshape(-1, x.shape[-1])
    out[...] = packing.pack(above.reshape(*x.shape[:-1], len(thresholds))) ^ falling[0]


def grayscale(op: Grayscale, x: Array, out: Array) -> None:
    """x uint8 [N, H, W, 3], out uint8 [N, H, W, 1]."""
    out[..., 0] = binarize.grayscale(x)


def local_binary_pattern(op: LocalBinaryPattern, x: Array, out: Array) -> None:
    """x uint8 [N, H, W, 1], out uint32 [N, H, W, 1]."""
    out[...] = packing.pack(binarize.lbp(x[..., 0]))


def sign(op: Sign, x: Array, out: Array) -> None:
    """x float32 [..., C], out uint32 [..., words]."""
    out[...] = packing.pack(x >= 0 if op.zero is SignOfZero.GE else x > 0)


def bit_pool(op: BitPool, x: Array, minimum: Array, out: Array) -> None:
    """x uint32 [N, H, W, words], minimum uint32 [1, words], out uint32 [N, OH, OW, words]."""
    out[...] = 0
    for _, target, seen in _tap_views(x, out, op.window):
        target |= seen ^ minimum[0]
    out ^= minimum[0]


def max_pool(op: MaxPool, x: Array, out: Array) -> None:
    """x and out float32 or int32, [N, H, W, C] and [N, OH, OW, C]."""
    out[...] = -np.inf if out.dtype == np.float32 else np.iinfo(np.int32).min
    for _, target, seen in _tap_views(x, out, op.window):
        np.copyto(target, seen, where=seen > target)


def average_pool(op: AveragePool, x: Array, out: Array) -> None:
    """x and out float32, [N, H, W, C] and [N, OH, OW, C]."""
    out[...] = 0
    for _, target, seen in _tap_views(x, out, op.window):
        target += seen
    out /= _counts(op, x.shape[1:3], out.shape[1:3])[..., None]


def _counts(op: AveragePool, size: tuple[int, ...], out_size: tuple[int, ...]) -> Array:
    """By how much each sum is divided, float32 [OH, OW]."""
    inside = []
    for axis in range(2):
        first = np.arange(out_size[axis]) * op.window.strides[axis] - op.window.pads[axis]
        taps = first[:, None] + np.arange(op.window.kernel[axis]) * op.window.dilations[axis]
        before, after = op.counted_pads[axis], op.counted_pads[axis + 2]
        inside.append(((taps >= -before) & (taps < size[axis] + after)).sum(axis=1))
    counts: Array = np.outer(*inside).astype(np.float32)
    return counts


def relu(op: Relu, x: Array, out: Array) -> None:
    """x and out float32."""
    np.copyto(out, x)
    out[x < 0] = 0


def prelu(op: PRelu, x: Array, slope: Array, out: Array) -> None:
    """x and out float32 [..., C], slope float32 [C] or [1]."""
    np.copyto(out, x)
    with np.errstate(all="ignore"):
        np.multiply(x, slope, out=out, where=x < 0)


def clip(op: Clip, x: Array, out: Array) -> None:
    """x and out float32."""
    np.copyto(out, x)
    out[x < np.float32(op.minimum)] = op.minimum
    out[out > np.float32(op.maximum)] = op.maximum


def sigmoid(op: Sigmoid, x: Array, out: Array) -> None:
    """x and out float32."""
    with np.errstate(all="ignore"):
        np.divide(np.float32(1), np.float32(1) + exponential(-x), out=out)


def softmax(op: Softmax, x: Array, out: Array) -> None:
    """x and out float32 [..., C]."""
    with np.errstate(all="ignore"):
        greatest = np.fmax.reduce(x, axis=-1, keepdims=True, initial=-np.inf)
        out[...] = exponential(x - greatest)
        # Running sums add in order of channels; a plain sum would add in pairs.
        out /= np.cumsum(out, axis=-1)[..., -1:]


def log_softmax(op: LogSoftmax, x: Array, out: Array) -> None:
    """x and out float32 [..., C]."""
    with np.errstate(all="ignore"):
        np.subtract(x, np.fmax.reduce(x, axis=-1, keepdims=True, initial=-np.inf), out=out)
        out -= logarithm(np.cumsum(exponential(out), axis=-1)[..., -1:])


def arithmetic(op: Arithmetic, a: Array, b: Array, out: Array) -> None:
    """a and b float32, broadcast; out float32."""
    with np.errstate(all="ignore"):  # infinities and NaN are the model's own values
        _FUNCTIONS[op.kind](a, b, out=out)


def to_float(op: ToFloat, channels: int, x: Array, out: Array) -> None:
    """x int32, uint8, or bits packed as uint32; out float32."""
    if x.dtype == np.uint32:
        out[...] = np.where(packing.unpack(x, channels), np.float32(1), np.float32(-1))
    else:
        out[...] = x


def transpose(op: Transpose, x: Array, out: Array) -> None:
    """x and out float32 or int32."""
    out[...] = x.transpose(op.perm)


def pad(op: Pad, x: Array, out: Array) -> None:
    """x and out float32 NHWC."""
    top, left = op.pads[:2]
    out[...] = op.value
    out[:, top : top + x.shape[1], left : left + x.shape[2]] = x


def concat(op: Concat, *arrays: Array) -> None:
    """The parts, then out, float32."""
    *parts, out = arrays
    np.concatenate(parts, axis=-1, out=out)


def reshape(op: Reshape, channels: int, x: Array, out: Array) -> None:
    """Bits packed along the last axis of ``channels``, packed again along the last axis of ``op.shape``."""
    bits = packing.unpack(x, channels).reshape(len(x), prod(op.shape[:-1]), op.shape[-1])
    out[...] = packing.pack(bits).reshape(out.shape)


def gather(op: Gather, x: Array, indices: Array, out: Array) -> None:
    """x and out float32 or int32, or bits packed along another axis than that of ``indices``, int32 [K]."""
    np.take(x, indices, axis=op.axis, out=out)


def gather_bits(channels: int, x: Array, indices: Array, out: Array) -> None:
    """x uint32 [..., words] of ``channels`` bits, indices int32 [K] of these, out uint32 [..., words of K]."""
    out[...] = packing.pack(packing.unpack(x, channels)[..., indices])


def arg_max(op: ArgMax, x: Array, out: Array) -> None:
    """x float32 [..., C], out int32 [..., 1]."""
    extreme = np.fmax if op.extreme is Extreme.GREATEST else np.fmin
    equal = x == extreme.reduce(x, axis=-1, keepdims=True)
    found = equal.argmax(axis=-1) if op.ties is Ties.FIRST else x.shape[-1] - 1 - equal[..., ::-1].argmax(axis=-1)
    out[..., 0] = np.where(np.isnan(x[..., 0]), 0, found)


def top_k(op: TopK, x: Array, out: Array) -> None:
    """x float32 [..., C], out float32 or int32 [..., k]."""
    if op.extreme is Extreme.LEAST:
        order = np.argsort(x, axis=-1, kind="stable")[..., : op.k]
    else:
        # NaN stands behind the numbers, and has to come before them.
        first = np.arange(op.k) - np.isnan(x).sum(axis=-1, keepdims=True)
        order = np.take_along_axis(np.argsort(-x, axis=-1, kind="stable"), first % x.shape[-1], axis=-1)
    out[...] = order if op.picked is Picked.INDICES else np.take_along_axis(x, order, axis=-1)


def to_int64(op: ToInt64, x: Array, out: Array) -> None:
    """x int32, out int64."""
    out[...] = x
