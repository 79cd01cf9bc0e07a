"""Variants in C for binary convolutions and dense layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.source import KernelSource
from bnnrt.ops import (
    BinaryConv,
    BinaryDense,
    Domain,
    TensorType,
    Threshold,
    Window,
)
from bnnrt.variants.base import (
    C_LANGUAGES,
    LaunchSpec,
    Site,
    StepCode,
    Variant,
    first_fit,
    fits,
    per_element,
    window_defines,
)

__all__ = ["BINARY_VARIANTS", "patch_width"]

Array = npt.NDArray[Any]

# Whole output rows that a work-group of the paper's patch kernel covers, most first (the paper: 2).
_SEGMENT_ROWS = (2, 1)
# Threads that share a weight vector in the paper's dense layer.
_SEGMENTS = 64


def _conv(site: Site) -> BinaryConv:
    op = site.node.op
    assert isinstance(op, BinaryConv)
    return op


# The channel-packed direct convolution (kernels/common/binary_conv.h)


def _tap_words(bits: npt.NDArray[np.bool_], groups: int, channels: int) -> tuple[Array, Array, Array]:
    """Weights bool [O, kh, kw, C / groups] as words that line up with a pixel's words.

    Returns:
        weights uint32 [O, kh, kw, T], spans int32 [groups] (a group's first word in a pixel), masks uint32 [groups, T].
    """
    per_group = bits.shape[3]
    words = packing.words_for(channels)
    starts = np.arange(groups) * per_group
    span = max(packing.words_for(int(s) + per_group) - int(s) // packing.WORD_BITS for s in starts)
    # The last group's words must not reach past the pixel.
    spans = np.minimum(starts // packing.WORD_BITS, words - span).astype(np.int32)
    placed = np.zeros((*bits.shape[:3], span * packing.WORD_BITS), dtype=np.bool_)
    masks = np.zeros((groups, span * packing.WORD_BITS), dtype=np.bool_)
    per_output = len(bits) // groups
    for group in range(groups):
        shift = int(starts[group] - spans[group] * packing.WORD_BITS)
        outputs = slice(group * per_output, (group + 1) * per_output)
        placed[outputs, ..., shift : shift + per_group] = bits[outputs]
        masks[group, shift : shift + per_group] = True
    return packing.pack(placed), spans, packing.pack(masks)


def _direct(site: Site, *files: str) -> tuple[KernelSource, dict[str, Array], tuple[str, ...]]:
    """Source, packed constants and leading arguments of the direct convolution."""
    op = _conv(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    bits = site.constant(site.node.inputs[1]).unpacked()
    weights, spans, masks = _tap_words(bits, op.groups, x.channels)
    per_group = bits.shape[3]
    source = KernelSource.of(
        "common/window.h",
        *files,
        **window_defines(op.window, x, acc),
        WORDS=packing.words_for(x.channels),
        GROUPS=op.groups,
        OUTPUTS=acc.channels,
        OUT_WORDS=packing.words_for(acc.channels),
        TAP_WORDS=weights.shape[3],
        GROUP_CHANNELS=per_group,
        PAD_VALUE=op.pad_value,
        MASKED=int(op.groups > 1 and per_group % packing.WORD_BITS != 0),
    )
    names = tuple(f"{site.node.outputs[0]}:{part}" for part in ("weights", "spans", "masks"))
    return source, dict(zip(names, (weights, spans, masks), strict=True)), (site.node.inputs[0], *names)


def _direct_conv(site: Site) -> StepCode:
    source, constants, args = _direct(site, "common/binary_conv.h", "common/binary_conv_acc.h")
    launch = per_element(site, "binary_conv", source, (*args, site.output), site.count(site.output))
    return StepCode((launch,), constants)


def _by_word(weights: Array, block: int) -> Array:
    """Weights uint32 [O, kh, kw, T] as [output words, kh, kw, T, block]: those of a word's outputs lie together."""
    out_words = packing.words_for(len(weights))
    padded = np.zeros((out_words * block, *weights.shape[1:]), dtype=np.uint32)
    padded[: len(weights)] = weights
    return np.ascontiguousarray(np.moveaxis(padded.reshape(out_words, block, *weights.shape[1:]), 1, -1))


def _direct_conv_threshold(site: Site) -> StepCode:
    source, constants, args = _direct(site, "common/binary_conv_threshold.h")
    block = min(packing.WORD_BITS, site.type(site.node.outputs[0]).channels)
    constants = {**constants, args[1]: _by_word(constants[args[1]], block)}
    source = KernelSource(source.files, (*source.defines, ("BLOCK", block)))
    args = (*args, *site.nodes[1].inputs[1:], site.output)
    return StepCode((per_element(site, "binary_conv_threshold", source, args, site.count(site.output)),), constants)


def _words_in_groups(site: Site) -> str | None:
    op, outputs = _conv(site), site.type(site.node.outputs[0]).channels
    if op.groups > 1 and outputs // op.groups % packing.WORD_BITS != 0:
        return "a word's outputs lie in several groups"
    return None


# The paper's convolution: patches packed B bits a word, then a tiled product


def patch_width(kernel: tuple[int, int]) -> int:
    """The packing width B: a channel's window in a word where it fits (the paper: 25 for 5x5), else whole words."""
    taps = kernel[0] * kernel[1]
    return taps if taps <= packing.WORD_BITS else packing.WORD_BITS


def _tile(window: Window, rows: int, out_width: int) -> tuple[int, int]:
    """Rows and columns of padded image under ``rows`` whole output rows."""
    return (
        (rows - 1) * window.strides[0] + window.dilations[0] * (window.kernel[0] - 1) + 1,
        (out_width - 1) * window.strides[1] + window.dilations[1] * (window.kernel[1] - 1) + 1,
    )


def _segment_rows(site: Site) -> tuple[int | None, tuple[str, ...]]:
    """How many whole output rows a work-group can cover on this device, or None; and why not more."""
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    width = acc.with_batch(1)[2]

    def local_bytes(rows: int) -> int:
        tile_rows, tile_columns = _tile(_conv(site).window, rows, width)
        return tile_rows * tile_columns * packing.words_for(x.channels) * 4

    return first_fit(
        site.device,
        [(rows, f"S={rows} rows of W={width}", (width, rows, 1), local_bytes(rows)) for rows in _SEGMENT_ROWS],
    )


# Sides of the square of threads of the tiled product, largest first.
_GEMM_TILES = (16, 8, 4)


def _gemm_local(tile: int) -> int:
    """Bytes of local memory that kernels/common/xnor_gemm.h takes."""
    return tile * (2 * tile + 1) * 4


def _gemm_tile(site: Site) -> tuple[int | None, tuple[str, ...]]:
    """The largest tile that the device can run, or None; and why none larger."""
    tiles = [(tile, f"tiles of {tile}x{tile}", (tile, tile, 1), _gemm_local(tile)) for tile in _GEMM_TILES]
    return first_fit(site.device, tiles)


def _patches_fit(site: Site) -> str | None:
    op = _conv(site)
    if op.groups > 1:
        return "patches are not split into groups"
    if op.pad_value == 0 and any(op.window.pads):
        return "a packed patch has no zero"
    for size, reasons in (_segment_rows(site), _gemm_tile(site)):
        if size is None:
            return reasons[-1]
    return None


def _patch_gemm(site: Site) -> StepCode:
    op = _conv(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    rows, fewer_rows = _segment_rows(site)
    tile, smaller_tile = _gemm_tile(site)
    assert rows is not None  # _patches_fit
    assert tile is not None
    _, out_height, out_width, outputs = acc.with_batch(site.batch)
    tile_rows, tile_columns = _tile(op.window, rows, out_width)
    width = patch_width(op.window.kernel)
    length = op.window.taps * x.channels
    inner = packing.words_for(length, width)
    words = packing.words_for(x.channels)
    bits = site.constant(site.node.inputs[1]).unpacked()
    by_channel = bits.transpose(0, 3, 1, 2).reshape(outputs, length)

    weights, patches = f"{site.output}:weights", f"{site.output}:patches"
    pack = LaunchSpec(
        "patch_pack",
        KernelSource.of(
            "common/patch_pack.h",
            **window_defines(op.window, x, acc),
            CHANNELS=x.channels,
            WORDS=words,
            SEGMENT_ROWS=rows,
            TILE_ROWS=tile_rows,
            TILE_COLUMNS=tile_columns,
            PACK_WIDTH=width,
            PATCH_WORDS=inner,
            PAD_BIT=int(op.pad_value > 0),
        ),
        (site.node.inputs[0], patches),
        (site.batch, -(-out_height // rows), 1),
        (out_width, rows, 1),
        local_bytes=tile_rows * tile_columns * words * 4,
    )
    pixels = site.batch * out_height * out_width
    gemm = LaunchSpec(
        "xnor_gemm",
        KernelSource.of("common/xnor_gemm.h", TILE=tile, INNER=inner, OUTPUTS=outputs, LENGTH=length),
        (patches, weights, site.output, pixels),
        (-(-pixels // tile), -(-outputs // tile), 1),
        (tile, tile, 1),
        local_bytes=_gemm_local(tile),
    )
    return StepCode(
        (pack, gemm),
        {weights: packing.pack(by_channel, width)},
        {patches: ((pixels, inner), np.dtype(np.uint32))},
        notes=(*fewer_rows, *smaller_tile),
    )


# Dense layers


def _dense_segments(site: Site) -> StepCode:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    source = KernelSource.of(
        "common/dense_segments.h",
        SEGMENTS=_SEGMENTS,
        WORDS=packing.words_for(x.channels),
        OUTPUTS=out.channels,
        LENGTH=x.channels,
    )
    args = (*site.node.inputs, site.output)
    groups = site.batch * out.channels
    return StepCode(
        (LaunchSpec("dense_segments", source, args, (groups, 1, 1), (_SEGMENTS, 1, 1), local_bytes=_SEGMENTS * 4),)
    )


def _segments_fit(site: Site) -> str | None:
    if not fits(site.device, (_SEGMENTS, 1, 1), _SEGMENTS * 4):
        return f"{_SEGMENTS} segments are more than a work-group of {site.device.max_group_size} or its local memory"
    return None


def _dense_direct(site: Site) -> StepCode:
    """A dense layer as a 1x1 convolution of one pixel, for devices whose work-groups are too small for segments."""
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    words = packing.words_for(x.channels)
    pixel, result = (
        TensorType((None, 1, 1, x.channels), Domain.BIT),
        TensorType((None, 1, 1, out.channels), Domain.INT32),
    )
    spans, masks = f"{site.output}:spans", f"{site.output}:masks"
    source = KernelSource.of(
        "common/window.h",
        "common/binary_conv.h",
        "common/binary_conv_acc.h",
        **window_defines(Window((1, 1)), pixel, result),
        WORDS=words,
        GROUPS=1,
        OUTPUTS=out.channels,
        TAP_WORDS=words,
        GROUP_CHANNELS=x.channels,
        PAD_VALUE=0,
        MASKED=0,
    )
    args = (site.node.inputs[0], site.node.inputs[1], spans, masks, site.output)
    constants: dict[str, Array] = {
        spans: np.zeros(1, dtype=np.int32),
        masks: packing.pack(np.ones((1, x.channels), dtype=np.bool_)),
    }
    return StepCode((per_element(site, "binary_conv", source, args, site.count(site.output)),), constants)


BINARY_VARIANTS: tuple[Variant, ...] = (
    Variant(
        "direct_threshold",
        (BinaryConv, Threshold),
        C_LANGUAGES,
        _direct_conv_threshold,
        _words_in_groups,
        sets=frozenset({"default"}),
    ),
    Variant(
        "patch_gemm", (BinaryConv,), C_LANGUAGES, _patch_gemm, _patches_fit, sets=frozenset({"paper"}), staged=True
    ),
    Variant("direct", (BinaryConv,), C_LANGUAGES, _direct_conv),
    Variant("dense_segments", (BinaryDense,), C_LANGUAGES, _dense_segments, _segments_fit),
    Variant("dense_direct", (BinaryDense,), C_LANGUAGES, _dense_direct),
)
