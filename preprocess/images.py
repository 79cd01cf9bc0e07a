"""Image files to 8-bit RGB pixels, with Pillow.

Every file of a kind that is opened gives defined pixels or an :class:`~bnnrt.errors.ImageError`:

===========================  =========================================================================================
stored as                    8-bit RGB
===========================  =========================================================================================
1, 2 or 4 bits gray          scaled to 0..255
12, 16 or 32 bits            (v * 255 + max // 2) // max, to the nearest level; for 16 bits that is (v + 128) // 257
(unsigned)                   for every channel, alpha included
signed integers (TIFF)       ImageError: where black and white lie is not defined
floating point               0..1 is black..white, rounded half up; ImageError if a value is outside, or not a number
alpha                        over black: (c * a + 127) // 255, after scaling to 8 bits; associated alpha: c as stored
palette                      looked up; transparent entries as alpha
a transparent colour (tRNS)  black where the stored sample, at its full depth, has that value
CMYK, YCbCr                  Pillow's conversion; colour profiles and gamma chunks are not applied
CIE L*a*b*                   ImageError
several frames or pages      the first
===========================  =========================================================================================

EXIF orientation is applied; EXIF data that cannot be parsed counts as none, since the pixels are whole without it.
Files with more than ``PIL.Image.MAX_IMAGE_PIXELS`` pixels are refused before they are decoded.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

# The plugins are imported here because Image.open would otherwise import every plugin that Pillow has on first use.
from PIL import (
    BmpImagePlugin,  # noqa: F401
    ExifTags,
    GifImagePlugin,  # noqa: F401
    Image,
    ImageFile,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    PpmImagePlugin,  # noqa: F401
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from bnnrt.errors import ImageError, InputError
from bnnrt.preprocess.png import has_all_rows

__all__ = ["FILTERS", "FORMATS", "ImageSource", "load_rgb", "resize", "source_name"]

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Image.Image"
"""A path, the bytes of a file, a binary stream or a Pillow image."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
"""The formats that are opened, by Pillow's names. Others are not even tried: Pillow would start Ghostscript for EPS."""

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
"""The resampling filters of :func:`resize`."""

_GIVE = "a JPEG, PNG, WebP, BMP, GIF, PPM or TIFF file with 8 or 16 bits a channel"
_DAMAGED = "it may be damaged, truncated or of a rare kind; save the image again as PNG or JPEG"
_TOO_LARGE = "scale it down first"

# The first entry that fits an exception tells what it means. Their order matters: most are OSErrors.
_EXPLANATIONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (FileNotFoundError, "no such file", "check the path"),
    (IsADirectoryError, "a directory, not an image", "name the image files in it"),
    (PermissionError, "no permission to read the file", "make it readable"),
    (UnidentifiedImageError, "not an image, or of a kind that cannot be read", f"give {_GIVE}"),
    (Image.DecompressionBombError, "the image has too many pixels", _TOO_LARGE),
    (Image.DecompressionBombWarning, "the image has too many pixels", _TOO_LARGE),
    (MemoryError, "not enough memory for the image", _TOO_LARGE),
)

# 16-bit colour. Pillow keeps the high byte of these; layout and byte order are in the name of the raw mode.
_WIDE = re.compile(r"(RGB|RGBX|RGBA|RGBa|CMYK);16([BLN])")
_OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}

# The greatest stored level of gray. Pillow scales gray of less than 8 bits, but not (1 bit: not always) the transparent
# level.
_GRAY_MAXIMA = {"1": 1, "L;2": 3, "L;4": 15}

# What turns the stored rows and columns into the upright image, for each value of the EXIF tag Orientation.
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_WHITE_IS_ZERO, _YCBCR = 0, 6  # TIFF PhotometricInterpretation
_SEPARATE_PLANES = 2  # TIFF PlanarConfiguration
_SIGNED = 2  # TIFF SampleFormat
_ASSOCIATED = 1  # TIFF ExtraSamples


