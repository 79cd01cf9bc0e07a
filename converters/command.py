"""``bnnrt convert``, and ONNX files opened in place of bundles."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bnnrt import bundle as bundles
from bnnrt.bundle import Bundle
from bnnrt.converters.convert import Options, convert, parse_labels
from bnnrt.converters.report import LayerRow, Report
from bnnrt.errors import ConversionError, OutputError

__all__ = ["load_graphs", "register"]

HELP = """Convert a trained ONNX MODEL to a bundle.

Prints a row for each layer: whether it runs on bits, and if not, why.

Example: bnnrt convert vehicle.onnx -o vehicle.bnn --labels labels.txt"""


def load_graphs(path: str | os.PathLike[str]) -> Bundle:
    """Convert an ONNX file in memory: what a session does when it is given one."""
    return convert(os.fspath(path))[0]


def register(app: typer.Typer) -> None:
    """Add ``convert`` to the command line."""
    app.command("convert", help=HELP)(convert_command)


def convert_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.", show_default=False)],
    labels: Annotated[
        Path | None, typer.Option(help="Class labels: one a line, or a JSON list. Default: those in the model.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse models that give a warning.")] = False,
    pixel_scale: Annotated[
        float | None, typer.Option(help="What pixels (0 to 255) are multiplied with before the model takes them.")
    ] = None,
    pixel_offset: Annotated[float | None, typer.Option(help="What is then added to them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    if output.exists() and model.exists() and output.samefile(model):
        raise OutputError("the bundle would overwrite the model", str(output), "choose another output")
    options = Options(
        labels=None if labels is None else _read_labels(labels),
        strict=strict,
        pixel_scale=pixel_scale,
        pixel_offset=pixel_offset,
    )
    errors = Console(stderr=True)
    # rich shows a spinner only on a terminal.
    with errors.status(f"converting {model.name}") as status:
        bundle, report = convert(model, options, lambda step: status.update(f"{model.name}: {step}"))
        status.update(f"writing {output.name}")
        bundles.write(bundle, output)
    if as_json:
        print(json.dumps({"bundle": str(output), "bytes": output.stat().st_size, **report.as_json()}, indent=2))
    else:
        _print(report, output)


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise ConversionError(f"cannot read the labels: {e.strerror or e}", str(path)) from None
    except UnicodeDecodeError:
        raise ConversionError("the labels are not UTF-8 text", str(path)) from None
    return parse_labels(text, str(path))


def _print(report: Report, output: Path) -> None:
    table = Table("layer", "operator", "runs as", "why")
    for column in ("parameters", "bytes before", "after", "bit mul-adds", "float mul-adds"):
        table.add_column(column, justify="right")
    for layer in report.layers:
        table.add_row(layer.name, layer.operator, layer.kind, layer.why, *_numbers(layer))
    table.add_section()
    table.add_row("total", "", "", "", *_numbers(report))
    console = Console()
    console.print(table)
    for warning in report.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{output}: {output.stat().st_size:,} bytes", markup=False, highlight=False, soft_wrap=True)


def _numbers(source: LayerRow | Report) -> list[str]:
    columns = ("parameters", "bytes_before", "bytes_after", "bit_operations", "float_operations")
    values = [source.total(c) if isinstance(source, Report) else getattr(source, c) for c in columns]
    return [f"{value:,}" if value else "" for value in values]
