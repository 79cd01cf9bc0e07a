"""The kernels of "Binarized Convolutional Neural Networks for Efficient Inference on GPUs", and what it compares with.

A convolution packs patches, B bits a word, and multiplies them as tiles of a matrix; a dense layer is shared out to
segments. The set ``paper`` prefers these; what the paper compares them with is chosen by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import Language
from bnnrt.backends.source import KernelSource
from bnnrt.ops import BinaryConv, BinaryDense, Domain, Op, TensorType, Threshold, Window
from bnnrt.variants.base import (
    C_LANGUAGES,
    LaunchSpec,
    Site,
    StepCode,
    Variant,
    conv_node,
    conv_op,
    first_fit,
    fits,
    per_element,
    window_defines,
)
from bnnrt.variants.chains import lane_row, limits_of

__all__ = ["PAPER_VARIANTS", "patch_width"]

Array = npt.NDArray[Any]

_PAPER = frozenset({"paper"})
_BY_NAME: frozenset[str] = frozenset()
_LANES = packing.WORD_BITS

# Whole output rows that a work-group of the patch kernel covers, most first (the paper: 2).
_SEGMENT_ROWS = (2, 1)
# Where there are few rows, more threads share out their patches, so that there are groups for all multiprocessors.
_GROUPS_A_MULTIPROCESSOR = 4
# Sides of the square of threads of the tiled product, largest first; rows of threads where it ends in bits.
_GEMM_TILES = (16, 8, 4)
_THRESHOLD_ROWS = (8, 4, 2)
_MOST_REPEATS = 8
# Threads that share a weight vector in the dense layer (the paper: 64), and those to compare with.
_SEGMENTS = 64
_OTHER_SEGMENTS = (1, 2, 4, 8, 16, 32, 128, 256)


@dataclass(frozen=True)
class _Patches:
    """How patches are made: the paper's way, but for one thing.

    ``width`` is B; None for one channel's window a word where that fits. ``counter`` False divides, ``staged`` False
    leaves local memory out, ``separate`` True extracts first and packs then.
    """

    width: int | None = None
    counter: bool = True
    staged: bool = True
    separate: bool = False


def _at(site: Site) -> int:
    """Where in the chain the convolution stands: after the thresholds of pixels, if any."""
    return int(isinstance(site.node.op, Threshold))


def _operands(site: Site) -> tuple[TensorType, TensorType]:
    """The convolution's input and accumulators."""
    node = conv_node(site)
    return site.type(node.inputs[0]), site.type(node.outputs[0])


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


def _tile_bytes(site: Site, rows: int) -> int:
    x, acc = _operands(site)
    tile_rows, tile_columns = _tile(conv_op(site).window, rows, acc.with_batch(1)[2])
    return tile_rows * tile_columns * packing.words_for(x.channels) * 4


def _segment_rows(site: Site) -> tuple[int | None, tuple[str, ...]]:
    """How many whole output rows a work-group can cover on this device, or None; and why not more."""
    width = _operands(site)[1].with_batch(1)[2]
    return first_fit(
        site.device,
        [(rows, f"S={rows} rows of W={width}", (width, rows, 1), _tile_bytes(site, rows)) for rows in _SEGMENT_ROWS],
    )


def _gemm_local(tile: int) -> int:
    """Bytes of local memory that kernels/common/xnor_gemm.h takes."""
    return tile * (2 * tile + 1) * 4


def _gemm_tile(site: Site) -> tuple[int | None, tuple[str, ...]]:
    """The largest tile that the device can run, or None; and why none larger."""
    tiles = [(tile, f"tiles of {tile}x{tile}", (tile, tile, 1), _gemm_local(tile)) for tile in _GEMM_TILES]
    return first_fit(site.device, tiles)


def _threshold_local(rows: int) -> int:
    """Bytes of local memory that kernels/common/xnor_gemm_threshold.h takes at most."""
    return (rows * _LANES + _LANES * (_LANES + 1)) * 4 + rows * _LANES


def _threshold_rows(site: Site) -> tuple[int | None, tuple[str, ...]]:
    """The most rows of the tiled product with thresholds that the device can run, or None; and why not more."""
    choices = [(n, f"{n} rows of {_LANES}", (_LANES, n, 1), _threshold_local(n)) for n in _THRESHOLD_ROWS]
    return first_fit(site.device, choices)


