"""One axis of an ONNX value in its tensor: brought to the end, found, given another size; and axes that repeat."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bnnrt.converters.draft import Draft
from bnnrt.converters.handlers.layout import Value, groups, in_onnx_order, transposed
from bnnrt.ops import Reshape

__all__ = ["along", "broadcast", "in_order", "last", "ordered", "resized"]


def ordered(draft: Draft, name: str, value: Value, order: tuple[int, ...]) -> str:
    """The value as a tensor of the axes of its ``shape`` in ``order``; data are moved where they lie otherwise."""
    return in_onnx_order(draft, name, transposed(value, order)).tensor


def in_order(tensor: str, shape: tuple[int, ...], order: tuple[int, ...]) -> Value:
    """The ONNX value [batch, *shape] whose axes a tensor holds in ``order``."""
    held = Value.plain(tensor, tuple(shape[axis] for axis in order))
    return transposed(held, tuple(order.index(axis) for axis in range(len(shape))))


def last(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The order of axes with ``axis`` last."""
    return (*(other for other in range(len(shape)) if other != axis), axis)


def along(draft: Draft, name: str, value: Value, axis: int) -> tuple[Value, int]:
    """The value in a tensor of which one axis is ``axis`` of ``shape``, and its number; data stay where they can."""
    group = groups(value)[axis]
    first = value.perm.index(group[0]) if group else 0
    if not group or value.perm[first : first + len(group)] != group:
        return in_onnx_order(draft, name, value), axis + 1
    held = [value.dims[p] for p in value.perm]
    outer, size, inner = prod(held[:first]), value.shape[axis], prod(held[first + len(group) :])
    shape = draft.types[value.tensor].with_batch(1)[1:]
    for number, length in enumerate(shape):
        if length == size and prod(shape[:number]) == outer:
            return value, number + 1
    return replace(value, tensor=draft.emit(f"{name}/shape", Reshape((outer, size, inner)), value.tensor)), 2


def resized(value: Value, axis: int, size: int, tensor: str) -> Value:
    """``value``, from :func:`along`, with another size of ``axis``, in another tensor of the same order."""
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    group = groups(value)[axis]
    if not group:
        return Value.plain(tensor, shape)  # along() has put it in ONNX's order
    start, behind = group[0], group[-1] + 1
    added = () if size == 1 else (size,)
    # The first dim of the axis stands for all of them, or for none.
    kept = [p for p in value.perm if not start + len(added) <= p < behind]
    perm = tuple(p if p < behind and p < start + len(added) else p + len(added) - len(group) for p in kept)
    return Value(tensor, shape, (*value.dims[:start], *added, *value.dims[behind:]), perm)


def broadcast(draft: Draft, name: str, a: Value, b: Value) -> tuple[str, str, tuple[int, ...]]:
    """Two values of as many axes, some of one element, as tensors of one order of axes; and that order.

    It is the order in which the larger one lies, where it has one.
    """
    whole = max(a, b, key=lambda value: prod(value.shape))
    found = groups(whole)
    filled = sorted((axis for axis, group in enumerate(found) if group), key=lambda i: whole.perm.index(found[i][0]))
    order = tuple(range(len(found)))
    if whole.perm == tuple(p for axis in filled for p in found[axis]):
        order = (*(axis for axis in order if axis not in filled), *filled)
    return ordered(draft, name, a, order), ordered(draft, name, b, order), order
