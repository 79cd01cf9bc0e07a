"""Variants for GPUs with 1-bit tensor cores: a binary convolution, with what surrounds it, as a product of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import Language
from bnnrt.backends.source import Define, KernelSource
from bnnrt.ops import Window
from bnnrt.variants.base import LaunchSpec, Site, StepCode, Variant, conv_node, conv_op, fits, pool_window
from bnnrt.variants.chains import (
    CONV_CHAINS,
    FEW_CHANNELS,
    chain_misfit,
    conv_chain,
    groups_over,
    halo_of,
    lane_row,
)

__all__ = ["TENSOR_CORE_VARIANTS"]

Array = npt.NDArray[Any]

_LANES = packing.WORD_BITS
# A product takes 16 pixels, which make 2 x 8 results, 8 channels, and 8 words of a window at once.
_ROWS, _COLUMNS = 2, 8
_CHUNK = 8
# Results of a block; it has a product's at least.
_TILE_HEIGHTS = (2, 4, 8, 12, 16, 24)
_TILE_WIDTHS = (8, 16, 24, 32, 48)
# More of them would need more registers than several blocks have.
_WARPS = 4
_BLOCKS_A_MULTIPROCESSOR = 4
# Weights of a window of so many chunks stay in registers, which leaves room for the sums of few groups of 16 pixels.
_KEPT_CHUNKS = 9
_FEW_CHUNKS = 4

# Estimates, in instructions of a warp: what a tile costs in all (see _cost).
_COST_OF_CHUNK = 9
_COST_OF_SUMS = 40
_COST_OF_HALO = 25
_COST_OF_PIXELS = 40
_COST_OF_TAP = 2
_COST_OF_WARP = 60


@dataclass(frozen=True)
class _Taps:
    """Taps that share a word, and how the words of a window follow one another."""

    height: int
    width: int
    pixel_words: int
    """Words of a pixel of x."""
    places: tuple[tuple[int, int, int], ...]
    """For each word of a window its first tap's row and column, and which of the pixel's words it is."""

    @property
    def taps(self) -> int:
        return self.height * self.width


def _fewest_words(window: Window, channels: int) -> _Taps:
    """The blocks of taps that give a window the fewest words.

    They reach past the window only where a product has room for the complement of all its words: the product with ones
    counts whole words.
    """

    def made(height: int, width: int) -> _Taps:
        words = packing.words_for(channels)
        rows, columns = range(0, window.kernel[0], height), range(0, window.kernel[1], width)
        return _Taps(height, width, words, tuple((y, x, w) for y in rows for x in columns for w in range(words)))

    choices = [made(1, 1)]
    if channels <= FEW_CHANNELS:
        choices += [
            made(height, width)
            for height in range(1, window.kernel[0] + 1)
            for width in range(1, window.kernel[1] + 1)
            if height * width * channels <= packing.WORD_BITS
        ]
    whole = [
        block
        for block in choices
        if len(block.places) <= _CHUNK // 2
        or (window.kernel[0] % block.height == 0 and window.kernel[1] % block.width == 0)
    ]
    return min(whole, key=lambda block: (len(block.places), block.taps))


def _pixel_stride(words: int, step: int) -> int:
    """Words from a pixel to the next in shared memory.

    A warp reads four neighbouring words of each of 8 pixels that are ``step`` apart; they should lie in 32 banks.
    """
    if words % 4:
        return words  # neighbouring words belong to several pixels
    return next((s for s in range(words, 2 * words) if s * step % 8 == 4), words)


@dataclass(frozen=True)
class _Tile:
    """How a block shares the work: results, the image under them, and what a warp does at once."""

    height: int
    width: int
    halo_height: int
    halo_width: int
    pixel_stride: int
    block: _Taps
    span: int
    members: int
    warps: int
    local_bytes: int

    @property
    def inner(self) -> int:
        return len(self.block.places)

    @property
    def complement(self) -> bool:
        return self.inner <= _CHUNK // 2

    @property
    def chunks(self) -> int:
        return -(-self.inner // _CHUNK)

    @property
    def groups(self) -> int:
        """Groups of 2 x 8 results."""
        return self.height // _ROWS * (self.width // _COLUMNS)

    @property
    def defines(self) -> dict[str, Define]:
        return {
            "TILE_H": self.height,
            "TILE_W": self.width,
            "HALO_H": self.halo_height,
            "HALO_W": self.halo_width,
            "PIXEL_WORDS": self.block.pixel_words,
            "PIXEL_STRIDE": self.pixel_stride,
            "BLOCK_H": self.block.height,
            "BLOCK_W": self.block.width,
            "INNER": self.inner,
            "CHUNKS": self.chunks,
            "COMPLEMENT": int(self.complement),
            "IN_REGISTERS": int(self.chunks <= _KEPT_CHUNKS),
            "SPAN": self.span,
            "MEMBERS": self.members,
            "WARPS": self.warps,
        }


def _largest_divisor(number: int, most: int) -> int:
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)


def _at_once(chunks: int, pooled: int) -> int:
    """Groups of 16 pixels that a warp computes at once: what was fastest on an H200, of 1, 2 and 4."""
    if chunks <= _FEW_CHUNKS:
        return 4 if pooled > 1 else 2
    return 1 if chunks <= _KEPT_CHUNKS else 2


def _make_tile(site: Site, block: _Taps, height: int, width: int) -> _Tile:
    window, pool = conv_op(site).window, pool_window(site).kernel
    halo_height, halo_width = halo_of(site, height, width)
    stride = _pixel_stride(block.pixel_words, pool[1] * window.strides[1])
    chunks = -(-len(block.places) // _CHUNK)
    at_once = _at_once(chunks, prod(pool))
    members = _largest_divisor(prod(pool), at_once)
    groups = height // _ROWS * (width // _COLUMNS)
    # Warps before several groups at once: a tile is small where there are few blocks.
    span = _largest_divisor(groups, min(at_once // members, max(1, groups // _WARPS))) if members == 1 else 1
    # With fewer groups than warps, all of them load what some compute with.
    warps = _largest_divisor(groups // span, _WARPS) if groups // span >= _WARPS else _WARPS
    words = halo_height * halo_width * stride
    if block.taps > 1:
        words += halo_height * halo_width
    words += (block.height - 1) * window.dilations[0] * halo_width + (block.width - 1) * window.dilations[1]
    return _Tile(height, width, halo_height, halo_width, stride, block, span, members, warps, 4 * words)


def _cost(site: Site, tile: _Tile) -> float:
    """An estimate of the whole launch's time, for the choice between tiles: instructions, and idle multiprocessors."""
    halo = tile.halo_height * tile.halo_width / _LANES
    loading = halo * (
        tile.block.pixel_words * (_COST_OF_HALO if site.node is conv_node(site) else _COST_OF_PIXELS)
        + (tile.block.taps * _COST_OF_TAP if tile.block.taps > 1 else 0)
    )
    computing = tile.groups * prod(pool_window(site).kernel) * (tile.chunks * _COST_OF_CHUNK + _COST_OF_SUMS)
    a_block = loading + computing + tile.warps * _COST_OF_WARP
    return a_block * max(
        prod(groups_over(site, tile.height, tile.width)), _BLOCKS_A_MULTIPROCESSOR * site.device.compute_units
    )