def load_rgb(source: ImageSource) -> NDArray[np.uint8]:
    """Decode an image: uint8 [H, W, 3], RGB, upright, writable and contiguous.

    ``source`` is a path, the bytes of a file, a binary stream (read from its start if it can seek; not closed) or a
    Pillow image. A Pillow image is taken as Pillow decodes it, in its present mode: ``F`` holds 0..1, ``I;16`` and
    ``I`` hold 0..65535 (or what the TIFF file that it is says), and 16-bit colour has lost its low bytes.

    Raises :class:`~bnnrt.errors.ImageError`, and nothing else, if ``source`` gives no pixels; the error names the file.
    """
    try:
        if isinstance(source, Image.Image):
            _check(source)
            source.load()
            return _upright(_loaded_rgb(source, ""), source)
        with _stream(source) as stream:
            return _decode(stream)
    except Exception as error:  # Pillow's plugins raise whatever their parsing runs into on a damaged file
        what, fix = _explain(error)
        raise ImageError(_printable(what), source_name(source), fix) from error


def source_name(source: ImageSource) -> str:
    """The file name of ``source``, safe to print, or what it is if it has none."""
    if isinstance(source, (str, os.PathLike)):
        return _printable(os.fsdecode(source)) or "''"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "<bytes>"
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    return _printable(name) if isinstance(name, str) else f"<{type(source).__name__}>"


def resize(rgb: NDArray[np.uint8], height: int, width: int, filter: str = "bilinear") -> NDArray[np.uint8]:
    """Resample uint8 [H, W, 3] to uint8 [height, width, 3] with Pillow's ``filter``, a key of :data:`FILTERS`.

    An image that has the size already is copied. Raises :class:`~bnnrt.errors.InputError` for other arrays, sizes
    below 1 and unknown filters.
    """
    if filter not in FILTERS:
        raise InputError(f"unknown resampling filter {filter!r}", fix=f"choose one of {', '.join(FILTERS)}")
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise InputError(f"{rgb.dtype} {list(rgb.shape)} is not an image", fix="give uint8 [H, W, 3]")
    if height < 1 or width < 1:
        raise InputError(f"cannot resize to {height}x{width}", fix="give a height and a width of at least 1")
    return np.array(Image.fromarray(rgb).resize((width, height), FILTERS[filter]))


def _explain(error: Exception) -> tuple[str, str]:
    """What is wrong and what to do about it, in words for the user."""
    if isinstance(error, ImageError):
        return error.what, error.fix
    for kind, what, fix in _EXPLANATIONS:
        if isinstance(error, kind):
            return what, fix
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be opened: {error.strerror}", "check the path and the disk"
    return f"cannot be read: {str(error) or type(error).__name__}", _DAMAGED


def _printable(text: str) -> str:
    """``text`` with control characters and undecodable bytes escaped, so that it is safe to print."""
    return "".join(c if c.isprintable() or c.isspace() else ascii(c)[1:-1] for c in text)


@contextlib.contextmanager
def _stream(source: Any) -> Iterator[BinaryIO]:
    """A binary stream that can seek, at its start; a file that is opened here is closed again."""
    with contextlib.ExitStack() as stack:
        stream: BinaryIO
        if isinstance(source, (str, os.PathLike)):
            # Opened here and not by Pillow, which would map the file into memory: a file that shrinks then kills us.
            stream = stack.enter_context(open(source, "rb"))
        elif isinstance(source, (bytes, bytearray, memoryview)):
            stream = io.BytesIO(source)
        elif hasattr(source, "read"):
            stream = source
        else:
            fix = "give a path, the bytes of a file, a binary stream or a Pillow image"
            raise ImageError(f"{type(source).__name__} is not an image", fix=fix)
        try:
            stream.seek(0)
        except (AttributeError, OSError):  # a pipe, or a response from the network
            stream = io.BytesIO(stream.read())
        yield stream


def _open(stream: BinaryIO) -> ImageFile.ImageFile:
    """Read the header of the image in ``stream``, and refuse what must not be decoded."""
    stream.seek(0)
    if not stream.read(1):
        raise ImageError("the file is empty", fix="give an image file")
    image = Image.open(stream, formats=FORMATS)
    _check(image)
    return image


