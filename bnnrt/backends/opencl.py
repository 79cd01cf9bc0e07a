"""The OpenCL backend, on PyOpenCL. The only file that imports it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from bnnrt.backends.base import (
    Backend,
    Buffer,
    Code,
    DeviceArray,
    DeviceInfo,
    DeviceKind,
    Event,
    Extent,
    Kernel,
    Language,
    Launch,
)
from bnnrt.backends.cache import default_cache
from bnnrt.backends.source import KernelSource, assemble
from bnnrt.errors import BackendError, InputError

__all__ = ["OpenCLBackend", "devices"]


def _kind(device: cl.Device) -> DeviceKind:
    if device.type & cl.device_type.GPU:
        return DeviceKind.GPU
    return DeviceKind.CPU if device.type & cl.device_type.CPU else DeviceKind.OTHER


def _describe(device: cl.Device, backend: str) -> DeviceInfo:
    shape = [int(n) for n in device.max_work_item_sizes] + [1, 1, 1]
    return DeviceInfo(
        backend=backend,
        name=device.name.strip(),
        kind=_kind(device),
        language=Language.OPENCL,
        platform=device.platform.name.strip(),
        driver=f"{device.version.strip()}, driver {device.driver_version.strip()}",
        compute_units=device.max_compute_units,
        max_group_size=device.max_work_group_size,
        max_group_shape=(shape[0], shape[1], shape[2]),
        local_memory=device.local_mem_size,
        dedicated_local_memory=device.local_mem_type == cl.device_local_mem_type.LOCAL,
        memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        exact_division=bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
    )


def _found() -> list[tuple[DeviceInfo, cl.Device]]:
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader reports "no platform" as an error
        return []
    found = []
    for p, platform in enumerate(platforms):
        try:
            listed = platform.get_devices()
        except cl.Error:
            continue  # a platform without devices
        for d, device in enumerate(listed):
            if device.available and device.compiler_available:
                found.append((_describe(device, f"opencl:{p}.{d}"), device))
    return found


def devices() -> list[DeviceInfo]:
    """Every OpenCL device that can compile, by platform and number."""
    return [info for info, _ in _found()]


def _options(info: DeviceInfo) -> list[str]:
    # Contraction is turned off by the prelude's pragma.
    return ["-cl-std=CL1.2", *(["-cl-fp32-correctly-rounded-divide-sqrt"] if info.exact_division else [])]


def _built(program: cl.Program, options: list[str]) -> cl.Program:
    """Build, without PyOpenCL's own cache and without its warnings of remarks that compilers make on good programs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        built: cl.Program = program.build(options, cache_dir=False)  # type: ignore[arg-type]  # False turns it off
    return built


class _ProfiledEvent(Event):
    def __init__(self, first: cl.Event, last: cl.Event) -> None:
        self._first, self._last = first, last

    def elapsed_us(self) -> float:
        self._last.wait()  # the queue runs in order
        return float(self._last.profile.end - self._first.profile.start) / 1000


