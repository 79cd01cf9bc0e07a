"""Variants in C for binary convolutions and dense layers that run on any device: a thread an output."""

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
from bnnrt.variants.base import C_LANGUAGES, Site, StepCode, Variant, conv_op, per_element, window_defines

__all__ = ["BINARY_VARIANTS"]

Array = npt.NDArray[Any]


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
    op = conv_op(site)
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
    op, outputs = conv_op(site), site.type(site.node.outputs[0]).channels
    if op.groups > 1 and outputs // op.groups % packing.WORD_BITS != 0:
        return "a word's outputs lie in several groups"
    return None


# Dense layers


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
    Variant("direct", (BinaryConv,), C_LANGUAGES, _direct_conv),
    Variant("dense_direct", (BinaryDense,), C_LANGUAGES, _dense_direct),
)
