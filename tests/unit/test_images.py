"""Image files: every odd kind gives the documented pixels or a one-line ImageError."""

from __future__ import annotations

import gc
import io
import os
import random
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import PIL
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image

from bnnrt.errors import ImageError, InputError
from bnnrt.preprocess.images import FILTERS, load_rgb, resize

ODD_IMAGES = Path(__file__).parent.parent / "data" / "odd_images"
PILLOW = int(PIL.__version__.split(".")[0])  # version 13 reads some kinds that others refuse
Array = NDArray[Any]


# ---------------------------------------------------------------------------------------- expected pixels


def to_8_bits(stored: Array, maximum: int) -> Array:
    """Nearest level, in exact integers."""
    return (stored.astype(object) * 255 * 2 + maximum) // (2 * maximum)


def over_black(colours: Array, alpha: Array) -> Array:
    return (colours.astype(np.int64) * alpha.astype(np.int64)[..., None] + 127) // 255


def as_rgb(gray: Array) -> Array:
    return np.stack([gray] * 3, axis=-1)


def upright(stored: Array, orientation: int) -> Array:
    """The EXIF definition, pixel by pixel: on which side of the upright image are row 0 and column 0 of the stored?"""
    sides = {1: "TL", 2: "TR", 3: "BR", 4: "BL", 5: "LT", 6: "RT", 7: "RB", 8: "LB"}[orientation]
    height, width = stored.shape[:2]
    turned = sides[0] in "LR"
    result = np.zeros((width, height, 3) if turned else (height, width, 3), dtype=np.uint8)
    for row in range(height):
        for column in range(width):
            along_rows = row if sides[0] in "TL" else height - 1 - row
            along_columns = column if sides[1] in "TL" else width - 1 - column
            y, x = (along_columns, along_rows) if turned else (along_rows, along_columns)
            result[y, x] = stored[row, column]
    return result


def assert_pixels(source: Any, expected: Array) -> None:
    pixels = load_rgb(source)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    np.testing.assert_array_equal(pixels, expected.astype(np.int64))


def assert_refused(source: Any, what: str = ".") -> ImageError:
    with pytest.raises(ImageError, match=what) as caught:
        load_rgb(source)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.what
    assert caught.value.where
    assert caught.value.fix
    return caught.value


# ---------------------------------------------------------------------------------------- files made here


def random_samples(*shape: int, bits: int = 8) -> Array:
    dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    return np.random.default_rng(len(shape) + bits).integers(0, 1 << bits, shape, dtype)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def png(
    samples: Array,
    bits: int,
    colour_type: int,
    *,
    palette: bytes = b"",
    transparent: bytes = b"",
    interlaced: bool = False,
) -> bytes:
    """A PNG file of any depth: Pillow writes only some."""
    samples = samples.reshape(*samples.shape[:2], -1)
    height, width, channels = samples.shape

    def rows(image: Array) -> bytes:
        if image.size == 0:
            return b""
        shifts = np.arange(bits - 1, -1, -1)
        expanded = (image.reshape(image.shape[0], -1, 1) >> shifts & 1).astype(np.uint8)
        lines = np.packbits(expanded.reshape(image.shape[0], -1), axis=1)
        pixel_bytes = max(1, bits * channels // 8)
        data = b""
        for number, line in enumerate(lines):
            if number % 2:  # filter type 1: differences from the pixel to the left
                before = np.concatenate([np.zeros(pixel_bytes, np.uint8), line[:-pixel_bytes]])
                data += b"\1" + (line - before).tobytes()
            else:
                data += b"\0" + line.tobytes()
        return data

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    adam7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    passes = [samples[y::dy, x::dx] for y, x, dy, dx in adam7] if interlaced else [samples]
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, interlaced))
        + (chunk(b"PLTE", palette) if palette else b"")
        + (chunk(b"tRNS", transparent) if transparent else b"")
        + chunk(b"IDAT", zlib.compress(b"".join(map(rows, passes))))
        + chunk(b"IEND", b"")
    )


