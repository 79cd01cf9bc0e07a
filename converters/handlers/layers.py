"""Handlers of convolutions and dense layers."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.arithmetic import combined, with_constant
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import Scope, float32, listed
from bnnrt.converters.handlers.windows import of_image, spatial_image, window_of
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import ArithmeticKind, Conv, Dense, Window

__all__ = ["conv", "einsum", "gemm", "matmul"]


def conv(scope: Scope, node: OnnxNode) -> Value:
    """Conv: 1-D and 2-D, any groups, strides, dilations and padding. A bias becomes an addition."""
    x, spatial = spatial_image(scope, node)
    weights = float32(node, 1, "weights")
    if weights.ndim != spatial + 2:
        raise node.error(f"weights of {weights.ndim} dimensions do not fit an image of {spatial + 2}")
    channels, height, width = x.shape
    groups = node.integer("group", 1)
    kernel = weights.shape[2:]
    window = window_of(node, (height, width), node.pair("kernel_shape", kernel, spatial), axes=spatial)
    if window.kernel[-spatial:] != kernel:
        raise node.error(f"kernel_shape {list(window.kernel)} is not that of the weights, {list(kernel)}")
    out, per_group = weights.shape[:2]
    if groups < 1 or per_group * groups != channels or out % groups:
        raise node.error(f"weights {list(weights.shape)} do not fit {channels} channels in {groups} groups")
    laid = weights.reshape(out, per_group, *window.kernel).transpose(0, 2, 3, 1)
    operand = scope.draft.constant(f"{node.name}/weights", np.ascontiguousarray(laid))
    tensor = scope.draft.emit(node.name, Conv(window, groups), x.tensor, operand)
    result = of_image(scope, node, tensor, (out, *window.output_size(height, width)), spatial)
    if not node.has_input(2):
        return result
    bias = float32(node, 2, "bias").reshape(-1, *[1] * spatial)
    return with_constant(scope, node, result, ArithmeticKind.ADD, bias, part="bias")


def _dense(scope: Scope, node: OnnxNode, value: Value, weights: Array) -> Value:
    """A dense layer with ``weights`` [outputs, inputs] in ONNX's order of features."""
    x = layout.as_matrix(scope.draft, node.name, value)
    order = x.laid(np.arange(weights.shape[1]))
    laid = scope.draft.constant(f"{node.name}/weights", np.ascontiguousarray(weights[:, order]))
    return Value.plain(scope.draft.emit(node.name, Dense(), x.tensor, laid), (len(weights),))


def _dense_of_rows(scope: Scope, node: OnnxNode, value: Value, weights: Array) -> Value:
    """The same for each row of the last axis: a convolution of single pixels."""
    *rows, inputs = value.shape
    tensor = layout.in_onnx_order(scope.draft, node.name, value).tensor
    image = layout.reshaped(scope.draft, node.name, Value.plain(tensor, value.shape), (int(np.prod(rows)), 1, inputs))
    pixels = axes.ordered(scope.draft, node.name, image, (0, 1, 2))
    laid = scope.draft.constant(f"{node.name}/weights", np.ascontiguousarray(weights[:, None, None, :]))
    tensor = scope.draft.emit(node.name, Conv(Window((1, 1))), pixels, laid)
    return Value.plain(tensor, (*rows, len(weights)))


def matmul(scope: Scope, node: OnnxNode) -> Value:
    """MatMul of a computed tensor and a constant matrix, over the tensor's last axis, or with the matrix first."""
    if node.constant(0) is not None:
        return _matrix_first(scope, node)
    if node.constant(1) is None:
        raise node.error("a product of two tensors", "only a tensor times a constant matrix is supported")
    value = scope.value(node, 0)
    weights = _matrix(node, 1, value)
    if not value.shape or weights.ndim != 2:
        raise node.error(
            f"a product of [N, {listed(value.shape)}] and {weights.ndim}-dimensional weights",
            "only [N, ..., features] times a matrix is supported",
        )
    if weights.shape[0] != value.shape[-1]:
        raise node.error(f"weights for {weights.shape[0]} features do not fit {value.shape[-1]}")
    return _product(scope, node, value, weights.T)


def _matrix(node: OnnxNode, index: int, value: Value) -> Array:
    """Constant weights beside ``value``, without axes of 1 in front of a matrix."""
    weights = float32(node, index, "weights")
    while weights.ndim > 2 and weights.shape[0] == 1 and weights.ndim <= len(value.shape) + 1:
        weights = weights[0]
    return weights


