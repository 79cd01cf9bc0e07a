"""Chains around a binary convolution that one kernel runs: pixels to bits, convolution, thresholds, pooling.

What the kernels of tiles.py and tensor_cores.py have in common: which chains there are, and the constants and defines
that both of them take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import Extent
from bnnrt.backends.source import Define
from bnnrt.graph import Node
from bnnrt.ops import BinaryConv, BitPool, Domain, Op, Threshold, Window
from bnnrt.variants.base import Site, conv_node, conv_op, pool_window, window_defines

__all__ = [
    "CONV_CHAINS",
    "FEW_CHANNELS",
    "ConvChain",
    "chain_misfit",
    "conv_chain",
    "groups_over",
    "halo_of",
    "lane_row",
    "limits_of",
    "thresholds_of",
]

Array = npt.NDArray[Any]

CONV_CHAINS: tuple[tuple[type[Op], ...], ...] = (
    (Threshold, BinaryConv, Threshold, BitPool),
    (Threshold, BinaryConv, Threshold),
    (BinaryConv, Threshold, BitPool),
    (BinaryConv, Threshold),
    (BinaryConv,),
)
FEW_CHANNELS = 16
"""Up to here taps are packed into words without gaps; above, a tap's words are hardly emptier."""

# Accumulators of a pool that a kernel has in its registers or in turn.
_MOST_POOLED = 16


def thresholds_of(site: Site) -> Node | None:
    """The node that makes bits of the accumulators."""
    following = site.nodes[site.nodes.index(conv_node(site)) + 1 :]
    return following[0] if following else None


def limits_of(threshold: Array, base: Array) -> Array:
    """The largest count of differing bits at which ``base - 2 differing >= threshold``; -1 where there is none.

    Args:
        threshold: int32 [O]. base: int64 [..., O], the accumulator where nothing differs.
    """
    most: Array = (base - threshold.astype(np.int64)) // 2
    return np.clip(most, -1, np.iinfo(np.int32).max).astype(np.int32)


def _border_classes(window: Window, length: int, out_length: int, axis: int) -> tuple[Array, list[Array]]:
    """Which border class each output row or column belongs to, and for each class the taps inside the image.

    Returns:
        int32 [out_length], and bool [kernel] for each class.
    """
    firsts = np.arange(out_length) * window.strides[axis] - window.pads[axis]
    seen = firsts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
    inside = (seen >= 0) & (seen < length)
    classes, numbers = np.unique(inside, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int32), list(classes)


def _bases(op: BinaryConv, bits: Array, x: tuple[int, ...], acc: tuple[int, ...]) -> tuple[Array, Array, int]:
    """The accumulator where nothing inside the image differs, if the kernel sees bit 0 outside it.

    Args:
        bits: weights bool [O, kh, kw, C]. x, acc: shapes [N, H, W, C] and [N, OH, OW, O].

    Returns:
        int64 [classes, O]; int32 [OH + OW], the class of each row and column; classes of a column, 0 where the border
        is no different from the rest.
    """
    outputs, _, _, channels = bits.shape
    if op.pad_value != 0 or not any(op.window.pads):
        return np.full((1, outputs), op.window.taps * channels, dtype=np.int64), np.zeros(1, dtype=np.int32), 0
    rows, row_taps = _border_classes(op.window, x[1], acc[1], 0)
    columns, column_taps = _border_classes(op.window, x[2], acc[2], 1)
    ones = bits.sum(axis=3, dtype=np.int64)  # a tap outside counts these as differing
    bases = []
    for row in row_taps:
        for column in column_taps:
            inside = row[:, None] & column
            bases.append(int(inside.sum()) * channels + 2 * ones[:, ~inside].sum(axis=1))
    return np.array(bases), np.concatenate([rows, columns]), len(column_taps)


