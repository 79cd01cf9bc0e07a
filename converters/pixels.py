"""The network on 8-bit pixels, [N, height, width, channels]: what classification starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Draft
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.importer import input_shape, reads_channels_first
from bnnrt.converters.onnx_model.node import static_shape
from bnnrt.converters.passes.chains import find_chain, signs
from bnnrt.errors import ConversionError
from bnnrt.graph import Graph
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    Domain,
    Grayscale,
    LocalBinaryPattern,
    Sign,
    TensorType,
    Threshold,
    ToFloat,
)
from bnnrt.preprocess.binarize import threshold
from bnnrt.preprocess.schemes import InputBinarization, Scheme

__all__ = ["INPUT", "PixelInput", "binarized_input", "pixel_input", "refuse_constant_planes"]

INPUT = "pixels"
"""Name of the pixel graph's input."""
BITS = f"{INPUT}/bits"
"""Name of the planes that input binarization makes of it."""


@dataclass(frozen=True)
class PixelInput:
    """An image input bound to pixels: ``value = pixel * scale + offset``, both float32 operations, where given.

    With ``binarization``, the value is +1 and -1 instead, and the pixels are red, green and blue whatever ``channels``,
    those of the input, are.
    """

    height: int
    width: int
    channels: int
    channels_first: bool
    scale: float | None = None
    offset: float | None = None
    binarization: InputBinarization | None = None

    @property
    def pixel_channels(self) -> int:
        return self.channels if self.binarization is None else 3

    def inputs(self, model: ir.Model) -> Mapping[str, TensorType]:
        return {INPUT: TensorType((None, self.height, self.width, self.pixel_channels), Domain.UINT8)}

    def bind(self, draft: Draft, model: ir.Model) -> Mapping[str, Value]:
        source = INPUT if self.binarization is None else _bits(draft, self.binarization)
        tensor = draft.emit(f"{INPUT}/float", ToFloat(), source)
        for kind, number in ((ArithmeticKind.MUL, self.scale), (ArithmeticKind.ADD, self.offset)):
            if number is not None:
                operand = draft.constant(f"{INPUT}/{kind.value}/constant", np.full(1, number, dtype=np.float32))
                tensor = draft.emit(f"{INPUT}/{kind.value}", Arithmetic(kind), tensor, operand)
        if self.channels_first:
            value = Value.image(tensor, (self.channels, self.height, self.width))
        else:
            value = Value.plain(tensor, (self.height, self.width, self.channels))
        return {model.graph.inputs[0].name or "": value}


def _bits(draft: Draft, binarization: InputBinarization) -> str:
    """Emit the operators of a scheme; returns the bits."""
    pixels = draft.emit(f"{INPUT}/gray", Grayscale(), INPUT) if binarization.of_luma else INPUT
    if binarization.scheme is Scheme.LBP:
        return draft.emit(BITS, LocalBinaryPattern(), pixels)
    # How many of the 256 levels, which rise with the sum, give bit 0: that is the first that gives bit 1.
    levels = np.arange(256, dtype=np.uint8)[:, None, None]
    above = threshold(levels.repeat(binarization.planes, axis=2), binarization.thresholds)[:, 0]
    firsts = draft.constant(f"{BITS}/threshold", (~above).sum(axis=0, dtype=np.int32))
    rising = draft.constant(f"{BITS}/falling", np.zeros(binarization.planes, dtype=np.bool_))
    return draft.emit(BITS, Threshold(), pixels, firsts, rising)


def binarized_input(model: ir.Model, binarization: InputBinarization) -> PixelInput:
    """How pixels feed ``model`` through a scheme. Raises ConversionError if its input is not the scheme's planes."""
    scheme, planes = binarization.scheme.value, binarization.planes
    wanted = f"{planes} plane{'s' if planes > 1 else ''} of +1 and -1"
    fix = f"give a model whose only input is float32 [N, {planes}, H, W]"
    if len(model.graph.inputs) != 1:
        raise ConversionError(f"{scheme} makes {wanted}, and the model has {len(model.graph.inputs)} inputs", fix=fix)
    (value,) = model.graph.inputs
    found = pixel_input(model, channels=(planes,))
    if found is None or value.dtype != ir.DataType.FLOAT:
        kind = "of no tensor type" if value.dtype is None else value.dtype.name.lower()
        shape = ", ".join("?" if size is None else str(size) for size in static_shape(value) or ())
        raise ConversionError(f"{scheme} makes {wanted}, and the input is {kind} [{shape}]", f"input {value.name}", fix)
    return replace(found, binarization=binarization)


def refuse_constant_planes(graph: Graph) -> None:
    """Raises ConversionError if a sign in an imported ``graph`` leaves nothing of its input: +1 and -1 are one bit.

    So it is in a model that thresholds pixels itself, with thresholds far beyond +1 and -1.
    """
    producers = graph.producers()
    for node in graph.nodes:
        chain = find_chain(graph, producers, node) if isinstance(node.op, Sign) else None
        if chain is None or chain.source != BITS or not isinstance(node.op, Sign):
            continue
        bits = [signs(part.after, node.op) for part in chain.evaluate()]
        if all((part[:, 0] == part[:, 1]).all() for part in bits):
            raise ConversionError(
                "the model binarizes its input itself, with thresholds that +1 and -1 do not reach",
                f"node {node.name}",
                "leave --input-binarization out",
            )


def pixel_input(
    model: ir.Model, scale: float | None = None, offset: float | None = None, channels: tuple[int, ...] = (1, 3)
) -> PixelInput | None:
    """How pixels feed ``model``; None if its input is not one image of so many channels."""
    if len(model.graph.inputs) != 1:
        return None
    value = model.graph.inputs[0]
    shape = static_shape(value)
    if shape is None or len(shape) != 4:
        return None
    sizes = input_shape(value)
    first, last = sizes[0] in channels, sizes[2] in channels
    if not first and not last:
        return None
    # Where both ends could be channels, the first operator that looks at them decides.
    if first and (not last or reads_channels_first(value)):
        count, height, width = sizes
        return PixelInput(height, width, count, True, scale, offset)
    height, width, count = sizes
    return PixelInput(height, width, count, False, scale, offset)