def tiff(
    samples: Array,
    photometric: int,
    *,
    order: str = "<",
    deflated: bool = False,
    bits: int = 0,
    sample_format: int = 1,
    extra: tuple[int, ...] = (),
    planar: bool = False,
    orientation: int = 1,
) -> bytes:
    """A TIFF file of one strip (or one a plane): Pillow writes only some kinds."""
    height, width = samples.shape[:2]
    channels = samples.size // (height * width)
    bits = bits or samples.dtype.itemsize * 8
    stored = samples.astype(samples.dtype.newbyteorder(cast("Any", order)))
    if bits == 12:
        expanded = (stored.reshape(height, -1, 1) >> np.arange(11, -1, -1) & 1).astype(np.uint8)
        strips = [np.packbits(expanded.reshape(height, -1), axis=1).tobytes()]
    elif planar:
        strips = [stored[..., channel].tobytes() for channel in range(channels)]
    else:
        strips = [stored.tobytes()]
    if deflated:
        strips = [zlib.compress(strip) for strip in strips]
    offsets = [8 + sum(map(len, strips[:index])) for index in range(len(strips))]
    tags: dict[int, tuple[str, tuple[int, ...]]] = {
        256: ("H", (width,)),
        257: ("H", (height,)),
        258: ("H", (bits,) * channels),
        259: ("H", (8 if deflated else 1,)),
        262: ("H", (photometric,)),
        273: ("I", tuple(offsets)),
        274: ("H", (orientation,)),
        277: ("H", (channels,)),
        278: ("H", (height,)),
        279: ("I", tuple(map(len, strips))),
        284: ("H", (2 if planar else 1,)),
        338: ("H", extra),
        339: ("H", (sample_format,) * channels),
        530: ("H", (1, 1)),
    }
    if not extra:
        del tags[338]
    directory_at = offsets[-1] + len(strips[-1])
    overflow_at = directory_at + 2 + 12 * len(tags) + 4
    entries = overflow = b""
    for tag, (kind, values) in sorted(tags.items()):
        data = struct.pack(f"{order}{len(values)}{kind}", *values)
        if len(data) > 4:
            position = struct.pack(order + "I", overflow_at + len(overflow))
            overflow += data
            data = position
        entries += struct.pack(order + "HHI", tag, 3 if kind == "H" else 4, len(values)) + data.ljust(4, b"\0")
    return (
        (b"II" if order == "<" else b"MM")
        + struct.pack(order + "HI", 42, directory_at)
        + b"".join(strips)
        + struct.pack(order + "H", len(tags))
        + entries
        + bytes(4)
        + overflow
    )


