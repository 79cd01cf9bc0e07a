"""Runs a plan on a backend: memory, compiled kernels, and launches prepared once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends.base import Backend, Buffer, DeviceArray, Extent, Launch
from bnnrt.errors import BackendError
from bnnrt.plan import Plan

__all__ = ["Executor", "KernelTiming"]

Feed = npt.NDArray[Any] | DeviceArray

# What the arena is filled with on request: as an accumulator, a word and a float it is a value that no test expects.
_POISON = 0xA7


@dataclass(frozen=True)
class KernelTiming:
    """One launch as the device's own timer saw it."""

    kernel: str
    layer: str
    variant: str
    grid: Extent
    block: Extent
    microseconds: float


class Executor:
    """A plan made ready on a backend. Not safe to use from two threads at once (a session locks)."""

    def __init__(self, backend: Backend, plan: Plan) -> None:
        if plan.device_bytes > backend.info.memory:
            raise BackendError(
                f"a batch of {plan.batch} needs {plan.device_bytes} bytes and the device has {backend.info.memory}",
                backend.info.backend,
                "use a smaller batch",
            )
        self._backend = backend
        self.plan = plan
        self._allocations: list[Buffer] = []
        self._arena: list[Buffer] = []
        self._tensors: dict[str, Buffer] = {}
        self._constants: dict[str, Buffer] = {}
        self._launches: list[Launch] = []
        self._replay: Launch | None = None
        try:
            self._prepare()
        except BaseException:
            # Without this, a batch that is too large would keep what it had got so far from a smaller one.
            self.close()
            raise

    def _alloc(self, nbytes: int) -> Buffer:
        self._allocations.append(self._backend.alloc(nbytes))
        return self._allocations[-1]

    def _prepare(self) -> None:
        self._arena += [self._alloc(size) for size in self.plan.arena]
        for name, place in self.plan.placements.items():
            self._tensors[name] = self._backend.view(self._arena[place.slot], place.shape, place.dtype)
        for name, array in self.plan.constants.items():
            self._constants[name] = self._backend.view(self._alloc(array.nbytes), array.shape, array.dtype)
            self._backend.upload(self._constants[name], array)
        for spec in (spec for step in self.plan.steps for spec in step.launches):
            args = [
                a if isinstance(a, int) else self._tensors[a] if a in self._tensors else self._constants[a]
                for a in spec.args
            ]
            kernel = self._backend.compile(spec.code, spec.entry)
            self._launches.append(self._backend.prepare(kernel, spec.grid, spec.block, args))
        self._replay = self._backend.sequence(self._launches)

    def upload(self, feeds: Mapping[str, Feed]) -> None:
        """Copy inputs, as they are stored, to the device."""
        borrowed = False
        for name in self.plan.graph.inputs:
            feed = feeds[name]
            if isinstance(feed, DeviceArray):
                borrowed = True
                self._backend.copy(feed.buffer, self._tensors[name], self.plan.placements[name].nbytes, feed.offset)
            else:
                self._backend.upload(self._tensors[name], feed)
        if borrowed:
            # The caller may write to its array as soon as this returns.
            self._backend.synchronize()

    def _download(self) -> dict[str, npt.NDArray[Any]]:
        results = {}
        for name in self.plan.graph.outputs:
            place = self.plan.placements[name]
            results[name] = np.empty(place.shape, dtype=place.dtype)
            self._backend.download(self._tensors[name], results[name])
        return results

    def _lend(self) -> dict[str, Any]:
        """Copies of the outputs that stay on the device: the next run writes to the arena again."""
        results = {}
        for name in self.plan.graph.outputs:
            place = self.plan.placements[name]
            buffer = self._backend.alloc(place.nbytes)
            try:
                self._backend.copy(self._tensors[name], buffer, place.nbytes)
                results[name] = self._backend.lend(buffer, place.shape, place.dtype)
            except BaseException:
                self._backend.free(buffer)
                raise
        return results

    def poison(self) -> None:
        """Fill the arena with a pattern, so that a kernel that leaves something unwritten is found."""
        for buffer, size in zip(self._arena, self.plan.arena, strict=True):
            self._backend.upload(buffer, np.full(size, _POISON, dtype=np.uint8))

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The prepared launches, in order."""
        return tuple(self._launches)

    def replay(self) -> None:
        """Enqueue all launches at once: what :meth:`run` does between the copies."""
        assert self._replay is not None  # only a closed executor has none
        self._replay()

    def run(self, feeds: Mapping[str, Feed], *, on_device: bool = False) -> dict[str, Any]:
        """Outputs by name, as they are stored, for inputs as they are stored; arrays of the host's or on the device."""
        self.upload(feeds)
        self.replay()
        return self._lend() if on_device else self._download()

    def run_timed(self, feeds: Mapping[str, Feed]) -> tuple[dict[str, npt.NDArray[Any]], list[KernelTiming]]:
        """The same with the device's time of each launch, in order."""
        self.upload(feeds)
        specs = [(step, spec) for step in self.plan.steps for spec in step.launches]
        events = [self._backend.timed(launch) for launch in self._launches]
        timings = [
            KernelTiming(spec.entry, step.nodes[0].name, step.variant, spec.grid, spec.block, event.elapsed_us())
            for (step, spec), event in zip(specs, events, strict=True)
        ]
        return self._download(), timings

    def close(self) -> None:
        """Give back the device memory, also where the device has failed. Closing twice is allowed."""
        with contextlib.suppress(BackendError):  # whoever ran what failed has been told
            self._backend.synchronize()
        self._replay = None
        self._launches.clear()
        self._tensors.clear()
        self._constants.clear()
        self._arena.clear()
        while self._allocations:
            self._backend.free(self._allocations.pop())
