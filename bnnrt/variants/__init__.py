"""The table of kernel variants, best first: the plan takes the first row that a device supports.

``default`` is the set of variants that is fastest; ``paper`` prefers the kernels of "Binarized Convolutional Neural
Networks for Efficient Inference on GPUs" wherever they can run; the name of a single variant prefers that one.
"""

from __future__ import annotations

from bnnrt.backends.base import Language
from bnnrt.errors import InputError
from bnnrt.ops import Op
from bnnrt.variants.base import Variant
from bnnrt.variants.binary import BINARY_VARIANTS
from bnnrt.variants.elementwise import ELEMENTWISE_VARIANTS
from bnnrt.variants.host import HOST_VARIANTS
from bnnrt.variants.lanes import LANE_VARIANTS
from bnnrt.variants.paper import PAPER_VARIANTS
from bnnrt.variants.picking import PICKING_VARIANTS
from bnnrt.variants.real import REAL_VARIANTS
from bnnrt.variants.tensor_cores import TENSOR_CORE_VARIANTS
from bnnrt.variants.tiles import TILE_VARIANTS

__all__ = ["SETS", "TENSOR_CORES", "VARIANTS", "candidates", "check_choice"]

VARIANTS: tuple[Variant, ...] = (
    *LANE_VARIANTS,
    *TENSOR_CORE_VARIANTS,
    *TILE_VARIANTS,
    *PAPER_VARIANTS,
    *ELEMENTWISE_VARIANTS,
    *PICKING_VARIANTS,
    *BINARY_VARIANTS,
    *REAL_VARIANTS,
    *HOST_VARIANTS,
)

SETS: tuple[str, ...] = ("default", "paper")

TENSOR_CORES = frozenset(v.name for v in TENSOR_CORE_VARIANTS)
"""Variants that count bits with 1-bit tensor cores, which have a rate of their own."""


def check_choice(chosen: str) -> None:
    """Raise InputError where ``chosen`` is neither a set nor a variant."""
    if chosen not in SETS and not any(v.name == chosen for v in VARIANTS):
        raise InputError(f"unknown variant {chosen}", "variants", f"use {', '.join(SETS)} or the name of one")


def candidates(op: type[Op], language: Language, chosen: str = "default") -> list[Variant]:
    """Rows whose chain starts with ``op``, in order of preference.

    Raises InputError where ``chosen`` is neither a set nor a variant.
    """
    check_choice(chosen)
    rows = [v for v in VARIANTS if v.ops[0] is op and language in v.languages]
    if chosen in SETS:
        return [v for v in rows if chosen in v.sets]
    return [v for v in rows if v.name == chosen] + [v for v in rows if "default" in v.sets and v.name != chosen]