def exif_with(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


# ---------------------------------------------------------------------------------------- the odd files


def stored(name: str) -> Array:
    """The samples as Pillow stores them, without any conversion."""
    with Image.open(ODD_IMAGES / name) as image:
        return np.array(image)


def looked_up(name: str, transparent: int | None) -> Array:
    with Image.open(ODD_IMAGES / name) as image:
        colours = np.array(image.getpalette(), dtype=np.uint8).reshape(-1, 3)
        pixels: Array = colours[np.array(image)]
        pixels[np.array(image) == transparent] = 0
        return pixels


def pgm_16_bit() -> Array:
    header, data = (ODD_IMAGES / "hopper_16bit.pgm").read_bytes().split(b"65535\n", 1)
    assert header.split()[-2:] == [b"128", b"128"]
    return as_rgb((np.frombuffer(data, ">u2").astype(np.int64).reshape(128, 128) + 128) // 257)


def gray_with_key() -> Array:
    gray = stored("i_trns.png").astype(np.int64)
    return as_rgb(np.where(gray == 255, 0, (gray + 128) // 257))


def cmyk() -> Array:
    inks = stored("pil_sample_cmyk.jpg").astype(np.int64)
    light = 255 - inks[..., 3:]
    return light - (inks[..., :3] * light + 127) // 255


def transparent_png() -> Array:
    pixels = stored("transparent.png")
    assert len(np.unique(pixels[..., 3])) > 100
    return over_black(pixels[..., :3], pixels[..., 3])


READABLE: dict[str, Callable[[], Array]] = {
    "1_trns.png": lambda: np.zeros((64, 64, 3)),  # white is transparent, the rest is black
    "flower.webp": lambda: stored("flower.webp"),
    "hopper.jpg": lambda: stored("hopper.jpg"),
    "hopper_16bit.pgm": pgm_16_bit,
    "hopper_gray.jpg": lambda: as_rgb(stored("hopper_gray.jpg")),
    "hopper_orientation_3.jpg": lambda: upright(stored("hopper_orientation_3.jpg"), 3),
    "hopper_orientation_6.jpg": lambda: upright(stored("hopper_orientation_6.jpg"), 6),
    "i_trns.png": gray_with_key,
    "iss634.gif": lambda: looked_up("iss634.gif", None),
    "p_trns_single.png": lambda: looked_up("p_trns_single.png", 164),
    "pil_sample_cmyk.jpg": cmyk,
    "tRNS_null_1x1.png": lambda: np.zeros((1, 1, 3)),
    "transparent.png": transparent_png,
}

REFUSED = {
    "broken.png": "not an image",
    "decompression_bomb.gif": "too many pixels",
    "reallybig.bmp": "too many pixels",
    "truncated_jpeg.jpg": "truncated",
    "zero_width.gif": "not an image",
    "LICENSE.Pillow": "not an image",
}


def test_every_odd_file_is_tested() -> None:
    assert {path.name for path in ODD_IMAGES.iterdir()} == READABLE.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READABLE)
def test_odd_file_has_the_documented_pixels(name: str) -> None:
    assert_pixels(ODD_IMAGES / name, READABLE[name]())


@pytest.mark.parametrize("name", REFUSED)
def test_odd_file_is_refused_by_name(name: str) -> None:
    assert assert_refused(ODD_IMAGES / name, REFUSED[name]).where == str(ODD_IMAGES / name)


def test_rotated_photographs_look_like_the_upright_one() -> None:
    reference = load_rgb(ODD_IMAGES / "hopper.jpg").astype(np.int64)
    for name in ("hopper_orientation_3.jpg", "hopper_orientation_6.jpg"):
        assert np.abs(load_rgb(ODD_IMAGES / name) - reference).mean() < 10
        assert np.abs(stored(name) - reference).mean() > 40


# ---------------------------------------------------------------------------------------- PNG


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_gray_png_is_scaled_and_its_transparent_level_is_black(bits: int, interlaced: bool) -> None:
    samples = random_samples(9, 11, bits=bits)
    expected = to_8_bits(samples, (1 << bits) - 1)
    assert_pixels(png(samples, bits, 0, interlaced=interlaced), as_rgb(expected))
    level = int(samples.max())
    expected[samples == level] = 0
    file = png(samples, bits, 0, interlaced=interlaced, transparent=struct.pack(">H", level))
    assert_pixels(file, as_rgb(expected))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_colour_png(bits: int, interlaced: bool) -> None:
    maximum = (1 << bits) - 1
    samples = random_samples(9, 11, 3, bits=bits)
    samples[4, 4] = samples[5, 5] = samples[3, 3]
    samples[5, 5, 2] ^= 1  # at 16 bits it differs from the transparent colour in the low byte only
    expected = to_8_bits(samples, maximum)
    assert_pixels(png(samples, bits, 2, interlaced=interlaced), expected)
    expected[3, 3] = expected[4, 4] = 0
    key = struct.pack(">3H", *map(int, samples[3, 3]))
    assert_pixels(png(samples, bits, 2, interlaced=interlaced, transparent=key), expected)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(("colour_type", "channels"), [(4, 2), (6, 4)])
def test_png_with_alpha_goes_over_black(bits: int, colour_type: int, channels: int, interlaced: bool) -> None:
    samples = random_samples(9, 11, channels, bits=bits)
    scaled = to_8_bits(samples, (1 << bits) - 1)
    expected = over_black(scaled[..., :-1], scaled[..., -1])
    file = png(samples, bits, colour_type, interlaced=interlaced)
    assert_pixels(file, np.broadcast_to(expected, (9, 11, 3)))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palette_png_with_and_without_alpha(bits: int) -> None:
    size = 1 << bits
    palette, indices = random_samples(size, 3), random_samples(9, 11, bits=bits)
    colours = palette[indices]
    assert_pixels(png(indices, bits, 3, palette=palette.tobytes()), colours)
    one = np.full(size, 255)
    one[1] = 0
    for alpha in (one, np.linspace(3, 250, size)):
        alpha = alpha.astype(np.uint8)
        file = png(indices, bits, 3, palette=palette.tobytes(), transparent=alpha.tobytes())
        assert_pixels(file, over_black(colours, alpha[indices]))


def test_compositing_is_exact_for_every_value_and_alpha() -> None:
    values, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    rgba = np.dstack([values, values[::-1], values.T, alpha])
    assert_pixels(Image.fromarray(np.ascontiguousarray(rgba)), over_black(rgba[..., :3], rgba[..., 3]))


def test_every_16_bit_value_is_scaled_to_the_nearest_level() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = as_rgb((values.astype(np.int64) + 128) // 257)
    assert (expected[..., 0] == to_8_bits(values, 65535)).all()
    assert_pixels(png(values, 16, 0), expected)
    assert_pixels(png(as_rgb(values), 16, 2), expected)
    assert_pixels(tiff(as_rgb(values), 2), expected)
    assert_pixels(b"P5 256 256 65535\n" + values.astype(">u2").tobytes(), expected)
    assert_pixels(b"P6 256 256 65535\n" + as_rgb(values).astype(">u2").tobytes(), expected)
    assert_pixels(Image.fromarray(values), expected)
    assert_pixels(Image.fromarray(values.astype(np.int32)), expected)


def test_png_with_garbage_behind_it_is_read() -> None:
    samples = random_samples(5, 4, 3)
    assert_pixels(png(samples, 8, 2) + b"garbage" * 100, samples)


def test_png_whose_data_ends_early_is_refused() -> None:
    file = bytearray(png(random_samples(9, 11), 8, 0))
    file[20:24] = struct.pack(">I", 20)  # the header says 20 rows
    assert_refused(bytes(file), "cannot be read")


# ---------------------------------------------------------------------------------------- TIFF


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("deflated", [False, True])
class TestTiff:
    def test_16_bit_colour(self, order: str, deflated: bool) -> None:
        four, three = random_samples(5, 7, 4, bits=16), random_samples(5, 7, 3, bits=16)
        scaled = to_8_bits(four, 65535)
        assert_pixels(tiff(three, 2, order=order, deflated=deflated), to_8_bits(three, 65535))
        assert_pixels(tiff(four, 2, order=order, deflated=deflated, extra=(0,)), scaled[..., :3])
        straight = over_black(scaled[..., :3], scaled[..., 3])
        assert_pixels(tiff(four, 2, order=order, deflated=deflated, extra=(2,)), straight)
        assert_pixels(tiff(four, 2, order=order, deflated=deflated, extra=(1,)), scaled[..., :3])
        light = 255 - scaled[..., 3:]
        inks = light - (scaled[..., :3] * light + 127) // 255
        assert_pixels(tiff(four, 5, order=order, deflated=deflated), inks)

    def test_8_bit_associated_alpha_is_kept_as_stored(self, order: str, deflated: bool) -> None:
        rgba = random_samples(5, 7, 4)
        assert_pixels(tiff(rgba, 2, order=order, deflated=deflated, extra=(1,)), rgba[..., :3])
        gray_alpha = random_samples(5, 7, 2)
        file = tiff(gray_alpha, 1, order=order, deflated=deflated, extra=(1,))
        if PILLOW >= 13:
            assert_pixels(file, as_rgb(gray_alpha[..., 0]))
        else:
            assert_refused(file, "of a kind that cannot be read")

    def test_8_bit_planes(self, order: str, deflated: bool) -> None:
        rgb = random_samples(5, 7, 3)
        assert_pixels(tiff(rgb, 2, order=order, deflated=deflated, planar=True), rgb)

    def test_gray_of_12_16_and_32_bits(self, order: str, deflated: bool) -> None:
        for bits in (12, 16, 32):
            samples = random_samples(5, 7, bits=bits)
            file = tiff(samples, 1, order=order, deflated=deflated, bits=bits)
            if order == ">" and bits != 16:
                assert_refused(file, "of a kind that cannot be read")
            else:
                assert_pixels(file, as_rgb(to_8_bits(samples, (1 << bits) - 1)))

    def test_white_is_zero(self, order: str, deflated: bool) -> None:
        narrow, wide = random_samples(5, 7), random_samples(5, 7, bits=16)
        assert_pixels(tiff(narrow, 0, order=order, deflated=deflated), as_rgb(255 - narrow))
        if order == "<":  # Pillow does not open the other
            assert_pixels(tiff(wide, 0, order=order, deflated=deflated), as_rgb(255 - to_8_bits(wide, 65535)))

    def test_floating_point(self, order: str, deflated: bool) -> None:
        levels = np.linspace(0, 1, 35, dtype=np.float32).reshape(5, 7)
        expected = as_rgb(np.floor(levels.astype(np.float64) * 255 + 0.5))
        assert_pixels(tiff(levels, 1, order=order, deflated=deflated, sample_format=3), expected)
        assert_pixels(tiff(levels, 0, order=order, deflated=deflated, sample_format=3), 255 - expected)
        for outside in (-0.1, 1.1, np.inf, np.nan):
            levels[2, 3] = outside
            file = tiff(levels, 1, order=order, deflated=deflated, sample_format=3)
            assert_refused(file, r"outside 0\.\.1")

    def test_orientation(self, order: str, deflated: bool) -> None:
        rgb, wide = random_samples(5, 7, 3), random_samples(5, 7, 3, bits=16)
        for orientation in range(1, 9):
            file = tiff(rgb, 2, order=order, deflated=deflated, orientation=orientation)
            assert_pixels(file, upright(rgb, orientation))
            file = tiff(wide, 2, order=order, deflated=deflated, orientation=orientation)
            assert_pixels(file, upright(to_8_bits(wide, 65535), orientation))

    def test_kinds_without_a_definition_are_refused(self, order: str, deflated: bool) -> None:
        for dtype in (np.int8, np.int16, np.int32):
            signed = np.ones((5, 7), dtype)
            assert_refused(tiff(signed, 1, order=order, deflated=deflated, sample_format=2), "signed")
        lab = random_samples(5, 7, 3)
        assert_refused(tiff(lab, 8, order=order, deflated=deflated), "LAB")
        wide = random_samples(5, 7, 3, bits=16)
        assert_refused(tiff(wide, 2, order=order, deflated=deflated, planar=True), "separate planes")
        rgba = random_samples(5, 7, 4)
        file = tiff(rgba, 2, order=order, deflated=deflated, planar=True, extra=(1,))
        assert_refused(file, "separate planes")


def test_ycbcr_tiff() -> None:
    ycbcr = random_samples(5, 7, 3)
    y, cb, cr = np.moveaxis(ycbcr.astype(np.float64), -1, 0)
    exact = np.stack(
        [y + 1.402 * (cr - 128), y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128), y + 1.772 * (cb - 128)], axis=-1
    ).clip(0, 255)
    if PILLOW < 13:
        assert_refused(tiff(ycbcr, 6), "uncompressed YCbCr")
    for deflated in (False, True) if PILLOW >= 13 else (True,):
        assert np.abs(load_rgb(tiff(ycbcr, 6, deflated=deflated)) - exact).max() <= 1.5


def test_bilevel_and_palette_tiff() -> None:
    bits = random_samples(9, 11, bits=1).astype(bool)
    for compression in (None, "group4"):
        assert_pixels(encoded(Image.fromarray(bits), "TIFF", compression=compression), as_rgb(bits * 255))
    image = Image.fromarray(random_samples(9, 11))
    image.putpalette(random_samples(256, 3).tobytes())
    assert_pixels(encoded(image, "TIFF"), random_samples(256, 3)[random_samples(9, 11)])


# ---------------------------------------------------------------------------------------- other formats


def test_gif_takes_the_first_frame_with_its_transparency() -> None:
    indices = random_samples(9, 11, bits=2)
    palette = np.array([[10, 20, 30], [200, 0, 0], [0, 200, 0], [0, 0, 200]], dtype=np.uint8)
    frames = []
    for frame in (indices, 3 - indices):
        image = Image.fromarray(frame)
        image.putpalette(palette.tobytes())
        frames.append(image)
    file = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], transparency=1, disposal=2)
    expected = palette[indices]
    expected[indices == 1] = 0
    assert_pixels(file, expected)


def test_gray_gif_with_a_transparent_level() -> None:
    gray = random_samples(9, 11, bits=4)
    file = encoded(Image.fromarray(gray), "GIF", transparency=3)
    with Image.open(io.BytesIO(file)) as image:
        assert image.mode == "L"
    assert_pixels(file, as_rgb(np.where(gray == 3, 0, gray)))


@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF"])
def test_animations_and_pages_take_the_first(format: str) -> None:
    first = Image.fromarray(random_samples(9, 11, 3))
    second = first.transpose(Image.Transpose.ROTATE_180)
    file = encoded(
        first, format, save_all=True, append_images=[second], **({"lossless": True} if format == "WEBP" else {})
    )
    assert_pixels(file, random_samples(9, 11, 3))


def test_several_photographs_in_one_jpeg_take_the_first() -> None:
    first = Image.open(ODD_IMAGES / "hopper.jpg")
    file = encoded(first, "MPO", save_all=True, append_images=[first.rotate(90)])
    with Image.open(io.BytesIO(file)) as plain:
        assert plain.format == "MPO"
        assert_pixels(file, np.array(plain))


def test_webp_with_alpha() -> None:
    rgba = random_samples(9, 11, 4)
    file = encoded(Image.fromarray(rgba), "WEBP", lossless=True, exact=True)
    assert_pixels(file, over_black(rgba[..., :3], rgba[..., 3]))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_bmp(mode: str) -> None:
    image = Image.fromarray(random_samples(9, 11, 4)).convert("RGB").convert(mode)
    assert_pixels(encoded(image, "BMP"), np.array(image.convert("RGB")))


def test_netpbm_is_scaled_by_its_maximum() -> None:
    assert_pixels(b"P1 3 1\n1 0 1", as_rgb(np.array([[0, 255, 0]])))
    assert_pixels(b"P4 3 1\n\xa0", as_rgb(np.array([[0, 255, 0]])))
    assert_pixels(b"P2 4 1 15\n0 1 14 15", as_rgb(np.array([[0, 17, 238, 255]])))
    assert_pixels(b"P2 3 1 65535\n0 128 129", as_rgb(np.array([[0, 0, 1]])))
    assert_pixels(b"P5 3 1 1023\n" + struct.pack(">3H", 0, 512, 1023), as_rgb(np.array([[0, 128, 255]])))
    assert_pixels(b"P3 1 1 31\n0 16 31", np.array([[[0, 132, 255]]]))
    assert_pixels(b"P6 1 1 1023\n" + struct.pack(">3H", 0, 512, 1023), np.array([[[0, 128, 255]]]))
    assert_pixels(b"Pf 3 1 -1.0\n" + struct.pack("<3f", 0, 0.5, 1), as_rgb(np.array([[0, 128, 255]])))
    assert_refused(b"P6 0 3 255\n", "not an image")
    assert_refused(b"P6 2 2 65535\n" + bytes(23), "cannot be read")
    assert_refused(b"P6 2 2 255\n" + bytes(11), "cannot be read")


@pytest.mark.parametrize(
    "file", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>", b"8BPS\0\1", b"\0\0\1\0"]
)
def test_other_formats_are_not_opened(file: bytes) -> None:
    assert_refused(file, "not an image")


# ---------------------------------------------------------------------------------------- EXIF


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int) -> None:
    rgb = random_samples(5, 7, 3)
    exif = exif_with(orientation)
    assert_pixels(encoded(Image.fromarray(rgb), "PNG", exif=exif), upright(rgb, orientation))
    assert_pixels(encoded(Image.fromarray(rgb), "WEBP", exif=exif, lossless=True), upright(rgb, orientation))
    file = encoded(Image.fromarray(rgb[..., 0]), "JPEG", exif=exif)
    with Image.open(io.BytesIO(file)) as plain:
        assert_pixels(file, upright(as_rgb(np.array(plain)), orientation))
        assert_pixels(plain, upright(as_rgb(np.array(plain)), orientation))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_or_meaningless_exif_counts_as_none() -> None:
    image = Image.fromarray(random_samples(8, 8))
    with Image.open(io.BytesIO(encoded(image, "JPEG"))) as plain:
        expected = as_rgb(np.array(plain))
    whole = exif_with(6).tobytes()
    for exif in (
        exif_with(0).tobytes(),
        exif_with(9).tobytes(),
        whole[:11],
        whole[:-6],
        b"Exif\0\0garbage",
        b"Exif\0\0",
    ):
        assert_pixels(encoded(image, "JPEG", exif=exif), expected)