def _tiles(site: Site) -> Iterator[_Tile]:
    block = _fewest_words(conv_op(site).window, site.type(conv_node(site).inputs[0]).channels)
    for height in _TILE_HEIGHTS:
        for width in _TILE_WIDTHS:
            tile = _make_tile(site, block, height, width)
            if fits(site.device, (_LANES, tile.warps, 1), tile.local_bytes):
                yield tile


def _tile(site: Site) -> _Tile | None:
    return min(_tiles(site), key=lambda tile: _cost(site, tile), default=None)


def _fits(site: Site) -> str | None:
    if not site.device.bit_tensor_cores:
        return "no 1-bit tensor cores"
    if reason := chain_misfit(site):
        return reason
    if _tile(site) is None:
        return "a tile is too large for a work-group or its local memory"
    return None


def _window_words(bits: Array, tile: _Tile) -> Array:
    """Bits [O, kh, kw, C] as uint32 [O, words of a window], in the order in which the kernel has a window's words."""
    block = tile.block
    outputs, kernel_h, kernel_w, channels = bits.shape
    pixel_bits = channels if block.taps > 1 else block.pixel_words * packing.WORD_BITS
    padded = np.zeros((outputs, kernel_h + block.height, kernel_w + block.width, pixel_bits), dtype=np.bool_)
    padded[:, :kernel_h, :kernel_w, :channels] = bits
    words = []
    for y, x, word in block.places:
        taps = padded[:, y : y + block.height, x : x + block.width].reshape(outputs, -1)
        words.append(packing.pack(taps[:, word * packing.WORD_BITS : (word + 1) * packing.WORD_BITS])[:, 0])
    return np.stack(words, axis=1)


