"""The definition of every operator, on unpacked arrays: one readable function an operator.

Bits are float32 arrays of +1 and -1 and nothing is packed, so that a packing mistake in a backend cannot cancel out
against the same mistake here. Slow, and meant for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.errors import InputError
from bnnrt.graph import Graph
from bnnrt.ops import (
    ArgMax,
    Arithmetic,
    ArithmeticKind,
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
    Domain,
    Extreme,
    Gather,
    Grayscale,
    LocalBinaryPattern,
    LogSoftmax,
    MaxPool,
    Op,
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

__all__ = ["exponential", "logarithm", "pointwise", "run"]

Array = npt.NDArray[Any]

_CACHED = 1 << 18
"""Numbers that stay in a processor's cache between two passes over them."""


def run(graph: Graph, feeds: Mapping[str, Array], *, everything: bool = False) -> dict[str, Array]:
    """Evaluate ``graph``.

    Args:
        feeds: an array for each input of the graph, in its stored dtype; bits as float32 +1 and -1.
        everything: also return intermediate tensors.

    Returns:
        The outputs by name; bits as float32 +1 and -1.
    """
    values: dict[str, Array] = {}
    for name, constant in graph.constants.items():
        data = constant.unpacked()
        values[name] = _plus_minus(data) if constant.type.domain is Domain.BIT else data
    for name in graph.inputs:
        if name not in feeds:
            raise InputError(f"input {name} is missing")
        values[name] = feeds[name]
    for node in graph.nodes:
        function = _FUNCTIONS[type(node.op)]
        # Overflow to infinity and NaN are values like any other here: the model's own arithmetic decides.
        with np.errstate(all="ignore"):
            values[node.outputs[0]] = function(node.op, *(values[name] for name in node.inputs))
    return values if everything else {name: values[name] for name in graph.outputs}


def pointwise(op: Op, *operands: Array) -> Array:
    """One operator that treats every element alike, on arrays that broadcast."""
    with np.errstate(all="ignore"):
        return _FUNCTIONS[type(op)](op, *operands)


# exp(r) for |r| <= ln(2) / 2 is 1 + r + r * r * p(r), where p has these coefficients, highest power first.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
# ln(2) in two parts; a product of the first with an integer of 8 bits is exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOG2_E = np.float32(1.44269504)
# exp is infinite beyond the first and 0 beyond the second.
_EXP_GREATEST, _EXP_LEAST = np.float32(89), np.float32(-104)


def exponential(x: Array) -> Array:
    """exp of float32, off by less than 2 ulp: rounded float32 operations in a fixed order.

    A library's own exp differs from one device to the next. x = n ln(2) + r, and exp(x) = 2**n exp(r).
    """
    x = np.where(x > _EXP_GREATEST, _EXP_GREATEST, np.where(x < _EXP_LEAST, _EXP_LEAST, x))
    number = ~np.isnan(x)
    n = np.trunc(np.where(number, x, 0) * _LOG2_E + np.where(x < 0, np.float32(-0.5), np.float32(0.5)))
    r: Array = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    p: Array = np.full_like(r, _EXP[0])
    for coefficient in _EXP[1:]:
        p = p * r + np.float32(coefficient)
    y = p * (r * r) + r + np.float32(1)
    result: Array = np.ldexp(y, n.astype(np.int32))
    return result


