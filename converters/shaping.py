"""Handlers of operators that change shape and order of axes, which are followed and move no data, and of Concat."""

from __future__ import annotations

from math import prod

from bnnrt.converters import layout
from bnnrt.converters.layout import Value
from bnnrt.converters.onnx_node import OnnxNode
from bnnrt.converters.scope import Scope, listed
from bnnrt.converters.shape_values import integers
from bnnrt.ops import Concat

__all__ = ["concat", "flatten", "reshape", "squeeze", "transpose", "unsqueeze"]


def transpose(scope: Scope, node: OnnxNode) -> Value:
    """Transpose that keeps the batch first: only followed, nothing is moved."""
    value = scope.value(node, 0)
    rank = len(value.shape) + 1
    perm = node.integers("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)) or perm[0] != 0:
        raise node.error(f"perm {list(perm)} moves the batch", "only the other axes can be permuted")
    return layout.transposed(value, tuple(p - 1 for p in perm[1:]))


def flatten(scope: Scope, node: OnnxNode) -> Value:
    """Flatten of everything but the batch."""
    value = scope.value(node, 0)
    axis = node.integer("axis", 1)
    if axis not in (1, -len(value.shape)):
        raise node.error(f"axis {axis} mixes the images of a batch", "only axis 1 is supported")
    return layout.reshaped(scope.draft, node.name, value, (prod(value.shape),))


def reshape(scope: Scope, node: OnnxNode) -> Value:
    """Reshape that keeps the batch first."""
    value = scope.value(node, 0)
    target = _target(scope, node)
    if not target:
        raise node.error("to a scalar is not supported", "keep the batch axis")
    target[1:] = [value.shape[i] if t == 0 and i < len(value.shape) else t for i, t in enumerate(target[1:])]
    total, known = prod(value.shape), prod(t for t in target[1:] if t != -1)
    kept = target[0] in (0, scope.batch) or (target[0] == -1 and known == total)
    if -1 in target[1:] and known > 0 and total % known == 0:
        target[1:] = [total // known if t == -1 else t for t in target[1:]]
    if not kept or min(target[1:], default=1) < 1 or prod(target[1:]) != total:
        raise node.error(
            f"[N, {listed(value.shape)}] to {target} does not keep the batch apart",
            "only the other axes can be reshaped",
        )
    return layout.reshaped(scope.draft, node.name, value, tuple(target[1:]))


def _target(scope: Scope, node: OnnxNode) -> list[int]:
    """The shape that is asked for; 0, the size that is there, for the batch."""
    shapes = {name: value.shape for name, value in scope.values.items()}
    found = integers(node.input(1), shapes, scope.batch)
    if found is None:
        raise node.error("the shape is not a constant", "only shapes computed from sizes and constants are supported")
    if any(size is None for size in found[1:]):
        raise node.error("the batch is not the first axis of the new shape", "keep the batch apart")
    if node.integer("allowzero", 0) and (0 in found or None in found):
        raise node.error("allowzero with a size of 0 or a computed batch is not supported", "leave it out")
    return [0 if size is None else size for size in found]


def squeeze(scope: Scope, node: OnnxNode) -> Value:
    """Squeeze of axes of one element other than the batch."""
    value = scope.value(node, 0)
    rank = len(value.shape) + 1
    axes = node.integers_or_input("axes", 1)
    if axes is None:
        if scope.batch is None or scope.batch == 1:
            raise node.error("without axes, the batch is squeezed too when it is 1", "name the axes")
        axes = tuple(i + 1 for i, size in enumerate(value.shape) if size == 1)
    gone = set(node.axes(axes, rank))
    if 0 in gone or any(value.shape[axis - 1] != 1 for axis in gone):
        raise node.error(f"axes {list(axes)} of [N, {listed(value.shape)}]", "only axes of one element can go")
    kept = tuple(size for i, size in enumerate(value.shape) if i + 1 not in gone)
    return layout.reshaped(scope.draft, node.name, value, kept)


def unsqueeze(scope: Scope, node: OnnxNode) -> Value:
    """Unsqueeze behind the batch."""
    value = scope.value(node, 0)
    axes = node.integers_or_input("axes", 1) or ()
    rank = len(value.shape) + 1 + len(axes)
    new = set(node.axes(axes, rank))
    if 0 in new:
        raise node.error("an axis before the batch is not supported", "only the other axes can be added to")
    rest = iter(value.shape)
    shape = tuple(1 if i in new else next(rest) for i in range(1, rank))
    return layout.reshaped(scope.draft, node.name, value, shape)


def concat(scope: Scope, node: OnnxNode) -> Value:
    """Concat of computed tensors over the last axis, or over the channels of images."""
    values = [scope.value(node, index) for index in range(len(node.node.inputs))]
    first = values[0].shape
    rank = len(first) + 1
    (axis,) = node.axes([node.integer("axis", 1)], rank)
    if axis == 0:
        raise node.error("over the batch", "only over the last axis, or over the channels of an image")
    if axis != rank - 1 and (rank, axis) != (4, 1):
        raise node.error(f"over axis {axis} of {rank}", "only over the last axis, or over the channels of an image")
    for value in values:
        if len(value.shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(value.shape, first, strict=True), 1) if i != axis
        ):
            raise node.error(f"[N, {listed(first)}] and [N, {listed(value.shape)}] differ beside axis {axis}")
    if len(values) == 1:
        return values[0]
    shape = tuple(sum(v.shape[i] for v in values) if i + 1 == axis else size for i, size in enumerate(first))
    last = axis == rank - 1
    # Channels last in every tensor, whatever order they came in.
    move = layout.in_onnx_order if last else layout.as_image
    parts = [move(scope.draft, node.name, value).tensor for value in values]
    tensor = scope.draft.emit(node.name, Concat(), *parts)
    if last:
        return Value.plain(tensor, shape)
    channels, height, width = shape
    return Value.image(tensor, (channels, height, width))