# ---------------------------------------------------------------------------------------- Pillow images


def test_pillow_images_of_every_mode() -> None:
    rgb = Image.fromarray(random_samples(6, 5, 3))
    for mode in ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"):
        image = rgb.convert(mode)
        assert_pixels(image, np.array(image.convert("RGB")))
    rgba = Image.fromarray(random_samples(6, 5, 4))
    premultiplied = rgba.convert("RGBa")
    assert_pixels(premultiplied, np.array(premultiplied)[..., :3])
    gray_alpha = rgba.convert("LA")
    gray = as_rgb(np.array(gray_alpha)[..., 0])
    assert_pixels(gray_alpha, over_black(gray, np.array(gray_alpha)[..., 1]))
    assert_pixels(gray_alpha.convert("La"), as_rgb(np.array(gray_alpha.convert("La"))[..., 0]))
    indices, alpha, palette = random_samples(6, 5), random_samples(6, 5, 1)[..., 0], random_samples(256, 3)
    image = Image.frombytes("PA", (5, 6), np.dstack([indices, alpha]).tobytes())
    image.putpalette(palette.tobytes())
    assert_pixels(image, over_black(palette[indices], alpha))
    palette = random_samples(256, 4)
    image = Image.fromarray(indices)
    image.putpalette(palette.tobytes(), "RGBA")
    assert_pixels(image, over_black(palette[indices, :3], palette[indices, 3]))
    for mode in ("I;16", "I;16B", "I;16L"):
        image = Image.frombytes(mode, (2, 1), struct.pack(">2H" if mode == "I;16B" else "<2H", 128, 65535))
        assert_pixels(image, as_rgb(np.array([[0, 255]])))
    assert_pixels(Image.fromarray(np.array([[0.5]], dtype=np.float32)), np.array([[[128, 128, 128]]]))
    assert_refused(Image.fromarray(np.array([[65536]], dtype=np.int32)), r"outside 0\.\.65535")
    assert_refused(Image.fromarray(np.array([[-1]], dtype=np.int32)), r"outside 0\.\.65535")
    assert_refused(Image.new("LAB", (2, 2)), "LAB")
    assert_refused(Image.new("RGB", (0, 2)), "no pixels")


