"""Variants in C for operators that pick elements: by constant indices, or the greatest and least of a row."""

from __future__ import annotations

from math import prod

from bnnrt import packing
from bnnrt.backends.source import KernelSource
from bnnrt.ops import ArgMax, Domain, Extreme, Gather, Picked, Ties, ToInt64, TopK
from bnnrt.variants.base import C_LANGUAGES, Site, StepCode, Variant, per_element, stored_shape

__all__ = ["PICKING_VARIANTS"]


def _picks_bits(site: Site) -> bool:
    op, x = site.node.op, site.type(site.node.inputs[0])
    assert isinstance(op, Gather)
    return x.domain is Domain.BIT and op.axis == len(x.shape) - 1


def _moves_words(site: Site) -> str | None:
    return "made for whole words" if _picks_bits(site) else None


def _moves_bits(site: Site) -> str | None:
    return None if _picks_bits(site) else "made for bits of the last axis"


def _gather(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Gather)
    x, out = (stored_shape(site.type(name), 1) for name in (site.node.inputs[0], site.output))
    source = KernelSource.of("common/gather.h", SIZE=x[op.axis], PICKED=out[op.axis], INNER=prod(x[op.axis + 1 :]))
    launch = per_element(site, "gather", source, (*site.node.inputs, site.output), site.count(site.output))
    return StepCode((launch,))


def _gather_bits(site: Site) -> StepCode:
    x, out = (site.type(name).channels for name in (site.node.inputs[0], site.output))
    source = KernelSource.of(
        "common/gather_bits.h", WORDS=packing.words_for(x), PICKED=out, PICKED_WORDS=packing.words_for(out)
    )
    launch = per_element(site, "gather_bits", source, (*site.node.inputs, site.output), site.count(site.output))
    return StepCode((launch,))


def _arg_max(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, ArgMax)
    source = KernelSource.of(
        "common/arg_max.h",
        CHANNELS=site.type(site.node.inputs[0]).channels,
        LEAST=int(op.extreme is Extreme.LEAST),
        LAST=int(op.ties is Ties.LAST),
    )
    launch = per_element(site, "arg_max", source, (*site.node.inputs, site.output), site.count(site.output))
    return StepCode((launch,))


def _top_k(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, TopK)
    source = KernelSource.of(
        "common/top_k.h",
        CHANNELS=site.type(site.node.inputs[0]).channels,
        TAKEN=op.k,
        LEAST=int(op.extreme is Extreme.LEAST),
        INDICES=int(op.picked is Picked.INDICES),
    )
    launch = per_element(site, "top_k", source, (*site.node.inputs, site.output), site.count(site.node.inputs[0]))
    return StepCode((launch,))


def _to_int64(site: Site) -> StepCode:
    source = KernelSource.of("common/to_int64.h")
    launch = per_element(site, "to_int64", source, (*site.node.inputs, site.output), site.count(site.output))
    return StepCode((launch,))


PICKING_VARIANTS: tuple[Variant, ...] = (
    Variant("arg_max", (ArgMax,), C_LANGUAGES, _arg_max),
    Variant("gather", (Gather,), C_LANGUAGES, _gather, _moves_words),
    Variant("gather_bits", (Gather,), C_LANGUAGES, _gather_bits, _moves_bits),
    Variant("to_int64", (ToInt64,), C_LANGUAGES, _to_int64),
    Variant("top_k", (TopK,), C_LANGUAGES, _top_k),
)
