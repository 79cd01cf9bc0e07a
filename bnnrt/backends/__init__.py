"""Devices that run kernels: one file a backend, all with the interface of :mod:`bnnrt.backends.base`.

A backend is named ``numpy``, ``opencl``, ``opencl:gpu``, ``opencl:cpu``, ``opencl:P.D`` (platform and device) or
``auto``, which takes an OpenCL GPU, then an OpenCL CPU, then numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from bnnrt.backends import numpy_backend
from bnnrt.backends.base import Backend, DeviceInfo, DeviceKind
from bnnrt.errors import BackendError

__all__ = ["devices", "open_backend", "select"]


def _opencl() -> ModuleType | None:
    """The OpenCL backend's module, or None where PyOpenCL is not installed or has no loader to talk to."""
    try:
        return importlib.import_module("bnnrt.backends.opencl")
    except (ImportError, OSError):
        return None


def devices() -> list[DeviceInfo]:
    """All devices present, in the order in which ``auto`` prefers them."""
    opencl = _opencl()
    found: list[DeviceInfo] = opencl.devices() if opencl else []
    order = {DeviceKind.GPU: 0, DeviceKind.OTHER: 1, DeviceKind.CPU: 2}
    return [*sorted(found, key=lambda info: order[info.kind]), numpy_backend.device()]


def _matches(spec: str) -> Callable[[DeviceInfo], bool]:
    family, _, which = spec.partition(":")
    if which in ("gpu", "cpu"):
        return lambda info: info.backend.split(":")[0] == family and info.kind.value == which
    if which:
        return lambda info: info.backend == spec
    return lambda info: info.backend.split(":")[0] == family


def select(spec: str) -> DeviceInfo:
    """The device that a backend's name stands for. Raises BackendError where there is none."""
    present = devices()
    if spec == "auto":
        return present[0]
    family, colon, which = spec.partition(":")
    if family not in ("numpy", "opencl") or (colon and not which) or (family == "numpy" and colon):
        raise BackendError(
            f"unknown backend {spec}", "backend", "use auto, numpy, opencl, opencl:gpu, opencl:cpu or opencl:P.D"
        )
    matching = [info for info in present if _matches(spec)(info)]
    if matching:
        return matching[0]
    if _opencl() is None:
        raise BackendError("PyOpenCL is not installed", spec, "run `pip install bnnrt[opencl]`")
    others = ", ".join(info.backend for info in present)
    if any(info.backend.startswith("opencl") for info in present):
        raise BackendError("there is no such device", spec, f"choose among {others}")
    raise BackendError(
        "no OpenCL platform is present",
        spec,
        "install the GPU's OpenCL driver, or PoCL with `pip install bnnrt[opencl]`",
    )


def open_backend(spec: str = "auto") -> Backend:
    """Open the device that ``spec`` names. Raises BackendError where it is unknown, absent or refuses."""
    info = select(spec)
    if info.backend == "numpy":
        return numpy_backend.NumpyBackend()
    opencl = _opencl()
    assert opencl is not None  # select() found a device of it
    backend: Backend = opencl.OpenCLBackend(info)
    return backend
