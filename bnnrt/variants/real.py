"""Variants in C for convolutions and dense layers on real numbers, with weights +-1 or float32.

All of them round products and add them up in the one order that :mod:`bnnrt.ops` fixes, so they give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import DeviceKind, Extent, Language
from bnnrt.backends.source import KernelSource
from bnnrt.ops import BinaryWeightConv, BinaryWeightDense, Conv, Dense, Domain, Op, TensorType, Window
from bnnrt.variants.base import C_LANGUAGES, LaunchSpec, Site, StepCode, Variant, fits, per_element, window_defines

__all__ = ["REAL_VARIANTS"]

Array = npt.NDArray[Any]

_DEFAULT = frozenset({"default"})
# Only for those who ask for it: to compare kernels.
_BY_NAME: frozenset[str] = frozenset()

_ELEMENT_BYTES = 4
# Sides of the square of threads of a tiled product, largest first.
_TILES = (16, 8, 4)
# Rows and columns of the product that a thread computes, by the name of the variant.
_SHARES: dict[str, tuple[int, int]] = {"matmul_tiled": (1, 1), "matmul_two": (2, 1), "matmul_blocks": (4, 4)}
# Fewer rows leave most of a tile empty.
_FEW_ROWS = 8
# Columns in a vector of kernels/cl/matmul_lanes.cl, and rows that a thread computes.
_LANES = 16
_LANE_ROWS = 4
# Kernels index with int32.
_MOST_ELEMENTS = (1 << 31) - 1


def _real_layer(site: Site) -> StepCode:
    """The direct kernel, which skips taps outside the image and reads weights as a bundle stores them."""
    op = site.node.op
    x, out = site.type(site.node.inputs[0]), site.type(site.output)
    weights = site.constant(site.node.inputs[1])
    if isinstance(op, Conv | BinaryWeightConv):
        window, groups = op.window, op.groups
    else:  # a dense layer is a 1x1 convolution of one pixel
        window, groups = Window((1, 1)), 1
        x = TensorType((None, 1, 1, x.channels), x.domain)
        out = TensorType((None, 1, 1, out.channels), out.domain)
    packed = weights.type.domain is Domain.BIT
    source = KernelSource.of(
        "common/window.h",
        "common/real_conv.h",
        **window_defines(window, x, out),
        CHANNELS=x.channels,
        GROUPS=groups,
        OUTPUTS=out.channels,
        WEIGHT_BITS=int(packed),
        WEIGHT_WORDS=weights.data.shape[1] if packed else 0,
    )
    launch = per_element(site, "real_conv", source, (*site.node.inputs, site.output), site.count(site.output))
    return StepCode((launch,))


# Products of matrices


def _window(site: Site) -> Window | None:
    """The window of a convolution; None for a dense layer, and for a window whose patches are the input as it lies."""
    op = site.node.op
    if isinstance(op, Conv | BinaryWeightConv) and op.window != Window((1, 1)):
        return op.window
    return None


def _sizes(site: Site) -> tuple[int, int, int]:
    """Rows, inner size and columns of the product."""
    weights = site.type(site.node.inputs[1]).with_batch(1)
    outputs = weights[0]
    inner = prod(weights[1:])
    return site.count(site.output) // outputs, inner, outputs


def _tile_bytes(tile: int, share: tuple[int, int]) -> int:
    """Local memory that kernels/common/matmul_tiled.h takes."""
    return sum(share) * tile * tile * _ELEMENT_BYTES


def _tile(site: Site, share: tuple[int, int]) -> int | None:
    """The largest tile that the device can run, or None."""
    for tile in _TILES:
        if fits(site.device, (tile, tile, 1), _tile_bytes(tile, share)):
            return tile
    return None


def _is_product(site: Site) -> str | None:
    op = site.node.op
    if isinstance(op, Conv | BinaryWeightConv) and op.groups > 1:
        return "patches are not split into groups"
    if _window(site) is None:
        return None
    weights = site.constant(site.node.inputs[1])
    if weights.type.domain is Domain.FLOAT32 and not np.isfinite(weights.data).all():
        return "a weight that is not finite, times the 0 outside the image, is no 0"
    rows, inner, _ = _sizes(site)
    nbytes = rows * inner * _ELEMENT_BYTES
    if rows * inner > _MOST_ELEMENTS or nbytes > site.device.memory // 4:
        return f"patches of {nbytes} bytes are more than can be indexed, or than a quarter of the device's memory"
    return None


def _matrix(site: Site) -> Array:
    """The weights as [inner, outputs]; +-1 as bool."""
    _, inner, outputs = _sizes(site)
    return site.constant(site.node.inputs[1]).unpacked().reshape(outputs, inner).T


@dataclass(frozen=True)
class _Patches:
    """The left matrix of a product: the tensor ``name``, the launches that make it, and its memory."""

    name: str
    launches: tuple[LaunchSpec, ...]
    scratch: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def _patches(site: Site) -> _Patches:
    x, window = site.node.inputs[0], _window(site)
    if window is None:
        return _Patches(x, (), {})
    rows, inner, _ = _sizes(site)
    name = f"{site.output}:patches"
    source = KernelSource.of(
        "common/window.h",
        "common/im2col.h",
        **window_defines(window, site.type(x), site.type(site.output)),
        CHANNELS=site.type(x).channels,
    )
    launch = per_element(site, "im2col", source, (x, name), rows * inner)
    return _Patches(name, (launch,), {name: ((rows, inner), np.dtype(np.float32))})


def _defines(site: Site) -> dict[str, int]:
    _, inner, outputs = _sizes(site)
    packed = site.type(site.node.inputs[1]).domain is Domain.BIT
    return {
        "INNER": inner,
        "OUTPUTS": outputs,
        "WEIGHT_BITS": int(packed),
        "OUTPUT_WORDS": packing.words_for(outputs) if packed else 0,
    }


def _product(site: Site, launch: Callable[[str, str], LaunchSpec], weights: Array | None = None) -> StepCode:
    """Patches, where there have to be some, and ``launch`` of the two matrices."""
    patches, name = _patches(site), f"{site.output}:matrix"
    if weights is None:
        matrix = _matrix(site)
        weights = packing.pack(matrix) if matrix.dtype == np.bool_ else np.ascontiguousarray(matrix)
    return StepCode((*patches.launches, launch(patches.name, name)), {name: weights}, patches.scratch)


def _naive(site: Site) -> StepCode:
    source = KernelSource.of("common/weight_matrix.h", "common/matmul_naive.h", **_defines(site))

    def launch(a: str, b: str) -> LaunchSpec:
        return per_element(site, "matmul_naive", source, (a, b, site.output), site.count(site.output))

    return _product(site, launch)


def _grid(site: Site, tile: int, share: tuple[int, int]) -> Extent:
    rows, _, outputs = _sizes(site)
    return -(-rows // (tile * share[0])), -(-outputs // (tile * share[1])), 1


def _tiled(share: tuple[int, int]) -> Callable[[Site], StepCode]:
    """The tiled product in which a thread computes ``share`` rows and columns."""

    def build(site: Site) -> StepCode:
        tile = _tile(site, share)
        assert tile is not None  # _fits
        files = ("common/weight_matrix.h", "common/matmul_tiled.h")
        source = KernelSource.of(*files, TILE=tile, ROWS=share[0], COLUMNS=share[1], **_defines(site))
        rows = _sizes(site)[0]

        def launch(a: str, b: str) -> LaunchSpec:
            block, local = (tile, tile, 1), _tile_bytes(tile, share)
            return LaunchSpec(
                "matmul_tiled", source, (a, b, site.output, rows), _grid(site, tile, share), block, local_bytes=local
            )

        return _product(site, launch)

    return build


def _fits(share: tuple[int, int]) -> Callable[[Site], str | None]:
    def supports(site: Site) -> str | None:
        if _tile(site, share) is None:
            return "not even the smallest tile of a product fits a work-group or its local memory"
        return _is_product(site)

    return supports


# On CPUs


def _lanes(site: Site) -> StepCode:
    rows, inner, outputs = _sizes(site)
    blocks, together = -(-outputs // _LANES), min(_LANE_ROWS, rows)
    matrix = _matrix(site)
    if matrix.dtype == np.bool_:
        matrix = np.where(matrix, np.float32(1), np.float32(-1))
    padded = np.zeros((inner, blocks * _LANES), dtype=np.float32)
    padded[:, :outputs] = matrix
    by_lane = np.ascontiguousarray(padded.reshape(inner, blocks, _LANES).swapaxes(0, 1))
    source = KernelSource.of("cl/matmul_lanes.cl", ROWS=together, INNER=inner, OUTPUTS=outputs, BLOCKS=blocks)

    def launch(a: str, b: str) -> LaunchSpec:
        threads = -(-rows // together) * blocks
        return per_element(site, "matmul_lanes", source, (a, b, site.output, rows), threads)

    return _product(site, launch, by_lane)


def _lanes_fit(site: Site) -> str | None:
    if site.device.kind is not DeviceKind.CPU:
        return "made for CPUs"
    return _is_product(site)


# Which product is the fastest


def _best(site: Site) -> Callable[[Site], StepCode] | str:
    """How to build the product, or why the direct kernel is better."""
    reason = _is_product(site)
    if reason is not None:
        return reason
    if site.device.kind is DeviceKind.CPU:
        return "a tile in local memory is no gain on a CPU"
    if _sizes(site)[0] < _FEW_ROWS or not site.device.dedicated_local_memory:
        return _naive
    for share in reversed(_SHARES.values()):
        tile = _tile(site, share)
        if tile is not None and prod(_grid(site, tile, share)) >= site.device.compute_units:
            return _tiled(share)
    return "there are fewer tiles than compute units"


def _build_best(site: Site) -> StepCode:
    build = _best(site)
    assert not isinstance(build, str)  # _worth
    return build(site)


def _worth(site: Site) -> str | None:
    best = _best(site)
    return best if isinstance(best, str) else None


def _rows(op: type[Op], direct: str) -> list[Variant]:
    return [
        Variant("matmul_lanes", (op,), (Language.OPENCL,), _lanes, _lanes_fit, _DEFAULT),
        Variant("matmul", (op,), C_LANGUAGES, _build_best, _worth, _DEFAULT),
        Variant(direct, (op,), C_LANGUAGES, _real_layer),
        Variant("matmul_naive", (op,), C_LANGUAGES, _naive, _is_product, _BY_NAME),
        *(
            Variant(name, (op,), C_LANGUAGES, _tiled(share), _fits(share), _BY_NAME, staged=True)
            for name, share in _SHARES.items()
        ),
    ]


REAL_VARIANTS: tuple[Variant, ...] = (
    *_rows(BinaryWeightConv, "real_conv"),
    *_rows(Conv, "real_conv"),
    *_rows(BinaryWeightDense, "real_dense"),
    *_rows(Dense, "real_dense"),
)
