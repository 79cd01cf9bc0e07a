"""What a device does at best, measured in the same run as the networks that are held against it."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bnnrt import packing
from bnnrt.backends.base import Backend, Buffer, DeviceKind, Language, Launch
from bnnrt.backends.source import KernelSource
from bnnrt.bench.document import EmptyKernel, Limits
from bnnrt.bench.steady import elapsed_us, steady_us, warm_up
from bnnrt.errors import BackendError

__all__ = ["empty_kernel", "measure_limits"]

# Larger than any cache, and small beside the memory of the smallest board.
_COPY_BYTES = 256 << 20
_GROUP = 128
_GROUPS_A_MULTIPROCESSOR = 16
_CHAINS = 8
_ROUNDS = 2048
# Of kernels/cl/limits_lanes.cl: 16 lanes, 31 words.
_VECTOR_WORDS = 16 * 31
_VECTOR_CHAINS = 4
_VECTOR_ROUNDS = 512
# m16n8k256: a multiplication and an addition each.
_TENSOR_CORE_OPERATIONS = 2 * 16 * 8 * 256
_SAMPLES = 9


def _copy_rate(backend: Backend) -> float | None:
    """Bytes read and written a second by copies within the device's memory."""
    nbytes = min(_COPY_BYTES, backend.info.max_allocation // 2, backend.info.memory // 8)
    buffers: list[Buffer] = []
    try:
        buffers += [backend.alloc(nbytes), backend.alloc(nbytes)]
        seconds = _fastest(backend, lambda: backend.copy(buffers[0], buffers[1], nbytes))
    except BackendError:  # a small board may be full
        return None
    finally:
        for buffer in buffers:
            backend.free(buffer)
    return 2 * nbytes / seconds


def _fastest(backend: Backend, call: Callable[[], object]) -> float:
    """Seconds of a call, the least of several after a warm-up: other work on the machine only adds to it."""
    warm_up(backend, call)
    return min(elapsed_us(backend, call, 4) for _ in range(_SAMPLES)) / 1e6


def _popcount_source() -> KernelSource:
    return KernelSource.of("common/limits.h", CHAINS=_CHAINS, ROUNDS=_ROUNDS)


def _rate(backend: Backend, source: KernelSource, entry: str, work_a_thread: float, group: int) -> float:
    """Work a second of a kernel that takes one buffer, an int for each thread."""
    groups = _GROUPS_A_MULTIPROCESSOR * backend.info.compute_units
    buffer = backend.alloc(4 * groups * group)
    try:
        kernel = backend.compile(source, entry)
        launch = backend.prepare(kernel, (groups, 1, 1), (group, 1, 1), [buffer])
        return groups * group * work_a_thread / _fastest(backend, launch)
    finally:
        backend.synchronize()
        backend.free(buffer)


def _popcount_rate(backend: Backend) -> float:
    """Population counts of 32-bit words a second, in the way of the device's convolutions."""
    info = backend.info
    if info.kind is DeviceKind.CPU and info.language is Language.OPENCL:
        source = KernelSource.of("cl/lanes.cl", "cl/limits_lanes.cl", CHAINS=_VECTOR_CHAINS, ROUNDS=_VECTOR_ROUNDS)
        return _rate(backend, source, "popcounts_lanes", _VECTOR_WORDS * _VECTOR_CHAINS * _VECTOR_ROUNDS, 1)
    group = min(_GROUP, info.max_group_size, info.max_group_shape[0])
    return _rate(backend, _popcount_source(), "popcounts", _CHAINS * _ROUNDS, group)


def empty_kernel(backend: Backend, buffer: Buffer) -> Launch | None:
    """A launch that does nothing; None where kernels are Python functions."""
    if backend.info.language is Language.NUMPY:
        return None
    return backend.prepare(backend.compile(_popcount_source(), "nothing"), (1, 1, 1), (1, 1, 1), [buffer])


def _tensor_core_rate(backend: Backend, notes: list[str]) -> float | None:
    if not backend.info.bit_tensor_cores:
        if backend.info.language is Language.CUDA:
            notes.append(f"{backend.info.backend}: no 1-bit tensor cores")
        return None
    source = KernelSource.of("cu/tensor_core_limit.cu", CHAINS=_CHAINS, ROUNDS=_ROUNDS)
    a_warp = _TENSOR_CORE_OPERATIONS * _CHAINS * _ROUNDS
    return _rate(backend, source, "tensor_core_limit", a_warp / 32, _GROUP)


def measure_limits(backend: Backend) -> tuple[Limits, list[str]]:
    """The limits of a device, and notes on what it does not have."""
    notes: list[str] = []
    if backend.info.language is Language.NUMPY:
        return Limits(_copy_rate(backend), None, None, None, EmptyKernel(None, None)), notes
    popcounts = _popcount_rate(backend)
    buffer = backend.alloc(4)
    try:
        nothing = empty_kernel(backend, buffer)
        assert nothing is not None
        steady = statistics.median(steady_us(backend, nothing, _SAMPLES))
        event = statistics.median(backend.timed(nothing).elapsed_us() for _ in range(100))
    finally:
        backend.synchronize()
        backend.free(buffer)
    limits = Limits(
        copy_bytes_per_s=_copy_rate(backend),
        popcounts_per_s=popcounts,
        binary_ops_per_s=2 * packing.WORD_BITS * popcounts,
        tensor_core_binary_ops_per_s=_tensor_core_rate(backend, notes),
        empty_kernel_us=EmptyKernel(event, steady),
    )
    return limits, notes
