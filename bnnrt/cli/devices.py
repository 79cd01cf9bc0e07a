"""``bnnrt devices``: what there is to run on."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

import typer

from bnnrt.backends import absent, select
from bnnrt.backends import devices as present_devices
from bnnrt.backends.base import DeviceInfo, DeviceKind
from bnnrt.cli.options import JsonOption
from bnnrt.cli.output import console, print_json, table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("devices")(devices)


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in fields}


def _why(chosen: DeviceInfo) -> str:
    """Why ``auto`` takes this device."""
    if chosen.backend.startswith("cuda"):
        return "CUDA comes first"
    if chosen.backend == "numpy":
        return "there is no CUDA and no OpenCL device"
    if chosen.kind is DeviceKind.CPU:
        return "there is no CUDA device and no OpenCL GPU; an OpenCL CPU comes next, and numpy last"
    return "there is no CUDA device; an OpenCL GPU comes next, then an OpenCL CPU, and numpy last"


def devices(as_json: JsonOption = False) -> None:
    """List the devices present with their limits, and the one that [bold]--backend auto[/bold] takes.

    Example: [bold]bnnrt devices[/bold]
    """
    chosen = select("auto")
    found = present_devices()
    if as_json:
        print_json([{**asdict(info, dict_factory=_plain), "auto": info == chosen} for info in found])
        return
    sizes = ("units", "group", "local", "memory", "at once")
    rows = table(None, "backend", "kind", "device", "driver", *sizes, right=sizes)
    for info in found:
        rows.add_row(
            info.backend,
            info.kind.value,
            info.name,
            f"{info.platform}, {info.driver}",
            str(info.compute_units),
            str(info.max_group_size),
            f"{info.local_memory >> 10} KiB",
            f"{info.memory >> 20} MiB",
            f"{info.max_allocation >> 20} MiB",
        )
    console().print(rows)
    console().print(f"auto takes {chosen.backend}: {_why(chosen)}")
    for name, (what, fix) in absent().items():
        console().print(f"{name} is not there: {what} ({fix})")
