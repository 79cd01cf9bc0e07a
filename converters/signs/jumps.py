"""Finds what jumps once: tensors that several operators compute from one number, and that turn out to be a step of it.

So is a sign written whose gradient is another function's, ``(sign(x) - f(x)) + f(x)``, and rounding to one bit,
``2 round((clip(x, -1, 1) + 1) / 2) - 1``. The operators are evaluated on intervals that together hold every float32
number, smaller ones where that does not settle it: either each gives one number, and the step is read off, or nothing
is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import COMPARISONS, constant_of, is_standard
from bnnrt.converters.onnx_model.uniform import keeps_shape, uniform_beside
from bnnrt.converters.onnx_model.writer import add_constant
from bnnrt.converters.signs.float_order import number_at, position_of
from bnnrt.converters.signs.intervals import (
    LARGEST_SIGMOID,
    Intervals,
    applied,
    cancelled,
    cancelled_alone,
    is_elementwise,
)
from bnnrt.converters.signs.steps import LARGEST_DETACHED, Step, unclipped

__all__ = ["Jumps"]

LARGEST_CONE = 100
"""Operators that are looked at, back from a tensor."""
MOST_INTERVALS = 1 << 14

INFINITY, LIMIT, TWICE = position_of(np.inf), position_of(LARGEST_DETACHED), position_of(2 * LARGEST_DETACHED)
# Positions of infinities, negative numbers, zero, positive numbers.
FIRST = ((-INFINITY, -INFINITY), (1 - INFINITY, -1), (0, 0), (1, INFINITY - 1), (INFINITY, INFINITY))
# The same without numbers from 2**24 on, as far as (sign(x) - x) + x is the sign of x.
FIRST_LIMITED = ((1 - TWICE, -1), (0, 0), (1, TWICE - 1))
# What Sigmoid gives, and a little more.
OF_SIGMOID = ((0, 0), (1, position_of(LARGEST_SIGMOID)))
# Some numbers that show at once that most functions are no step.
SAMPLES = np.array([-100, -1.7, -0.9, -0.3, -0.01, 0.01, 0.2, 0.4, 0.6, 0.8, 1.3, 50], dtype=np.float32)

TYPES = (ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64)


class Jumps:
    """Looks for steps in a graph, whose offsets it adds to the graph as constants."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._offsets: dict[int, ir.Value] = {}

    def step_of(self, node: ir.Node) -> Step | None:
        """The step that ``node`` computes, of two values if possible; None if it cannot be shown to compute one."""
        output = node.outputs[0]
        if output.dtype != ir.DataType.FLOAT or not is_elementwise(node):
            return None
        found = None
        for source, nodes in _sources(node):
            if any(_is_jump(inner) for inner in nodes):
                step = self._shown(source, nodes, output)
                if step is not None and step.has_two_values:
                    return step
                found = found or step
        return found

    def _shown(self, source: ir.Value, nodes: Sequence[ir.Node], output: ir.Value) -> Step | None:
        function = _Function(source, nodes, output)
        first: Sequence[tuple[int, int]] = FIRST
        samples = SAMPLES
        if is_standard(source.producer(), "Sigmoid"):
            first, samples = OF_SIGMOID, SAMPLES[(SAMPLES >= 0) & (SAMPLES <= 1)]
        of_samples = function(Intervals.of(samples, samples))
        if of_samples is None or len(np.unique(of_samples.low[~of_samples.empty])) > 2:
            return None
        runs, is_limited = _runs(function, first), False
        if runs is None and first is FIRST and any(_detached(node) for node in nodes):
            runs, is_limited = _runs(function, FIRST_LIMITED), True
        number = np.full(1, np.nan, dtype=np.float32)
        of_nan = function(Intervals.of(number, number))
        if runs is None or of_nan is None or not of_nan.constant[0] or (of_nan.nan & ~of_nan.empty)[0]:
            return None
        starts, values = runs
        if len(values) == 3 and starts[1:] == [0, 1]:
            levels = np.array([*values, of_nan.low[0]], dtype=np.float32)
            return Step(unclipped(source), None, levels, is_limited)
        if len(values) != 2:
            return None
        (below, above), start = values, starts[1]
        levels = np.array([below, below if start == 1 else above, above, of_nan.low[0]], dtype=np.float32)
        if start in (0, 1):
            return Step(unclipped(source), None, levels, is_limited)
        # Where source - offset is within the limit of a step, source is within that of the intervals.
        return None if is_limited and abs(start) > LIMIT else Step(source, self._offset(start), levels, is_limited)

    def _offset(self, position: int) -> ir.Value:
        if position not in self._offsets:
            array = number_at(np.array(position))
            self._offsets[position] = add_constant(self._graph, f"bnnrt/offset/{array}", array)
        return self._offsets[position]


