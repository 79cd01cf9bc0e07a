"""Padding that stands as an operator of its own in front of a convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bnnrt.converters.draft import Draft, rewrite
from bnnrt.graph import Graph, Node
from bnnrt.ops import Conv, Pad

__all__ = ["MergeZeroPads", "PaddedBits", "padded_bits", "with_pads"]

Pads = tuple[int, int, int, int]


@dataclass(frozen=True)
class PaddedBits:
    """Bits, and what surrounds them: ``value`` is -1, 0 or +1, or None where there is no padding."""

    tensor: str
    pads: Pads
    value: int | None


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


def padded_bits(draft: Draft, tensor: str) -> PaddedBits | None:
    """The bits behind ``tensor``, directly or through one Pad with -1 or +1; None if there are none."""
    bits = draft.bits_behind(tensor)
    if bits is not None:
        return PaddedBits(bits, (0, 0, 0, 0), None)
    pad = draft.producer(tensor)
    if pad is None or not isinstance(pad.op, Pad) or pad.op.value not in (-1.0, 1.0):
        return None
    bits = draft.bits_behind(pad.inputs[0])
    return None if bits is None else PaddedBits(bits, pad.op.pads, int(pad.op.value))
