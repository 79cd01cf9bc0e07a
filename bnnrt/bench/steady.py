"""Times that events cannot give: of a launch among its like, and of a whole network, by the host's clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns

from bnnrt.backends.base import Backend, Launch

__all__ = ["elapsed_us", "steady_us", "warm_up"]

# design: 200 copies back to back; fewer where they would take longer than this.
_COPIES = 200
_LONGEST_US = 50_000.0
# The host enqueues the next copies while the device is still busy, so that its own time is hidden.
_REPEATS = 5


def elapsed_us(backend: Backend, call: Callable[[], object], repeats: int = 1) -> float:
    """Microseconds a call, from an idle device until all ``repeats`` have ended."""
    backend.synchronize()
    start = perf_counter_ns()
    for _ in range(repeats):
        call()
    backend.synchronize()
    return (perf_counter_ns() - start) / 1000 / repeats


def warm_up(backend: Backend, call: Callable[[], object], least_us: float = 50_000.0) -> float:
    """Call until the device has worked for a while and its clocks are up. Returns microseconds of the last call."""
    spent, last = 0.0, 0.0
    while spent < least_us:
        last = elapsed_us(backend, call)
        spent += last
    return last


def steady_us(backend: Backend, launch: Launch, samples: int) -> list[float]:
    """Microseconds of one launch among many of its like: copies back to back in one sequence, divided by their number.

    On CUDA the sequence is a graph; in OpenCL it is enqueued on a queue without profiling, where a launch costs the
    host some microseconds, below which this cannot read.
    """
    once = max(elapsed_us(backend, launch, 3), 0.1)
    copies = max(1, min(_COPIES, math.floor(_LONGEST_US / once)))
    sequence = backend.sequence([launch] * copies)
    repeats = max(1, min(_REPEATS, math.floor(_LONGEST_US / (once * copies))))
    elapsed_us(backend, sequence)
    return [elapsed_us(backend, sequence, repeats) / copies for _ in range(samples)]
