"""Packing: every width, every tail, and the dot product against unpacked +-1 vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bnnrt import packing

Bits = npt.NDArray[np.bool_]

widths = st.integers(1, packing.WORD_BITS)
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5).flatmap(
    lambda outer: st.integers(0, 100).map(lambda length: (*outer, length))
)
arrays = shapes.flatmap(lambda shape: hnp.arrays(np.bool_, shape))


@given(bits=arrays, width=widths)
def test_unpack_inverts_pack(bits: Bits, width: int) -> None:
    words = packing.pack(bits, width)
    assert words.dtype == np.uint32
    assert words.shape == (*bits.shape[:-1], packing.words_for(bits.shape[-1], width))
    found = packing.unpack(words, bits.shape[-1], width)
    assert found.dtype == np.bool_
    assert np.array_equal(found, bits)


@given(bits=hnp.arrays(np.bool_, st.integers(0, 100)), width=widths)
def test_each_element_has_its_place_and_all_else_is_0(bits: Bits, width: int) -> None:
    expected = [0] * packing.words_for(len(bits), width)
    for i, bit in enumerate(bits):
        expected[i // width] |= int(bit) << i % width
    assert packing.pack(bits, width).tolist() == expected


@pytest.mark.parametrize(
    ("length", "width", "words"),
    [(0, 32, 0), (1, 32, 1), (32, 32, 1), (33, 32, 2), (25, 25, 1), (26, 25, 2), (7, 1, 7)],
)
def test_words_for(length: int, width: int, words: int) -> None:
    assert packing.words_for(length, width) == words


def test_pack_takes_lists() -> None:
    assert packing.pack([True, False, True]).tolist() == [5]
    assert packing.pack([[False, True], [True, True]]).tolist() == [[2], [3]]


@pytest.mark.parametrize("order", ["<u4", ">u4"])
def test_unpack_takes_any_byte_order_and_stride(order: str) -> None:
    bits = np.arange(200).reshape(4, 50) % 3 == 0
    words = packing.pack(bits)
    spread = np.zeros((4, 4), dtype=order)
    spread[:, ::2] = words
    assert np.array_equal(packing.unpack(spread[:, ::2], 50), bits)


@given(words=hnp.arrays(np.uint32, hnp.array_shapes(min_side=0)))
def test_popcount(words: packing.Words) -> None:
    counts = packing.popcount(words)
    assert counts.dtype == np.int32
    assert counts.shape == words.shape
    assert counts.ravel().tolist() == [bin(word).count("1") for word in words.ravel().tolist()]


@given(
    pair=st.integers(0, 150).flatmap(lambda k: st.tuples(*[hnp.arrays(np.bool_, (3, k)) for _ in "ab"])), width=widths
)
def test_dot_is_the_dot_product_of_plus_and_minus_1(pair: tuple[Bits, Bits], width: int) -> None:
    a, b = pair
    length = a.shape[1]
    found = packing.dot(packing.pack(a, width), packing.pack(b, width), length)
    expected = (np.where(a, 1, -1) * np.where(b, 1, -1)).sum(axis=1)
    assert found.dtype == np.int32
    assert np.array_equal(found, expected)


def test_dot_broadcasts() -> None:
    x = np.arange(5 * 70).reshape(5, 70) % 4 < 2
    weights = np.arange(3 * 70).reshape(3, 70) % 5 < 2
    found = packing.dot(packing.pack(x)[:, None], packing.pack(weights), 70)
    assert np.array_equal(found, np.where(x, 1, -1) @ np.where(weights, 1, -1).T)