def _fragments(words: Array) -> Array:
    """uint32 [O, chunks * 8] as each lane holds it for the products: [output words, chunks, 2, lanes, 4].

    Lane 4 r + t holds words t and 4 + t of a chunk, of column r of four products. Column 2 t + j of product n is
    channel 8 t + 2 n + j, so that a lane's sums, of columns 2 t and 2 t + 1, are those of 8 neighbouring channels.
    """
    out_words = packing.words_for(len(words))
    padded = np.zeros((out_words * _LANES, words.shape[1]), dtype=np.uint32)
    padded[: len(words)] = words
    # output word, t and j of the column, and n between them; chunk, half of it, word of the half
    split = padded.reshape(out_words, 4, 2, 2, 2, -1, 2, 4)
    return np.ascontiguousarray(split.transpose(0, 5, 2, 1, 4, 7, 3, 6)).reshape(out_words, -1, 2, _LANES, 4)


def _places(site: Site, tile: _Tile) -> Array:
    """int32 [chunks * 8]: where the words of a window lie in shared memory, from its corner; there, past the last."""
    window = conv_op(site).window
    stride = 1 if tile.block.taps > 1 else tile.pixel_stride
    found = np.zeros(tile.chunks * _CHUNK, dtype=np.int32)
    for k, (y, x, word) in enumerate(tile.block.places):
        found[k] = (y * window.dilations[0] * tile.halo_width + x * window.dilations[1]) * stride + word
    return found


def _even_margins(bits: Array, limits: Array) -> tuple[Array, Array, Array]:
    """A test that differs from ``differing <= limits`` in sign only, such that limits - |w| is even.

    Negated weights differ where the others agree. The kernel can then halve, and starts its sums
    with (limits - |w|) / 2.

    Args:
        bits: weights, bool [O, ...]. limits: int [O].

    Returns:
        Weights, limits, and which channels are negated.
    """
    length = bits[0].size
    odd = (limits - bits.reshape(len(bits), -1).sum(axis=1)) % 2 == 1
    return bits ^ odd.reshape(-1, *[1] * (bits.ndim - 1)), np.where(odd, length - limits - 1, limits), odd


def _conv_tensor(site: Site) -> StepCode:
    weights, limits, taps = (f"{site.output}:{part}" for part in ("weights", "limits", "taps"))
    chain, tile = conv_chain(site, weights), _tile(site)
    assert tile is not None  # _fits
    bits, falling, constants = chain.bits, chain.falling, chain.constants
    length = prod(bits.shape[1:])
    ones = bits.sum(axis=(1, 2, 3), dtype=np.int64)
    # differing = known - 2 and + |a|, or known - and where the complement is multiplied too
    known = np.full_like(ones, length) if tile.complement else ones
    if chain.limits is None:
        bias = chain.bases - 2 * known
    elif tile.complement or len(chain.bases) > 1:
        bias = np.minimum(chain.limits, length) - known
    else:
        bits, most, negated = _even_margins(bits, np.minimum(chain.limits[0], length))
        bias = (most - bits.sum(axis=(1, 2, 3), dtype=np.int64))[None] // 2
        constants[f"{site.output}:falling"] = packing.pack(site.constant(falling).unpacked() ^ negated)
        falling = f"{site.output}:falling"
    words = np.zeros((len(bits), tile.chunks * _CHUNK), dtype=np.uint32)
    words[:, : tile.inner] = _window_words(bits, tile)
    if tile.complement:
        words[:, _CHUNK // 2 : _CHUNK // 2 + tile.inner] = _window_words(~bits, tile)
    constants |= {
        weights: _fragments(words),
        limits: lane_row(bias, 0 if chain.limits is None else -1),
        taps: _places(site, tile),
    }
    source = KernelSource.of("cu/conv_tensor.cu", **chain.defines, **tile.defines)
    args = (
        *(site.node.inputs[0], chain.levels, chain.flips, taps, weights, chain.classes, limits),
        *(falling, chain.minimum, site.output),
    )
    launch = LaunchSpec(
        "conv_tensor",
        source,
        args,
        groups_over(site, tile.height, tile.width),
        (_LANES, tile.warps, 1),
        local_bytes=tile.local_bytes,
    )
    return StepCode((launch,), constants)


TENSOR_CORE_VARIANTS: tuple[Variant, ...] = tuple(
    Variant("conv_tensor", ops, (Language.CUDA,), _conv_tensor, _fits, frozenset({"default"}), staged=True)
    for ops in CONV_CHAINS
)