def test_pillow_image_of_an_open_tiff_file() -> None:
    wide = random_samples(5, 7, bits=32)
    with Image.open(io.BytesIO(tiff(wide, 1))) as image:
        assert_pixels(image, as_rgb(to_8_bits(wide, 2**32 - 1)))
    with Image.open(io.BytesIO(tiff(wide[:, :, None].astype(np.int32) >> 1, 1, sample_format=2))) as image:
        assert_refused(image, "signed")


def test_pillow_image_is_left_as_it_was() -> None:
    image = Image.fromarray(random_samples(6, 5, 3))
    load_rgb(image)[:] = 0
    np.testing.assert_array_equal(np.array(image), random_samples(6, 5, 3))


# ---------------------------------------------------------------------------------------- sources and failures


def test_sources() -> None:
    path = ODD_IMAGES / "hopper.jpg"
    expected = stored("hopper.jpg")
    assert_pixels(path, expected)
    assert_pixels(str(path), expected)
    assert_pixels(path.read_bytes(), expected)
    assert_pixels(memoryview(path.read_bytes()), expected)
    with path.open("rb") as stream:
        stream.read(100)
        assert_pixels(stream, expected)
        assert not stream.closed
        assert_pixels(stream, expected)
    with Image.open(path) as image:
        assert_pixels(image, expected)


