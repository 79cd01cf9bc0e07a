"""Variants for GPUs: tiles of a binary convolution or dense layer, with what follows it, in one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.source import Define, KernelSource
from bnnrt.ops import Arithmetic, ArithmeticKind, BinaryDense, Op, Threshold, ToFloat
from bnnrt.variants.base import (
    C_LANGUAGES,
    LaunchSpec,
    Site,
    StepCode,
    Variant,
    conv_node,
    conv_op,
    fits,
    pool_window,
)
from bnnrt.variants.chains import (
    CONV_CHAINS,
    FEW_CHANNELS,
    chain_misfit,
    conv_chain,
    groups_over,
    halo_of,
    lane_row,
    limits_of,
    thresholds_of,
)

__all__ = ["TILE_VARIANTS"]

Array = npt.NDArray[Any]

_LANES = packing.WORD_BITS
_DEFAULT = frozenset({"default"})
# Results (pooled pixels) that a group computes, the largest first: there should be groups for all multiprocessors.
_TILES = ((8, 8), (4, 8), (4, 4), (2, 4), (2, 2))
_GROUPS_A_MULTIPROCESSOR = 2
_MOST_ROWS = 8
# Accumulators that a thread has at once share the weights that it reads.
_ACCUMULATORS = 4
# Weights of a channel that stay in registers.
_KEPT_WORDS = 36
_IMAGES = (8, 4, 2, 1)
# More rows would take more registers than a block has on a Jetson Nano or TX2.
_DENSE_ROWS = (16, 8, 4, 2, 1)


def _is_patch(site: Site) -> bool:
    return site.type(conv_node(site).inputs[0]).channels <= FEW_CHANNELS


def _by_lane(words: Array) -> Array:
    """uint32 [O, K] as [output words, K, lanes]: neighbouring lanes read neighbouring words."""
    out_words = packing.words_for(len(words))
    padded = np.zeros((out_words * _LANES, words.shape[1]), dtype=words.dtype)
    padded[: len(words)] = words
    return np.ascontiguousarray(padded.reshape(out_words, _LANES, -1).swapaxes(1, 2))


@dataclass(frozen=True)
class _Tile:
    """How a group shares the work: results, the image under them, and what a work-item does at once."""

    height: int
    width: int
    halo_height: int
    halo_width: int
    words: int
    inner: int
    span: int
    rows: int
    local_bytes: int

    @property
    def defines(self) -> dict[str, Define]:
        return {
            "TILE_H": self.height,
            "TILE_W": self.width,
            "HALO_H": self.halo_height,
            "HALO_W": self.halo_width,
            "WORDS": self.words,
            "INNER": self.inner,
            "SPAN": self.span,
            "ROWS": self.rows,
        }


def _make_tile(site: Site, most_height: int, most_width: int) -> _Tile:
    window, pool = conv_op(site).window, pool_window(site).kernel
    x, out = site.type(conv_node(site).inputs[0]), site.type(site.output).with_batch(1)
    height, width = min(most_height, out[1]), min(most_width, out[2])
    halo_height, halo_width = halo_of(site, height, width)
    words = packing.words_for(x.channels)
    inner = packing.words_for(window.taps * x.channels) if _is_patch(site) else window.taps * words
    span = max(1, _ACCUMULATORS // prod(pool))
    if height * width % span:
        span = 1
    kept = halo_height * halo_width * words
    if _is_patch(site):
        kept += height * width * prod(pool) * inner
    # Where work-items cannot vote, their bits meet in local memory.
    votes = height * width * _LANES if thresholds_of(site) else 0
    rows = min(_MOST_ROWS, height * width // span)
    return _Tile(height, width, halo_height, halo_width, words, inner, span, rows, 4 * kept + votes)


def _tile(site: Site) -> _Tile | None:
    """The largest tile that leaves no multiprocessor idle, or the smallest that fits, or None."""
    tiles = [_make_tile(site, *size) for size in _TILES]
    fitting = [tile for tile in tiles if fits(site.device, (_LANES, tile.rows, 1), tile.local_bytes)]
    wanted = _GROUPS_A_MULTIPROCESSOR * site.device.compute_units
    enough = [tile for tile in fitting if prod(groups_over(site, tile.height, tile.width)) >= wanted]
    return next(iter(enough), fitting[-1] if fitting else None)


def _conv_fits(site: Site) -> str | None:
    if reason := chain_misfit(site):
        return reason
    if _tile(site) is None:
        return "a tile is too large for a work-group or its local memory"
    return None


def _conv_tile(site: Site) -> StepCode:
    weights, limits = f"{site.output}:weights", f"{site.output}:limits"
    chain, tile = conv_chain(site, weights), _tile(site)
    assert tile is not None  # _conv_fits
    bits = chain.bits
    rows = packing.pack(bits.reshape(len(bits), -1) if _is_patch(site) else bits).reshape(len(bits), -1)
    constants = {
        weights: _by_lane(rows),
        **chain.constants,
        limits: lane_row(chain.bases, 0) if chain.limits is None else lane_row(chain.limits, -1),
    }
    source = KernelSource.of(
        "common/conv_tile.h",
        **chain.defines,
        **tile.defines,
        PATCH=int(_is_patch(site)),
        IN_REGISTERS=int(tile.inner <= _KEPT_WORDS),
    )
    args = (
        *(site.node.inputs[0], chain.levels, chain.flips, weights, chain.classes, limits),
        *(chain.falling, chain.minimum, site.output),
    )
    groups, items = groups_over(site, tile.height, tile.width), (_LANES, tile.rows, 1)
    return StepCode((LaunchSpec("conv_tile", source, args, groups, items, tile.local_bytes),), constants)


# Dense layers


def _dense_shape(site: Site) -> tuple[int, int] | None:
    """Images and rows of a group, or None where the device has no groups of 32 work-items."""
    x, out = site.type(site.node.inputs[0]), site.type(site.nodes[0].outputs[0])
    words, out_words = packing.words_for(x.channels), packing.words_for(out.channels)
    images = next(n for n in _IMAGES if n == 1 or out_words * -(-site.batch // n) >= site.device.compute_units)
    for rows in _DENSE_ROWS:
        if rows <= words and fits(site.device, (_LANES, rows, 1), _dense_local(images, rows)):
            return images, rows
    return None


def _dense_local(images: int, rows: int) -> int:
    return (4 * rows + 1) * images * _LANES


def _dense_fits(site: Site) -> str | None:
    if _dense_shape(site) is None:
        return f"{_LANES} work-items are more than a work-group, or its local memory, holds"
    last = site.nodes[-1]
    if isinstance(last.op, Arithmetic):
        if last.op.kind is not ArithmeticKind.MUL or last.inputs[1] not in site.graph.constants:
            return "made for a product with a constant"
        if site.type(last.inputs[1]).shape not in ((1,), (site.type(site.output).channels,)):
            return "the constant is no factor a channel"
    return None


def _dense_tile(site: Site) -> StepCode:
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    shape = _dense_shape(site)
    assert shape is not None  # _dense_fits
    images, rows = shape
    words, out_words = packing.words_for(x.channels), packing.words_for(acc.channels)
    name, last = site.output, site.nodes[-1]
    stored = site.constant(site.node.inputs[1]).data
    constants: dict[str, Array] = {f"{name}:weights": _by_lane(stored)}
    limits, falling, factors = f"{name}:limits", f"{name}:weights", f"{name}:factors"  # of another kind: not read
    kind, result, number = 0, "int", 1
    if isinstance(last.op, Threshold):
        kind, result = 1, "uint"
        falling = last.inputs[2]
        most = limits_of(site.constant(last.inputs[1]).data, np.full(acc.channels, x.channels, dtype=np.int64))
        constants[limits] = lane_row(most, -1)
    elif isinstance(last.op, Arithmetic):
        kind, result = 2, "float"
        factors, number = last.inputs[1], site.type(last.inputs[1]).channels
    if kind != 1:
        constants[limits] = np.zeros(1, dtype=np.int32)
    if kind != 2:
        constants[factors] = np.zeros(1, dtype=np.float32)
    source = KernelSource.of(
        "common/dense_tile.h",
        WORDS=words,
        OUTPUTS=acc.channels,
        OUT_WORDS=out_words,
        LENGTH=x.channels,
        ROWS=rows,
        IMAGES=images,
        RESULT_KIND=kind,
        RESULT=result,
        FACTORS=number,
    )
    args = (site.node.inputs[0], f"{name}:weights", limits, falling, factors, site.output, site.batch)
    launch = LaunchSpec(
        "dense_tile",
        source,
        args,
        (out_words, -(-site.batch // images), 1),
        (_LANES, rows, 1),
        local_bytes=_dense_local(images, rows),
    )
    return StepCode((launch,), constants)


_DENSE_CHAINS: tuple[tuple[type[Op], ...], ...] = (
    (BinaryDense, Threshold),
    (BinaryDense, ToFloat, Arithmetic),
    (BinaryDense,),
)

TILE_VARIANTS: tuple[Variant, ...] = (
    *(Variant("conv_tile", ops, C_LANGUAGES, _conv_tile, _conv_fits, _DEFAULT, staged=True) for ops in CONV_CHAINS),
    *(
        Variant("dense_tile", ops, C_LANGUAGES, _dense_tile, _dense_fits, _DEFAULT, staged=True)
        for ops in _DENSE_CHAINS
    ),
)