def halo_of(site: Site, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the image under a tile of results."""
    window, pool = conv_op(site).window, pool_window(site).kernel
    rows, columns = (
        (size * pool[axis] - 1) * window.strides[axis] + window.dilations[axis] * (window.kernel[axis] - 1) + 1
        for axis, size in enumerate((height, width))
    )
    return rows, columns


def groups_over(site: Site, height: int, width: int) -> Extent:
    """Groups of a launch: tiles of results, output words, images."""
    _, rows, columns, channels = site.type(site.output).with_batch(1)
    return (-(-rows // height) * -(-columns // width), packing.words_for(channels), site.batch)


def lane_row(values: Array, fill: int) -> Array:
    """int32 [..., O] with the last axis filled up to whole output words."""
    out = np.full((*values.shape[:-1], packing.words_for(values.shape[-1]) * packing.WORD_BITS), fill, dtype=np.int32)
    out[..., : values.shape[-1]] = values
    return out


def chain_misfit(site: Site) -> str | None:
    """Why no fused kernel runs this chain, or None."""
    if conv_op(site).groups > 1:
        return "made for one group"
    if pool_window(site) != Window(pool_window(site).kernel, strides=pool_window(site).kernel):
        return "pools overlap, or are apart or padded"
    if prod(pool_window(site).kernel) > _MOST_POOLED:
        return "a pool has more accumulators than a thread"
    if isinstance(site.node.op, Threshold):
        pixels, bits = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
        if pixels.domain is not Domain.UINT8 or bits.channels > packing.WORD_BITS:
            return "made for pixels of up to 32 bits"
    return None


@dataclass(frozen=True)
class ConvChain:
    """A chain as its kernels take it. Names are those of constants, of the graph's or in ``constants``.

    Args:
        bits: weights, bool [O, kh, kw, C].
        bases: int64 [classes, O], the accumulator where nothing inside the image differs, if a kernel sees bit 0 (or
            the padding's bit) outside it.
        limits: int32 [classes, O], the largest count of differing bits that passes; None without thresholds.
        levels, flips: of the thresholds of pixels, or of the same type and not read.
    """

    bits: Array
    bases: Array
    limits: Array | None
    levels: str
    flips: str
    classes: str
    falling: str
    minimum: str
    constants: dict[str, Array]
    defines: dict[str, Define]


def conv_chain(site: Site, unread: str) -> ConvChain:
    """What a chain's kernels have in common; ``chain_misfit`` must have found nothing.

    Args:
        unread: a constant of words that stands where the kernel reads none.
    """
    node, op, thresholds = conv_node(site), conv_op(site), thresholds_of(site)
    x, acc = site.type(node.inputs[0]), site.type(node.outputs[0])
    out, pool = site.type(site.output).with_batch(1), pool_window(site).kernel
    bits = site.constant(node.inputs[1]).unpacked()
    bases, borders, column_classes = _bases(op, bits, x.with_batch(1), acc.with_batch(1))
    classes = f"{site.output}:classes"
    constants: dict[str, Array] = {classes: borders}
    limits, falling, minimum = None, unread, unread
    if thresholds is not None:
        falling = thresholds.inputs[2]
        limits = limits_of(site.constant(thresholds.inputs[1]).data, bases)
        if isinstance(site.nodes[-1].op, BitPool):
            minimum = site.nodes[-1].inputs[1]
        else:
            minimum = f"{site.output}:minimum"
            constants[minimum] = np.zeros(packing.words_for(acc.channels), dtype=np.uint32)
    pixels = isinstance(site.node.op, Threshold)
    levels, flips = site.node.inputs[1:] if pixels else (classes, unread)
    tail = x.channels % packing.WORD_BITS
    outside = -1 if op.pad_value > 0 else 0
    defines: dict[str, Define] = {
        **window_defines(op.window, x, acc),
        "CHANNELS": x.channels,
        "OUTPUTS": acc.channels,
        "OUT_WORDS": packing.words_for(acc.channels),
        "POOL_H": pool[0],
        "POOL_W": pool[1],
        "RESULT_HEIGHT": out[1],
        "RESULT_WIDTH": out[2],
        "PIXELS": int(pixels),
        "PIXEL_CHANNELS": site.type(site.node.inputs[0]).channels,
        "PAD_MASK": outside,
        "PAD_MASK_LAST": outside & (1 << tail) - 1 if tail else outside,
        "COLUMN_CLASSES": column_classes,
        "BITS": int(thresholds is not None),
        "RESULT": "int" if thresholds is None else "uint",
    }
    return ConvChain(bits, bases, limits, levels, flips, classes, falling, minimum, constants, defines)