def _check(image: Image.Image) -> None:
    """Refuse an image that would decode to too many pixels, to none, or to some that are not defined."""
    # Pillow only warns up to twice the limit. Turning warnings into errors is not thread-safe, so it is checked here.
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ImageError(f"{image.width}x{image.height} pixels are more than the limit of {limit}", fix=_TOO_LARGE)
    if 0 in image.size:
        raise ImageError("the image has no pixels", fix="give an image of at least 1x1")
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return
    tags = image.tag_v2
    if _SIGNED in tags.get(TiffImagePlugin.SAMPLEFORMAT, (1,)):
        raise ImageError("pixels of signed integers have no defined black and white", fix="save them unsigned")
    # Before version 13 Pillow takes uncompressed YCbCr for 4 bytes of RGB.
    compressed = not image.tile or image.tile[0][0] != "raw"
    if tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == _YCBCR and image.mode == "RGB" and not compressed:
        raise ImageError("uncompressed YCbCr cannot be read by this version of Pillow", fix="update Pillow")
    # Pillow takes the planes of 16-bit samples for 8-bit ones or keeps only their high bytes.
    wide = max(tags.get(TiffImagePlugin.BITSPERSAMPLE, (1,))) > 8
    associated = _ASSOCIATED in tags.get(TiffImagePlugin.EXTRASAMPLES, ())
    planar = tags.get(TiffImagePlugin.PLANAR_CONFIGURATION, 1) == _SEPARATE_PLANES
    if planar and (wide or associated) and image.mode in {"RGB", "RGBA", "CMYK"}:
        what = "16-bit colour or associated alpha in separate planes cannot be read"
        raise ImageError(what, fix="save it with interleaved channels")


def _decode(stream: BinaryIO) -> NDArray[np.uint8]:
    with _open(stream) as image:
        if image.format == "PNG" and not has_all_rows(stream):
            raise OSError("image file is truncated (rows are missing)")
        raw_mode = _raw_mode(image)
        if wide := _WIDE.fullmatch(raw_mode):
            rgb = _wide_rgb(image, stream, *wide.groups())
        elif raw_mode == "LA;16B":
            # 16-bit gray and alpha are 4 bytes a pixel, which is RGBA to Pillow: high and low byte of each.
            stored = _load_raw(image, "RGBA").view(">u2")
            gray_alpha = _to_8_bits(stored, 65535)
            rgb = _rgb_over_black(Image.frombytes("LA", image.size, gray_alpha.tobytes()))
        elif raw_mode.startswith("RGBa"):
            # Associated alpha: what is stored is already the colour over black. Pillow would divide it by alpha.
            rgb = np.ascontiguousarray(_load_raw(image, raw_mode.replace("a", "A"))[..., :3])
        else:
            if raw_mode == "F;32BF" and image.tile[0][0] == "libtiff":
                _load_raw(image, "F;32NF")  # libtiff has swapped the bytes already, which Pillow forgets
            image.load()
            rgb = _loaded_rgb(image, raw_mode)
        return _upright(rgb, image)


def _raw_mode(image: ImageFile.ImageFile) -> str:
    """Pillow's name for the layout of the stored samples, before they are decoded; empty if it has none."""
    if not image.tile:
        return ""
    codec, _, _, args = image.tile[0]
    if codec == "ppm" and args == ("RGB", 65535):
        return "RGB;16B"
    name = args[0] if isinstance(args, tuple) and args else args
    return name if isinstance(name, str) else ""


def _load_raw(image: ImageFile.ImageFile, raw_mode: str) -> NDArray[np.uint8]:
    """Decode with the stored samples taken as ``raw_mode``: uint8 [H, W, C]."""
    tiles: list[Any] = []
    for tile in image.tile:
        codec, extents, offset, args = tile
        if codec == "ppm":  # Pillow's own decoder loops over the pixels in Python
            codec, args = "raw", (raw_mode, 0, 1)
        else:
            args = (raw_mode, *args[1:]) if isinstance(args, tuple) else raw_mode
        # Before Pillow 11 a tile was a plain tuple.
        fields = (codec, extents, offset, args)
        tiles.append(type(tile)(*fields) if hasattr(tile, "_fields") else fields)
    image.tile = tiles
    image.load()
    return np.array(image)


def _wide_rgb(image: ImageFile.ImageFile, stream: BinaryIO, layout: str, order: str) -> NDArray[np.uint8]:
    """16-bit colour, uint8 [H, W, 3]. Pillow decodes only the high bytes: in the other byte order, the low ones."""
    as_stored = "RGBA" if layout == "RGBa" else layout
    high = _load_raw(image, f"{as_stored};16{order}")
    with _open(stream) as again:
        low = _load_raw(again, f"{as_stored};16{_OTHER_ORDER[order]}")
    stored = high.astype(np.uint16) << 8 | low
    colours = _to_8_bits(stored, 65535)
    if layout == "RGBa":
        return np.ascontiguousarray(colours[..., :3])
    rgb = _rgb_over_black(Image.frombytes(image.mode, image.size, colours.tobytes()))
    return _without_transparent(rgb, stored, image.info.get("transparency"))