class _Function:
    """``output`` as a function of ``source``, by ``nodes`` in an order in which they can run."""

    def __init__(self, source: ir.Value, nodes: Sequence[ir.Node], output: ir.Value) -> None:
        self._source, self._nodes, self._output = source, nodes, output

    def __call__(self, x: Intervals) -> Intervals | None:
        known = {self._source: x}
        for node in self._nodes:
            operands = []
            for value in node.inputs:
                found = known.get(value) if value is not None else None
                found = self._constant(value, x.low.shape) if found is None else found
                if found is None:
                    if value is not None:
                        return None
                    continue
                operands.append(found)
            result = applied(node, operands)
            if result is None:
                return None
            if is_standard(node, "Sub") and _same(node.inputs[0], node.inputs[1]):
                result = cancelled_alone(operands[0])
            pair = _detached(node)
            if pair is not None and all(value in known for value in pair):
                result = cancelled(known[pair[0]], known[pair[1]], result)
            known[node.outputs[0]] = result
        return known[self._output]

    def _constant(self, value: ir.Value | None, shape: tuple[int, ...]) -> Intervals | None:
        array = None if value is None else constant_of(value)
        if array is None:
            array = uniform_beside(value, self._source)
        if array is None or not keeps_shape(array, self._source) or array.size == 0:
            return None
        numbers = array.astype(np.float32)
        if np.isnan(numbers).any() or (numbers != array).any():
            return None
        return Intervals.of(np.full(shape, numbers.min()), np.full(shape, numbers.max()))


def _is_jump(node: ir.Node) -> bool:
    return node.domain == "bnnrt" or is_standard(node, *COMPARISONS, "Sign", "Round", "Floor", "Ceil", "Cast")


def _is_constant(value: ir.Value | None, beside: ir.Value) -> bool:
    return value is None or constant_of(value) is not None or uniform_beside(value, beside) is not None


def _sources(node: ir.Node) -> Iterator[tuple[ir.Value, list[ir.Node]]]:
    """Every tensor of which alone ``node`` computes its output, nearest first, and the nodes in between, in order."""
    order = _cone(node)
    waiting: dict[ir.Value, None] = dict.fromkeys([node.outputs[0]])
    taken: list[ir.Node] = []
    for current in order:
        if current.outputs[0] not in waiting:
            continue
        del waiting[current.outputs[0]]
        taken.append(current)
        for value in current.inputs:
            if value is not None and not _is_constant(value, current.outputs[0]):
                waiting[value] = None
        if len(waiting) == 1:
            (source,) = waiting
            if source.dtype == ir.DataType.FLOAT:
                yield source, taken[::-1]


def _cone(node: ir.Node) -> list[ir.Node]:
    """Element-wise operators from ``node`` back, each after all that read it."""
    finished: dict[ir.Node, None] = {}
    stack = [(node, False)]
    while stack and len(stack) + len(finished) <= LARGEST_CONE:
        current, entered = stack.pop()
        if current in finished:
            continue
        if entered:
            finished[current] = None
            continue
        stack.append((current, True))
        for value in current.inputs:
            inner = None if value is None else value.producer()
            typed = value is not None and value.dtype in TYPES
            if inner is not None and typed and is_elementwise(inner) and inner not in finished:
                stack.append((inner, False))
    return list(finished)[::-1] if not stack else []


def _detached(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Of ``(a - b) + b``, in any order, and ``b - (b - a)``: a and b."""
    if not is_standard(node, "Add", "Sub"):
        return None
    pairs = [(0, 1)] if node.op_type == "Sub" else [(0, 1), (1, 0)]
    for outer, inner in pairs:
        other, given = node.inputs[outer], node.inputs[inner]
        difference = None if given is None else given.producer()
        if other is None or difference is None or not is_standard(difference, "Sub"):
            continue
        a, b = difference.inputs if node.op_type == "Add" else difference.inputs[::-1]
        if a is not None and b is not None and _same(b, other):
            return a, b
    return None


def _same(a: ir.Value | None, b: ir.Value | None, depth: int = 20) -> bool:
    """Whether two values are the same, or computed alike."""
    if a is b:
        return True
    if a is None or b is None or depth == 0:
        return False
    of_a, of_b = constant_of(a), constant_of(b)
    if of_a is not None and of_b is not None:
        return of_a.dtype == of_b.dtype and of_a.shape == of_b.shape and of_a.tobytes() == of_b.tobytes()
    first, second = a.producer(), b.producer()
    if first is None or second is None or not is_elementwise(first) or not is_elementwise(second):
        return False
    if (first.domain, first.op_type, len(first.inputs)) != (second.domain, second.op_type, len(second.inputs)):
        return False
    if {n: v.value for n, v in first.attributes.items()} != {n: v.value for n, v in second.attributes.items()}:
        return False
    return all(_same(x, y, depth - 1) for x, y in zip(first.inputs, second.inputs, strict=True))


def _runs(function: _Function, first: Sequence[tuple[int, int]]) -> tuple[list[int], list[float]] | None:
    """Where, counted in order of float32, ``function`` takes another value, and the values; None if unsettled.

    Args:
        first: the intervals that are looked at. Numbers for which the function is NaN do not count.
    """
    waiting = np.array(first, dtype=np.int64)
    settled: list[Array] = []
    count = 0
    while len(waiting):
        count += len(waiting)
        found = function(Intervals.of(number_at(waiting[:, 0]), number_at(waiting[:, 1])))
        if found is None or count > MOST_INTERVALS:
            return None
        done = found.constant
        settled.append(np.column_stack([waiting[done, 0], found.low[done]]).astype(np.float64))
        waiting = waiting[~done]
        if (waiting[:, 0] == waiting[:, 1]).any():
            return None
        middle = (waiting[:, 0] + waiting[:, 1]) // 2
        waiting = np.concatenate(
            [np.column_stack([waiting[:, 0], middle]), np.column_stack([middle + 1, waiting[:, 1]])]
        )
    starts: list[int] = []
    values: list[float] = []
    rows = np.concatenate(settled)
    for start, value in rows[np.argsort(rows[:, 0])]:
        if not np.isnan(value) and (not values or values[-1] != value):
            starts.append(int(start))
            values.append(float(value))
    return starts, values
