"""Handlers of operators that change shape and order of axes, which are followed and move no data, and of Concat."""

from __future__ import annotations

from math import prod

from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import MOVED, Scope, axis_of, listed
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import Concat

__all__ = [
    "concat",
    "depth_to_space",
    "flatten",
    "reshape",
    "space_to_depth",
    "squeeze",
    "transpose",
    "unsqueeze",
]


def transpose(scope: Scope, node: OnnxNode) -> Value:
    """Transpose that keeps the batch first: only followed, nothing is moved."""
    value = scope.value(node, 0, MOVED)
    rank = len(value.shape) + 1
    perm = node.integers("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)) or perm[0] != 0:
        raise node.error(f"perm {list(perm)} moves the batch", "only the other axes can be permuted")
    return layout.transposed(value, tuple(p - 1 for p in perm[1:]))


def flatten(scope: Scope, node: OnnxNode) -> Value:
    """Flatten of everything but the batch."""
    value = scope.value(node, 0, MOVED)
    axis = node.integer("axis", 1)
    behind = axis if axis >= 0 else axis + len(value.shape) + 1
    if behind == 0 or prod(value.shape[: behind - 1]) != 1:
        raise node.error(f"axis {axis} mixes the images of a batch", "only axis 1 is supported")
    return layout.reshaped(scope.draft, node.name, value, (prod(value.shape),))


def reshape(scope: Scope, node: OnnxNode) -> Value:
    """Reshape that keeps the batch first."""
    value = scope.value(node, 0, MOVED)
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
    found = scope.sizes(node, 1)
    if any(size is None for size in found[1:]):
        raise node.error("the batch is not the first axis of the new shape", "keep the batch apart")
    if node.integer("allowzero", 0) and (0 in found or None in found):
        raise node.error("allowzero with a size of 0 or a computed batch is not supported", "leave it out")
    return [0 if size is None else size for size in found]


def squeeze(scope: Scope, node: OnnxNode) -> Value:
    """Squeeze of axes of one element other than the batch."""
    value = scope.value(node, 0, MOVED)
    rank = len(value.shape) + 1
    given = node.integers_or_input("axes", 1)
    if given is None:
        if scope.batch is None or scope.batch == 1:
            raise node.error("without axes, the batch is squeezed too when it is 1", "name the axes")
        given = tuple(i + 1 for i, size in enumerate(value.shape) if size == 1)
    gone = set(node.axes(given, rank))
    if 0 in gone or any(value.shape[axis - 1] != 1 for axis in gone):
        raise node.error(f"axes {list(given)} of [N, {listed(value.shape)}]", "only axes of one element can go")
    kept = tuple(size for i, size in enumerate(value.shape) if i + 1 not in gone)
    return layout.reshaped(scope.draft, node.name, value, kept)


def unsqueeze(scope: Scope, node: OnnxNode) -> Value:
    """Unsqueeze behind the batch."""
    value = scope.value(node, 0, MOVED)
    given = node.integers_or_input("axes", 1) or ()
    rank = len(value.shape) + 1 + len(given)
    new = set(node.axes(given, rank))
    if 0 in new:
        raise node.error("an axis before the batch is not supported", "only the other axes can be added to")
    rest = iter(value.shape)
    shape = tuple(1 if i in new else next(rest) for i in range(1, rank))
    return layout.reshaped(scope.draft, node.name, value, shape)


def concat(scope: Scope, node: OnnxNode) -> Value:
    """Concat of computed tensors over any axis but the batch."""
    values = [scope.value(node, index) for index in range(len(node.node.inputs))]
    first = values[0].shape
    axis = axis_of(node, values[0], 1)
    for value in values:
        if len(value.shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(value.shape, first, strict=True)) if i != axis
        ):
            raise node.error(f"[N, {listed(first)}] and [N, {listed(value.shape)}] differ beside axis {axis + 1}")
    if len(values) == 1:
        return values[0]
    shape = tuple(sum(v.shape[i] for v in values) if i == axis else size for i, size in enumerate(first))
    # That axis last in every tensor, whatever order they came in.
    order = axes.last(first, axis)
    parts = [axes.ordered(scope.draft, node.name, value, order) for value in values]
    return axes.in_order(scope.draft.emit(node.name, Concat(), *parts), shape, order)


def depth_to_space(scope: Scope, node: OnnxNode) -> Value:
    """DepthToSpace: blocks of channels become blocks of rows and columns; only followed, nothing is moved."""
    value, block = scope.value(node, 0, MOVED), node.integer("blocksize", 0)
    channels, height, width = _blocks(node, value, block * block, 1)
    if node.text("mode", "DCR") == "DCR":
        split, order = (block, block, channels, height, width), (2, 3, 0, 4, 1)
    else:
        split, order = (channels, block, block, height, width), (0, 3, 1, 4, 2)
    moved = layout.transposed(layout.reshaped(scope.draft, node.name, value, split), order)
    return layout.reshaped(scope.draft, node.name, moved, (channels, height * block, width * block))


def space_to_depth(scope: Scope, node: OnnxNode) -> Value:
    """SpaceToDepth: blocks of rows and columns become channels; only followed, nothing is moved."""
    value, block = scope.value(node, 0, MOVED), node.integer("blocksize", 0)
    channels, height, width = _blocks(node, value, 1, block)
    split = layout.reshaped(scope.draft, node.name, value, (channels, height, block, width, block))
    moved = layout.transposed(split, (2, 4, 0, 1, 3))
    return layout.reshaped(scope.draft, node.name, moved, (block * block * channels, height, width))


def _blocks(node: OnnxNode, value: Value, of_channels: int, of_pixels: int) -> tuple[int, int, int]:
    """Channels, rows and columns, divided by the sizes of a block."""
    shape, sizes = value.shape, (of_channels, of_pixels, of_pixels)
    if len(shape) != 3 or min(sizes) < 1 or any(size % part for size, part in zip(shape, sizes, strict=True)):
        raise node.error(f"blocks of {max(sizes)} do not fit [N, {listed(shape)}]")
    return shape[0] // sizes[0], shape[1] // sizes[1], shape[2] // sizes[2]
