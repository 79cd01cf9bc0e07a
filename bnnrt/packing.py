"""Bits in 32-bit words: the only place that knows word size, bit order and tails.

Bit 1 stands for +1 and bit 0 for -1. Element ``i`` of a packed vector is bit ``i % width`` of word ``i // width``;
unused bits are 0, in every operand, so that an exclusive-or of two tails adds nothing to a population count. The true
length is kept beside the words. ``width`` is 32 everywhere except in the packed patches of the paper's convolution,
which uses 25 for a 5x5 window ("Binarized Convolutional Neural Networks for Efficient Inference on GPUs", packing).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["WORD_BITS", "Words", "dot", "pack", "popcount", "unpack", "words_for"]

WORD_BITS = 32

Words = npt.NDArray[np.uint32]


def words_for(length: int, width: int = WORD_BITS) -> int:
    """Number of words that hold ``length`` elements, ``width`` to a word. Raises ValueError if no word is so wide."""
    if not 1 <= width <= WORD_BITS:
        raise ValueError(f"{width} bits a word")
    return -(-length // width)


def pack(bits: npt.ArrayLike, width: int = WORD_BITS) -> Words:
    """Pack the last axis.

    Args:
        bits: bool [..., length]; true is +1.
        width: bits used of each word, 1 to 32.

    Returns:
        uint32 [..., words_for(length, width)].
    """
    array = np.asarray(bits, dtype=np.bool_)
    *outer, length = array.shape
    words = words_for(length, width)
    slots = np.zeros((*outer, words, WORD_BITS), dtype=np.bool_)
    whole = length // width
    slots[..., :whole, :width] = array[..., : whole * width].reshape(*outer, whole, width)
    if words > whole:
        slots[..., whole, : length - whole * width] = array[..., whole * width :]
    octets = np.packbits(slots, axis=-1, bitorder="little")
    return octets.view("<u4").reshape(*outer, words).astype(np.uint32, copy=False)


def unpack(words: Words, length: int, width: int = WORD_BITS) -> npt.NDArray[np.bool_]:
    """Inverse of :func:`pack`: uint32 [..., words_for(length, width)] to bool [..., length].

    Raises ValueError if the words are not those of ``length`` elements.
    """
    *outer, count = words.shape
    if count != words_for(length, width):
        raise ValueError(f"{length} elements in {count} words of {width}")
    octets = np.ascontiguousarray(words, dtype="<u4").view(np.uint8).reshape(*outer, count, WORD_BITS // 8)
    slots = np.unpackbits(octets, axis=-1, bitorder="little")[..., :width]
    return slots.reshape(*outer, count * width)[..., :length].astype(np.bool_)


def popcount(words: Words) -> npt.NDArray[np.int32]:
    """Bits set in each word, as int32 of the same shape."""
    return np.bitwise_count(words).astype(np.int32)


def dot(a: Words, b: Words, length: int) -> npt.NDArray[np.int32]:
    """Dot product of +-1 vectors over the last axis: ``length - 2 * popcount(a xor b)``.

    Args:
        a, b: uint32 [..., words], broadcast against each other, tails 0.
        length: number of elements packed into the words.
    """
    differing: npt.NDArray[np.int32] = popcount(np.bitwise_xor(a, b)).sum(axis=-1, dtype=np.int32)
    return np.int32(length) - 2 * differing
