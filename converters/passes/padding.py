"""Padding that stands as an operator of its own in front of a convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bnnrt.converters.draft import Draft, rewrite
from bnnrt.converters.passes.levels import Levels, levels_behind
from bnnrt.graph import Graph, Node
from bnnrt.ops import Conv, Pad

__all__ = ["NOWHERE", "MergeZeroPads", "PaddedLevels", "padded_levels", "with_pads"]

Pads = tuple[int, int, int, int]
NOWHERE: Pads = (0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class PaddedLevels:
    """Numbers that bits decide, and what surrounds them."""

    levels: Levels
    pads: Pads
    value: float


class MergeZeroPads:
    """Pad with 0, then a convolution, which pads with 0 itself: the convolution pads by both."""

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _merge)


def _merge(draft: Draft, node: Node) -> bool:
    pad = draft.producer(node.inputs[0])
    if not isinstance(node.op, Conv) or pad is None or not isinstance(pad.op, Pad) or pad.op.value != 0:
        return False
    window = replace(node.op.window, pads=with_pads(node.op.window.pads, pad.op.pads))
    draft.emit(node.name, replace(node.op, window=window), pad.inputs[0], *node.inputs[1:], output=node.outputs[0])
    return True


def with_pads(first: Pads, second: Pads) -> Pads:
    """The sum of two paddings, side by side."""
    top, left, bottom, right = (a + b for a, b in zip(first, second, strict=True))
    return top, left, bottom, right


def padded_levels(draft: Draft, tensor: str) -> PaddedLevels | None:
    """The bits behind ``tensor``, directly or through one Pad; None if there are none."""
    levels = levels_behind(draft, tensor)
    if levels is not None:
        return PaddedLevels(levels, NOWHERE, 0.0)
    pad = draft.producer(tensor)
    if pad is None or not isinstance(pad.op, Pad):
        return None
    levels = levels_behind(draft, pad.inputs[0])
    return None if levels is None else PaddedLevels(levels, pad.op.pads, pad.op.value)
