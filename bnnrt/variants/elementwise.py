"""Variants in C for everything but convolutions and dense layers: one thread an output element or word."""

from __future__ import annotations

from math import prod

import numpy as np

from bnnrt import packing
from bnnrt.backends.base import DeviceKind, Language
from bnnrt.backends.source import Define, KernelSource
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    BitPool,
    Clip,
    Concat,
    Domain,
    Grayscale,
    LocalBinaryPattern,
    LogSoftmax,
    MaxPool,
    Pad,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    SignOfZero,
    Softmax,
    TensorType,
    Threshold,
    ToFloat,
    Transpose,
)
from bnnrt.variants.base import (
    C_LANGUAGES,
    LaunchSpec,
    Site,
    StepCode,
    Variant,
    fits,
    per_element,
    stored_shape,
    window_defines,
)

__all__ = ["ELEMENTWISE_VARIANTS"]

_C_TYPES = {Domain.UINT8: "uchar", Domain.INT32: "int", Domain.BIT: "uint", Domain.FLOAT32: "float"}
# Threads that share a row of softmax, most first.
_SOFTMAX_GROUPS = (64, 32, 16, 8, 4, 2, 1)
# Words whose bits a group works out, most first.
_VOTE_ROWS = (4, 2, 1)
_OPERATIONS = {
    ArithmeticKind.ADD: 0,
    ArithmeticKind.SUB: 1,
    ArithmeticKind.MUL: 2,
    ArithmeticKind.DIV: 3,
    ArithmeticKind.MAX: 4,
    ArithmeticKind.MIN: 5,
}


def _step(site: Site, entry: str, source: KernelSource, *inputs: str) -> StepCode:
    launch = per_element(site, entry, source, (*inputs, site.output), site.count(site.output))
    return StepCode((launch,))


def _packed(tensor_type: TensorType) -> dict[str, Define]:
    return {"CHANNELS": tensor_type.channels, "WORDS": packing.words_for(tensor_type.channels)}


def _dividing(site: Site, *files: str, **defines: Define) -> KernelSource:
    """A source that divides, by integers where the device's own division is not correctly rounded."""
    return KernelSource.of("common/division.h", *files, EXACT_DIVISION=int(site.device.exact_division), **defines)


def _threshold_defines(site: Site) -> dict[str, Define]:
    x = site.type(site.node.inputs[0])
    return {
        **_packed(site.type(site.output)),
        "SOURCE": _C_TYPES[x.domain],
        "SOURCE_CHANNELS": x.channels,
    }


def _threshold(site: Site) -> StepCode:
    source = KernelSource.of("common/threshold.h", **_threshold_defines(site))
    return _step(site, "threshold_pack", source, *site.node.inputs)


