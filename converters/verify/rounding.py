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
    mantissa, exponent = np.frexp(rows.astype(np.float64))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    least: Array = np.where(rows != 0, lowest, np.inf).min(axis=1)
    return np.where(np.isfinite(rows).all(axis=1), least, 0.0)
