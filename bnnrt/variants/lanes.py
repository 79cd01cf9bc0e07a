"""Variants for CPUs through OpenCL: sixteen outputs, or words, in a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import DeviceKind, Language
from bnnrt.backends.source import KernelSource
from bnnrt.ops import BinaryConv, BinaryDense, Threshold
from bnnrt.variants.base import Site, StepCode, Variant, per_element, window_defines

__all__ = ["LANE_VARIANTS"]

Array = npt.NDArray[Any]

_LANES = 16
_DEFAULT = frozenset({"default"})
_NEVER = np.iinfo(np.int32).max


def _conv(site: Site) -> BinaryConv:
    op = site.node.op
    assert isinstance(op, BinaryConv)
    return op


def _padded(array: Array, rows: int, fill: int) -> Array:
    """``array`` with rows of ``fill`` added, up to ``rows``."""
    added = np.full((rows - len(array), *array.shape[1:]), fill, dtype=array.dtype)
    return np.concatenate([array, added])


def _by_lane(words: Array, out_words: int) -> Array:
    """Weights uint32 [O, K] as [out_words, 2, K, lanes]: a vector holds one word of sixteen outputs."""
    padded = _padded(words, out_words * 2 * _LANES, 0)
    return np.ascontiguousarray(padded.reshape(out_words, 2, _LANES, -1).swapaxes(2, 3))


def _conv_step(site: Site, entry: str, source: KernelSource, weights: Array, count: int) -> StepCode:
    """A launch of a convolution with thresholds over ``count`` threads; weights uint32 [O, K]."""
    x, (threshold, falling) = site.node.inputs[0], site.nodes[1].inputs[1:]
    out_words = packing.words_for(len(weights))
    names = f"{site.output}:weights", f"{site.output}:thresholds"
    thresholds = _padded(site.constant(threshold).data, out_words * 2 * _LANES, _NEVER)
    launch = per_element(site, entry, source, (x, *names, falling, site.output), count)
    return StepCode((launch,), dict(zip(names, (_by_lane(weights, out_words), thresholds), strict=True)))


def _conv_lanes(site: Site) -> StepCode:
    op = _conv(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    weights = packing.pack(site.constant(site.node.inputs[1]).unpacked())
    source = KernelSource.of(
        "cl/lanes.cl",
        "common/window.h",
        "cl/conv_lanes.cl",
        **window_defines(op.window, x, acc),
        WORDS=packing.words_for(x.channels),
        CHANNELS=x.channels,
        OUT_WORDS=packing.words_for(acc.channels),
        PAD_VALUE=op.pad_value,
    )
    return _conv_step(site, "conv_lanes", source, weights.reshape(acc.channels, -1), site.count(site.output))


def _rows_a_word(site: Site) -> int:
    x = site.type(site.node.inputs[0])
    return packing.WORD_BITS // (_conv(site).window.kernel[1] * x.channels)


def _conv_rows(site: Site) -> StepCode:
    op = _conv(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    kernel_h, kernel_w = op.window.kernel
    rows = _rows_a_word(site)
    patch_words = -(-kernel_h // rows)
    bits = site.constant(site.node.inputs[1]).unpacked().reshape(acc.channels, kernel_h, kernel_w * x.channels)
    filled = np.zeros((acc.channels, patch_words * rows, bits.shape[2]), dtype=np.bool_)
    filled[:, :kernel_h] = bits
    weights = packing.pack(filled.reshape(acc.channels, patch_words, -1))[..., 0]
    source = KernelSource.of(
        "cl/lanes.cl",
        "common/window.h",
        "cl/conv_rows_lanes.cl",
        **window_defines(op.window, x, acc),
        CHANNELS=x.channels,
        ROWS_A_WORD=rows,
        PATCH_WORDS=patch_words,
        OUT_WORDS=packing.words_for(acc.channels),
        PAD_VALUE=op.pad_value,
    )
    out_height = acc.with_batch(site.batch)[1]
    return _conv_step(site, "conv_rows_lanes", source, weights, site.batch * out_height)


def _dense_lanes(site: Site) -> StepCode:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    words = packing.words_for(x.channels)
    blocks = -(-words // _LANES)
    stored = site.constant(site.node.inputs[1]).data
    name = f"{site.output}:weights"
    weights = np.zeros((len(stored), blocks * _LANES), dtype=np.uint32)
    weights[:, :words] = stored
    source = KernelSource.of(
        "cl/lanes.cl", "cl/dense_lanes.cl", WORDS=words, BLOCKS=blocks, OUTPUTS=out.channels, LENGTH=x.channels
    )
    args = (site.node.inputs[0], name, site.output)
    return StepCode((per_element(site, "dense_lanes", source, args, site.count(site.output)),), {name: weights})


def _cpu(site: Site) -> str | None:
    return None if site.device.kind is DeviceKind.CPU else "made for CPUs"


def _one_group(site: Site) -> str | None:
    return _cpu(site) or ("made for one group" if _conv(site).groups > 1 else None)


def _few_channels(site: Site) -> str | None:
    op = _conv(site)
    if reason := _one_group(site):
        return reason
    if op.window.dilations != (1, 1):
        return "a window does not slide where taps are apart"
    if _rows_a_word(site) == 0:
        return "a row of the kernel does not fit a word"
    if site.type(site.node.inputs[0]).channels >= packing.WORD_BITS:
        return "a pixel fills a word"
    if op.pad_value == 0 and any(op.window.pads):
        return "a packed patch has no zero"
    return None


LANE_VARIANTS: tuple[Variant, ...] = (
    Variant("conv_rows_lanes", (BinaryConv, Threshold), (Language.OPENCL,), _conv_rows, _few_channels, _DEFAULT),
    Variant("conv_lanes", (BinaryConv, Threshold), (Language.OPENCL,), _conv_lanes, _one_group, _DEFAULT),
    Variant("dense_lanes", (BinaryDense,), (Language.OPENCL,), _dense_lanes, _cpu, _DEFAULT),
)