def test_wide_image_from_every_source(tmp_path: Path) -> None:
    samples = random_samples(9, 11, 3, bits=16)
    expected = to_8_bits(samples, 65535)
    for file in (png(samples, 16, 2), tiff(samples, 2, deflated=True)):
        (tmp_path / "wide").write_bytes(file)
        assert_pixels(tmp_path / "wide", expected)
        with (tmp_path / "wide").open("rb") as stream:
            assert_pixels(stream, expected)


def test_pipe_is_read_to_its_end() -> None:
    read_end, write_end = os.pipe()
    file = (ODD_IMAGES / "hopper.jpg").read_bytes()

    def write() -> None:
        with open(write_end, "wb") as pipe:
            pipe.write(file)

    writer = threading.Thread(target=write)
    writer.start()
    with open(read_end, "rb") as pipe:
        assert_pixels(pipe, stored("hopper.jpg"))
    writer.join()


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    assert assert_refused(tmp_path / "none.png", "no such file").where == str(tmp_path / "none.png")
    assert_refused(tmp_path, "a directory")
    (tmp_path / "empty.png").touch()
    assert_refused(tmp_path / "empty.png", "empty")
    assert_refused("", "no such file")
    assert_refused("a\0b", "null")
    assert_refused("x" * 5000, "cannot be opened")
    assert_refused(tmp_path / "empty.png" / "x.png", "cannot be opened")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(png(random_samples(2, 2), 8, 0))
    path.chmod(0)
    assert_refused(path, "no permission")


