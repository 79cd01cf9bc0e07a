"""How far ONNX Runtime's float32 numbers and ours can be apart when both start from the same bits.

Derived operator by operator over the imported graph, element by element, from ONNX Runtime's own numbers;
``docs/verify.md`` has the derivation. A bound of 0 says that the two have to be equal: the same operation on the same
numbers, or a sum that no order of adding rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from bnnrt import reference
from bnnrt.converters.draft import Array
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    ArgMax,
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    Clip,
    Concat,
    Conv,
    Dense,
    Domain,
    Extreme,
    Gather,
    LogSoftmax,
    MaxPool,
    Op,
    Pad,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    Softmax,
    ToFloat,
    ToInt64,
    TopK,
    Transpose,
)

__all__ = ["Bounds", "bounds"]

UNIT = 2.0**-24  # a float32 operation is off by at most this share of its result,
TINY = 2.0**-149  # or by less than this where the result is subnormal
LARGEST_EXACT = 2.0**24  # integers up to this are float32 numbers
# Weights of more bits than these may be what the model itself computes of others, as sign(w) * mean(|w|): ONNX Runtime
# rounds that in another order than the converter, which has folded it.
LARGEST_STORED = 2.0**12
# Covers products of bounds with UNIT, which the formulas leave out, and the rounding of the bounds themselves.
SLACK = 1 + 2.0**-20
# An assumption, not derived: ONNX Runtime's own exp, within Sigmoid and Softmax, makes them wrong by no more than this.
OF_EXP = 2.0**-20

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of tensors of the imported graph: ``computed`` float64, at most how far apart; ``errors``, how far apart for the
    operators that read them, 0 where both sides take them from ONNX Runtime; ``near`` of signs, where the number in
    front is so near to 0 that the bit may be either; ``values``, the numbers they hold, but for those inside of a
    layer."""

    values: dict[str, Array] = field(default_factory=dict)
    computed: dict[str, Array] = field(default_factory=dict)
    errors: dict[str, Array] = field(default_factory=dict)
    near: dict[str, Bits] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A Conv or Dense with what belongs to the same ONNX operator: a factor, then a bias. ``output`` is its tensor."""

    node: Node
    inside: tuple[str, ...]
    output: str
    factor: float
    bias: Array | None

    @property
    def parts(self) -> int:
        return len(self.inside)


def bounds(graph: Graph, given: Mapping[str, Array], known: Mapping[str, Array], forced: Collection[str]) -> Bounds:
    """Bounds for every tensor of an imported graph.

    Args:
        given: its inputs, as fed.
        known: ONNX Runtime's numbers for tensors whose ONNX value is visible, [images, elements].
        forced: tensors that both sides take from ONNX Runtime.
    """
    found = Bounds()
    images = len(next(iter(given.values())))
    for name, array in given.items():
        found.values[name] = array
        found.computed[name] = found.errors[name] = np.zeros(array.shape)
    layers = _layers(graph, known)
    for node in graph.nodes:
        (output,) = node.outputs
        shape = (images, *graph.types[output].with_batch(images)[1:])
        layer = layers.get(output)
        if output in known:
            found.values[output] = known[output].reshape(shape)
        elif layer is None or layer.output == output:
            found.values[output] = _value(graph, node, found.values)
        with np.errstate(all="ignore"):
            if layer is None:
                error = _error(graph, node, found, forced)
            elif layer.node is node:
                error = _layer_error(graph, layer, found)
            else:
                error = found.computed[layer.node.outputs[0]]
        found.computed[output] = np.nan_to_num(error, nan=np.inf, posinf=np.inf)
        found.errors[output] = np.broadcast_to(0.0, shape) if output in forced else found.computed[output]
        if isinstance(node.op, Sign):
            source = node.inputs[0]
            found.near[output] = (np.abs(found.values[source]) <= found.errors[source]) & (found.errors[source] > 0)
        elif isinstance(node.op, (ToFloat, Reshape)) and node.inputs[0] in found.near:
            found.near[output] = found.near[node.inputs[0]].reshape(shape)
    return found


def _value(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array:
    feeds = {name: values[name] for name in node.inputs if name not in graph.constants}
    return _alone(graph, node, feeds)


def _alone(graph: Graph, node: Node, feeds: Mapping[str, Array]) -> Array:
    """What ``node`` makes of other inputs, in their own precision."""
    types = {name: graph.types[name] for name in node.inputs if name not in graph.constants}
    constants = {name: graph.constants[name] for name in node.inputs if name in graph.constants}
    single = Graph(types, (node,), node.outputs, constants)
    return reference.run(single, feeds)[node.outputs[0]]


def _layers(graph: Graph, known: Collection[str]) -> dict[str, _Layer]:
    """Layers by each tensor that they write, the last one included."""
    readers = graph.consumers()
    found = {}
    for node in graph.nodes:
        if not isinstance(node.op, (Conv, Dense)):
            continue
        inside, factor, bias = [node.outputs[0]], 1.0, None
        while inside[-1] not in known:
            following = readers.get(inside[-1], [])
            step = _constant_step(graph, following[0], inside[-1]) if len(following) == 1 else None
            if step is None or inside[-1] in graph.outputs:
                inside = inside[:1]
                factor, bias = 1.0, None
                break
            kind, constant = step
            if kind is ArithmeticKind.MUL and bias is None:
                factor *= float(np.abs(constant.astype(np.float64)).max())
            elif kind is ArithmeticKind.ADD and bias is None:
                bias = constant.astype(np.float64)
            else:
                inside, factor, bias = inside[:1], 1.0, None
                break
            inside.append(following[0].outputs[0])
        layer = _Layer(node, tuple(inside), inside[-1], factor, bias)
        found.update(dict.fromkeys(inside, layer))
    return found


def _constant_step(graph: Graph, node: Node, tensor: str) -> tuple[ArithmeticKind, Array] | None:
    if not isinstance(node.op, Arithmetic) or node.inputs[0] != tensor or node.inputs[1] not in graph.constants:
        return None
    return node.op.kind, graph.constants[node.inputs[1]].data


def _layer_error(graph: Graph, layer: _Layer, found: Bounds) -> Array:
    x, weights = layer.node.inputs
    matrix = graph.constants[weights].data.astype(np.float64)
    value, error = np.abs(found.values[x].astype(np.float64)), found.errors[x]
    terms = prod(matrix.shape[1:]) + layer.parts
    size = _sums(layer.node.op, value + error, np.abs(matrix))
    spread = _sums(layer.node.op, error, np.abs(matrix)) if error.any() else np.zeros(size.shape)
    bias = np.zeros(1) if layer.bias is None else np.abs(layer.bias)
    gamma = terms * UNIT / (1 - terms * UNIT)
    rounding = 2 * gamma * (layer.factor * size + bias) + 2 * terms * TINY
    result = (layer.factor * spread + rounding) * SLACK
    if layer.factor == 1.0:
        result = np.where((spread == 0) & _is_exact(found.values[x], matrix, layer.bias, size + bias), 0.0, result)
    return result


def _is_exact(x: Array, weights: Array, bias: Array | None, size: Array) -> Bits:
    """Whether every term of a sum is a multiple of one power of two, and the sum of their sizes at most 2**24 of it.

    Then every partial sum is a float32 number, whatever the order. Weights of more than 12 bits do not count: they may
    be rounded themselves.
    """
    rows = _lowest_bit(weights.reshape(len(weights), -1))
    stored = np.abs(weights.reshape(len(weights), -1)).max(axis=1) <= LARGEST_STORED * rows
    images = _lowest_bit(x.reshape(len(x), -1))
    step = images[:, None] * rows[None, :]
    if bias is not None:
        step = np.minimum(step, _lowest_bit(np.broadcast_to(bias, len(weights)).reshape(-1, 1)))
    step = step.reshape(len(x), *[1] * (size.ndim - 2), len(weights))
    exact: Bits = (size <= LARGEST_EXACT * step) & (step >= TINY) & (stored | (size == 0))
    return exact


def _lowest_bit(rows: Array) -> Array:
    """For each row of float32 numbers, the largest power of two that divides them all; infinity if they are all 0."""
    mantissa, exponent = np.frexp(rows.astype(np.float64))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    least: Array = np.where(rows != 0, lowest, np.inf).min(axis=1)
    return np.where(np.isfinite(rows).all(axis=1), least, 0.0)


def _sums(op: object, x: Array, weights: Array) -> Array:
    """A layer in float64, whatever the order."""
    if isinstance(op, Dense):
        dense: Array = x @ weights.T
        return dense
    assert isinstance(op, Conv)
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


def _error(graph: Graph, node: Node, found: Bounds, forced: Collection[str]) -> Array:
    """The bound of one operator that is no layer."""
    op, (output,) = node.op, node.outputs
    value = found.values[output]
    if isinstance(op, ArgMax):
        return _arg_max_error(op, node, found)
    if isinstance(op, Sign) or graph.types[output].domain is Domain.BIT:
        return np.zeros(value.shape)
    if isinstance(op, ToFloat):
        near = found.near.get(node.inputs[0])
        if graph.types[node.inputs[0]].domain is Domain.INT32:
            return found.errors[node.inputs[0]]
        return np.zeros(value.shape) if near is None or node.inputs[0] in forced else 2.0 * near
    if isinstance(op, Arithmetic):
        return _arithmetic_error(graph, node, op.kind, found)
    if isinstance(op, Pad):
        return _alone(graph, Node(node.name, Pad(op.pads, 0.0), node.inputs, node.outputs), _errors_of(node, found))
    if isinstance(op, ToInt64):
        return found.errors[node.inputs[0]]
    if isinstance(op, (Gather, MaxPool, Reshape, Transpose)):
        return _alone(graph, node, _errors_of(node, found))
    rule = _RULES.get(type(op))
    if rule is not None:
        return rule(graph, node, found)
    moved = any(found.errors[name].any() for name in node.inputs if name not in graph.constants)
    return np.full(value.shape, np.inf if moved else 0.0)


def _same_error(graph: Graph, node: Node, found: Bounds) -> Array:
    """Relu and Clip move two numbers no further apart, and round nothing."""
    return found.errors[node.inputs[0]]


def _concat_error(graph: Graph, node: Node, found: Bounds) -> Array:
    return np.concatenate([_operand(graph.constants.get(name), name, found)[1] for name in node.inputs], axis=-1)


def _arg_max_error(op: ArgMax, node: Node, found: Bounds) -> Array:
    """An index is certain where no other element can come near the one that is taken; else it can be any."""
    x, error = found.values[node.inputs[0]].astype(np.float64), found.errors[node.inputs[0]]
    if op.extreme is Extreme.LEAST:
        x = -x
    taken = found.values[node.outputs[0]]
    least = np.take_along_axis(x - error, taken, axis=-1)
    others = x + error
    np.put_along_axis(others, taken, -np.inf, axis=-1)
    certain = (least > others.max(axis=-1, keepdims=True)) | (error == 0).all(axis=-1, keepdims=True)
    return np.where(certain, 0.0, np.inf)


def _top_k_error(graph: Graph, node: Node, found: Bounds) -> Array:
    """What is taken is exact where all of the row is; else it can be any."""
    exact = (found.errors[node.inputs[0]] == 0).all(axis=-1, keepdims=True)
    return np.broadcast_to(np.where(exact, 0.0, np.inf), found.values[node.outputs[0]].shape)


def _prelu_error(graph: Graph, node: Node, found: Bounds) -> Array:
    error, slope = found.errors[node.inputs[0]], np.abs(graph.constants[node.inputs[1]].data.astype(np.float64))
    result = np.abs(found.values[node.outputs[0]].astype(np.float64))
    moved = error * np.maximum(slope, 1) + 2 * UNIT * result + 2 * TINY
    return np.where(error == 0, 0.0, moved * SLACK)


def _average_error(graph: Graph, node: Node, found: Bounds) -> Array:
    assert isinstance(node.op, AveragePool)
    x, error = found.values[node.inputs[0]], found.errors[node.inputs[0]]
    taps = node.op.window.taps
    size = _alone(graph, node, {node.inputs[0]: np.abs(x.astype(np.float64)) + error})
    spread = _alone(graph, node, {node.inputs[0]: error})
    gamma = (taps + 1) * UNIT / (1 - (taps + 1) * UNIT)
    step = _lowest_bit(x.reshape(len(x), -1)).reshape(-1, 1, 1, 1)
    exact = (spread == 0) & (size * taps * SLACK <= LARGEST_EXACT * step) & (step >= TINY)
    return np.where(exact, 0.0, (spread + 2 * gamma * size + 2 * taps * TINY) * SLACK)


def _sigmoid_error(graph: Graph, node: Node, found: Bounds) -> Array:
    # Its slope is at most 1/4; our own error is below 8 roundings of numbers up to 1.
    moved: Array = (found.errors[node.inputs[0]] / 4 + 8 * UNIT + OF_EXP) * SLACK
    return moved


def _softmax_error(graph: Graph, node: Node, found: Bounds) -> Array:
    x = found.values[node.inputs[0]].astype(np.float64)
    # The sum of the sizes of its slopes is 2 s (1 - s), at most 1/2; each difference x - m is rounded once.
    spread = found.errors[node.inputs[0]].max(axis=-1, keepdims=True) / 2
    far = np.minimum(np.ptp(x, axis=-1, keepdims=True), 104)
    moved = (spread + 2 * UNIT * (x.shape[-1] + 8 + far) + OF_EXP) * SLACK
    return np.broadcast_to(moved, x.shape)


def _log_softmax_error(graph: Graph, node: Node, found: Bounds) -> Array:
    x = found.values[node.inputs[0]].astype(np.float64)
    # The sum of the sizes of its slopes is at most 2. The sum and its logarithm are below C and log(C) + 1.
    spread = 2 * found.errors[node.inputs[0]].max(axis=-1, keepdims=True)
    size = np.abs(found.values[node.outputs[0]].astype(np.float64)) + np.log(x.shape[-1]) + 1
    moved: Array = (spread + 2 * UNIT * (x.shape[-1] + 8 + 4 * size) + OF_EXP) * SLACK
    return np.broadcast_to(moved, x.shape)


_RULES: Mapping[type[Op], Callable[[Graph, Node, Bounds], Array]] = {
    AveragePool: _average_error,
    Clip: _same_error,
    Concat: _concat_error,
    LogSoftmax: _log_softmax_error,
    PRelu: _prelu_error,
    Relu: _same_error,
    Sigmoid: _sigmoid_error,
    Softmax: _softmax_error,
    TopK: _top_k_error,
}


def _errors_of(node: Node, found: Bounds) -> dict[str, Array]:
    return {node.inputs[0]: found.errors[node.inputs[0]]}


def _arithmetic_error(graph: Graph, node: Node, kind: ArithmeticKind, found: Bounds) -> Array:
    pairs = [_operand(graph.constants.get(name), name, found) for name in node.inputs]
    (a, of_a), (b, of_b) = pairs
    result = np.abs(found.values[node.outputs[0]].astype(np.float64))
    moved = _MOVED[kind](np.abs(a), of_a, np.abs(b), of_b, result)
    error: Array = np.where((of_a == 0) & (of_b == 0), 0.0, (moved + 2 * UNIT * result + 2 * TINY) * SLACK)
    return error


def _operand(constant: Constant | None, name: str, found: Bounds) -> tuple[Array, Array]:
    if constant is None:
        return found.values[name].astype(np.float64), found.errors[name]
    return constant.data.astype(np.float64), np.zeros(constant.data.shape)


def _of_sum(a: Array, of_a: Array, b: Array, of_b: Array, result: Array) -> Array:
    return of_a + of_b


def _of_product(a: Array, of_a: Array, b: Array, of_b: Array, result: Array) -> Array:
    moved: Array = a * of_b + b * of_a + of_a * of_b
    return moved


def _of_quotient(a: Array, of_a: Array, b: Array, of_b: Array, result: Array) -> Array:
    return np.where(b > of_b, (of_a + (result + TINY) * of_b) / (b - of_b), np.inf)


_MOVED: Mapping[ArithmeticKind, Callable[[Array, Array, Array, Array, Array], Array]] = {
    ArithmeticKind.ADD: _of_sum,
    ArithmeticKind.SUB: _of_sum,
    ArithmeticKind.MUL: _of_product,
    ArithmeticKind.DIV: _of_quotient,
    ArithmeticKind.MAX: _of_sum,
    ArithmeticKind.MIN: _of_sum,
}