def _loaded_rgb(image: Image.Image, raw_mode: str) -> NDArray[np.uint8]:
    """The pixels of a decoded image, uint8 [H, W, 3]."""
    key = image.info.get("transparency")
    if image.mode in {"P", "PA"}:  # transparency is part of the palette
        return _rgb_over_black(image)
    if image.mode == "1":
        image = image.convert("L")
    if image.mode == "F" or image.mode.startswith("I"):
        stored, levels = _gray_levels(image)
        rgb = np.repeat(levels[..., None], 3, axis=2)
    else:
        stored = np.asarray(image)
        rgb = _rgb_over_black(image)
    if raw_mode in _GRAY_MAXIMA and isinstance(key, int):
        maximum = _GRAY_MAXIMA[raw_mode]
        key = (key & maximum) * (255 // maximum)  # the file has 16 bits for it, of which the low ones count
    return _without_transparent(rgb, stored, key)


def _gray_levels(image: Image.Image) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The samples [H, W] of an image in mode I;16, I or F, and the gray levels that they mean, uint8 [H, W]."""
    tags: Any = getattr(image, "tag_v2", {})
    stored = np.asarray(image)
    if image.mode == "F":
        if not ((stored >= 0) & (stored <= 1)).all():
            what = "floating-point pixels outside 0..1 have no defined black and white"
            raise ImageError(what, fix="scale them to 0..1, or save 8 or 16 bits")
        levels = (stored.astype(np.float64) * 255 + 0.5).astype(np.uint8)
    else:
        bits = tags.get(TiffImagePlugin.BITSPERSAMPLE, (16,))[0]
        if bits == 32:
            stored = stored.view(np.uint32)  # Pillow has no unsigned mode
        maximum = (1 << bits) - 1
        if stored.min() < 0 or stored.max() > maximum:
            what = f"{bits}-bit pixels outside 0..{maximum} have no defined black and white"
            raise ImageError(what, fix="scale them, or save 8 or 16 bits")
        levels = _to_8_bits(stored, maximum)
    # Pillow turns these around itself for 8 bits and less only.
    if tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_ZERO:
        levels = 255 - levels
    return stored, levels


def _to_8_bits(samples: NDArray[Any], maximum: int) -> NDArray[np.uint8]:
    """Scale 0..maximum to 0..255, to the nearest level."""
    if maximum == 65535:  # the same in half the memory
        return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)
    return ((samples.astype(np.uint64) * 255 + maximum // 2) // maximum).astype(np.uint8)


def _rgb_over_black(image: Image.Image) -> NDArray[np.uint8]:
    """An image with 8 bits a channel as uint8 [H, W, 3], alpha composited over black."""
    if image.mode in {"P", "PA", "LA"}:
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        image = image.convert("RGBa")  # premultiplied: Pillow rounds (c * a) / 255 to nearest
    if image.mode in {"RGBa", "La"}:
        colours = np.asarray(image)[..., :-1]
        return np.array(np.broadcast_to(colours, (*colours.shape[:2], 3)), order="C")
    if image.mode not in {"RGB", "RGBX", "L", "CMYK", "YCbCr", "HSV"}:
        raise ImageError(f"pixels of mode {image.mode} cannot be converted to RGB", fix="save the image as RGB")
    return np.array(image.convert("RGB") if image.mode != "RGB" else image)


def _without_transparent(rgb: NDArray[np.uint8], stored: NDArray[Any], key: Any) -> NDArray[np.uint8]:
    """``rgb`` with black where the stored samples are the transparent colour ``key``: one number, or one a channel."""
    if isinstance(key, int):
        rgb[stored == key] = 0
    elif isinstance(key, tuple):
        rgb[(stored == key).all(axis=-1)] = 0
    return rgb


def _upright(rgb: NDArray[np.uint8], image: Image.Image) -> NDArray[np.uint8]:
    """Apply the EXIF orientation of a decoded image. (Of TIFF files Pillow applies it, and drops the tag.)"""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF data raises anything
        orientation = None
    if not isinstance(orientation, int) or orientation not in _TRANSPOSE:
        return rgb
    return np.array(Image.fromarray(rgb).transpose(_TRANSPOSE[orientation]))
