"""Handler of Pad: by a constant, by what stands at the border, and cropping."""

from __future__ import annotations

from math import isfinite, prod

import numpy as np

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers import axes, layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.picking import picked
from bnnrt.converters.handlers.scope import Scope, float32
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.ops import Pad

__all__ = ["pad"]

MODES = ("constant", "edge", "reflect", "wrap")


def pad(scope: Scope, node: OnnxNode) -> Value:
    """Pad: every mode, over any axes but the batch; pads below 0 crop."""
    mode = node.text("mode", "constant")
    if mode not in MODES:
        raise node.error(f"mode {mode} is unknown", f"use {', '.join(MODES)}")
    value = scope.value(node, 0)
    before, after = _pads(node, len(value.shape) + 1)
    if before[0] or after[0]:
        raise node.error("over the batch", "only the other axes can be padded")
    fill = float32(node, 2, "the value").reshape(-1)[0] if node.has_input(2) else node.number("value", 0.0)
    # What is cropped cannot be copied to the other side.
    for axis, size in enumerate(value.shape):
        crop = max(0, -before[axis + 1]), max(0, -after[axis + 1])
        if sum(crop) >= size:
            raise node.error(f"nothing is left of axis {axis + 1}", "crop by less")
        value = picked(scope, node, value, axis, np.arange(crop[0], size - crop[1]))
    added = [(max(0, b), max(0, a)) for b, a in zip(before[1:], after[1:], strict=True)]
    if not any(map(any, added)):
        return value
    if mode != "constant":
        for axis, (first, last) in enumerate(added):
            value = picked(scope, node, value, axis, _continued(node, mode, value.shape[axis], first, last))
        return value
    if not isfinite(fill):
        raise node.error(f"the value {fill} is not supported", "only finite numbers are")
    return _filled(scope, node, value, added, float(fill))


def _pads(node: OnnxNode, rank: int) -> tuple[list[int], list[int]]:
    """What is added before and behind each axis, the batch included."""
    pads = node.integers_or_input("pads", 1) or ()
    given = node.integers_or_input("axes", 3)
    padded = node.axes(range(rank) if given is None else given, rank)
    if len(pads) != 2 * len(padded):
        raise node.error(f"pads {list(pads)} do not fit {len(padded)} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(padded):
        before[axis], after[axis] = pads[i], pads[i + len(padded)]
    return before, after


def _continued(node: OnnxNode, mode: str, size: int, before: int, after: int) -> Array:
    """Which elements an axis has beyond its ends."""
    at = np.arange(-before, size + after)
    if mode == "edge":
        return at.clip(0, size - 1)
    most = size - 1 if mode == "reflect" else size
    if max(before, after) > most:
        # Beyond that, ONNX Runtime and ONNX disagree.
        raise node.error(f"{mode} by {max(before, after)} around an axis of {size}", f"pad by {most} at most")
    if mode == "wrap":
        return at % size
    return size - 1 - abs(size - 1 - abs(at))


def _filled(scope: Scope, node: OnnxNode, value: Value, added: list[tuple[int, int]], fill: float) -> Value:
    if len(added) == 3 and not any(added[0]):
        return _image(scope, node, value, added, (1, 2, 0), fill)
    if len(added) == 3 and not any(added[2]):
        # ONNX [batch, rows, columns, channels]: the same image seen with its channels last.
        return _image(scope, node, value, added, (0, 1, 2), fill)
    for axis, pads in enumerate(added):
        if any(pads):
            value = _axis(scope, node, value, axis, pads, fill)
    return value


def _image(
    scope: Scope, node: OnnxNode, value: Value, added: list[tuple[int, int]], order: tuple[int, int, int], fill: float
) -> Value:
    """Rows and columns at once, so that a convolution can take them over; ``order``: rows, columns, channels."""
    (top, bottom), (left, right) = added[order[0]], added[order[1]]
    tensor = axes.ordered(scope.draft, node.name, value, order)
    tensor = scope.draft.emit(node.name, Pad((top, left, bottom, right), fill), tensor)
    return axes.in_order(tensor, _enlarged(value.shape, added), order)


def _axis(scope: Scope, node: OnnxNode, value: Value, axis: int, pads: tuple[int, int], fill: float) -> Value:
    """One axis, as the columns of an image whose rows and channels are all before and behind it."""
    value, number = axes.along(scope.draft, node.name, value, axis)
    shape = scope.draft.types[value.tensor].with_batch(1)
    outer, size, inner = prod(shape[:number]), shape[number], prod(shape[number + 1 :])
    seen = layout.reshaped(scope.draft, node.name, Value.plain(value.tensor, shape[1:]), (outer, size, inner))
    tensor = axes.ordered(scope.draft, node.name, seen, (0, 1, 2))
    tensor = scope.draft.emit(node.name, Pad((0, pads[0], 0, pads[1]), fill), tensor)
    return axes.resized(value, axis, size + sum(pads), tensor)


def _enlarged(shape: tuple[int, ...], added: list[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(size + sum(pads) for size, pads in zip(shape, added, strict=True))
