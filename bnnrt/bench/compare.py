"""Two documents of `bnnrt bench` side by side, and the records of one beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from bnnrt.bench.document import FIGURES, Document, Figure, Kernel, Peer, Result

__all__ = ["FigureChange", "KernelChange", "Row", "Speedup", "compare", "speedups"]

Record = Result | Peer
Key = tuple[str, ...]
KeyedT = TypeVar("KeyedT")

# What speed is judged by, where both sides have it: the network alone before the network with its transfers.
_SPEED_FIGURES = ("replay_us", "first_to_last_us", "host_us")


@dataclass(frozen=True)
class FigureChange:
    """One figure of a record in two documents.

    ``ratio`` is the second median over the first; ``overlap`` says that the ranges from p10 to p90 meet, so that the
    difference may be noise. Both are None where one document lacks the figure.
    """

    figure: str
    a: Figure | None
    b: Figure | None
    ratio: float | None
    overlap: bool | None


@dataclass(frozen=True)
class KernelChange:
    """Steady-state microseconds of one launch of a layer in two documents; None where a document lacks it."""

    layer: str
    name: str
    a_us: float | None
    b_us: float | None
    ratio: float | None


@dataclass(frozen=True)
class Row:
    """One record in two documents; ``a`` or ``b`` is None where only the other has it.

    ``key`` is (bundle, backend, batch, variants, role) of a result and (peer, model, configuration, batch) of a peer.
    """

    key: Key
    a: Record | None
    b: Record | None
    figures: tuple[FigureChange, ...]
    kernels: tuple[KernelChange, ...]


@dataclass(frozen=True)
class Speedup:
    """How many times faster than ``other`` a result is, by the medians of ``figure``, at the same batch size."""

    result: Result
    other: Record
    figure: str
    ratio: float


def compare(a: Document, b: Document) -> list[Row]:
    """Rows for all results, then all peers, of both documents: in the order of ``a``, then what only ``b`` has."""
    return [
        *_rows(_by_key(a.results, _record_key), _by_key(b.results, _record_key)),
        *_rows(_by_key(a.peers, _record_key), _by_key(b.peers, _record_key)),
    ]


def speedups(document: Document) -> Iterator[Speedup]:
    """Each binary result beside the fastest baseline on its backend, and beside the fastest of each peer.

    Results and peers belong together if the document has one binary bundle, or else if their files' names without the
    suffix are equal. Peers whose outputs were wrong do not count, nor peers on another of the devices that were
    measured.
    """
    names = {key: device.name for key, device in document.environment.devices.items()}
    binary = [r for r in document.results if r.role != "baseline"]
    alone = len({r.bundle for r in binary}) == 1
    for result in binary:
        groups: dict[Key, list[Record]] = {}
        for r in document.results:
            if r.role == "baseline" and (r.backend, r.device, r.batch) == (result.backend, result.device, result.batch):
                groups.setdefault(("baseline",), []).append(r)
        for p in document.peers:
            elsewhere = p.device in names and names[p.device] != names.get(result.device)
            if p.checked and p.batch == result.batch and not elsewhere:
                groups.setdefault((p.peer, p.device), []).append(p)
        for others in groups.values():
            mine = [o for o in others if alone or _stem(o) == _stem(result)]
            if found := _speedup(result, mine):
                yield found


def _speedup(result: Result, others: Sequence[Record]) -> Speedup | None:
    for name in _SPEED_FIGURES:
        own: Figure | None = getattr(result, name)
        timed = [(figure.median, index) for index, o in enumerate(others) if (figure := getattr(o, name)) is not None]
        if own is not None and timed and own.median > 0:
            median, index = min(timed)
            return Speedup(result, others[index], name, median / own.median)
    return None


def _stem(record: Record) -> str:
    return PurePath(record.bundle if isinstance(record, Result) else record.model).stem


def _record_key(r: Record) -> Key:
    if isinstance(r, Peer):
        return (r.peer, r.model, r.configuration, str(r.batch))
    return (r.bundle, r.backend, str(r.batch), r.variants, r.role)


def _kernel_key(k: Kernel) -> Key:
    return (k.layer, k.name)


def _by_key(items: Iterable[KeyedT], key: Callable[[KeyedT], Key]) -> dict[tuple[Key, int], KeyedT]:
    """Items by key and, where several have the same one, by their number among those."""
    found: dict[tuple[Key, int], KeyedT] = {}
    for item in items:
        own, number = key(item), 0
        while (own, number) in found:
            number += 1
        found[own, number] = item
    return found


def _rows(a: Mapping[tuple[Key, int], Record], b: Mapping[tuple[Key, int], Record]) -> Iterator[Row]:
    for key in dict.fromkeys((*a, *b)):
        first, second = a.get(key), b.get(key)
        yield Row(
            key=key[0],
            a=first,
            b=second,
            figures=tuple(
                _figure_change(name, getattr(first, name, None), getattr(second, name, None)) for name in FIGURES
            ),
            kernels=tuple(_kernel_changes(getattr(first, "kernels", ()), getattr(second, "kernels", ()))),
        )


def _figure_change(name: str, a: Figure | None, b: Figure | None) -> FigureChange:
    if a is None or b is None:
        return FigureChange(name, a, b, None, None)
    overlap = a.p10 <= b.p90 and b.p10 <= a.p90
    return FigureChange(name, a, b, _ratio(a.median, b.median), overlap)


def _kernel_changes(a: Sequence[Kernel], b: Sequence[Kernel]) -> Iterator[KernelChange]:
    first, second = _by_key(a, _kernel_key), _by_key(b, _kernel_key)
    for key in dict.fromkeys((*first, *second)):
        a_us, b_us = (side[key].us if key in side else None for side in (first, second))
        ratio = None if a_us is None or b_us is None else _ratio(a_us, b_us)
        (layer, name), _ = key
        yield KernelChange(layer, name, a_us, b_us, ratio)


def _ratio(a: float, b: float) -> float | None:
    return b / a if a > 0 else None