def _matrix_first(scope: Scope, node: OnnxNode) -> Value:
    """A matrix [outputs, inputs] times each [inputs, columns] of a tensor, as of the windows that unfold gives."""
    value = scope.value(node, 1)
    weights = _matrix(node, 0, value)
    if weights.ndim != 2 or len(value.shape) < 2:
        shapes = f"{weights.ndim}-dimensional weights and [N, {listed(value.shape)}]"
        raise node.error(f"a product of {shapes}", "only a matrix times [N, ..., features, columns] is supported")
    if weights.shape[1] != value.shape[-2]:
        raise node.error(f"weights for {weights.shape[1]} features do not fit {value.shape[-2]}")
    last = len(value.shape) - 1
    swapped = (*range(last - 1), last, last - 1)
    return layout.transposed(_product(scope, node, layout.transposed(value, swapped), weights), swapped)


def _product(scope: Scope, node: OnnxNode, value: Value, weights: Array) -> Value:
    """``value`` [N, ..., inputs] times ``weights`` [outputs, inputs]."""
    layer = _dense if len(value.shape) == 1 else _dense_of_rows
    return layer(scope, node, value, weights)


def einsum(scope: Scope, node: OnnxNode) -> Value:
    """Einsum of a computed tensor and a constant matrix that is their product along one axis, as ``nchw,oc->nohw``."""
    fix = "write it as ReduceSum, Transpose and MatMul of a tensor and a constant matrix"
    equation = node.text("equation", "").replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    constant = next((i for i in range(len(node.node.inputs)) if node.constant(i) is not None), None)
    if not arrow or len(terms) != 2 or len(node.node.inputs) != 2 or constant is None:
        raise node.error(f"{equation} is no product of a tensor and a constant matrix", fix)
    value, weights = scope.value(node, 1 - constant), float32(node, constant, "weights")
    ofx, ofw = terms[1 - constant], terms[constant]
    rank = len(value.shape) + 1
    # Letters cannot be digits: these stand for the axes of an ellipsis.
    rest = "0123456789"[: max(0, rank - len(ofx.replace("...", "")))]
    ofx, out = ofx.replace("...", rest), out.replace("...", rest)
    shared, new = set(ofw) & set(ofx), set(ofw) - set(ofx)
    distinct = all(len(set(term)) == len(term) for term in (ofx, ofw, out))
    if not distinct or len(ofx) != rank or len(ofw) != 2 or weights.ndim != 2 or len(shared) != 1 or "..." in ofw:
        raise node.error(f"{equation} is no product of a tensor and a constant matrix", fix)
    (along,), (made,) = shared, new
    kept = ofx.replace(along, "")
    if set(out) != {*kept, made}:
        raise node.error(f"{equation} sums over axes that the matrix does not have", fix)
    if along == ofx[0] or out[0] != ofx[0]:
        raise node.error(f"{equation} mixes the images of a batch", "keep the batch first")
    matrix = weights if ofw[0] == made else weights.T
    if matrix.shape[1] != value.shape[ofx.index(along) - 1]:
        raise node.error(f"weights for {matrix.shape[1]} features do not fit {value.shape[ofx.index(along) - 1]}")
    ready = layout.transposed(value, tuple(ofx.index(label) - 1 for label in (kept + along)[1:]))
    made_of = (kept + made)[1:]
    return layout.transposed(_product(scope, node, ready, matrix), tuple(made_of.index(label) for label in out[1:]))


def gemm(scope: Scope, node: OnnxNode) -> Value:
    """Gemm: alpha * x * W + beta * bias, as a dense layer, a multiplication and an addition."""
    if node.integer("transA", 0):
        raise node.error("transA mixes the images of a batch", "transpose in the model instead")
    value, weights = scope.value(node, 0), float32(node, 1, "weights")
    if not node.integer("transB", 0):
        weights = weights.T
    if len(value.shape) != 1 or weights.ndim != 2 or weights.shape[1] != value.shape[0]:
        raise node.error(f"weights {list(weights.T.shape)} do not fit [N, {listed(value.shape)}]")
    result = _dense(scope, node, value, weights)
    alpha, beta = np.float32(node.number("alpha", 1.0)), np.float32(node.number("beta", 1.0))
    if alpha != 1:
        result = with_constant(scope, node, result, ArithmeticKind.MUL, np.full(1, alpha), part="alpha")
    if not node.has_input(2) or beta == 0:
        return result
    if node.constant(2) is not None:
        bias: Value | Array = float32(node, 2, "bias") * beta
    else:
        bias = scope.value(node, 2)
        if beta != 1:
            bias = with_constant(scope, node, bias, ArithmeticKind.MUL, np.full(1, beta), part="beta")
    added = combined(scope, node, ArithmeticKind.ADD, result, bias, "bias")
    assert isinstance(added, Value)
    return added