def test_permission_error_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert_refused("secret.png", "no permission")


def test_things_that_are_not_images() -> None:
    class Failing(io.RawIOBase):
        def seekable(self) -> bool:
            return False

        def read(self, size: int = -1) -> bytes:
            raise ConnectionResetError(104, "Connection reset by peer")

    for source in (0, None, 1.5, np.zeros((4, 4, 3), np.uint8), io.StringIO("text"), Failing(), object()):
        assert_refused(source)
    closed = io.BytesIO(b"x")
    closed.close()
    assert_refused(closed, "closed")
    image = Image.open(ODD_IMAGES / "hopper.jpg")
    image.close()
    assert_refused(image, "cannot be read")


def test_names_are_safe_to_print(tmp_path: Path) -> None:
    name = str(tmp_path / "a\x1b[31m\nb\udc80.png")
    assert assert_refused(name, "no such file").where.endswith(r"a\x1b[31m b\udc80.png")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pixel_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    file = png(random_samples(9, 11, 3), 8, 2)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 99)
    assert load_rgb(file).shape == (9, 11, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 98)
    assert_refused(file, "11x9 pixels are more than the limit of 98")
    assert_refused(Image.new("L", (99, 1)), "more than the limit")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    assert_refused(file, "too many pixels")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert load_rgb(file).shape == (9, 11, 3)


def test_pixel_limit_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 98)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_refused(png(random_samples(9, 11, 3), 8, 2), "too many pixels")


def test_files_are_closed() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for path in ODD_IMAGES.iterdir():
            if path.name in READABLE:
                load_rgb(path)
            else:
                assert_refused(path)
        gc.collect()
    assert [warning.category for warning in seen if warning.category is ResourceWarning] == []


def small_files() -> dict[str, bytes]:
    photograph = Image.fromarray(stored("hopper.jpg")).resize((24, 20))
    turned = [photograph.rotate(90)]
    return {
        "baseline JPEG": encoded(photograph, "JPEG", exif=exif_with(6)),
        "progressive JPEG": encoded(photograph, "JPEG", progressive=True),
        "CMYK JPEG": encoded(photograph.convert("CMYK"), "JPEG"),
        "MPO": encoded(photograph, "MPO", save_all=True, append_images=turned),
        "PNG": encoded(photograph, "PNG"),
        "animated PNG": encoded(photograph, "PNG", save_all=True, append_images=turned),
        "palette PNG": encoded(photograph.quantize(16), "PNG", transparency=bytes(range(16))),
        "16-bit PNG": png(random_samples(9, 11, 3, bits=16), 16, 2, interlaced=True),
        "16-bit gray PNG with alpha": png(random_samples(9, 11, 2, bits=16), 16, 4),
        "WebP": encoded(photograph, "WEBP"),
        "lossless WebP": encoded(photograph, "WEBP", lossless=True),
        "animated WebP": encoded(photograph, "WEBP", save_all=True, append_images=turned),
        "BMP": encoded(photograph, "BMP"),
        "GIF": encoded(photograph, "GIF", save_all=True, append_images=turned),
        "PPM": encoded(photograph, "PPM"),
        "16-bit PPM": b"P6 3 2 65535\n" + bytes(range(36)),
        "PFM": b"Pf 3 2 -1.0\n" + np.linspace(0, 1, 6, dtype=np.float32).tobytes(),
        "TIFF": encoded(photograph, "TIFF"),
        "LZW TIFF": encoded(photograph, "TIFF", compression="tiff_lzw"),
        "JPEG TIFF": encoded(photograph, "TIFF", compression="jpeg"),
        "16-bit TIFF": tiff(random_samples(5, 7, 4, bits=16), 2, deflated=True, extra=(1,)),
    }


