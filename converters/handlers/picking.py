"""Handlers of operators that pick elements: parts of axes, and the greatest and least of a row."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import MOVED, OTHER_AXES, Handler, Scope, axis_of, listed
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import ArgMax, Extreme, Gather, Op, Picked, Ties, TopK

__all__ = ["arg_max", "expand", "gather", "picked", "slices", "split", "tile", "top_k"]

# What exporters write for the end of an axis whose size they do not know, or more.
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


def picked(scope: Scope, node: OnnxNode, value: Value, axis: int, indices: Array) -> Value:
    """The elements ``indices`` along ``axis`` of the value's shape; the same value where these are all."""
    size = value.shape[axis]
    if len(indices) == size and (indices == np.arange(size)).all():
        return value
    if len(indices) == 0:
        raise node.error(f"nothing is left of axis {axis + 1}", "remove what it computes from the model")
    value, number = axes.along(scope.draft, node.name, value, axis)
    operand = scope.draft.constant(f"{node.name}/indices", indices.astype(np.int32))
    tensor = scope.draft.emit(node.name, Gather(number), value.tensor, operand)
    return axes.resized(value, axis, len(indices), tensor)


def gather(scope: Scope, node: OnnxNode) -> Value:
    """Gather along any axis but the batch, by constant indices."""
    value = scope.value(node, 0, MOVED)
    axis = axis_of(node, value, 0)
    size = value.shape[axis]
    indices = node.required_constant(1, "the index")
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise node.error(f"an index is outside an axis of {size}")
    found = picked(scope, node, value, axis, np.where(indices < 0, indices + size, indices).reshape(-1))
    if indices.ndim == 1:
        return found
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    return layout.reshaped(scope.draft, node.name, found, shape)


def slices(scope: Scope, node: OnnxNode) -> Value:
    """Slice with bounds and steps, also negative ones, that are constants or computed of sizes; not of the batch."""
    value = scope.value(node, 0, MOVED)
    rank = len(value.shape) + 1
    starts, ends = (scope.fixed_integers(node, name, index) for index, name in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        raise node.error("it has no bounds")
    named = scope.fixed_integers(node, "axes", 3)
    given = node.axes(range(len(starts)) if named is None else named, rank)
    steps = scope.fixed_integers(node, "steps", 4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(steps) == len(given) or 0 in steps:
        raise node.error(
            f"{len(starts)} starts, {len(ends)} ends, {len(given)} axes and steps {list(steps)} do not fit"
        )
    for axis, start, end, step in zip(given, starts, ends, steps, strict=True):
        if step < 0 and end in (INT32_MAX, INT64_MAX):
            # The first element for ONNX Runtime, behind the last one for ONNX.
            raise node.error(f"backwards to {end} is ambiguous", f"write {-end} for the first element")
        if axis:
            value = picked(scope, node, value, axis - 1, _between(value.shape[axis - 1], start, end, step))
        elif (start, step) != (0, 1) or end < (INT32_MAX if scope.batch is None else scope.batch):
            raise node.error("a part of the batch", OTHER_AXES)
    return value


def _between(size: int, start: int, end: int, step: int) -> Array:
    """The indices of a slice by ONNX's rules, which for negative steps are not Python's."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step < 0:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size)
    else:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    return np.arange(start, end, step)


def split(scope: Scope, node: OnnxNode) -> list[Value]:
    """Split along any axis but the batch, into parts of given sizes or of one size."""
    value = scope.value(node, 0, MOVED)
    axis = axis_of(node, value, 0)
    size, parts = value.shape[axis], len(node.node.outputs)
    sizes = scope.fixed_integers(node, "split", 1)
    if sizes is None:
        # The last one may be smaller, from version 18 of the operators on.
        each = -(-size // parts)
        sizes = (*[each] * (parts - 1), size - each * (parts - 1))
    if len(sizes) != parts or sum(sizes) != size or min(sizes) < 1:
        raise node.error(f"parts of {list(sizes)} do not make up an axis of {size}")
    ends = np.cumsum(sizes)
    return [picked(scope, node, value, axis, np.arange(end - part, end)) for part, end in zip(sizes, ends, strict=True)]


def tile(scope: Scope, node: OnnxNode) -> Value:
    """Tile along any axis but the batch."""
    value = scope.value(node, 0, MOVED)
    repeats = scope.fixed_integers(node, "repeats", 1) or ()
    if len(repeats) != len(value.shape) + 1 or repeats[0] != 1:
        raise node.error(f"repeats {list(repeats)} of [N, {listed(value.shape)}]", OTHER_AXES)
    for axis, count in enumerate(repeats[1:]):
        value = picked(scope, node, value, axis, np.tile(np.arange(value.shape[axis]), count))
    return value


def expand(scope: Scope, node: OnnxNode) -> Value:
    """Expand of axes of one element, other than the batch."""
    value = scope.value(node, 0, MOVED)
    target = scope.sizes(node, 1)
    sizes = [1] * (len(value.shape) + 1 - len(target)) + target
    if len(sizes) != len(value.shape) + 1 or sizes[0] not in (None, 1, scope.batch) or None in sizes[1:]:
        raise node.error(f"of [N, {listed(value.shape)}] to {target} mixes the images of a batch", OTHER_AXES)
    for axis, size in enumerate(sizes[1:]):
        if value.shape[axis] == 1 and size is not None:
            value = picked(scope, node, value, axis, np.zeros(size, dtype=np.int32))
        elif size not in (1, value.shape[axis]):
            raise node.error(f"[N, {listed(value.shape)}] does not fit {target}")
    return value


def _of_rows(scope: Scope, node: OnnxNode, op: Op, value: Value, axis: int, size: int) -> Value:
    """An operator that leaves ``size`` elements of each row along ``axis``."""
    order = axes.last(value.shape, axis)
    tensor = scope.draft.emit(node.name, op, axes.ordered(scope.draft, node.name, value, order))
    return axes.in_order(tensor, (*value.shape[:axis], size, *value.shape[axis + 1 :]), order)


def arg_max(extreme: Extreme) -> Handler:
    """ArgMax and ArgMin over any axis but the batch."""

    def handler(scope: Scope, node: OnnxNode) -> Value:
        value = scope.value(node, 0)
        axis = axis_of(node, value, 0)
        ties = Ties.LAST if node.integer("select_last_index", 0) else Ties.FIRST
        found = _of_rows(scope, node, ArgMax(extreme, ties), value, axis, 1)
        if node.integer("keepdims", 1):
            return found
        return layout.reshaped(scope.draft, node.name, found, (*found.shape[:axis], *found.shape[axis + 1 :]))

    return handler


def top_k(scope: Scope, node: OnnxNode) -> list[Value]:
    """TopK of a constant number, sorted, over any axis but the batch: values and indices."""
    value = scope.value(node, 0)
    axis = axis_of(node, value, -1)
    given = node.integers_or_input("k", 1) if node.has_input(1) else (node.integer("k", 0),)
    k = given[0] if given is not None and len(given) == 1 else 0
    if not 1 <= k <= value.shape[axis]:
        raise node.error(f"{k} elements cannot be taken of {value.shape[axis]}")
    if not node.integer("sorted", 1) and k > 1:
        raise node.error("not sorted, so that any order would do", "set sorted to 1")
    extreme = Extreme.GREATEST if node.integer("largest", 1) else Extreme.LEAST
    return [_of_rows(scope, node, TopK(k, extreme, picked), value, axis, k) for picked in Picked]
