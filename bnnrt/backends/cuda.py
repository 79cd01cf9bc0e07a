"""The CUDA backend, on PyCUDA. The only file that imports it.

It works in the device's primary context, which PyTorch and CuPy use too, and makes it current only while it needs it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pycuda.driver as cuda
from pycuda.compiler import compile as nvcc

from bnnrt.backends import cuda_driver as driver
from bnnrt.backends import dlpack, nvrtc
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

__all__ = ["CudaArray", "CudaBackend", "devices"]


def devices() -> list[DeviceInfo]:
    """Every CUDA device; none where there is no driver."""
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error:
        return []
    return [_describe(cuda.Device(index), index) for index in range(count)]


def _describe(device: Any, index: int) -> DeviceInfo:
    version = cuda.get_driver_version()
    major, minor = device.compute_capability()
    memory = device.total_memory()
    return DeviceInfo(
        backend=f"cuda:{index}",
        name=device.name(),
        kind=DeviceKind.GPU,
        language=Language.CUDA,
        platform="CUDA",
        driver=f"driver for CUDA {version // 1000}.{version % 1000 // 10}, compute capability {major}.{minor}",
        compute_units=device.multiprocessor_count,
        max_group_size=device.max_threads_per_block,
        max_group_shape=(device.max_block_dim_x, device.max_block_dim_y, device.max_block_dim_z),
        local_memory=device.max_shared_memory_per_block,
        dedicated_local_memory=True,
        memory=memory,
        max_allocation=memory,
        exact_division=True,
        # Older devices have none for "and"; newer ones take the instruction and emulate it, slowly.
        bit_tensor_cores=(8, 0) <= (major, minor) < (10, 0),
    )


def _compile_nvcc(text: str, architecture: str) -> bytes:
    """PyCUDA's way to nvcc, for machines without NVRTC. Raises BackendError."""
    try:
        cubin: bytes = nvcc(text, options=list(nvrtc.EXACT), arch=architecture, no_extern_c=True, cache_dir=False)
    except (cuda.CompileError, OSError) as e:
        raise BackendError(f"a kernel does not compile: {e}", architecture, "install NVRTC or nvcc") from None
    return cubin


_CONTEXTS: dict[int, Any] = {}
_CONTEXTS_LOCK = threading.Lock()


def _primary_context(index: int) -> Any:
    """The primary context of a device, kept for the life of the process.

    Letting go of it is not ours to do: arrays that were lent may outlive every session, and PyCUDA's ``detach`` leaves
    the calling thread with another context current.
    """
    with _CONTEXTS_LOCK:
        if index not in _CONTEXTS:
            _CONTEXTS[index] = cuda.Device(index).retain_primary_context()
        return _CONTEXTS[index]