# log(1 + x) for 1 + x from sqrt(1/2) to sqrt(2) is x - x * x / 2 + x**3 * p(x), where p has these coefficients.
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    *(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_SQRT_HALF = np.float32(0.70710678)


def logarithm(x: Array) -> Array:
    """log of float32 numbers from 1 on, off by less than 2 ulp; infinity and NaN stay.

    x = 2**n (1 + r), and log(x) = n ln(2) + log(1 + r).
    """
    finite = np.isfinite(x)
    fraction, n = np.frexp(np.where(finite, x, np.float32(1)))  # fraction from 1/2 to 1
    small = fraction < _SQRT_HALF
    r = np.where(small, fraction + fraction, fraction) - np.float32(1)
    n = (n - small).astype(np.float32)
    p: Array = np.full_like(r, _LOG[0])
    for coefficient in _LOG[1:]:
        p = p * r + np.float32(coefficient)
    square = r * r
    y = p * r * square + n * _LN2_LOW - np.float32(0.5) * square
    return np.where(finite, r + y + n * _LN2_HIGH, x)


def _plus_minus(bits: Array) -> Array:
    return np.where(bits, np.float32(1), np.float32(-1))


def _padded(x: Array, pads: tuple[int, int, int, int], value: float) -> Array:
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def _taps(x: Array, window: Window, outside: float) -> list[Array]:
    """For each tap (row by row), the [N, OH, OW, C] values that it sees."""
    height, width = window.output_size(x.shape[1], x.shape[2])
    padded = _padded(x, window.pads, outside)
    found = []
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            top, left = row * window.dilations[0], column * window.dilations[1]
            found.append(
                padded[
                    :,
                    top : top + (height - 1) * window.strides[0] + 1 : window.strides[0],
                    left : left + (width - 1) * window.strides[1] + 1 : window.strides[1],
                ]
            )
    return found


def _conv(x: Array, weights: Array, window: Window, groups: int) -> Array:
    """Sum over (row, column, channel) in that order, starting from 0, in the dtype of ``x``; taps outside left out."""
    out, _, _, per_group = weights.shape
    taps = _taps(x, window, 0.0)
    used = _taps(np.ones((1, *x.shape[1:3], 1), dtype=np.bool_), window, 0)
    # Of a tap outside, 0 times a weight adds nothing, unless the weight is infinite.
    finite = bool(np.isfinite(weights).all())
    kernels = weights.reshape(groups, out // groups, -1, per_group, 1)
    images, height, width, _ = taps[0].shape
    total = np.empty((images, groups, out // groups, height * width), dtype=x.dtype)
    # Some outputs of one image at a time: their sums stay in the processor's cache.
    some = max(1, _CACHED // (groups * height * width))
    for image, first in product(range(images), range(0, out // groups, some)):
        sums = np.zeros_like(total[image, :, first : first + some])
        products = np.empty_like(sums)
        for index, tap in enumerate(taps):
            seen = np.ascontiguousarray(tap[image].reshape(height * width, groups, 1, per_group).transpose(3, 1, 2, 0))
            for channel in range(per_group):
                np.multiply(seen[channel], kernels[:, first : first + some, index, channel], out=products)
                sums += products if finite else np.where(used[index].reshape(-1), products, 0)
        total[image, :, first : first + some] = sums
    return np.ascontiguousarray(total.reshape(images, out, height, width).transpose(0, 2, 3, 1))


def _dense(x: Array, weights: Array) -> Array:
    total = np.zeros((len(x), len(weights)), dtype=x.dtype)
    for k in range(x.shape[1]):
        total += x[:, k, None] * weights[:, k]
    return total


def _binary_conv(op: BinaryConv, x: Array, weights: Array) -> Array:
    """Integers below 2**24, which no order of adding rounds: a product of matrices for each image and group."""
    kernels = weights.astype(np.float32).reshape(op.groups, len(weights) // op.groups, -1)
    taps = _taps(x.astype(np.float32), op.window, op.pad_value)
    images, height, width, channels = taps[0].shape
    total = np.empty((images, height, width, op.groups, kernels.shape[1]), dtype=np.int32)
    for image in range(images):
        parts = [tap[image].reshape(height, width, op.groups, channels // op.groups) for tap in taps]
        seen = np.concatenate(parts, axis=-1)
        for group, kernel in enumerate(kernels):
            sums = seen[:, :, group].reshape(height * width, -1) @ kernel.T
            total[image, :, :, group] = sums.reshape(height, width, -1)
    return total.reshape(images, height, width, -1)


def _binary_dense(op: BinaryDense, x: Array, weights: Array) -> Array:
    total: Array = x.astype(np.int32) @ weights.astype(np.int32).T
    return total


def _real_conv(op: BinaryWeightConv | Conv, x: Array, weights: Array) -> Array:
    return _conv(x, weights, op.window, op.groups)


def _real_dense(op: BinaryWeightDense | Dense, x: Array, weights: Array) -> Array:
    return _dense(x, weights)


def _threshold(op: Threshold, x: Array, threshold: Array, falling: Array) -> Array:
    repeated = np.concatenate([x] * (len(threshold) // x.shape[-1]), axis=-1)
    return _plus_minus((repeated.astype(np.int32) >= threshold) != (falling > 0))


def _grayscale(op: Grayscale, x: Array) -> Array:
    red, green, blue = np.split(x.astype(np.int64), 3, axis=3)
    luma: Array = (19595 * red + 38470 * green + 7471 * blue + 32768) // 65536
    return luma.astype(np.uint8)


def _local_binary_pattern(op: LocalBinaryPattern, x: Array) -> Array:
    _, height, width, _ = x.shape
    padded = _padded(x, (1, 1, 1, 1), 0)  # 0 is greater than nothing
    neighbours = []
    for down, right in ((-1, -1), (0, 1), (1, -1)):
        neighbours.append(padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width])
    return _plus_minus(np.concatenate(neighbours, axis=3) > x)


def _sign(op: Sign, x: Array) -> Array:
    return _plus_minus(x >= 0 if op.zero is SignOfZero.GE else x > 0)


def _pool(window: Window, x: Array, least: float) -> Array:
    """Maximum of ``least`` and the taps, in order; the first of two equal values stays, and NaN never exceeds one."""
    taps = _taps(x, window, least)
    best = np.full(taps[0].shape, least, dtype=x.dtype)
    for tap in taps:
        best = np.where(tap > best, tap, best)
    return best


def _max_pool(op: MaxPool, x: Array) -> Array:
    return _pool(op.window, x, -np.inf if x.dtype == np.float32 else np.iinfo(np.int32).min)


def _bit_pool(op: BitPool, x: Array, minimum: Array) -> Array:
    return np.where(minimum > 0, -_pool(op.window, -x, -1), _pool(op.window, x, -1))


def _average_pool(op: AveragePool, x: Array) -> Array:
    taps = _taps(x, op.window, 0.0)
    total = np.zeros_like(taps[0])
    for tap in taps:
        total = total + tap
    # The same windows over an image that is 1 wherever a tap counts.
    counted = _padded(np.ones((1, *x.shape[1:3], 1), dtype=x.dtype), op.counted_pads, 1.0)
    left_out = [p - c for p, c in zip(op.window.pads, op.counted_pads, strict=True)]
    window = Window(op.window.kernel, op.window.strides, (*left_out,), op.window.dilations)  # type: ignore[arg-type]
    count = sum(_taps(counted, window, 0.0), start=np.zeros(1, dtype=x.dtype))
    result: Array = total / count
    return result


def _relu(op: Relu, x: Array) -> Array:
    return np.where(x < 0, x.dtype.type(0), x)


def _prelu(op: PRelu, x: Array, slope: Array) -> Array:
    return np.where(x < 0, slope * x, x)


def _clip(op: Clip, x: Array) -> Array:
    minimum, maximum = x.dtype.type(op.minimum), x.dtype.type(op.maximum)
    raised = np.where(x < minimum, minimum, x)
    return np.where(raised > maximum, maximum, raised)


def _sigmoid(op: Sigmoid, x: Array) -> Array:
    result: Array = np.float32(1) / (np.float32(1) + exponential(-x))
    return result


def _powers(x: Array) -> tuple[Array, Array, Array]:
    """What is left of each row when its greatest element is subtracted, exp of that, and the sum of those."""
    greatest = np.full(x.shape[:-1], -np.inf, dtype=x.dtype)
    for channel in range(x.shape[-1]):
        greatest = np.where(x[..., channel] > greatest, x[..., channel], greatest)
    below: Array = x - greatest[..., None]
    powers = exponential(below)
    total = np.zeros(x.shape[:-1], dtype=x.dtype)
    for channel in range(x.shape[-1]):
        total = total + powers[..., channel]
    return below, powers, total[..., None]


def _softmax(op: Softmax, x: Array) -> Array:
    _, powers, total = _powers(x)
    result: Array = powers / total
    return result


def _log_softmax(op: LogSoftmax, x: Array) -> Array:
    below, _, total = _powers(x)
    result: Array = below - logarithm(total)
    return result


def _greater(a: Array, b: Array) -> Array:
    return np.where((a > b) | np.isnan(a), a, b)


def _less(a: Array, b: Array) -> Array:
    return np.where((a < b) | np.isnan(a), a, b)


def _arithmetic(op: Arithmetic, a: Array, b: Array) -> Array:
    functions: dict[ArithmeticKind, Callable[..., Array]] = {
        ArithmeticKind.ADD: np.add,
        ArithmeticKind.SUB: np.subtract,
        ArithmeticKind.MUL: np.multiply,
        ArithmeticKind.DIV: np.divide,
        ArithmeticKind.MAX: _greater,
        ArithmeticKind.MIN: _less,
    }
    return functions[op.kind](a, b)


def _pad(op: Pad, x: Array) -> Array:
    return _padded(x, op.pads, op.value)


def _concat(op: Concat, *parts: Array) -> Array:
    return np.concatenate(parts, axis=-1)


def _to_float(op: ToFloat, x: Array) -> Array:
    return x.astype(np.float32)


def _transpose(op: Transpose, x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(op.perm))


def _reshape(op: Reshape, x: Array) -> Array:
    return x.reshape(len(x), *op.shape)


def _gather(op: Gather, x: Array, indices: Array) -> Array:
    return np.take(x, indices, axis=op.axis)


def _to_int64(op: ToInt64, x: Array) -> Array:
    return x.astype(np.int64)


def _arg_max(op: ArgMax, x: Array) -> Array:
    found = np.zeros(x.shape[:-1], dtype=np.int32)
    best = x[..., 0]
    for channel in range(1, x.shape[-1]):
        value = x[..., channel]
        better = value > best if op.extreme is Extreme.GREATEST else value < best
        if op.ties is Ties.LAST:
            better |= value == best
        found, best = np.where(better, np.int32(channel), found), np.where(better, value, best)
    return found[..., None]


def _top_k(op: TopK, x: Array) -> Array:
    # By whether it is NaN, then by value; this sort is stable, so equal elements stay in order.
    keys = (-x, ~np.isnan(x)) if op.extreme is Extreme.GREATEST else (x, np.isnan(x))
    order = np.lexsort(keys, axis=-1)[..., : op.k]
    if op.picked is Picked.INDICES:
        return order.astype(np.int32)
    return np.take_along_axis(x, order, axis=-1)


_FUNCTIONS: dict[type[Op], Callable[..., Array]] = {
    ArgMax: _arg_max,
    Arithmetic: _arithmetic,
    AveragePool: _average_pool,
    BinaryConv: _binary_conv,
    BinaryDense: _binary_dense,
    BinaryWeightConv: _real_conv,
    BinaryWeightDense: _real_dense,
    BitPool: _bit_pool,
    Clip: _clip,
    Concat: _concat,
    Conv: _real_conv,
    Dense: _real_dense,
    Gather: _gather,
    Grayscale: _grayscale,
    LocalBinaryPattern: _local_binary_pattern,
    LogSoftmax: _log_softmax,
    MaxPool: _max_pool,
    PRelu: _prelu,
    Pad: _pad,
    Relu: _relu,
    Reshape: _reshape,
    Sigmoid: _sigmoid,
    Sign: _sign,
    Softmax: _softmax,
    Threshold: _threshold,
    ToFloat: _to_float,
    ToInt64: _to_int64,
    TopK: _top_k,
    Transpose: _transpose,
}
