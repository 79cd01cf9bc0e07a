"""Which device a backend's name stands for, and what is said where there is none."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from bnnrt import backends
from bnnrt.backends.base import DeviceInfo, DeviceKind, Language
from bnnrt.backends.numpy_backend import NumpyBackend, device
from bnnrt.errors import BackendError

BASE = dataclasses.replace(device(), backend="opencl:0.0", language=Language.OPENCL, platform="described")


def described(backend: str, kind: DeviceKind) -> DeviceInfo:
    return dataclasses.replace(BASE, backend=backend, kind=kind, name=f"{kind.value} {backend}")


CPU = described("opencl:0.0", DeviceKind.CPU)
OTHER = described("opencl:0.1", DeviceKind.OTHER)
GPU = described("opencl:1.0", DeviceKind.GPU)
GPU_10 = described("opencl:1.10", DeviceKind.GPU)
CUDA = dataclasses.replace(described("cuda:0", DeviceKind.GPU), language=Language.CUDA)
CUDA_1 = dataclasses.replace(described("cuda:1", DeviceKind.GPU), language=Language.CUDA)


class Module(ModuleType):
    """In the place of a backend's module, with devices as described."""

    def __init__(self, found: list[DeviceInfo]) -> None:
        super().__init__("described")
        self.found = found

    def devices(self) -> list[DeviceInfo]:
        return list(self.found)

    def OpenCLBackend(self, info: DeviceInfo) -> tuple[str, DeviceInfo]:  # noqa: N802
        return "opened", info

    CudaBackend = OpenCLBackend


