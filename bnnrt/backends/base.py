"""The interface that every backend implements, and the values that cross it.

A backend owns one device. It knows buffers, compiled kernels and launches, and nothing of networks. A launch is
prepared once, with its arguments, and then repeated; that keeps the cost of a run at one call a kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends.source import KernelSource

__all__ = [
    "Backend",
    "Buffer",
    "Code",
    "DeviceArray",
    "DeviceInfo",
    "DeviceKind",
    "Event",
    "HostFunction",
    "Kernel",
    "Language",
    "Launch",
]

Buffer = Any
"""A backend's own handle of device memory."""
Kernel = Any
"""A backend's own handle of a compiled kernel."""

Launch = Callable[[], object]
"""A prepared launch: calling it enqueues the kernel."""

Extent = tuple[int, int, int]


class Language(Enum):
    """What a backend's kernels are written in."""

    NUMPY = "numpy"
    OPENCL = "cl"
    CUDA = "cu"


class DeviceKind(Enum):
    CPU = "cpu"
    GPU = "gpu"
    OTHER = "other"


@dataclass(frozen=True)
class DeviceInfo:
    """A device and its limits. Sizes are in bytes."""

    backend: str
    """Name to open it by, such as ``opencl:0.0``."""
    name: str
    kind: DeviceKind
    language: Language
    platform: str
    driver: str
    compute_units: int
    max_group_size: int
    """Most work-items (threads) in a work-group (block)."""
    max_group_shape: Extent
    local_memory: int
    dedicated_local_memory: bool
    """Whether local memory is memory of its own; in some devices (Mali, CPUs) it is a part of main memory."""
    memory: int
    max_allocation: int
    exact_division: bool
    """Whether float32 division is correctly rounded."""
    bit_tensor_cores: bool = False
    """Whether there are tensor cores that multiply matrices of bits, in hardware."""


@dataclass(frozen=True)
class HostFunction:
    """A kernel of the numpy backend: a Python function of the launch's arguments."""

    function: Callable[..., None]


Code = KernelSource | HostFunction


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array of the caller's that lies on the device already, ``offset`` bytes into ``buffer``.

    ``owner`` keeps its memory alive.
    """

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object


def _each(launches: tuple[Launch, ...]) -> None:
    for launch in launches:
        launch()


class Event(ABC):
    """Launches whose time the device measures."""

    @abstractmethod
    def elapsed_us(self) -> float:
        """Time that they ran, in microseconds. Waits for them to end."""


class Backend(ABC):
    """One device."""

    info: DeviceInfo

    @abstractmethod
    def alloc(self, nbytes: int) -> Buffer:
        """Device memory. Raises BackendError where the device does not have that much."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Give back what :meth:`alloc` gave; its views must not be used any more."""

    @abstractmethod
    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """``buffer`` as kernels take a tensor of ``shape`` and ``dtype`` that lies at its start."""

    @abstractmethod
    def upload(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        """Copy a host array to the start of ``buffer``."""

    @abstractmethod
    def download(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        """Fill a host array from the start of ``buffer``, after all launches so far."""

    @abstractmethod
    def borrow(self, array: object) -> DeviceArray | None:
        """An array that lies on a device, once it may be read; None for an array of the host's.

        Raises InputError where it lies on another device, or its elements do not lie densely in C order.
        """

    @abstractmethod
    def copy(self, source: Buffer, target: Buffer, nbytes: int, offset: int = 0) -> None:
        """Copy on the device, from ``offset`` bytes into ``source``, after all launches so far."""

    @abstractmethod
    def lend(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        """What :meth:`alloc` gave, as an array of the caller's, which frees it when it goes."""

    @abstractmethod
    def compile(self, code: Code, entry: str) -> Kernel:
        """The kernel called ``entry``. Raises BackendError with the compiler's message."""

    @abstractmethod
    def prepare(self, kernel: Kernel, grid: Extent, block: Extent, args: Sequence[Buffer | int]) -> Launch:
        """A call that enqueues ``grid`` groups of ``block`` work-items with these arguments (integers are int32)."""

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        """One call that enqueues prepared launches in order, as cheaply as the device can have it."""
        return partial(_each, tuple(launches))

    def timed(self, launch: Launch) -> Event:
        """Enqueue a prepared launch so that the device measures its time."""
        return self.span([launch])

    @abstractmethod
    def span(self, launches: Sequence[Launch]) -> Event:
        """Enqueue launches so that the device measures the time from the first one's start to the last one's end."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all launches so far have ended. Raises BackendError if one failed."""

    @abstractmethod
    def close(self) -> None:
        """Free what the backend holds. Closing twice is allowed."""