class CudaArray:
    """An array on a CUDA device, lent by ``__cuda_array_interface__`` (version 3) and DLPack; frees its own memory."""

    def __init__(self, backend: CudaBackend, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._backend, self._buffer = backend, buffer
        self.shape, self.dtype = shape, dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (int(self._buffer), False),
            "strides": None,
            "stream": None,  # what wrote it has ended
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._backend.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        # No stream has to wait: what wrote the array has ended. A capsule of the first version is always allowed.
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the array is lent where it is, without a copy")
        return dlpack.lend(dlpack.Lent(int(self._buffer), self.shape, self.dtype, self.__dlpack_device__(), owner=self))

    def get(self) -> npt.NDArray[Any]:
        """A copy in the host's memory."""
        array = np.empty(self.shape, dtype=self.dtype)
        self._backend.download(np.uintp(int(self._buffer)), array)
        return array

    def __del__(self) -> None:
        self._backend.free(self._buffer)


class _TimedEvent(Event):
    def __init__(self, backend: CudaBackend, start: Any, end: Any) -> None:
        self._backend = backend
        self._ends = [start, end]
        self._elapsed = 0.0

    def elapsed_us(self) -> float:
        if self._ends:
            # Events go while their context is current, or PyCUDA cannot clean them up.
            with self._backend.current():
                start, end = self._ends
                end.synchronize()
                self._elapsed = float(end.time_since(start)) * 1000
                self._ends.clear()
                del start, end
        return self._elapsed


class _Replay:
    """Launches recorded as a CUDA graph: one call for all of them. It keeps no buffer alive."""

    def __init__(self, backend: CudaBackend, graph: object) -> None:
        self._backend, self._graph = backend, graph

    def __call__(self) -> None:
        self._backend.replay(self._graph)

    def __del__(self) -> None:
        self._backend.forget(self._graph)


class CudaBackend(Backend):
    """One CUDA device, a stream of its own in the device's primary context."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.index = int(info.backend.split(":")[1])
        self._closed = False
        self._process = os.getpid()
        self._modules: dict[KernelSource, Any] = {}
        self._cache = default_cache()
        self._lock = threading.RLock()
        self._depth = 0  # of `current` in the thread that holds the lock
        self._check_compiler()
        try:
            self._architecture = "sm_{}{}".format(*cuda.Device(self.index).compute_capability())
            self._context = _primary_context(self.index)
        except cuda.Error as e:
            raise BackendError(f"the device cannot be opened: {e}", info.backend, "see `nvidia-smi`") from None
        with self.current():
            self._stream = cuda.Stream()
            # Copies run asynchronously only from and to memory that cannot be paged out.
            self._staging = cuda.pagelocked_empty(1 << 16, np.uint8)
        self._staging_busy = False

    def _check_compiler(self) -> None:
        """A toolkit of a newer major version makes code that the driver cannot load."""
        compiler, driver = nvrtc.version(), cuda.get_driver_version() // 1000
        if compiler is not None and compiler[0] > driver:
            raise BackendError(
                f"NVRTC is of CUDA {compiler[0]} and the driver of CUDA {driver}",
                self.info.backend,
                f"run `pip install 'cuda-bindings=={driver}.*'`",
            )

    @contextmanager
    def current(self) -> Iterator[None]:
        """The context, current in this thread, which nobody else uses meanwhile; CUDA's errors as ours."""
        with self._lock, self._errors():
            self._context.push()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                cuda.Context.pop()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """CUDA's errors as ours."""
        try:
            yield
        except cuda.MemoryError as e:
            raise BackendError(f"out of memory: {e}", self.info.backend, "use a smaller batch") from None
        except cuda.Error as e:
            raise BackendError(f"the device failed: {e}", self.info.backend, "see the driver's log") from None

    def alloc(self, nbytes: int) -> Buffer:
        with self.current():
            return cuda.mem_alloc(max(nbytes, 1))

    def free(self, buffer: Buffer) -> None:
        if self._process == os.getpid():  # a forked child has no part in the device's memory
            with self.current():
                buffer.free()

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return np.uintp(int(buffer))

    def _pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Pinned memory that no copy uses any more."""
        if self._staging_busy:
            self._stream.synchronize()
            self._staging_busy = False
        if self._staging.nbytes < nbytes:
            self._staging = cuda.pagelocked_empty(nbytes, np.uint8)
        staging: npt.NDArray[np.uint8] = self._staging[:nbytes]
        return staging

    def upload(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        with self.current():
            staging = self._pinned(array.nbytes)
            staging[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            cuda.memcpy_htod_async(int(buffer), staging, self._stream)
            self._staging_busy = True

    def download(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        with self.current():
            staging = self._pinned(array.nbytes)
            cuda.memcpy_dtoh_async(staging, int(buffer), self._stream)
            self._stream.synchronize()
            array.reshape(-1).view(np.uint8)[...] = staging

    @property
    def queue(self) -> Any:
        """The stream of all copies and launches."""
        return self._stream

    def borrow(self, array: object) -> DeviceArray | None:
        if isinstance(array, np.ndarray):
            return None
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            kind, index = array.__dlpack_device__()
            if kind in dlpack.ON_HOST:
                return None
            self._check_place(int(kind) in dlpack.ON_CUDA and index == self.index)
            try:
                # The owner makes our stream wait for what it is still writing.
                lent = dlpack.read(array.__dlpack__(stream=self._stream.handle))
            except (BufferError, RuntimeError) as e:
                raise InputError(f"the array is not lent: {e}", "device array", "detach it from its graph") from None
            return DeviceArray(np.uintp(lent.pointer), 0, lent.shape, lent.dtype, lent.owner)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return None
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        strides = interface.get("strides")
        if strides is not None and not dlpack.is_c_order(shape, tuple(s // dtype.itemsize for s in strides)):
            raise InputError("the array is strided", "device array", "give a contiguous copy")
        if interface.get("mask") is not None:
            raise InputError("the array is masked", "device array", "fill its mask")
        pointer = interface["data"][0]
        with self.current():
            self._check_place(pointer == 0 or driver.device_of(pointer) == self.index)
            if interface.get("version", 0) < 3:  # it names no stream to wait for
                cuda.Context.synchronize()
            driver.wait_for_stream(interface.get("stream"))
        return DeviceArray(np.uintp(pointer), 0, shape, dtype, array)

    def _check_place(self, right: bool) -> None:
        if not right:
            raise InputError("the array lies on another device", "device array", f"move it to {self.info.backend}")

    def copy(self, source: Buffer, target: Buffer, nbytes: int, offset: int = 0) -> None:
        with self.current():
            cuda.memcpy_dtod_async(int(target), int(source) + offset, nbytes, self._stream)

    def lend(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        # Consumers differ in whether they wait for a stream that they are told of.
        self.synchronize()
        return CudaArray(self, buffer, shape, dtype)

    def compile(self, code: Code, entry: str) -> Kernel:
        if not isinstance(code, KernelSource):
            raise BackendError(f"{entry} is no CUDA source", self.info.backend)
        with self.current():
            if code not in self._modules:
                self._modules[code] = self._load(code)
            return self._modules[code].get_function(entry)

    def _load(self, code: KernelSource) -> Any:
        text = assemble(code, "cu")
        key = (text, self._architecture, f"NVRTC {nvrtc.version()}", *nvrtc.EXACT)
        stored = self._cache.get(key) if self._cache else None
        if stored is not None:
            try:
                return cuda.module_from_buffer(stored)
            except cuda.Error:
                pass  # an entry that the driver does not take is compiled again
        compiled = _compile_nvcc if nvrtc.version() is None else nvrtc.compile_cubin
        cubin = compiled(text, self._architecture)
        if self._cache:
            self._cache.put(key, cubin)
        return cuda.module_from_buffer(cubin)

    def prepare(self, kernel: Kernel, grid: Extent, block: Extent, args: Sequence[Buffer | int]) -> Launch:
        # Pointers are np.uintp (see `view`), which tells them from numbers.
        kernel.prepare("".join("i" if type(a) is int else "P" for a in args))
        return partial(self._enqueue, kernel, grid, block, tuple(int(a) for a in args))

    def _enqueue(self, kernel: Kernel, grid: Extent, block: Extent, args: tuple[int, ...]) -> None:
        with self._lock:
            if self._depth:  # of many launches only the first one makes the context current
                kernel.prepared_async_call(grid, block, self._stream, *args)
            else:
                with self.current():
                    kernel.prepared_async_call(grid, block, self._stream, *args)

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        if not driver.AVAILABLE or len(launches) < 2:
            return super().sequence(launches)
        with self.current():
            self._stream.synchronize()
            graph = driver.capture(self._stream.handle, super().sequence(launches))
        return _Replay(self, graph)

    def span(self, launches: Sequence[Launch]) -> Event:
        with self.current():
            start, end = cuda.Event(), cuda.Event()
            start.record(self._stream)
            for launch in launches:
                launch()
            end.record(self._stream)
        return _TimedEvent(self, start, end)

    def replay(self, graph: object) -> None:
        """Launch what :func:`cuda_driver.capture` recorded."""
        with self.current():
            driver.launch_graph(graph, self._stream.handle)

    def forget(self, graph: object) -> None:
        """Free what :func:`cuda_driver.capture` recorded."""
        if self._process == os.getpid():  # a forked child has no part in the device's memory
            with self.current():
                driver.destroy_graph(graph)

    def synchronize(self) -> None:
        with self.current():
            self._stream.synchronize()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with self.current():
            self._stream.synchronize()
            self._modules.clear()
