"""Grayscale, thresholding and local binary patterns against loops over single pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from PIL import Image

from bnnrt.errors import InputError
from bnnrt.preprocess.binarize import grayscale, lbp, threshold

Array = NDArray[Any]


def pixels_of(*last: int) -> st.SearchStrategy[Array]:
    """uint8 arrays [..., H, W, *last] with up to two batch dimensions; few levels, so that ties are common."""
    shapes = st.tuples(st.lists(st.integers(0, 2), max_size=2), st.integers(1, 7), st.integers(1, 7))
    levels = st.one_of(st.integers(0, 255), st.integers(0, 2))
    return shapes.flatmap(
        lambda shape: arrays.arrays(np.uint8, (*shape[0], shape[1], shape[2], *last), elements=levels)
    )


@given(pixels_of(3))
def test_grayscale_is_the_formula(rgb: Array) -> None:
    gray = grayscale(rgb)
    assert gray.dtype == np.uint8
    assert gray.shape == rgb.shape[:-1]
    for index in np.ndindex(gray.shape):
        r, g, b = (int(value) for value in rgb[index])
        assert gray[index] == (19595 * r + 38470 * g + 7471 * b + 32768) >> 16


def test_grayscale_is_pillows() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8)
    rgb[0, :256] = np.arange(256)[:, None]
    np.testing.assert_array_equal(grayscale(rgb), np.array(Image.fromarray(rgb).convert("L")))
    np.testing.assert_array_equal(grayscale(rgb)[0, :256], np.arange(256))


@given(
    st.integers(1, 5).flatmap(
        lambda c: st.tuples(pixels_of(c), st.lists(st.floats(-260, 10, width=32), min_size=c, max_size=c))
    )
)
def test_threshold_is_the_formula(case: tuple[Array, list[float]]) -> None:
    pixels, offsets = case
    bits = threshold(pixels, offsets)
    assert bits.dtype == np.bool_
    assert bits.shape == pixels.shape
    for index in np.ndindex(pixels.shape):
        assert bits[index] == (np.float32(pixels[index]) + np.float32(offsets[index[-1]]) > 0)


def test_threshold_at_ties() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    for level in range(256):
        assert threshold(levels, [-level]).sum() == 255 - level  # greater than zero: the level itself gives 0
        assert threshold(levels, [-level + 0.5]).sum() == 256 - level
    assert not threshold(levels, [-0.0])[0, 0, 0]
    assert not threshold(levels, [float("nan")]).any()
    assert threshold(levels, [float("inf")]).all()


def test_threshold_adds_in_float32() -> None:
    pixels = np.full((1, 1, 1), 255, dtype=np.uint8)
    assert not threshold(pixels, np.array([-254.9999999], dtype=np.float64)).any()  # -255 in float32
    assert threshold(pixels, np.array([-254.9999], dtype=np.float64)).all()


@given(pixels_of())
def test_lbp_is_the_definition(gray: Array) -> None:
    # The neighbours clockwise from the top-left, as (row, column); every third is a channel.
    clockwise = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    bits = lbp(gray)
    assert bits.dtype == np.bool_
    assert bits.shape == (*gray.shape, 3)
    height, width = gray.shape[-2:]
    for *batch, row, column in np.ndindex(gray.shape):
        for channel, (down, right) in enumerate(clockwise[::3]):
            y, x = row + down, column + right
            inside = 0 <= y < height and 0 <= x < width
            greater = inside and gray[(*batch, y, x)] > gray[(*batch, row, column)]
            assert bits[(*batch, row, column, channel)] == greater


def test_lbp_by_hand() -> None:
    gray = np.array([[9, 1, 2], [8, 5, 7], [6, 3, 4]], dtype=np.uint8)
    np.testing.assert_array_equal(lbp(gray)[1, 1], [True, True, True])
    np.testing.assert_array_equal(lbp(gray)[0, 0], [False, False, False])
    np.testing.assert_array_equal(lbp(gray)[2, 1], [True, True, False])
    assert not lbp(np.full((4, 5), 200, dtype=np.uint8)).any()


def test_views_and_empty_batches() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (2, 8, 6, 3), np.uint8)
    view = rgb[:, ::-1, ::2]
    np.testing.assert_array_equal(grayscale(view), grayscale(view.copy()))
    np.testing.assert_array_equal(lbp(grayscale(rgb)[:, ::2]), lbp(grayscale(rgb)[:, ::2].copy()))
    assert lbp(np.zeros((0, 4, 4), np.uint8)).shape == (0, 4, 4, 3)


def test_other_arrays_are_refused() -> None:
    rgb = np.zeros((4, 4, 3), dtype=np.uint8)
    for call in (
        lambda: grayscale(rgb.astype(np.float32)),
        lambda: grayscale(rgb[..., :2]),
        lambda: grayscale(rgb[0]),
        lambda: lbp(rgb[0, 0]),
        lambda: lbp(rgb[..., 0].astype(np.int64)),
        lambda: threshold(rgb.astype(np.int8), [0, 0, 0]),
        lambda: threshold(rgb[0], [0, 0, 0]),
        lambda: threshold(rgb, [0, 0]),
        lambda: threshold(rgb, np.zeros((1, 1, 3))),
    ):
        with pytest.raises(InputError):
            call()
