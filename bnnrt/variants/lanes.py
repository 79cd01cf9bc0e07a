"""Variants for CPUs through OpenCL: sixteen outputs, or words, in a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import DeviceKind, Language
from bnnrt.backends.source import Define, KernelSource
from bnnrt.ops import BinaryConv, BinaryDense, BitPool, Op, Threshold, Window
from bnnrt.variants.base import Site, StepCode, Variant, conv_op, per_element, pool_window, window_defines

__all__ = ["LANE_VARIANTS"]

Array = npt.NDArray[Any]

_LANES = 16
_OPENCL = (Language.OPENCL,)
# What a convolution runs at once, the longest first.
_CHAINS: tuple[tuple[type[Op], ...], ...] = ((BinaryConv, Threshold, BitPool), (BinaryConv, Threshold))
_MAX_PENDING = 31  # as in kernels/cl/lanes.cl
_DEFAULT = frozenset({"default"})
_NEVER = np.iinfo(np.int32).max


def _padded(array: Array, rows: int, fill: int) -> Array:
    """``array`` with rows of ``fill`` added, up to ``rows``."""
    added = np.full((rows - len(array), *array.shape[1:]), fill, dtype=array.dtype)
    return np.concatenate([array, added])


def _by_lane(words: Array, out_words: int) -> Array:
    """Weights uint32 [O, K] as [out_words, 2, K, lanes]: a vector holds one word of sixteen outputs."""
    padded = _padded(words, out_words * 2 * _LANES, 0)
    return np.ascontiguousarray(padded.reshape(out_words, 2, _LANES, -1).swapaxes(2, 3))


def _defines(site: Site) -> dict[str, Define]:
    """Defines that both convolutions take."""
    op = conv_op(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    pool = pool_window(site).kernel
    _, pooled_height, pooled_width, _ = site.type(site.output).with_batch(1)
    return {
        **window_defines(op.window, x, acc),
        "CHANNELS": x.channels,
        "OUT_WORDS": packing.words_for(acc.channels),
        "PAD_VALUE": op.pad_value,
        "POOL_H": pool[0],
        "POOL_W": pool[1],
        "POOLED_HEIGHT": pooled_height,
        "POOLED_WIDTH": pooled_width,
    }


def _conv_step(site: Site, entry: str, source: KernelSource, weights: Array, count: int) -> StepCode:
    """A launch of a convolution with thresholds over ``count`` threads; weights uint32 [O, K]."""
    x, (threshold, falling) = site.node.inputs[0], site.nodes[1].inputs[1:]
    out_words = packing.words_for(len(weights))
    constants: dict[str, Array] = {
        f"{site.output}:weights": _by_lane(weights, out_words),
        f"{site.output}:thresholds": _padded(site.constant(threshold).data, out_words * 2 * _LANES, _NEVER),
    }
    if len(site.nodes) == 3:
        minimum = site.nodes[2].inputs[1]
    else:
        minimum = f"{site.output}:minimum"
        constants[minimum] = np.zeros((1, out_words), dtype=np.uint32)
    weights_name, thresholds_name = tuple(constants)[:2]
    args = (x, weights_name, thresholds_name, falling, minimum, site.output)
    return StepCode((per_element(site, entry, source, args, count),), constants)


def _conv_lanes(site: Site) -> StepCode:
    weights = packing.pack(site.constant(site.node.inputs[1]).unpacked())
    words = weights.shape[-1]
    files = ("cl/lanes.cl", "common/window.h", "cl/conv_lanes.cl")
    source = KernelSource.of(*files, **_defines(site), WORDS=words)
    return _conv_step(site, "conv_lanes", source, weights.reshape(len(weights), -1), site.count(site.output))


def _rows_a_word(site: Site) -> int:
    x = site.type(site.node.inputs[0])
    return packing.WORD_BITS // (conv_op(site).window.kernel[1] * x.channels)


def _conv_rows(site: Site) -> StepCode:
    op = conv_op(site)
    x, acc = site.type(site.node.inputs[0]), site.type(site.node.outputs[0])
    kernel_h, kernel_w = op.window.kernel
    rows = _rows_a_word(site)
    patch_words = -(-kernel_h // rows)
    bits = site.constant(site.node.inputs[1]).unpacked().reshape(acc.channels, kernel_h, kernel_w * x.channels)
    filled = np.zeros((acc.channels, patch_words * rows, bits.shape[2]), dtype=np.bool_)
    filled[:, :kernel_h] = bits
    weights = packing.pack(filled.reshape(acc.channels, patch_words, -1))[..., 0]
    files = ("cl/lanes.cl", "common/window.h", "cl/conv_rows_lanes.cl")
    source = KernelSource.of(*files, **_defines(site), ROWS_A_WORD=rows, PATCH_WORDS=patch_words)
    pooled_height = site.type(site.output).with_batch(1)[1]
    return _conv_step(site, "conv_rows_lanes", source, weights, site.batch * pooled_height)


def _dense_lanes(site: Site) -> StepCode:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    words = packing.words_for(x.channels)
    blocks = -(-words // _LANES)
    stored = site.constant(site.node.inputs[1]).data
    name = f"{site.output}:weights"
    weights = np.zeros((len(stored), blocks * _LANES), dtype=np.uint32)
    weights[:, :words] = stored
    source = KernelSource.of(
        "cl/lanes.cl",
        "cl/dense_lanes.cl",
        WORDS=words,
        BLOCKS=blocks,
        OUTPUTS=out.channels,
        OUT_WORDS=packing.words_for(out.channels),
        LENGTH=x.channels,
    )
    thresholds = site.nodes[1].inputs[1:] if len(site.nodes) == 2 else ()
    entry = "dense_lanes_threshold" if thresholds else "dense_lanes"
    args = (site.node.inputs[0], name, *thresholds, site.output)
    return StepCode((per_element(site, entry, source, args, site.count(site.output)),), {name: weights})


def _cpu(site: Site) -> str | None:
    return None if site.device.kind is DeviceKind.CPU else "made for CPUs"


def _one_group(site: Site) -> str | None:
    if reason := _cpu(site):
        return reason
    if conv_op(site).groups > 1:
        return "made for one group"
    if pool_window(site) != Window(pool_window(site).kernel, strides=pool_window(site).kernel):
        return "pools overlap, or are apart or padded"
    return None


def _few_channels(site: Site) -> str | None:
    op = conv_op(site)
    if reason := _one_group(site):
        return reason
    if op.window.dilations != (1, 1):
        return "a window does not slide where taps are apart"
    if _rows_a_word(site) == 0:
        return "a row of the kernel does not fit a word"
    if -(-op.window.kernel[0] // _rows_a_word(site)) > _MAX_PENDING:
        return "a patch is more words than partial counts can hold"
    if site.type(site.node.inputs[0]).channels >= packing.WORD_BITS:
        return "a pixel fills a word"
    if op.pad_value == 0 and any(op.window.pads):
        return "a packed patch has no zero"
    return None


LANE_VARIANTS: tuple[Variant, ...] = (
    *(Variant("conv_rows_lanes", ops, _OPENCL, _conv_rows, _few_channels, _DEFAULT) for ops in _CHAINS),
    *(Variant("conv_lanes", ops, _OPENCL, _conv_lanes, _one_group, _DEFAULT) for ops in _CHAINS),
    Variant("dense_lanes", (BinaryDense, Threshold), _OPENCL, _dense_lanes, _cpu, _DEFAULT),
    Variant("dense_lanes", (BinaryDense,), _OPENCL, _dense_lanes, _cpu, _DEFAULT),
)
