"""Handlers of pooling, and of means and extremes over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.arithmetic import with_constant
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import Handler, Scope
from bnnrt.converters.handlers.windows import of_image, sees_only_padding, spatial_image, window_of
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import ArithmeticKind, AveragePool, Conv, MaxPool, Window

__all__ = ["average_pool", "global_pool", "max_pool", "reduced", "reduced_min", "summed"]

Pool = type[AveragePool | MaxPool]
Over = Callable[[Scope, OnnxNode, str, Window], str]
"""Emits an operator of a tensor of images under a window; returns its output."""


def max_pool(scope: Scope, node: OnnxNode) -> Value:
    """MaxPool: 1-D and 2-D, with padding, strides, dilations and ceil_mode; no indices."""
    if node.reads_more():
        raise node.error("the indices are read", "only the maxima are supported")
    return _pooled(scope, node, MaxPool)


def average_pool(scope: Scope, node: OnnxNode) -> Value:
    """AveragePool: 1-D and 2-D, with padding, strides, dilations, ceil_mode and count_include_pad.

    Of the padding, only what the model itself says is counted, never what ceil_mode adds.
    """
    return _pooled(scope, node, AveragePool)


def _pooled(scope: Scope, node: OnnxNode, pool: Pool) -> Value:
    x, spatial = spatial_image(scope, node)
    size, kernel = (x.shape[1], x.shape[2]), node.pair("kernel_shape", (), spatial)
    window = window_of(node, size, kernel, axes=spatial)
    if sees_only_padding(window, size):
        raise node.error("a window lies outside the image altogether", "pad by less")
    op: MaxPool | AveragePool = MaxPool(window)
    if pool is AveragePool:
        counts = node.integer("count_include_pad", 0)
        op = AveragePool(
            window, window_of(node, size, kernel, axes=spatial, ceil=False).pads if counts else (0, 0, 0, 0)
        )
    tensor = scope.draft.emit(node.name, op, x.tensor)
    return of_image(scope, node, tensor, (x.shape[0], *window.output_size(*size)), spatial)


def global_pool(op: Pool) -> Handler:
    """GlobalAveragePool and GlobalMaxPool: pools whose window is the image, of any number of axes."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        value = scope.value(node, 0)
        if len(value.shape) < 2:
            raise node.error("no spatial axis", "only [N, channels, ...] is supported")
        return _over(scope, node, _pool(op), value, tuple(range(1, len(value.shape))))

    return handler


def reduced(op: Pool) -> Handler:
    """ReduceMean and ReduceMax over any axes but the batch."""
    return lambda scope, node: _reduced(scope, node, _pool(op), scope.value(node, 0))


def reduced_min(scope: Scope, node: OnnxNode) -> Value:
    """ReduceMin over any axes but the batch: the negative of the greatest negative."""
    minus = np.full(1, -1, dtype=np.float32)
    negative = with_constant(scope, node, scope.value(node, 0), ArithmeticKind.MUL, minus, part="negative")
    greatest = _reduced(scope, node, _pool(MaxPool), negative)
    return with_constant(scope, node, greatest, ArithmeticKind.MUL, minus, part="least")


def summed(scope: Scope, node: OnnxNode) -> Value:
    """ReduceSum over any axes but the batch: a convolution of each channel alone, with weights of 1."""

    def emit(scope: Scope, node: OnnxNode, tensor: str, window: Window) -> str:
        channels = scope.draft.types[tensor].channels
        ones = scope.draft.constant(f"{node.name}/ones", np.ones((channels, *window.kernel, 1), dtype=np.float32))
        return scope.draft.emit(node.name, Conv(window, channels), tensor, ones)

    return _reduced(scope, node, emit, scope.value(node, 0))


def _pool(op: Pool) -> Over:
    return lambda scope, node, tensor, window: scope.draft.emit(node.name, op(window), tensor)


def _reduced(scope: Scope, node: OnnxNode, emit: Over, value: Value) -> Value:
    rank = len(value.shape) + 1
    given = node.integers_or_input("axes", 1)
    if not given and node.integer("noop_with_empty_axes", 0):
        return value
    over = sorted(node.axes(given or range(rank), rank))
    if over[0] == 0:
        raise node.error("over the batch", "name the other axes")
    result = value
    if any(value.shape[axis - 1] > 1 for axis in over):
        result = _over(scope, node, emit, value, tuple(axis - 1 for axis in over))
    if node.integer("keepdims", 1):
        return result
    kept = tuple(size for axis, size in enumerate(value.shape, 1) if axis not in over)
    return layout.reshaped(scope.draft, node.name, result, kept)


def _over(scope: Scope, node: OnnxNode, emit: Over, value: Value, over: tuple[int, ...]) -> Value:
    """An operator over some axes, which keep one element; a sum adds in ONNX's order."""
    if len(value.shape) == 2 and over == (1,):
        # What has no rows is an image of one row.
        image = layout.reshaped(scope.draft, node.name, value, (value.shape[0], 1, value.shape[1]))
        return layout.reshaped(scope.draft, node.name, _over(scope, node, emit, image, (1, 2)), (value.shape[0], 1))
    shape = tuple(1 if axis in over else size for axis, size in enumerate(value.shape))
    order = tuple(range(len(shape)))
    if len(shape) == 3 and over in ((1, 2), (0, 1)):
        # Rows and columns of an image whose channels come first or last: a window sees them where they are.
        order = (1, 2, 0) if over == (1, 2) else order
        tensor = axes.ordered(scope.draft, node.name, value, order)
        window = Window((value.shape[over[0]], value.shape[over[1]]))
    else:
        order = (*(axis for axis in order if axis not in over), *over)
        held = Value.plain(axes.ordered(scope.draft, node.name, value, order), tuple(value.shape[i] for i in order))
        taps = prod(value.shape[axis] for axis in over)
        rows = layout.reshaped(scope.draft, node.name, held, (prod(shape), taps, 1))
        tensor = axes.ordered(scope.draft, node.name, rows, (0, 1, 2))
        window = Window((1, taps))
    return axes.in_order(emit(scope, node, tensor, window), shape, order)