class OpenCLBackend(Backend):
    """One OpenCL device with a context of its own.

    Timed launches go to a second queue, with profiling, because profiling slows a queue down.
    """

    def __init__(self, info: DeviceInfo) -> None:
        chosen = [device for known, device in _found() if known.backend == info.backend]
        if not chosen:
            raise BackendError("the device has gone", info.backend, "see `bnnrt devices`")
        self.info = info
        self._device = chosen[0]
        self._cache = default_cache()
        self._programs: dict[KernelSource, cl.Program] = {}
        try:
            self._context = cl.Context([self._device])
            self._queue = cl.CommandQueue(self._context)
            self._profiling = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.Error as e:
            raise BackendError(f"the device cannot be opened: {e}", info.backend, "see `bnnrt devices`") from None
        self._current = self._queue
        self._closed = False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """OpenCL's errors as ours. Drivers that allocate late run out of memory at the first use, in any call."""
        try:
            yield
        except cl.MemoryError as e:
            raise BackendError(f"out of memory: {e}", self.info.backend, "use a smaller batch") from None
        except cl.Error as e:
            raise BackendError(f"the device failed: {e}", self.info.backend, "see the driver's log") from None

    def alloc(self, nbytes: int) -> Buffer:
        if nbytes > self.info.max_allocation:
            raise BackendError(
                f"{nbytes} bytes are more than the {self.info.max_allocation} that the device gives at once",
                self.info.backend,
                "use a smaller batch",
            )
        with self._errors():
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(nbytes, 4))

    def free(self, buffer: Buffer) -> None:
        buffer.release()

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return buffer

    def upload(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        with self._errors():
            cl.enqueue_copy(self._use(self._queue), buffer, np.ascontiguousarray(array))

    def download(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        with self._errors():
            cl.enqueue_copy(self._use(self._queue), array, buffer)

    def borrow(self, array: object) -> DeviceArray | None:
        if not isinstance(array, cl_array.Array):
            return None
        if array.context != self._context:
            raise InputError("the array lies in another context", "device array", "make it on session.queue")
        if not array.flags.c_contiguous:
            raise InputError("the array is strided", "device array", "give a contiguous copy")
        # Whatever writes it, on whichever queue, must have ended.
        with self._errors():
            array.finish()
            if array.queue is not None and array.queue != self._queue:
                array.queue.finish()
        return DeviceArray(array.base_data, array.offset, array.shape, array.dtype, array)

    def copy(self, source: Buffer, target: Buffer, nbytes: int, offset: int = 0) -> None:
        with self._errors():
            cl.enqueue_copy(self._use(self._queue), target, source, byte_count=nbytes, src_offset=offset)

    def lend(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        # On other queues it could be read too early.
        self.synchronize()
        return cl_array.Array(self._queue, shape, dtype, data=buffer)

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue of untimed launches."""
        return self._queue

    def compile(self, code: Code, entry: str) -> Kernel:
        if not isinstance(code, KernelSource):
            raise BackendError(f"{entry} is no OpenCL source", self.info.backend)
        if code not in self._programs:
            self._programs[code] = self._build(code)
        try:
            return cl.Kernel(self._programs[code], entry)
        except cl.Error as e:
            raise BackendError(f"there is no kernel {entry}: {e}", ", ".join(code.files), "please report it") from None

    def _build(self, code: KernelSource) -> cl.Program:
        text, options = assemble(code, "cl"), _options(self.info)
        key = (text, self._device.name, self.info.platform, self.info.driver, *options)
        stored = self._cache.get(key) if self._cache else None
        if stored is not None:
            try:
                return _built(cl.Program(self._context, [self._device], [stored]), options)
            except (cl.Error, ValueError):
                pass  # an entry that the driver no longer takes is compiled again
        try:
            program = _built(cl.Program(self._context, text), options)
        except cl.RuntimeError as e:
            raise BackendError(f"a kernel does not compile: {e}", ", ".join(code.files), "please report it") from None
        if self._cache:
            binaries = cast(list[bytes], program.get_info(cl.program_info.BINARIES))
            self._cache.put(key, binaries[0])
        return program

    def prepare(self, kernel: Kernel, grid: Extent, block: Extent, args: Sequence[Buffer | int]) -> Launch:
        with self._errors():
            kernel.set_args(*(np.int32(a) if isinstance(a, int) else a for a in args))
        size = (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2])
        return partial(self._enqueue, kernel, size, block)

    def _use(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Switch queues; what the other one holds must have ended first."""
        if queue is not self._current:
            self._current.finish()
            self._current = queue
        return queue

    def _enqueue(self, kernel: Kernel, size: Extent, block: Extent) -> cl.Event:
        with self._errors():
            return cl.enqueue_nd_range_kernel(self._current, kernel, size, block)

    def span(self, launches: Sequence[Launch]) -> Event:
        with self._errors():
            self._use(self._profiling)
        events = [launch() for launch in launches]
        first, last = events[0], events[-1]
        assert isinstance(first, cl.Event)  # what _enqueue returns
        assert isinstance(last, cl.Event)
        return _ProfiledEvent(first, last)

    def synchronize(self) -> None:
        with self._errors():
            self._current.finish()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self.synchronize()
            finally:
                self._programs.clear()
                del self._queue, self._profiling, self._current, self._context