class Machine:
    """A machine with the devices that a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.opencl(None)
        self.cuda(None)

    def opencl(self, found: list[DeviceInfo] | None) -> None:
        """None where PyOpenCL is not installed."""
        self.patch.setitem(sys.modules, "bnnrt.backends.opencl", None if found is None else Module(found))

    def cuda(self, found: list[DeviceInfo] | None) -> None:
        self.patch.setitem(sys.modules, "bnnrt.backends.cuda", None if found is None else Module(found))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def chosen(spec: str) -> str:
    return backends.select(spec).backend


def test_order_of_preference(machine: Machine) -> None:
    machine.opencl([CPU, OTHER, GPU, GPU_10])
    machine.cuda([CUDA, CUDA_1])
    names = [info.backend for info in backends.devices()]
    assert names == ["cuda:0", "cuda:1", "opencl:1.0", "opencl:1.10", "opencl:0.1", "opencl:0.0", "numpy"]
    assert chosen("auto") == "cuda:0"
    machine.cuda([])
    assert chosen("auto") == "opencl:1.0"
    machine.cuda(None)
    assert chosen("auto") == "opencl:1.0"
    machine.opencl([CPU, OTHER])
    assert chosen("auto") == "opencl:0.1"
    machine.opencl([CPU])
    assert chosen("auto") == "opencl:0.0"
    machine.opencl([])
    assert chosen("auto") == "numpy"
    machine.opencl(None)
    assert chosen("auto") == "numpy"
    assert [info.backend for info in backends.devices()] == ["numpy"]


def test_names_of_devices(machine: Machine) -> None:
    machine.opencl([CPU, OTHER, GPU, GPU_10])
    machine.cuda([CUDA, CUDA_1])
    wanted = {
        "numpy": "numpy",
        "opencl": "opencl:1.0",
        "opencl:gpu": "opencl:1.0",
        "opencl:cpu": "opencl:0.0",
        "opencl:0.0": "opencl:0.0",
        "opencl:0.1": "opencl:0.1",
        "opencl:1.0": "opencl:1.0",
        "opencl:1.10": "opencl:1.10",
        "cuda": "cuda:0",
        "cuda:0": "cuda:0",
        "cuda:1": "cuda:1",
    }
    assert {spec: chosen(spec) for spec in wanted} == wanted


@pytest.mark.parametrize(
    "spec",
    [
        "",
        " ",
        ":",
        "vulkan",
        "OpenCL",
        "opencl0",
        "opencl:",
        "numpy:",
        "numpy:0",
        "numpy:cpu",
        "auto:",
        "auto:0",
        ":0.0",
    ],
)
def test_unknown_names_are_refused(machine: Machine, spec: str) -> None:
    machine.opencl([CPU, GPU])
    with pytest.raises(BackendError, match="unknown backend") as caught:
        backends.open_backend(spec)
    for known in ("auto", "numpy", "opencl", "opencl:gpu", "opencl:cpu", "opencl:P.D"):
        assert known in caught.value.fix


@pytest.mark.parametrize("spec", ["opencl:9.9", "opencl:0", "opencl:0.", "opencl:x", "opencl:0.00", "opencl:gpu"])
def test_devices_that_are_not_there_are_refused_with_those_that_are(machine: Machine, spec: str) -> None:
    machine.opencl([CPU, OTHER])
    with pytest.raises(BackendError) as caught:
        backends.open_backend(spec)
    error = caught.value
    assert (error.what, error.where) == ("there is no such device", spec)
    assert error.fix == "choose among opencl:0.1, opencl:0.0, numpy"


@pytest.mark.parametrize("spec", ["opencl", "opencl:gpu", "opencl:cpu", "opencl:0.0"])
def test_no_platform_and_no_package_are_told_apart(machine: Machine, spec: str) -> None:
    machine.opencl([])
    with pytest.raises(BackendError) as caught:
        backends.open_backend(spec)
    assert (caught.value.what, caught.value.where) == ("no OpenCL platform is present", spec)
    assert "driver" in caught.value.fix
    machine.opencl(None)
    with pytest.raises(BackendError) as caught:
        backends.open_backend(spec)
    assert (caught.value.what, caught.value.where) == ("PyOpenCL is not installed", spec)
    assert "pip install bnnrt[opencl]" in caught.value.fix


def test_a_loader_that_cannot_be_loaded_is_no_opencl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where libOpenCL.so is missing, importing PyOpenCL is an OSError or an ImportError."""
    real = importlib.import_module

    def broken(name: str, *args: Any) -> ModuleType:
        if name in ("bnnrt.backends.opencl", "bnnrt.backends.cuda"):
            raise OSError("libOpenCL.so.1: cannot open shared object file")
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", broken)
    assert chosen("auto") == "numpy"
    with pytest.raises(BackendError, match=r"bnnrt.opencl"):
        backends.open_backend("opencl")


def test_the_chosen_device_is_opened(machine: Machine) -> None:
    machine.opencl([CPU, GPU])
    assert backends.open_backend("opencl:cpu") == ("opened", CPU)
    assert backends.open_backend() == ("opened", GPU)
    assert isinstance(backends.open_backend("numpy"), NumpyBackend)


def test_a_device_that_goes_away_is_an_error() -> None:
    """For the real backend: chosen from a list, it may be gone when it is opened."""
    opencl = importlib.import_module("bnnrt.backends.opencl")
    with pytest.raises(BackendError, match=r"gone.*opencl:9\.9"):
        opencl.OpenCLBackend(dataclasses.replace(CPU, backend="opencl:9.9"))


def test_real_devices_are_described() -> None:
    found = backends.devices()
    assert any(info.language is Language.OPENCL for info in found)  # PoCL has to be there
    assert [info.backend for info in found].count("numpy") == 1
    assert len({info.backend for info in found}) == len(found)
    for info in found:
        assert info.name
        assert info.platform
        assert info.driver
        assert min(info.compute_units, info.max_group_size, info.memory, info.max_allocation) >= 1
        assert info.max_allocation <= info.memory


def test_numpy_starts_no_driver() -> None:
    code = "import sys, bnnrt.backends as b; b.open_backend('numpy'); "
    code += "print('pyopencl' in sys.modules, 'pycuda' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
