"""The numpy backend: always there, runs on the host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends.base import (
    Backend,
    Buffer,
    Code,
    DeviceArray,
    DeviceInfo,
    DeviceKind,
    Event,
    Extent,
    HostFunction,
    Kernel,
    Language,
    Launch,
)
from bnnrt.errors import BackendError

__all__ = ["NumpyBackend", "device"]


def _host_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40  # unknown: let the allocation itself decide


def device() -> DeviceInfo:
    """The host as a device."""
    memory = _host_memory()
    return DeviceInfo(
        backend="numpy",
        name=platform.processor() or platform.machine(),
        kind=DeviceKind.CPU,
        language=Language.NUMPY,
        platform="NumPy",
        driver=np.__version__,
        compute_units=1,
        max_group_size=1,
        max_group_shape=(1, 1, 1),
        local_memory=0,
        dedicated_local_memory=False,
        memory=memory,
        max_allocation=memory,
        exact_division=True,
    )


class _HostEvent(Event):
    def __init__(self, nanoseconds: int) -> None:
        self._nanoseconds = nanoseconds

    def elapsed_us(self) -> float:
        return self._nanoseconds / 1000


class NumpyBackend(Backend):
    """Kernels are Python functions; a launch runs at once."""

    def __init__(self) -> None:
        self.info = device()

    def alloc(self, nbytes: int) -> Buffer:
        try:
            return np.empty(nbytes, dtype=np.uint8)
        except MemoryError:
            raise BackendError(f"{nbytes} bytes cannot be allocated", "numpy", "use a smaller batch") from None

    def free(self, buffer: Buffer) -> None:
        pass  # an array goes with its last view

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return np.ndarray(shape, dtype, buffer=buffer)

    def upload(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer.reshape(-1).view(np.uint8)[: octets.size] = octets

    def download(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        octets = array.reshape(-1).view(np.uint8)
        octets[...] = buffer.reshape(-1).view(np.uint8)[: octets.size]

    def borrow(self, array: object) -> DeviceArray | None:
        return None  # the host's arrays are all there are

    def copy(self, source: Buffer, target: Buffer, nbytes: int, offset: int = 0) -> None:
        self.upload(target, source.reshape(-1).view(np.uint8)[offset : offset + nbytes])

    def lend(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        return self.view(buffer, shape, dtype)

    def compile(self, code: Code, entry: str) -> Kernel:
        if not isinstance(code, HostFunction):
            raise BackendError(f"{entry} is no Python function", "numpy")
        return code.function

    def prepare(self, kernel: Kernel, grid: Extent, block: Extent, args: Sequence[Buffer | int]) -> Launch:
        return partial(kernel, *args)

    def span(self, launches: Sequence[Launch]) -> Event:
        start = time.perf_counter_ns()
        for launch in launches:
            launch()
        return _HostEvent(time.perf_counter_ns() - start)

    def synchronize(self) -> None:
        pass  # a launch has ended when it returns

    def close(self) -> None:
        pass  # arrays free themselves
