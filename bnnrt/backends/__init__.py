"""Devices that run kernels: one file a backend, all with the interface of :mod:`bnnrt.backends.base`.

A backend is named ``numpy``, ``opencl``, ``opencl:gpu``, ``opencl:cpu``, ``opencl:P.D`` (platform and device),
``cuda``, ``cuda:N``, or ``auto``, which takes CUDA, then an OpenCL GPU, then an OpenCL CPU, then numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import ModuleType

from bnnrt.backends import numpy_backend
from bnnrt.backends.base import Backend, DeviceInfo, DeviceKind
from bnnrt.errors import BackendError

__all__ = ["absent", "devices", "open_backend", "select"]


@dataclass(frozen=True)
class _Family:
    """A backend that needs a package: its module, its class there, and (what is wrong, what to do) if either lacks."""

    module: str
    type: str
    not_installed: tuple[str, str]
    no_device: tuple[str, str]

    def load(self) -> ModuleType | None:
        """The module, or None where its package is not installed or finds no library of the driver's."""
        try:
            return importlib.import_module(self.module)
        except (ImportError, OSError):
            return None


_FAMILIES: Mapping[str, _Family] = {
    "cuda": _Family(
        "bnnrt.backends.cuda",
        "CudaBackend",
        ("PyCUDA is not installed, or finds no NVIDIA driver", "run `pip install bnnrt[cuda]`"),
        ("no NVIDIA device or driver is present", "install the NVIDIA driver, or use another backend"),
    ),
    "opencl": _Family(
        "bnnrt.backends.opencl",
        "OpenCLBackend",
        ("PyOpenCL is not installed", "run `pip install bnnrt[opencl]`"),
        (
            "no OpenCL platform is present",
            "install the GPU's OpenCL driver, or PoCL with `pip install bnnrt[opencl]`",
        ),
    ),
}


def devices() -> list[DeviceInfo]:
    """All devices present, in the order in which ``auto`` prefers them."""
    return _devices_of([*_FAMILIES, "numpy"])


def _devices_of(names: Collection[str]) -> list[DeviceInfo]:
    """The devices of these backends, GPUs first and numpy last."""
    found: list[DeviceInfo] = []
    for name in names:
        module = _FAMILIES[name].load() if name in _FAMILIES else None
        found += module.devices() if module else []
    kinds = {DeviceKind.GPU: 0, DeviceKind.OTHER: 1, DeviceKind.CPU: 2}
    # Sorting is stable: CUDA stays before OpenCL.
    return [*sorted(found, key=lambda info: kinds[info.kind]), *([numpy_backend.device()] if "numpy" in names else [])]


def absent() -> dict[str, tuple[str, str]]:
    """Backends without a device here: what is wrong, and what to do about it."""
    found = {}
    for name, family in _FAMILIES.items():
        module = family.load()
        if module is None or not module.devices():
            found[name] = family.not_installed if module is None else family.no_device
    return found


def _matches(spec: str) -> Callable[[DeviceInfo], bool]:
    family, _, which = spec.partition(":")
    if which in ("gpu", "cpu"):
        return lambda info: info.backend.split(":")[0] == family and info.kind.value == which
    if which:
        return lambda info: info.backend == spec
    return lambda info: info.backend.split(":")[0] == family


def select(spec: str) -> DeviceInfo:
    """The device that a backend's name stands for. Raises BackendError where there is none."""
    if spec == "auto":
        return devices()[0]
    name, colon, which = spec.partition(":")
    if name not in ("numpy", *_FAMILIES) or (colon and (not which or name == "numpy")):
        raise BackendError(
            f"unknown backend {spec}",
            "backend",
            "use auto, numpy, cuda, cuda:N, opencl, opencl:gpu, opencl:cpu or opencl:P.D",
        )
    # Only the family that is asked for: a driver that starts takes time and memory, and does not survive a fork.
    present = _devices_of([name])
    matching = [info for info in present if _matches(spec)(info)]
    if matching:
        return matching[0]
    if present:
        others = ", ".join(info.backend for info in devices())
        raise BackendError("there is no such device", spec, f"choose among {others}")
    what, fix = absent()[name]
    raise BackendError(what, spec, fix)


def open_backend(spec: str = "auto") -> Backend:
    """Open the device that ``spec`` names. Raises BackendError where it is unknown, absent or refuses."""
    info = select(spec)
    name = info.backend.split(":")[0]
    if name == "numpy":
        return numpy_backend.NumpyBackend()
    family = _FAMILIES[name]
    backend: Backend = getattr(family.load(), family.type)(info)
    return backend
