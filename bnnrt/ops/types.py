"""Tensors and sliding windows: what operators are described in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from bnnrt.errors import GraphError

__all__ = ["MAX_ELEMENTS", "Domain", "Shape", "TensorType", "Window"]

Shape = tuple[int | None, ...]

# A single image's tensor beyond this is a mistake or an attack, not a network for an embedded GPU.
MAX_ELEMENTS = 1 << 30


class Domain(Enum):
    """What the elements of a tensor are."""

    BIT = "bit"  # +1 or -1, packed along the last axis
    UINT8 = "uint8"  # pixels
    INT32 = "int32"  # accumulators and indices, exact
    INT64 = "int64"  # indices, as ONNX gives them, at the end of a network
    FLOAT32 = "float32"


@dataclass(frozen=True)
class TensorType:
    """Shape and domain of a tensor; a first dimension of ``None`` is the free batch."""

    shape: Shape
    domain: Domain

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 6:
            raise GraphError(f"a tensor has {len(self.shape)} dimensions", fix="between 1 and 6 are supported")
        sizes = [1 if d is None and i == 0 else d for i, d in enumerate(self.shape)]
        known = [d for d in sizes if d is not None and d >= 1]
        if len(known) != len(sizes) or prod(known) > MAX_ELEMENTS:
            raise GraphError(f"shape {list(self.shape)} is out of range", fix="check the model's input shape")

    @property
    def channels(self) -> int:
        """Size of the last axis, along which bits are packed."""
        last = self.shape[-1]
        return 1 if last is None else last

    def with_batch(self, batch: int) -> tuple[int, ...]:
        """The shape with a free batch replaced by ``batch``."""
        return tuple(batch if d is None else d for d in self.shape)

    def __str__(self) -> str:
        return f"{self.domain.value}[{', '.join('N' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Window:
    """A sliding window: the attributes of ONNX Conv and MaxPool, for two spatial axes.

    ``pads`` is (top, left, bottom, right).
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        for name, values, count, least in (
            ("kernel", self.kernel, 2, 1),
            ("strides", self.strides, 2, 1),
            ("pads", self.pads, 4, 0),
            ("dilations", self.dilations, 2, 1),
        ):
            if len(values) != count or not all(least <= v <= 1 << 15 for v in values):
                raise GraphError(f"window {name} {list(values)} is out of range")

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the output (ONNX Conv with explicit pads)."""
        sizes = []
        for axis, size in enumerate((height, width)):
            span = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            free = size + self.pads[axis] + self.pads[axis + 2] - span
            if free < 0:
                raise GraphError(f"a window of {span} does not fit a padded axis of {free + span}")
            sizes.append(free // self.strides[axis] + 1)
        return sizes[0], sizes[1]

    def sees_image(self, height: int, width: int) -> bool:
        """Whether every output has a tap inside the image: what pooling needs, since padding is no value there."""
        for axis, (size, count) in enumerate(zip((height, width), self.output_size(height, width), strict=True)):
            step = self.dilations[axis]
            for index in range(count):
                first = index * self.strides[axis] - self.pads[axis]
                skipped = max(0, -(first // step))  # taps before the image
                if skipped >= self.kernel[axis] or first + skipped * step >= size:
                    return False
        return True
