"""How far apart ONNX Runtime's sums and ours can be, of a convolution or dense layer.

Neither adds in an order that is known, so the bound is that of any order; it is 0 where no order rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from bnnrt.converters.draft import Array
from bnnrt.converters.passes.binarize import signed_weights
from bnnrt.converters.verify.rounding import LARGEST_EXACT, SLACK, TINY, lowest_bit, of_any_order
from bnnrt.graph import Graph, Node
from bnnrt.ops import Arithmetic, ArithmeticKind, Conv, Dense

__all__ = ["Layer", "layer_error", "layers_of"]

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Layer:
    """A Conv or Dense with what belongs to the same ONNX operator: a factor, then a bias. ``output`` is its tensor.

    ``constants``: the names of all that it computes with.
    """

    node: Node
    inside: tuple[str, ...]
    output: str
    factor: float
    bias: Array | None
    constants: tuple[str, ...]
    same_size: bool
    """Whether a binary layer sums these weights as they are: not those that are one size but for their rounding."""
    steps: Array
    """The largest power of two that divides all weights of an output, of each."""

    @property
    def parts(self) -> int:
        return len(self.inside)


def layers_of(graph: Graph, known: Collection[str]) -> dict[str, Layer]:
    """Layers by each tensor that they write, the last one included."""
    readers = graph.consumers()
    found = {}
    for node in graph.nodes:
        if not isinstance(node.op, (Conv, Dense)):
            continue
        inside, constants, factor, bias = [node.outputs[0]], [node.inputs[1]], 1.0, None
        while inside[-1] not in known:
            following = readers.get(inside[-1], [])
            alone = len(following) == 1 and inside[-1] not in graph.outputs
            step = _constant_step(graph, following[0], inside[-1]) if alone else None
            if step and bias is None and step[0] is ArithmeticKind.MUL:
                factor *= float(np.abs(step[1].astype(np.float64)).max())
            elif step and bias is None and step[0] is ArithmeticKind.ADD:
                bias = step[1].astype(np.float64)
            else:
                inside, constants, factor, bias = inside[:1], constants[:1], 1.0, None
                break
            inside.append(following[0].outputs[0])
            constants.append(following[0].inputs[1])
        weights = graph.constants[node.inputs[1]].data
        signed = signed_weights(weights)
        same_size = isinstance(signed, str) or signed.is_equal
        steps = lowest_bit(weights.reshape(len(weights), -1))
        layer = Layer(node, tuple(inside), inside[-1], factor, bias, tuple(constants), same_size, steps)
        found.update(dict.fromkeys(inside, layer))
    return found


def _constant_step(graph: Graph, node: Node, tensor: str) -> tuple[ArithmeticKind, Array] | None:
    if not isinstance(node.op, Arithmetic) or node.inputs[0] != tensor or node.inputs[1] not in graph.constants:
        return None
    return node.op.kind, graph.constants[node.inputs[1]].data


def layer_error(graph: Graph, layer: Layer, x: Array, error: Array, apart: Mapping[str, float]) -> Array:
    """The bound for every element of its output, where ``x``, what the layer reads, is known to ``error``.

    Args:
        apart: how far apart the two sides' constants are, as in :func:`bounds`.
    """
    matrix = graph.constants[layer.node.inputs[1]].data.astype(np.float64)
    value = np.abs(x.astype(np.float64))
    terms = prod(matrix.shape[1:]) + layer.parts
    seen = value + error
    # Signs have the same size for all images, and so have the sums: those of the first are enough.
    alike = bool((seen == seen[:1]).all())
    size = _sums(layer.node.op, seen[:1] if alike else seen, np.abs(matrix))
    spread = _sums(layer.node.op, error, np.abs(matrix)) if error.any() else np.zeros(size.shape)
    bias = np.zeros(1) if layer.bias is None else np.abs(layer.bias)
    rounding = of_any_order(terms) * (layer.factor * size + bias) + 2 * terms * TINY
    moved = sum(apart.get(name, 0.0) for name in layer.constants)
    result = (layer.factor * spread + rounding + moved * (layer.factor * size + bias)) * SLACK
    if layer.factor == 1.0 and layer.same_size and not moved:
        result = np.where((spread == 0) & _is_exact(x, layer, size + bias), 0.0, result)
    return np.broadcast_to(result, (len(x), *result.shape[1:]))


def _is_exact(x: Array, layer: Layer, size: Array) -> Bits:
    """Whether every term of a sum is a multiple of one power of two, and the sum of their sizes at most 2**24 of it.

    Then every partial sum is a float32 number, whatever the order. ``size``: of each image, or one for all.
    """
    outputs = len(layer.steps)
    step = lowest_bit(x.reshape(len(x), -1))[:, None] * layer.steps
    if layer.bias is not None:
        step = np.minimum(step, lowest_bit(np.broadcast_to(layer.bias, outputs).reshape(-1, 1)))
    step = step.reshape(len(x), *[1] * (size.ndim - 2), outputs)
    exact: Bits = (size <= LARGEST_EXACT * step) & (step >= TINY)
    return exact


def _sums(op: object, x: Array, weights: Array) -> Array:
    """A layer in float64, whatever the order."""
    if isinstance(op, Dense):
        dense: Array = x @ weights.T
        return dense
    assert isinstance(op, Conv)
    # One image at a time, so that its sums stay in the processor's cache.
    return np.concatenate([_conv_sums(op, image[None], weights) for image in x])


def _conv_sums(op: Conv, x: Array, weights: Array) -> Array:
    window, groups = op.window, op.groups
    height, width = window.output_size(x.shape[1], x.shape[2])
    top, left, bottom, right = window.pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    outputs, inputs = len(weights) // groups, weights.shape[3]
    total = np.zeros((len(x), height, width, len(weights)))
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            y, z = row * window.dilations[0], column * window.dilations[1]
            seen = padded[
                :,
                y : y + (height - 1) * window.strides[0] + 1 : window.strides[0],
                z : z + (width - 1) * window.strides[1] + 1 : window.strides[1],
            ]
            for group in range(groups):
                part = slice(group * outputs, (group + 1) * outputs)
                channels = seen[..., group * inputs : (group + 1) * inputs]
                total[..., part] += np.tensordot(channels, weights[part, row, column], axes=(3, 1))
    return total
