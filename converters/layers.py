"""Handlers of convolutions, dense layers, pooling and padding."""

from __future__ import annotations

from math import isfinite

import numpy as np

from bnnrt.converters import layout
from bnnrt.converters.draft import Array
from bnnrt.converters.elementwise import with_constant
from bnnrt.converters.layout import Value
from bnnrt.converters.onnx_node import OnnxNode
from bnnrt.converters.scope import Scope, float32, listed
from bnnrt.converters.windows import sees_only_padding, window_of
from bnnrt.ops import ArithmeticKind, AveragePool, Conv, Dense, MaxPool, Pad, Window

__all__ = [
    "average_pool",
    "conv",
    "gemm",
    "global_average_pool",
    "global_max_pool",
    "matmul",
    "max_pool",
    "pad",
    "reduce_mean",
]


def _image(scope: Scope, node: OnnxNode) -> Value:
    """Input 0, as an NHWC tensor."""
    value = scope.value(node, 0)
    if len(value.shape) != 3:
        raise node.error(
            f"a tensor of {len(value.shape) + 1} dimensions", "only [N, channels, rows, columns] is supported"
        )
    return layout.as_image(scope.draft, node.name, value)


def conv(scope: Scope, node: OnnxNode) -> Value:
    """Conv: 2-D, any groups, strides, dilations and padding. A bias becomes an addition."""
    x = _image(scope, node)
    weights = float32(node, 1, "weights")
    if weights.ndim != 4:
        raise node.error(f"weights have {weights.ndim} dimensions", "only 2-D convolutions are supported")
    channels, height, width = x.shape
    groups = node.integer("group", 1)
    out, per_group, *kernel = weights.shape
    if groups < 1 or per_group * groups != channels or out % groups:
        raise node.error(f"weights {list(weights.shape)} do not fit {channels} channels in {groups} groups")
    window = window_of(node, (height, width), node.pair("kernel_shape", kernel))
    if list(window.kernel) != kernel:
        raise node.error(f"kernel_shape {list(window.kernel)} is not that of the weights, {kernel}")
    laid = scope.draft.constant(f"{node.name}/weights", np.ascontiguousarray(weights.transpose(0, 2, 3, 1)))
    tensor = scope.draft.emit(node.name, Conv(window, groups), x.tensor, laid)
    result = Value.image(tensor, (out, *window.output_size(height, width)))
    if not node.has_input(2):
        return result
    bias = float32(node, 2, "bias").reshape(-1, 1, 1)
    return with_constant(scope, node, result, ArithmeticKind.ADD, bias, part="bias")


def _dense(scope: Scope, node: OnnxNode, weights: Array) -> Value:
    """A dense layer with ``weights`` [outputs, inputs] in ONNX's order of features."""
    value = scope.value(node, 0)
    if len(value.shape) != 1 or weights.ndim != 2:
        raise node.error(
            f"a product of [N, {listed(value.shape)}] and {weights.ndim}-dimensional weights",
            "only [N, features] times a matrix is supported",
        )
    if weights.shape[1] != value.shape[0]:
        raise node.error(f"weights for {weights.shape[1]} features do not fit {value.shape[0]}")
    x = layout.as_matrix(scope.draft, node.name, value)
    order = x.laid(np.arange(weights.shape[1]))
    laid = scope.draft.constant(f"{node.name}/weights", np.ascontiguousarray(weights[:, order]))
    return Value.plain(scope.draft.emit(node.name, Dense(), x.tensor, laid), (len(weights),))


def matmul(scope: Scope, node: OnnxNode) -> Value:
    """MatMul of a computed matrix and constant weights."""
    return _dense(scope, node, float32(node, 1, "weights").T)


def gemm(scope: Scope, node: OnnxNode) -> Value:
    """Gemm: alpha * x * W + beta * bias, as a dense layer, a multiplication and an addition."""
    if node.integer("transA", 0):
        raise node.error("transA mixes the images of a batch", "transpose in the model instead")
    weights = float32(node, 1, "weights")
    result = _dense(scope, node, weights if node.integer("transB", 0) else weights.T)
    alpha, beta = np.float32(node.number("alpha", 1.0)), np.float32(node.number("beta", 1.0))
    if alpha != 1:
        result = with_constant(scope, node, result, ArithmeticKind.MUL, np.full(1, alpha), part="alpha")
    if node.has_input(2) and beta != 0:
        bias = float32(node, 2, "bias") * beta
        result = with_constant(scope, node, result, ArithmeticKind.ADD, bias, part="bias")
    return result


def max_pool(scope: Scope, node: OnnxNode) -> Value:
    """MaxPool: 2-D, with padding, strides, dilations and ceil_mode; no indices."""
    if len([output for output in node.node.outputs if output.uses() or output.is_graph_output()]) > 1:
        raise node.error("the indices are read", "only the maxima are supported")
    x = _image(scope, node)
    channels, height, width = x.shape
    window = window_of(node, (height, width), node.pair("kernel_shape", ()))
    if sees_only_padding(window, (height, width)):
        raise node.error("a window lies outside the image altogether", "pad by less")
    tensor = scope.draft.emit(node.name, MaxPool(window), x.tensor)
    return Value.image(tensor, (channels, *window.output_size(height, width)))


