"""``bnnrt devices``: what there is to run on."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

import typer

from bnnrt.backends import devices as present_devices
from bnnrt.backends import select
from bnnrt.cli.options import JsonOption
from bnnrt.cli.output import console, print_json, table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("devices")(devices)


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in fields}


def devices(as_json: JsonOption = False) -> None:
    """List the devices present, and the one that [bold]--backend auto[/bold] takes.

    Example: [bold]bnnrt devices[/bold]
    """
    chosen = select("auto").backend
    found = present_devices()
    if as_json:
        print_json([{**asdict(info, dict_factory=_plain), "auto": info.backend == chosen} for info in found])
        return
    rows = table(None, "backend", "kind", "device", "driver", "units", "group", "local", "memory", "auto")
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
            "auto" if info.backend == chosen else "",
        )
    console().print(rows)
