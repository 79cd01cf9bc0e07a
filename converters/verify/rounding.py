"""How float32 rounds: what the bounds of a comparison with ONNX Runtime are made of."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Array

__all__ = ["LARGEST_EXACT", "SLACK", "TINY", "UNIT", "lowest_bit", "of_any_order"]

UNIT = 2.0**-24  # a float32 operation is off by at most this share of its result,
TINY = 2.0**-149  # or by less than this where the result is subnormal
LARGEST_EXACT = 2.0**24  # integers up to this are float32 numbers
# Covers products of bounds with UNIT, which the formulas leave out, and the rounding of the bounds themselves.
SLACK = 1 + 2.0**-20


def of_any_order(terms: int) -> float:
    """Which share of the sum of sizes two float32 sums of ``terms`` numbers can be apart, each in any order."""
    gamma = terms * UNIT / (1 - terms * UNIT)
    return 2 * gamma


def lowest_bit(rows: Array) -> Array:
    """For each row of float32 numbers, the largest power of two that divides them all; infinity if they are all 0."""
    bits = rows.astype(np.float32).view(np.int32)
    exponent = (bits >> 23) & 255
    fraction = bits & ((1 << 23) - 1)
    fraction |= (exponent > 0).astype(np.int32) << 23  # the leading 1, which is not stored
    lowest = (fraction & -fraction).astype(np.float32)
    powers = (lowest.view(np.int32) >> 23) + np.maximum(exponent, 1) - 127 - 150
    # No float32 number has a power of 128: it stands for 0, where there is none.
    least = np.where(fraction == 0, np.int32(128), powers).min(axis=1)
    found: Array = np.where(least == 128, np.inf, np.ldexp(1.0, least))
    return np.where((exponent == 255).any(axis=1), 0.0, found)
