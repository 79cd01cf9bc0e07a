"""The image pipeline of a model: what happens to an image file before the model's first operator."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnnrt.errors import BundleError, ImageError, InputError
from bnnrt.preprocess.binarize import grayscale
from bnnrt.preprocess.images import FILTERS, ImageSource, load_rgb, resize, source_name

__all__ = ["MAX_SIZE", "ImagePipeline"]

MAX_SIZE = 16384
"""The greatest height and width, in pixels."""

_CHOICES: dict[str, tuple[Any, ...]] = {
    "channels": (1, 3),
    "filter": tuple(FILTERS),
    "color": ("rgb", "bgr"),
    "units": ("pixel",),
}


@dataclass(frozen=True)
class ImagePipeline:
    """Resize to ``height`` x ``width`` pixels, then take the colours in order, or their luma.

    ``channels`` is 3 for colour or 1 for grayscale (:func:`bnnrt.preprocess.binarize.grayscale`, after resizing).
    ``filter`` is a key of :data:`bnnrt.preprocess.images.FILTERS`. ``color`` is the order of the channels, ``rgb`` or
    ``bgr``; with one channel it is ``rgb``. ``units`` is ``pixel``: 0..255.
    Raises :class:`~bnnrt.errors.InputError` if a field is of another type or out of range.
    """

    height: int
    width: int
    channels: int = 3
    filter: str = "bilinear"
    color: str = "rgb"
    units: str = "pixel"

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MAX_SIZE:
                raise InputError(f"image {name} {value!r} is not valid", fix=f"give a whole number, 1 to {MAX_SIZE}")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            # The type too: True and 1.0 are equal to 1.
            if type(value) is not type(choices[0]) or value not in choices:
                raise InputError(f"image {name} {value!r} is not valid", fix=f"choose one of {_listed(choices)}")
        if self.channels == 1 and self.color != "rgb":
            raise InputError("a grayscale image has no colour order", fix="leave color at rgb")

    def load(self, source: ImageSource) -> NDArray[np.uint8]:
        """Decode and prepare one image: uint8 [height, width, channels].

        Raises :class:`~bnnrt.errors.ImageError` as :func:`bnnrt.preprocess.images.load_rgb` does.
        """
        rgb = load_rgb(source)
        try:
            rgb = resize(rgb, self.height, self.width, self.filter)
            if self.channels == 1:
                return grayscale(rgb)[..., None]
            return np.ascontiguousarray(rgb[..., ::-1]) if self.color == "bgr" else rgb
        except MemoryError as error:
            what = f"not enough memory to resize to {self.height}x{self.width}"
            raise ImageError(what, source_name(source), "use a smaller input size") from error

    def to_json(self) -> dict[str, Any]:
        """The fields, for a JSON document."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> ImagePipeline:
        """Read what :meth:`to_json` wrote; a field that has a default may be missing.

        Raises :class:`~bnnrt.errors.BundleError` for anything else.
        """
        where, fix = "image pipeline", "convert the model again"
        if not isinstance(document, dict):
            raise BundleError(f"a JSON object is wanted, not {type(document).__name__}", where, fix)
        fields = dataclasses.fields(cls)
        if unknown := document.keys() - {field.name for field in fields}:
            raise BundleError(f"unknown fields {_listed(sorted(map(str, unknown)))}", where, "update bnnrt")
        if missing := {field.name for field in fields if field.default is dataclasses.MISSING} - document.keys():
            raise BundleError(f"fields {_listed(sorted(missing))} are missing", where, fix)
        try:
            return cls(**document)
        except InputError as error:
            raise BundleError(error.what, where, fix) from error


def _listed(values: Any) -> str:
    return ", ".join(str(value) for value in values)