def pixels_or_none(file: bytes) -> Array | None:
    try:
        return load_rgb(file)
    except ImageError:
        return None


@pytest.mark.filterwarnings("ignore")
def test_cut_files_give_all_pixels_or_an_error() -> None:
    for name, file in small_files().items():
        whole = load_rgb(file)
        for end in range(0, len(file), max(1, len(file) // 60)):
            pixels = pixels_or_none(file[:end])
            if pixels is not None:  # what was cut off came after the pixels
                np.testing.assert_array_equal(pixels, whole, name)
        assert pixels_or_none(file[: len(file) // 3]) is None


@pytest.mark.filterwarnings("ignore")
def test_damaged_files_raise_nothing_else() -> None:
    choose = random.Random(1)
    for file in small_files().values():
        for _ in range(60):
            damaged = bytearray(file)
            for _ in range(choose.choice((1, 2, 5))):
                # Half of them in the header, where most of the structure is.
                damaged[choose.randrange(choose.choice((min(64, len(file)), len(file))))] = choose.randrange(256)
            pixels = pixels_or_none(bytes(damaged))
            assert pixels is None or (pixels.dtype == np.uint8 and pixels.ndim == 3)


# ---------------------------------------------------------------------------------------- resizing


@pytest.mark.parametrize("filter", FILTERS)
def test_resize_is_pillows(filter: str) -> None:
    rgb = random_samples(9, 11, 3)
    for height, width in ((9, 11), (1, 1), (5, 30), (32, 4)):
        resized = resize(rgb, height, width, filter)
        expected = Image.fromarray(rgb).resize((width, height), Image.Resampling[filter.upper()])
        assert resized.dtype == np.uint8
        np.testing.assert_array_equal(resized, np.array(expected))
    resize(rgb, 9, 11, filter)[:] = 0
    assert rgb.any()


def test_resize_by_hand() -> None:
    rgb = as_rgb(np.array([[0, 100], [50, 250]], dtype=np.uint8))
    np.testing.assert_array_equal(resize(rgb, 1, 1, "box"), [[[100, 100, 100]]])
    np.testing.assert_array_equal(resize(rgb, 2, 4, "nearest")[..., 0], [[0, 0, 100, 100], [50, 50, 250, 250]])


def test_resize_of_a_view() -> None:
    rgb = random_samples(9, 11, 3)
    np.testing.assert_array_equal(resize(rgb[::-1, ::2], 4, 4), resize(rgb[::-1, ::2].copy(), 4, 4))


def test_resize_refuses_what_does_not_fit() -> None:
    rgb = random_samples(9, 11, 3)
    for arguments in ((rgb, 4, 4, "cubic"), (rgb, 0, 4), (rgb, 4, -1), (rgb.astype(np.float32), 4, 4), (rgb[0], 4, 4)):
        with pytest.raises(InputError):
            resize(*arguments)
    with pytest.raises(InputError):
        resize(rgb[:0], 4, 4)
    with pytest.raises(InputError):
        resize(random_samples(9, 11, 4), 4, 4)


def png_of(rows: bytes, width: int, height: int, interlaced: int = 0) -> bytes:
    """A gray PNG of 8 bits whose image data is ``rows`` before compression."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, interlaced)
    data = zlib.compress(rows)
    half = len(data) // 2
    parts = (chunk(b"IDAT", data[:half]), chunk(b"IDAT", data[half:]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(parts) + chunk(b"IEND", b"")


def test_png_with_missing_rows_is_truncated() -> None:
    rows = b"".join(b"\0" + bytes([100 + y] * 20) for y in range(30))
    assert load_rgb(png_of(rows, 20, 30))[29, 0, 0] == 129
    for kept in (0, 1, 21 * 15, len(rows) - 1):
        with pytest.raises(ImageError, match="truncated"):
            load_rgb(png_of(rows[:kept], 20, 30))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 9), (33, 20)])
def test_whole_png_files_are_whole(mode: str, size: tuple[int, int]) -> None:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, "PNG")
    assert load_rgb(stream.getvalue()).shape == (size[1], size[0], 3)


def test_interlaced_png() -> None:
    """Adam7 of a 3x3 image: passes of 1, 1, 2, 3 and 2 pixels, in one, one, one, two and one rows, and so on."""
    passes = [[(0, 0)], [], [], [(0, 2)], [(2, 0), (2, 2)], [(0, 1), (2, 1)], [(1, 0), (1, 1), (1, 2)]]
    data = b""
    for points in passes:
        for row in sorted({y for y, _ in points}):
            data += b"\0" + bytes(10 * y + x for y, x in points if y == row)
    assert load_rgb(png_of(data, 3, 3, interlaced=1))[..., 0].tolist() == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    with pytest.raises(ImageError, match="truncated"):
        load_rgb(png_of(data[:-1], 3, 3, interlaced=1))