def _threshold_votes(site: Site) -> StepCode:
    rows = _vote_rows(site)
    assert rows is not None  # _many_channels
    source = KernelSource.of("common/threshold_votes.h", ROWS=rows, **_threshold_defines(site))
    count = site.count(site.output)
    args: tuple[str | int, ...] = (*site.node.inputs, site.output, count)
    groups, items = (-(-count // rows), 1, 1), (packing.WORD_BITS, rows, 1)
    return StepCode((LaunchSpec("threshold_votes", source, args, groups, items, rows * packing.WORD_BITS),))


def _vote_rows(site: Site) -> int | None:
    """Words that a group computes, or None where the device has no groups of 32 work-items."""
    fitting = [r for r in _VOTE_ROWS if fits(site.device, (packing.WORD_BITS, r, 1), r * packing.WORD_BITS)]
    return fitting[0] if fitting else None


def _many_channels(site: Site) -> str | None:
    if site.device.kind is DeviceKind.CPU:
        return "made for GPUs"
    if 2 * site.type(site.output).channels < packing.WORD_BITS:
        return "most work-items of a word have no channel"
    return None if _vote_rows(site) else "a row of 32 work-items is more than a group"


def _grayscale(site: Site) -> StepCode:
    return _step(site, "grayscale", KernelSource.of("common/grayscale.h"), *site.node.inputs)


def _lbp(site: Site) -> StepCode:
    _, height, width, _ = site.type(site.output).with_batch(1)
    return _step(site, "lbp_pack", KernelSource.of("common/lbp.h", HEIGHT=height, WIDTH=width), *site.node.inputs)


def _sign(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Sign)
    x = site.type(site.node.inputs[0])
    source = KernelSource.of("common/sign.h", ZERO_IS_PLUS=int(op.zero is SignOfZero.GE), **_packed(x))
    return _step(site, "sign_pack", source, *site.node.inputs)


def _bit_pool(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, BitPool)
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    defines = {**window_defines(op.window, x, out), "WORDS": packing.words_for(x.channels)}
    return _step(
        site, "bit_pool", KernelSource.of("common/window.h", "common/bit_pool.h", **defines), *site.node.inputs
    )


def _max_pool(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, MaxPool)
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    defines = {**window_defines(op.window, x, out), "CHANNELS": x.channels, "FLOAT": int(x.domain is Domain.FLOAT32)}
    return _step(
        site, "max_pool", KernelSource.of("common/window.h", "common/max_pool.h", **defines), *site.node.inputs
    )


def _average_pool(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, AveragePool)
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    sides = ("COUNTED_TOP", "COUNTED_LEFT", "COUNTED_BOTTOM", "COUNTED_RIGHT")
    defines = {**window_defines(op.window, x, out), **dict(zip(sides, op.counted_pads, strict=True))}
    files = ("common/window.h", "common/average_pool.h")
    source = _dividing(site, *files, CHANNELS=x.channels, **defines)
    return _step(site, "average_pool", source, *site.node.inputs)


def _relu(site: Site) -> StepCode:
    return _step(site, "relu", KernelSource.of("common/relu.h"), *site.node.inputs)


def _prelu(site: Site) -> StepCode:
    slopes = site.type(site.node.inputs[1]).channels
    return _step(site, "prelu", KernelSource.of("common/prelu.h", SLOPES=slopes), *site.node.inputs)


def _clip(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Clip)
    bounds = f"{site.output}:bounds"
    step = _step(site, "clip", KernelSource.of("common/clip.h"), site.node.inputs[0], bounds)
    return StepCode(step.launches, {bounds: np.array([op.minimum, op.maximum], dtype=np.float32)})


def _sigmoid(site: Site) -> StepCode:
    source = _dividing(site, "common/exponential.h", "common/sigmoid.h")
    return _step(site, "sigmoid", source, *site.node.inputs)


def _softmax(site: Site) -> StepCode:
    channels = site.type(site.output).channels
    group = next(size for size in _SOFTMAX_GROUPS if size == 1 or fits(site.device, (size, 1, 1), 4 * (size + 1)))
    if isinstance(site.node.op, LogSoftmax):
        source = KernelSource.of(
            *("common/exponential.h", "common/logarithm.h", "common/softmax.h"),
            CHANNELS=channels,
            GROUP=group,
            LOGARITHM=1,
        )
    else:
        defines: dict[str, Define] = {"CHANNELS": channels, "GROUP": group, "LOGARITHM": 0}
        source = _dividing(site, "common/exponential.h", "common/softmax.h", **defines)
    rows = site.count(site.output) // channels
    args = (site.node.inputs[0], site.output)
    launch = LaunchSpec("softmax", source, args, (rows, 1, 1), (group, 1, 1), local_bytes=4 * (group + 1))
    return StepCode((launch,))


def _broadcast(operand: TensorType, out: TensorType) -> int:
    """How arithmetic.h reads an operand: whole, one a channel, a single number, or repeated along some axes."""
    if operand.shape == out.shape:
        return 0
    if len(operand.shape) == len(out.shape):
        return 3
    return 1 if operand.channels == out.channels and out.channels > 1 else 2


def _steps(operand: TensorType) -> tuple[int, ...]:
    """The operand's step for each axis but the batch, 0 along those of one element."""
    sizes = operand.with_batch(1)[1:]
    return tuple(0 if size == 1 else prod(sizes[axis + 1 :]) for axis, size in enumerate(sizes))


def _arithmetic(site: Site) -> StepCode:
    """Arithmetic, where its first operand may come through ToFloat."""
    node = site.nodes[-1]
    op = node.op
    assert isinstance(op, Arithmetic)
    a, b = (site.type(name) for name in node.inputs)
    out = site.type(site.output)
    defines: dict[str, Define] = {
        "SOURCE": _C_TYPES[site.type(site.node.inputs[0]).domain],
        "OPERATION": _OPERATIONS[op.kind],
        "CHANNELS": out.channels,
        "A_BROADCAST": _broadcast(a, out),
        "B_BROADCAST": _broadcast(b, out),
    }
    if 3 in (defines["A_BROADCAST"], defines["B_BROADCAST"]):
        dims = out.with_batch(1)[1:]
        defines |= {"RANK": len(dims), "DIMS": dims, "SIZE": prod(dims)}
        for name, operand in (("A", a), ("B", b)):
            defines |= {f"{name}_STRIDES": _steps(operand), f"{name}_SIZE": prod(operand.with_batch(1)[1:])}
    if op.kind is ArithmeticKind.DIV:
        source = _dividing(site, "common/arithmetic.h", **defines)
    else:
        source = KernelSource.of("common/arithmetic.h", **defines)
    return _step(site, "arithmetic", source, site.node.inputs[0], node.inputs[1])


def _not_packed(site: Site) -> str | None:
    return "bits are packed" if site.type(site.node.inputs[0]).domain is Domain.BIT else None


def _to_float(site: Site) -> StepCode:
    x = site.type(site.node.inputs[0])
    bits = int(x.domain is Domain.BIT)
    source = KernelSource.of("common/to_float.h", SOURCE=_C_TYPES[x.domain], BITS=bits, **_packed(x))
    return _step(site, "to_float", source, *site.node.inputs)


def _sign_planes(site: Site) -> StepCode:
    sign = site.nodes[2].op
    assert isinstance(sign, Sign)
    x, addend = site.node.inputs[0], site.nodes[1].inputs[1]
    _, channels, height, width = site.type(x).with_batch(1)
    source = KernelSource.of(
        "common/sign_planes.h",
        CHANNELS=channels,
        WORDS=packing.words_for(channels),
        PIXELS=height * width,
        ADDENDS=site.type(addend).channels,
        ZERO_IS_PLUS=int(sign.zero is SignOfZero.GE),
    )
    return _step(site, "sign_planes", source, x, addend)


def _adds_to_planes(site: Site) -> str | None:
    transpose, add = site.nodes[0].op, site.nodes[1]
    assert isinstance(transpose, Transpose)
    assert isinstance(add.op, Arithmetic)
    if transpose.perm != (0, 2, 3, 1):
        return "made for NCHW"
    if add.op.kind is not ArithmeticKind.ADD or add.inputs[1] not in site.graph.constants:
        return "made for adding a constant"
    if site.type(add.inputs[1]).shape not in ((1,), (site.type(site.output).channels,)):
        return "made for a number a channel"
    return None


def _transpose(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Transpose)
    shape = site.type(site.node.inputs[0]).with_batch(1)
    axes = op.perm[1:]
    dims = tuple(shape[axis] for axis in axes)
    strides = tuple(prod(shape[axis + 1 :]) for axis in axes)
    source = KernelSource.of("common/transpose.h", RANK=len(dims), DIMS=dims, STRIDES=strides, SIZE=prod(dims))
    return _step(site, "transpose", source, *site.node.inputs)


def _pad(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Pad)
    _, height, width, channels = site.type(site.node.inputs[0]).with_batch(1)
    _, out_height, out_width, _ = site.type(site.output).with_batch(1)
    source = KernelSource.of(
        "common/pad.h",
        HEIGHT=height,
        WIDTH=width,
        OUT_HEIGHT=out_height,
        OUT_WIDTH=out_width,
        CHANNELS=channels,
        PAD_TOP=op.pads[0],
        PAD_LEFT=op.pads[1],
    )
    value = f"{site.output}:value"
    step = _step(site, "pad", source, site.node.inputs[0], value)
    return StepCode(step.launches, {value: np.array([op.value], dtype=np.float32)})


def _concat(site: Site) -> StepCode:
    """A launch an input."""
    channels, offset, launches = site.type(site.output).channels, 0, []
    for name in site.node.inputs:
        part = site.type(name).channels
        source = KernelSource.of("common/concat.h", PART=part, OFFSET=offset, CHANNELS=channels)
        launches.append(per_element(site, "concat", source, (name, site.output), site.count(name)))
        offset += part
    return StepCode(tuple(launches))


def _same_memory(site: Site) -> str | None:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    whole_words = x.channels % packing.WORD_BITS == 0 and out.channels % packing.WORD_BITS == 0
    if x.domain is Domain.BIT and not whole_words and x.channels != out.channels:
        return f"rows of {x.channels} bits do not fill their words"
    return None


def _alias(site: Site) -> StepCode:
    return StepCode((), alias=True)


def _repack(site: Site) -> StepCode:
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    source = KernelSource.of(
        "common/repack.h",
        FROM=x.channels,
        FROM_WORDS=packing.words_for(x.channels),
        TO=out.channels,
        TO_WORDS=packing.words_for(out.channels),
        ROWS=prod(out.with_batch(1)[1:-1]),
        IMAGE_WORDS=prod(stored_shape(x, 1)),
    )
    return _step(site, "repack", source, *site.node.inputs)


ELEMENTWISE_VARIANTS: tuple[Variant, ...] = (
    # First, since moving nothing is best; every language can.
    Variant("same_memory", (Reshape,), tuple(Language), _alias, _same_memory),
    Variant("arithmetic", (Arithmetic,), C_LANGUAGES, _arithmetic),
    Variant("average_pool", (AveragePool,), C_LANGUAGES, _average_pool),
    Variant("bit_pool", (BitPool,), C_LANGUAGES, _bit_pool),
    Variant("clip", (Clip,), C_LANGUAGES, _clip),
    Variant("concat", (Concat,), C_LANGUAGES, _concat),
    Variant("grayscale", (Grayscale,), C_LANGUAGES, _grayscale),
    Variant("lbp", (LocalBinaryPattern,), C_LANGUAGES, _lbp),
    Variant("log_softmax", (LogSoftmax,), C_LANGUAGES, _softmax),
    Variant("max_pool", (MaxPool,), C_LANGUAGES, _max_pool),
    Variant("pad", (Pad,), C_LANGUAGES, _pad),
    Variant("prelu", (PRelu,), C_LANGUAGES, _prelu),
    Variant("relu", (Relu,), C_LANGUAGES, _relu),
    Variant("repack", (Reshape,), C_LANGUAGES, _repack),
    Variant("sigmoid", (Sigmoid,), C_LANGUAGES, _sigmoid),
    Variant("sign", (Sign,), C_LANGUAGES, _sign),
    Variant("softmax", (Softmax,), C_LANGUAGES, _softmax),
    Variant("threshold_votes", (Threshold,), C_LANGUAGES, _threshold_votes, _many_channels),
    Variant("threshold", (Threshold,), C_LANGUAGES, _threshold),
    Variant("arithmetic", (ToFloat, Arithmetic), C_LANGUAGES, _arithmetic, _not_packed),
    Variant("to_float", (ToFloat,), C_LANGUAGES, _to_float),
    Variant("sign_planes", (Transpose, Arithmetic, Sign), C_LANGUAGES, _sign_planes, _adds_to_planes),
    Variant("transpose", (Transpose,), C_LANGUAGES, _transpose),
)
