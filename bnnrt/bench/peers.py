"""What every peer needs: host times, whether its outputs are the network's, and which configuration is best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.bench.document import Figure, Peer

__all__ = ["deviation", "first_line", "host_times", "mark_best"]

Array = npt.NDArray[Any]


def host_times(call: Callable[[], object], runs: int, warmup: int) -> Figure:
    """The host's clock around each of ``runs`` calls, after ``warmup`` others."""
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(runs):
        start = perf_counter_ns()
        call()
        samples.append((perf_counter_ns() - start) / 1000)
    return Figure.of(samples)


def deviation(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Greatest difference between outputs of the same name, as a fraction of the range of the expected one.

    What is expected may be that of the batch's first images only. Infinite where shapes differ, an output is missing,
    or one side is infinite or NaN and the other is not.
    """
    greatest = 0.0
    for name, wanted in expected.items():
        got = found[name][: len(wanted)] if name in found else None
        if got is None or got.shape != wanted.shape:
            return float("inf")
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            return float("inf")
        if finite.any():
            # A constant output has no range; its size takes the place.
            span = np.ptp(b[finite]) or np.abs(b[finite]).max() or 1.0
            greatest = max(greatest, float(np.abs(a[finite] - b[finite]).max() / span))
    return greatest


def mark_best(peers: Sequence[Peer]) -> list[Peer]:
    """The peers, with ``best`` at the fastest one of each runtime, model, device and batch whose outputs are right.

    Fastest on the device where that was measured, else on the host.
    """
    groups: dict[tuple[str, str, str, int], list[int]] = {}
    for index, p in enumerate(peers):
        if p.checked:
            groups.setdefault((p.peer, p.model, p.device, p.batch), []).append(index)

    def time(index: int) -> float:
        figure = peers[index].first_to_last_us or peers[index].host_us
        return figure.median if figure else float("inf")

    best = {min(group, key=time) for group in groups.values()}
    return [replace(p, best=index in best) for index, p in enumerate(peers)]


def first_line(error: Exception) -> str:
    """What a foreign library says is wrong, in one line of bearable length."""
    text = " ".join(str(error).strip().split("\n")[0].split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
