"""Where and with what a measurement was made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bnnrt.backends.base import DeviceInfo
from bnnrt.bench.document import Device, Environment, Host

__all__ = ["describe", "environment", "processor", "versions"]

_PACKAGES = (
    "bnnrt",
    "numpy",
    "pyopencl",
    "pocl-binary-distribution",
    "pycuda",
    "cuda-bindings",
    "torch",
    "onnxruntime",
)
_TIMEOUT_S = 10


def _output(*command: str) -> str | None:
    """What a program prints, or None where there is no such program or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _commit() -> str | None:
    """The commit of the checkout that bnnrt runs from, with a mark where files differ; None for an installed bnnrt."""
    folder = str(Path(__file__).resolve().parent)
    # A bnnrt installed below somebody else's repository is no checkout.
    if not _output("git", "-C", folder, "ls-files", "--error-unmatch", __file__):
        return None
    commit = _output("git", "-C", folder, "rev-parse", "HEAD")
    changed = _output("git", "-C", folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes" if commit and changed else commit


def processor() -> str:
    """The host's processor, as Linux names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _clocks(info: DeviceInfo) -> dict[str, float] | None:
    """Clocks in MHz as nvidia-smi sees them now; None where it does not know the device."""
    listed = _output("nvidia-smi", "--query-gpu=name,clocks.sm,clocks.mem", "--format=csv,noheader,nounits")
    index = info.backend.removeprefix("cuda:")
    for number, line in enumerate((listed or "").splitlines()):
        name, *clocks = (part.strip() for part in line.split(","))
        if name == info.name and index in (str(number), info.backend):
            try:
                return dict(zip(("sm", "memory"), map(float, clocks), strict=True))
            except ValueError:  # "[N/A]"
                return None
    return None


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "bnnrt" if name == "__main__.py" else name


def describe(info: DeviceInfo) -> Device:
    """A device and its clocks. Ask while it is busy: an idle device turns them down."""
    return Device(info.name, info.driver, info.platform, _clocks(info))


def environment(devices: Iterable[tuple[str, Device]], command: Iterable[str] | None = None) -> Environment:
    """This machine now; ``command`` is by default the one that this process was started with."""
    return Environment(
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        commit=os.environ.get("BNNRT_COMMIT") or _commit(),
        command=" ".join([_program(), *sys.argv[1:]] if command is None else command),
        host=Host(processor(), os.cpu_count() or 1, platform.platform(), platform.python_version()),
        devices=dict(devices),
        versions=versions(_PACKAGES),
    )
