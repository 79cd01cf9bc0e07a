"""Pictures of what a network sees."""

from __future__ import annotations

import io
import os

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bnnrt.errors import InputError
from bnnrt.files import replace_file

__all__ = ["save_png"]


def save_png(pixels: NDArray[np.uint8], path: str | os.PathLike[str], enlarge: int = 1) -> None:
    """Write uint8 [H, W, 3] or [H, W, 1] as a PNG, each pixel a square ``enlarge`` wide: the whole file or nothing.

    Raises :class:`~bnnrt.errors.InputError` for other arrays, :class:`~bnnrt.errors.OutputError` if the file cannot be
    written.
    """
    if (
        pixels.dtype != np.uint8
        or pixels.ndim != 3
        or pixels.shape[2] not in (1, 3)
        or 0 in pixels.shape
        or enlarge < 1
    ):
        raise InputError(f"{pixels.dtype} {list(pixels.shape)} is no picture", fix="give uint8 [H, W, 3] or [H, W, 1]")
    large = pixels.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    stream = io.BytesIO()
    Image.fromarray(large[..., 0] if large.shape[2] == 1 else large).save(stream, "PNG", optimize=True)
    replace_file(os.fspath(path), stream.getvalue(), "picture")
