"""The network on 8-bit pixels, [N, height, width, channels]: what classification starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Draft
from bnnrt.converters.importer import input_shape, reads_channels_first
from bnnrt.converters.layout import Value
from bnnrt.converters.onnx_node import static_shape
from bnnrt.ops import Arithmetic, ArithmeticKind, Domain, TensorType, ToFloat

__all__ = ["INPUT", "PixelInput", "pixel_input"]

INPUT = "pixels"
"""Name of the pixel graph's input."""


@dataclass(frozen=True)
class PixelInput:
    """An image input bound to pixels: ``value = pixel * scale + offset``, both float32 operations, where given."""

    height: int
    width: int
    channels: int
    channels_first: bool
    scale: float | None = None
    offset: float | None = None

    def inputs(self, model: ir.Model) -> Mapping[str, TensorType]:
        return {INPUT: TensorType((None, self.height, self.width, self.channels), Domain.UINT8)}

    def bind(self, draft: Draft, model: ir.Model) -> Mapping[str, Value]:
        tensor = draft.emit(f"{INPUT}/float", ToFloat(), INPUT)
        for kind, number in ((ArithmeticKind.MUL, self.scale), (ArithmeticKind.ADD, self.offset)):
            if number is not None:
                operand = draft.constant(f"{INPUT}/{kind.value}/constant", np.full(1, number, dtype=np.float32))
                tensor = draft.emit(f"{INPUT}/{kind.value}", Arithmetic(kind), tensor, operand)
        if self.channels_first:
            value = Value.image(tensor, (self.channels, self.height, self.width))
        else:
            value = Value.plain(tensor, (self.height, self.width, self.channels))
        return {model.graph.inputs[0].name or "": value}


def pixel_input(model: ir.Model, scale: float | None = None, offset: float | None = None) -> PixelInput | None:
    """How pixels feed ``model``; None if its input is not one image of 1 or 3 channels."""
    if len(model.graph.inputs) != 1:
        return None
    value = model.graph.inputs[0]
    shape = static_shape(value)
    if shape is None or len(shape) != 4:
        return None
    sizes = input_shape(value)
    first, last = sizes[0] in (1, 3), sizes[2] in (1, 3)
    if not first and not last:
        return None
    # Where both ends could be channels, the first operator that looks at them decides.
    if first and (not last or reads_channels_first(value)):
        channels, height, width = sizes
        return PixelInput(height, width, channels, True, scale, offset)
    height, width, channels = sizes
    return PixelInput(height, width, channels, False, scale, offset)