def _patches_fit(site: Site) -> str | None:
    op = conv_op(site)
    if op.groups > 1:
        return "patches are not split into groups"
    if op.pad_value == 0 and any(op.window.pads):
        return "a packed patch has no zero"
    if _at(site):
        pixels, bits = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
        if pixels.domain is not Domain.UINT8 or bits.channels > packing.WORD_BITS:
            return "made for pixels of up to 32 bits"
    product = _gemm_tile(site) if len(site.nodes) == 1 else _threshold_rows(site)
    for size, reasons in (_segment_rows(site), product):
        if size is None:
            return reasons[-1]
    return None


def _pack(site: Site, how: _Patches, width: int, out: str) -> StepCode:
    """Launches that fill ``out`` with packed patches; the rest of what the step needs beside."""
    op = conv_op(site)
    x, acc = _operands(site)
    rows, fewer_rows = _segment_rows(site)
    assert rows is not None  # _patches_fit
    _, out_height, out_width, _ = acc.with_batch(1)
    tile_rows, tile_columns = _tile(op.window, rows, out_width)
    length = op.window.taps * x.channels
    inner = packing.words_for(length, width)
    pixels = site.batch * out_height * out_width
    segments = site.batch * -(-out_height // rows)
    wanted = -(-_GROUPS_A_MULTIPROCESSOR * site.device.compute_units // segments)
    thread_words = -(-inner // min(inner, wanted))
    source = KernelSource.of(
        "common/patch_pack.h",
        **window_defines(op.window, x, acc),
        CHANNELS=x.channels,
        WORDS=packing.words_for(x.channels),
        SEGMENT_ROWS=rows,
        TILE_ROWS=tile_rows,
        TILE_COLUMNS=tile_columns,
        PACK_WIDTH=width,
        PATCH_WORDS=inner,
        THREAD_WORDS=thread_words,
        PAD_BIT=int(op.pad_value > 0),
        COUNTER=int(how.counter),
        STAGED=int(how.staged),
        SEPARATE=int(how.separate),
        PIXELS=_at(site),
        PIXEL_CHANNELS=site.type(site.node.inputs[0]).channels,
    )
    elements, levels, flips = (f"{site.output}:{part}" for part in ("elements", "levels", "flips"))
    constants: dict[str, Array] = {}
    if _at(site):
        levels, flips = site.node.inputs[1:]
    else:  # not read
        constants = {levels: np.zeros(1, dtype=np.int32), flips: np.zeros(1, dtype=np.uint32)}
    extract = LaunchSpec(
        "patch_extract" if how.separate else "patch_pack",
        source,
        (site.node.inputs[0], levels, flips, elements if how.separate else out),
        (site.batch, -(-out_height // rows), -(-inner // thread_words)),
        (out_width, rows, 1),
        local_bytes=_tile_bytes(site, rows) if how.staged else 0,
    )
    launches: tuple[LaunchSpec, ...] = (extract,)
    scratch: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {out: ((pixels, inner), np.dtype(np.uint32))}
    if how.separate:
        code = KernelSource.of("common/pack_bytes.h", LENGTH=length, PACK_WIDTH=width, PATCH_WORDS=inner)
        launches = (extract, per_element(site, "pack_bytes", code, (elements, out), pixels * inner))
        scratch[elements] = ((pixels, length), np.dtype(np.uint8))
    return StepCode(launches, constants, scratch, notes=fewer_rows)


def _patch_gemm(how: _Patches, site: Site) -> StepCode:
    op = conv_op(site)
    x, acc = _operands(site)
    _, out_height, out_width, outputs = acc.with_batch(site.batch)
    width = how.width or patch_width(op.window.kernel)
    length = op.window.taps * x.channels
    inner = packing.words_for(length, width)
    pixels = site.batch * out_height * out_width
    by_channel = site.constant(conv_node(site).inputs[1]).unpacked().transpose(0, 3, 1, 2).reshape(outputs, length)

    weights, patches, limits = (f"{site.output}:{part}" for part in ("weights", "patches", "limits"))
    packed = _pack(site, how, width, patches)
    constants = {**packed.constants, weights: packing.pack(by_channel, width)}
    if len(site.nodes) == 1:
        tile, smaller = _gemm_tile(site)
        assert tile is not None  # _patches_fit
        gemm = LaunchSpec(
            "xnor_gemm",
            KernelSource.of("common/xnor_gemm.h", TILE=tile, INNER=inner, OUTPUTS=outputs, LENGTH=length),
            (patches, weights, site.output, pixels),
            (-(-pixels // tile), -(-outputs // tile), 1),
            (tile, tile, 1),
            local_bytes=_gemm_local(tile),
        )
    else:
        rows, smaller = _threshold_rows(site)
        assert rows is not None  # _patches_fit
        threshold, falling = site.nodes[-1].inputs[1:]
        bases = np.full(outputs, length, dtype=np.int64)
        constants[limits] = lane_row(limits_of(site.constant(threshold).data, bases), -1)
        out_words = packing.words_for(outputs)
        most = pixels * out_words // (rows * _GROUPS_A_MULTIPROCESSOR * site.device.compute_units)
        repeats = max(1, min(_MOST_REPEATS, most))
        gemm = LaunchSpec(
            "xnor_gemm_threshold",
            KernelSource.of(
                "common/xnor_gemm_threshold.h",
                ROWS=rows,
                REPEATS=repeats,
                TILE=min(_LANES, inner),
                INNER=inner,
                OUTPUTS=outputs,
                OUT_WORDS=out_words,
            ),
            (patches, weights, limits, falling, site.output, pixels),
            (-(-pixels // (rows * repeats)), out_words, 1),
            (_LANES, rows, 1),
            local_bytes=_threshold_local(rows),
        )
    return StepCode((*packed.launches, gemm), constants, packed.scratch, notes=(*packed.notes, *smaller))


# Dense layers


def _dense_segments(segments: int, file: str, site: Site) -> StepCode:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    source = KernelSource.of(
        file,
        SEGMENTS=segments,
        WORDS=packing.words_for(x.channels),
        OUTPUTS=out.channels,
        LENGTH=x.channels,
    )
    entry = file.rpartition("/")[2].partition(".")[0]
    groups = (site.batch * out.channels, 1, 1)
    launch = LaunchSpec(
        entry, source, (*site.node.inputs, site.output), groups, (segments, 1, 1), local_bytes=segments * 4
    )
    return StepCode((launch,))


def _segments_fit(segments: int, site: Site) -> str | None:
    if not fits(site.device, (segments, 1, 1), segments * 4):
        return f"{segments} segments are more than a work-group of {site.device.max_group_size} or its local memory"
    return None


def _segments(
    name: str,
    segments: int,
    sets: frozenset[str] = _BY_NAME,
    file: str = "common/dense_segments.h",
    languages: tuple[Language, ...] = C_LANGUAGES,
) -> Variant:
    build: Callable[[Site], StepCode] = partial(_dense_segments, segments, file)
    return Variant(name, (BinaryDense,), languages, build, partial(_segments_fit, segments), sets)


def _patch(name: str, ops: tuple[type[Op], ...], how: _Patches, sets: frozenset[str] = _BY_NAME) -> Variant:
    return Variant(name, ops, C_LANGUAGES, partial(_patch_gemm, how), _patches_fit, sets, staged=True)


_COMPARED = {
    "patch_division": _Patches(counter=False),
    "patch_unstaged": _Patches(staged=False),
    "patch_separate": _Patches(separate=True),
    "patch_width_25": _Patches(width=25),
    "patch_width_32": _Patches(width=32),
}

PAPER_VARIANTS: tuple[Variant, ...] = (
    *(
        _patch("patch_gemm_threshold", ops, _Patches(), _PAPER)
        for ops in ((Threshold, BinaryConv, Threshold), (BinaryConv, Threshold))
    ),
    _patch("patch_gemm", (BinaryConv,), _Patches(), _PAPER),
    *(_patch(name, (BinaryConv,), how) for name, how in _COMPARED.items()),
    _segments("dense_segments", _SEGMENTS, frozenset({"default", "paper"})),
    *(_segments(f"dense_segments_{n}", n) for n in _OTHER_SEGMENTS),
    _segments("dense_segments_shuffle", _SEGMENTS, file="cu/dense_segments_shuffle.cu", languages=(Language.CUDA,)),
)
