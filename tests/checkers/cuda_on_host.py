"""A backend that compiles CUDA sources with g++ and runs them on the host, thread by thread: exact, and slow.

It shows that a kernel computes the right thing as far as C++ goes: indices, layouts of fragments, barriers that all
threads reach. It says nothing of races between barriers, since a thread runs until it waits, or of what NVIDIA's
compiler and hardware make of the same text; the tests of tests/backends do, on a machine with a GPU.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cuda_sources
import numpy as np
import numpy.typing as npt

from bnnrt.backends.base import (
    Backend,
    Buffer,
    Code,
    DeviceArray,
    DeviceInfo,
    Event,
    Extent,
    Launch,
)
from bnnrt.backends.source import KernelSource, assemble

HEADER = Path(__file__).with_suffix(".h")
LAUNCHER = """
extern "C" void launch_on_host(void **arguments, const int *grid, const int *block)
{{
    host::launch({entry}, arguments, {{grid[0], grid[1], grid[2]}}, {{block[0], block[1], block[2]}});
}}
"""
DEVICE = dataclasses.replace(
    cuda_sources.DEVICE, name="a host that runs CUDA's text", platform="g++", compute_units=4, bit_tensor_cores=True
)


class HostCuda(Backend):
    """Compiles into ``folder``."""

    def __init__(self, folder: Path, info: DeviceInfo = DEVICE) -> None:
        self.info, self._folder = info, folder

    def alloc(self, nbytes: int) -> Buffer:
        return np.zeros(nbytes, dtype=np.uint8)

    def free(self, buffer: Buffer) -> None:
        pass

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return buffer

    def upload(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        buffer[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def download(self, buffer: Buffer, array: npt.NDArray[Any]) -> None:
        array.reshape(-1).view(np.uint8)[...] = buffer[: array.nbytes]

    def borrow(self, array: object) -> DeviceArray | None:
        return None

    def copy(self, source: Buffer, target: Buffer, nbytes: int, offset: int = 0) -> None:
        target[:nbytes] = source[offset : offset + nbytes]

    def lend(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        raise NotImplementedError

    def compile(self, code: Code, entry: str) -> Any:
        assert isinstance(code, KernelSource)
        text = f'#include "{HEADER}"\n{assemble(code, "cu")}\n{LAUNCHER.format(entry=entry)}'
        stem = self._folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        library = stem.with_suffix(".so")
        if not library.exists():
            stem.with_suffix(".cpp").write_text(text, encoding="utf-8")
            options = ["-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-o", str(library)]
            subprocess.run(["g++", *options, str(stem.with_suffix(".cpp"))], check=True)
        return ctypes.CDLL(str(library)).launch_on_host

    def prepare(self, kernel: Any, grid: Extent, block: Extent, args: Sequence[Buffer | int]) -> Launch:
        values = [ctypes.c_int(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        return partial(self._launch, kernel, (pointers, (ctypes.c_int * 3)(*grid), (ctypes.c_int * 3)(*block)), values)

    def _launch(self, kernel: Any, arguments: tuple[Any, ...], kept: Sequence[object]) -> None:
        kernel(*arguments)

    def span(self, launches: Sequence[Launch]) -> Event:
        raise NotImplementedError

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass
