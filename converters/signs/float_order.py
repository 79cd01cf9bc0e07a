"""float32 numbers counted in their order, from 0 at 0.0: what bisection over all of them needs."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Array

__all__ = ["number_at", "position_of"]


def position_of(number: float) -> int:
    """The position of a float32 number of 0 or more; of its negative, it is the negative."""
    return int(np.float32(number).view(np.int32))


def number_at(positions: Array) -> Array:
    """The float32 numbers at integer ``positions``."""
    sizes = np.abs(positions).astype(np.int32).view(np.float32)
    result: Array = np.where(positions < 0, -sizes, sizes).astype(np.float32)
    return result
