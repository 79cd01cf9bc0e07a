"""How far ONNX Runtime's float32 numbers and ours can be apart when both start from the same bits.

Derived operator by operator over the imported graph, element by element, from ONNX Runtime's own numbers;
``docs/verify.md`` has the derivation. A bound of 0 says that the two have to be equal: the same operation on the same
numbers, or a sum that no order of adding rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bnnrt import reference
from bnnrt.converters.draft import Array
from bnnrt.converters.verify.layer_bounds import Layer, layer_error, layers_of
from bnnrt.converters.verify.rounding import LARGEST_EXACT, SLACK, TINY, UNIT, lowest_bit, of_any_order
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    ArgMax,
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    Clip,
    Concat,
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

__all__ = ["Bounds", "alone", "bounds"]

# An assumption, not derived: ONNX Runtime's own exp, within Sigmoid and Softmax, makes them wrong by no more than this.
OF_EXP = 2.0**-20

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of tensors of the imported graph: ``computed`` float64, at most how far apart; ``errors``, how far apart for the
    operators that read them, 0 where both sides take them from ONNX Runtime; ``near`` of signs, where the number in
    front is so near to 0 that the bit may be either; ``values``, the numbers they hold, but for those inside of a
    layer. ``apart``, of constants: as in :func:`bounds`."""

    values: dict[str, Array] = field(default_factory=dict)
    computed: dict[str, Array] = field(default_factory=dict)
    errors: dict[str, Array] = field(default_factory=dict)
    near: dict[str, Bits] = field(default_factory=dict)
    apart: Mapping[str, float] = field(default_factory=dict)


def bounds(
    graph: Graph,
    given: Mapping[str, Array],
    known: Mapping[str, Array],
    forced: Collection[str],
    apart: Mapping[str, float] | None = None,
    layers: Mapping[str, Layer] | None = None,
    others: Bounds | None = None,
) -> Bounds:
    """Bounds for every tensor of an imported graph.

    Args:
        given: its inputs, as fed.
        known: ONNX Runtime's numbers for tensors whose ONNX value is visible, [images, elements].
        forced: tensors that both sides take from ONNX Runtime.
        apart: for constants that ONNX Runtime computes and rounds otherwise, how far apart they are, as a share of
            their size.
        layers: those of the graph, if :func:`layers_of` has found them already.
        others: the bounds of all the same but ``forced``: layers whose input is off by the same have the same there.
    """
    found = Bounds(values={} if others is None else others.values, apart=apart or {})
    images = len(next(iter(given.values())))
    for name, array in given.items():
        found.values[name] = array
        found.computed[name] = found.errors[name] = np.zeros(array.shape)
    if layers is None:
        layers = layers_of(graph, known)
    for node in graph.nodes:
        (output,) = node.outputs
        shape = (images, *graph.types[output].with_batch(images)[1:])
        layer = layers.get(output)
        if output in known:
            found.values[output] = known[output].reshape(shape)
        elif output not in found.values and (layer is None or layer.output == output):
            found.values[output] = alone(graph, node, found.values)
        with np.errstate(all="ignore"):
            if layer is None:
                error = _error(graph, node, found, forced)
            elif layer.node is node:
                x = node.inputs[0]
                if others is not None and np.array_equal(found.errors[x], others.errors[x]):
                    error = others.computed[output]
                else:
                    error = layer_error(graph, layer, found.values[x], found.errors[x], found.apart)
            else:
                error = found.computed[layer.node.outputs[0]]
        found.computed[output] = np.where(np.isnan(error), np.inf, error) if np.isnan(error).any() else error
        found.errors[output] = np.broadcast_to(0.0, shape) if output in forced else found.computed[output]
        if isinstance(node.op, Sign):
            source = node.inputs[0]
            found.near[output] = (np.abs(found.values[source]) <= found.errors[source]) & (found.errors[source] > 0)
        elif isinstance(node.op, (ToFloat, Reshape)) and node.inputs[0] in found.near:
            found.near[output] = found.near[node.inputs[0]].reshape(shape)
    return found


def alone(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array:
    """What one node of ``graph`` makes of ``values``, in their own precision."""
    types = {name: graph.types[name] for name in node.inputs if name not in graph.constants}
    constants = {name: graph.constants[name] for name in node.inputs if name in graph.constants}
    single = Graph(types, (node,), node.outputs, constants)
    return reference.run(single, values)[node.outputs[0]]


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
        return alone(graph, Node(node.name, Pad(op.pads, 0.0), node.inputs, node.outputs), found.errors)
    if isinstance(op, ToInt64):
        return found.errors[node.inputs[0]]
    if isinstance(op, (Gather, MaxPool, Reshape, Transpose)):
        return alone(graph, node, found.errors)
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
    share = found.apart.get(node.inputs[1], 0.0)
    result = np.abs(found.values[node.outputs[0]].astype(np.float64))
    moved = error * np.maximum(slope * (1 + share), 1) + (2 * UNIT + share) * result + 2 * TINY
    return np.where((error == 0) & (share == 0), 0.0, moved * SLACK)


def _average_error(graph: Graph, node: Node, found: Bounds) -> Array:
    assert isinstance(node.op, AveragePool)
    x, error = found.values[node.inputs[0]], found.errors[node.inputs[0]]
    taps = node.op.window.taps
    size = alone(graph, node, {node.inputs[0]: np.abs(x.astype(np.float64)) + error})
    spread = alone(graph, node, {node.inputs[0]: error})
    step = lowest_bit(x.reshape(len(x), -1)).reshape(-1, 1, 1, 1)
    exact = (spread == 0) & (size * taps * SLACK <= LARGEST_EXACT * step) & (step >= TINY)
    return np.where(exact, 0.0, (spread + of_any_order(taps + 1) * size + 2 * taps * TINY) * SLACK)


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


def _arithmetic_error(graph: Graph, node: Node, kind: ArithmeticKind, found: Bounds) -> Array:
    pairs = [_operand(graph.constants.get(name), name, found) for name in node.inputs]
    (a, of_a), (b, of_b) = pairs
    if not of_a.any() and not of_b.any():
        return np.zeros(found.values[node.outputs[0]].shape)
    result = np.abs(found.values[node.outputs[0]].astype(np.float64))
    moved = _MOVED[kind](np.abs(a), of_a, np.abs(b), of_b, result)
    error: Array = np.where((of_a == 0) & (of_b == 0), 0.0, (moved + 2 * UNIT * result + 2 * TINY) * SLACK)
    return error


def _operand(constant: Constant | None, name: str, found: Bounds) -> tuple[Array, Array]:
    if constant is None:
        return found.values[name].astype(np.float64), found.errors[name]
    data, share = constant.data.astype(np.float64), found.apart.get(name, 0.0)
    return data, np.abs(data) * share if share else np.zeros(data.shape)


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