def average_pool(scope: Scope, node: OnnxNode) -> Value:
    """AveragePool: 2-D, with padding, strides, dilations, ceil_mode and count_include_pad.

    Of the padding, only what the model itself says is counted, never what ceil_mode adds.
    """
    x = _image(scope, node)
    channels, height, width = x.shape
    kernel = node.pair("kernel_shape", ())
    window = window_of(node, (height, width), kernel)
    if sees_only_padding(window, (height, width)):
        raise node.error("a window lies outside the image altogether", "pad by less")
    counted = (0, 0, 0, 0)
    if node.integer("count_include_pad", 0):
        counted = window_of(node, (height, width), kernel, ceil=False).pads
    tensor = scope.draft.emit(node.name, AveragePool(window, counted), x.tensor)
    return Value.image(tensor, (channels, *window.output_size(height, width)))


def global_average_pool(scope: Scope, node: OnnxNode) -> Value:
    """GlobalAveragePool: an AveragePool whose window is the image."""
    return _global(scope, node, AveragePool)


def global_max_pool(scope: Scope, node: OnnxNode) -> Value:
    """GlobalMaxPool: a MaxPool whose window is the image."""
    return _global(scope, node, MaxPool)


def _global(scope: Scope, node: OnnxNode, op: type[AveragePool | MaxPool]) -> Value:
    x = _image(scope, node)
    channels, height, width = x.shape
    tensor = scope.draft.emit(node.name, op(Window((height, width))), x.tensor)
    return Value.image(tensor, (channels, 1, 1))


def reduce_mean(scope: Scope, node: OnnxNode) -> Value:
    """ReduceMean over rows and columns, which is how PyTorch writes a global average pool."""
    value = scope.value(node, 0)
    rank = len(value.shape) + 1
    axes = node.integers_or_input("axes", 1) or ()
    spatial = sorted(node.axes(axes, rank))
    if rank != 4 or spatial not in ([2, 3], [1, 2]):
        raise node.error(f"over axes {list(axes)} of {rank}", "only the mean over rows and columns is supported")
    last = spatial == [1, 2]  # channels last
    image = layout.transposed(value, (2, 0, 1)) if last else value
    x = layout.as_image(scope.draft, node.name, image)
    channels, height, width = x.shape
    tensor = scope.draft.emit(node.name, AveragePool(Window((height, width))), x.tensor)
    result = Value.image(tensor, (channels, 1, 1))
    if not node.integer("keepdims", 1):
        return layout.reshaped(scope.draft, node.name, result, (channels,))
    return layout.transposed(result, (1, 2, 0)) if last else result


def pad(scope: Scope, node: OnnxNode) -> Value:
    """Pad: constant mode, over rows and columns."""
    mode = node.text("mode", "constant")
    if mode != "constant":
        raise node.error(f"mode {mode} is not supported", "only constant padding is supported")
    value = scope.value(node, 0)
    pads = node.integers_or_input("pads", 1) or ()
    axes = node.integers_or_input("axes", 3)
    rank = len(value.shape) + 1
    padded = node.axes(range(rank) if axes is None else axes, rank)
    if len(pads) != 2 * len(padded):
        raise node.error(f"pads {list(pads)} do not fit {len(padded)} axes")
    full = [0] * (2 * rank)
    for i, axis in enumerate(padded):
        full[axis], full[axis + rank] = pads[i], pads[i + len(padded)]
    fill = float32(node, 2, "the value").reshape(-1)[0] if node.has_input(2) else node.number("value", 0.0)
    if not any(full):
        return value
    if not isfinite(fill):
        raise node.error(f"the value {fill} is not supported", "only finite numbers are")
    if rank != 4 or any(full[axis] for axis in (0, 4)) or min(full) < 0:
        raise node.error(f"pads {full} are not supported", "only rows and columns can be padded, and not cropped")
    return _pad_image(scope, node, value, full, float(fill))


def _pad_image(scope: Scope, node: OnnxNode, value: Value, full: list[int], fill: float) -> Value:
    draft = scope.draft
    if full[1] or full[5]:
        # ONNX [batch, rows, columns, channels]: the same image seen with its channels last.
        if full[3] or full[7]:
            raise node.error(f"pads {full} are not supported", "only rows and columns can be padded")
        image = layout.as_image(draft, node.name, layout.transposed(value, (2, 0, 1)))
        pads, channels_last = (full[1], full[2], full[5], full[6]), True
    else:
        image = layout.as_image(draft, node.name, value)
        pads, channels_last = (full[2], full[3], full[6], full[7]), False
    tensor = draft.emit(node.name, Pad(pads, fill), image.tensor)
    channels, height, width = image.shape
    result = Value.image(tensor, (channels, height + pads[0] + pads[2], width + pads[1] + pads[3]))
    return layout.transposed(result, (1, 2, 0)) if channels_last else result
