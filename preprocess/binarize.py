"""Pixels to bits: grayscale, thresholding and local binary patterns.

The two binarizations are those of "Binarized Convolutional Neural Networks for Efficient Inference on GPUs", from its
text on binarizing the inputs to the first layer. A true bit stands for +1, a false one for -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnnrt.errors import InputError

__all__ = ["grayscale", "lbp", "threshold"]


def grayscale(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Luma of uint8 [..., H, W, 3] as uint8 [..., H, W].

    (19595 R + 38470 G + 7471 B + 32768) >> 16: the ITU-R BT.601 weights in 16-bit fixed point, rounded. It equals
    Pillow's ``convert("L")``. Raises :class:`~bnnrt.errors.InputError` for other arrays.
    """
    _require(rgb, "[..., H, W, 3]", rgb.ndim >= 3 and rgb.shape[-1] == 3)
    luma = rgb[..., 0].astype(np.uint32) * 19595
    luma += rgb[..., 1].astype(np.uint32) * 38470
    luma += rgb[..., 2].astype(np.uint32) * 7471
    return ((luma + 32768) >> 16).astype(np.uint8)


def threshold(pixels: NDArray[np.uint8], T: Sequence[float] | NDArray[Any]) -> NDArray[np.bool_]:  # noqa: N803
    """Threshold uint8 [..., H, W, C], in pixel units 0..255, to bool [..., H, W, C].

    The paper's thresholding: bit = (X + T > 0), added and compared in float32, with one number of ``T`` a channel
    (shape [C]; rounded to float32 first). ``T`` is what training adds, the negative of a gray level. A NaN gives bit 0.
    The paper's name ``T`` is kept. Raises :class:`~bnnrt.errors.InputError` for other arrays or shapes.
    """
    _require(pixels, "[..., H, W, C]", pixels.ndim >= 3)
    offsets = np.asarray(T, dtype=np.float32)
    if offsets.shape != pixels.shape[-1:]:
        what = f"thresholds of shape {list(offsets.shape)} do not fit {pixels.shape[-1]} channels"
        raise InputError(what, fix="give one number a channel")
    return np.asarray(pixels.astype(np.float32) + offsets > 0)


def lbp(gray: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Local binary patterns of uint8 [..., H, W], as three channels: bool [..., H, W, 3].

    The paper's variant: the 8 neighbours of a pixel at radius 1, counted clockwise from the top-left, are 0 to 7, and
    a stride of 3 selects the neighbours 0, 3 and 6: top-left, right and bottom-left are the channels. A bit is set if
    the neighbour is greater than the pixel; a neighbour outside the image is not.
    Raises :class:`~bnnrt.errors.InputError` for other arrays.
    """
    _require(gray, "[..., H, W]", gray.ndim >= 2)
    bits = np.zeros((*gray.shape, 3), dtype=np.bool_)
    bits[..., 1:, 1:, 0] = gray[..., :-1, :-1] > gray[..., 1:, 1:]
    bits[..., :, :-1, 1] = gray[..., :, 1:] > gray[..., :, :-1]
    bits[..., :-1, 1:, 2] = gray[..., 1:, :-1] > gray[..., :-1, 1:]
    return bits


def _require(pixels: NDArray[Any], shape: str, fits: bool) -> None:
    if pixels.dtype != np.uint8 or not fits:
        raise InputError(f"{pixels.dtype} {list(pixels.shape)} does not fit", fix=f"give uint8 {shape}")
