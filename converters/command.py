"""``bnnrt convert``, and ONNX files opened in place of bundles."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bnnrt import bundle as bundles
from bnnrt.bundle import Bundle
from bnnrt.cli.options import JsonOption, ThresholdsOption
from bnnrt.cli.output import check_bundle_output, console, print_json, table
from bnnrt.converters.convert import STEPS, Options, convert, parse_labels
from bnnrt.converters.options import BatchOption, ShapeOption
from bnnrt.converters.report import LayerRow, Report
from bnnrt.converters.sizes import parse_shapes
from bnnrt.errors import ConversionError, InputError, printable
from bnnrt.preprocess.schemes import Scheme, chosen

__all__ = ["load_graphs", "register"]

LONGEST_NAME = 60

HELP = """Convert a trained ONNX model to a bundle.

Prints a row for each layer: whether it runs on bits, and if not, why.

Example: bnnrt convert vehicle.onnx -o vehicle.bnn --labels labels.txt
"""


def load_graphs(path: str | os.PathLike[str]) -> Bundle:
    """Convert an ONNX file in memory: what a session does when it is given one."""
    return convert(os.fspath(path))[0]


def register(app: typer.Typer) -> None:
    """Add ``convert`` to the command line."""
    app.command("convert", help=HELP)(convert_command)


def convert_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model.", show_default=False, readable=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The bundle to write.", show_default=False, readable=False)
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="Class labels: one a line, or a JSON list. Default: those in the model.", readable=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse models that give a warning.")] = False,
    pixel_scale: Annotated[
        float | None, typer.Option(help="What pixels (0 to 255) are multiplied with before the model takes them.")
    ] = None,
    pixel_offset: Annotated[float | None, typer.Option(help="What is then added to them.")] = None,
    input_binarization: Annotated[
        Scheme | None,
        typer.Option(help="How pixels become the planes of +1 and -1 that the model takes. Default: it takes numbers."),
    ] = None,
    thresholds: ThresholdsOption = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    binarize_weights: Annotated[
        bool,
        typer.Option(
            "--binarize-weights",
            help="Take the sign of real weights where a layer's input is +1 and -1. This changes the network.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    check_bundle_output(output, model, "the model")
    for name, number in (("--pixel-scale", pixel_scale), ("--pixel-offset", pixel_offset)):
        _check_number(name, number)
    options = Options(
        labels=None if labels is None else _read_labels(labels),
        strict=strict,
        pixel_scale=pixel_scale,
        pixel_offset=pixel_offset,
        input_binarization=chosen(input_binarization, thresholds),
        batch=batch,
        shapes=parse_shapes(shape or []),
        binarize_weights=binarize_weights,
    )
    with _progress(model, quiet=as_json) as advance:
        bundle, report = convert(model, options, advance)
        advance(f"writing {output.name}")

        def tell(size: int) -> None:
            """Print the report, and only then let the bundle be there: a failure leaves neither."""
            advance("")
            if as_json:
                print_json({**report.as_json(), "bundle": str(output), "bytes": size})
            else:
                _print(report, output, size)
            sys.stdout.flush()

        bundles.write(bundle, output, tell)


@contextlib.contextmanager
def _progress(model: Path, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, where that is a terminal. What it gives takes the next step; the last one is ""."""
    if quiet or not sys.stderr.isatty():
        yield lambda step: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as progress:
        # One step more than convert has: writing.
        name = printable(model.name)
        task = progress.add_task(name, total=len(STEPS) + 1)
        started = False

        def advance(step: str) -> None:
            nonlocal started
            # Every step is shown, however short.
            progress.update(task, advance=int(started), description=": ".join(filter(None, (name, step))), refresh=True)
            started = True
            if not step:
                progress.stop()

        yield advance


def _check_number(name: str, number: float | None) -> None:
    """Refuse a scale or an offset that float32 does not have, and a scale that makes every pixel 0."""
    if number is None:
        return
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if not np.isfinite(single) or (name == "--pixel-scale" and single == 0):
        raise InputError(f"{name} {number} is out of range", fix="give a finite number, and a scale other than 0")


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise ConversionError(f"cannot read the labels: {e.strerror or e}", str(path)) from None
    except UnicodeDecodeError:
        raise ConversionError("the labels are not UTF-8 text", str(path)) from None
    return parse_labels(text, str(path))


def _print(report: Report, output: Path, size: int) -> None:
    numbers = ("bytes before", "after", "multiply-adds")
    rows = table(None, "layer", "operator", "runs as", *numbers, "why", right=numbers)
    for layer in report.layers:
        rows.add_row(_short_name(layer.name), layer.operator, layer.kind, *_numbers(layer), layer.why)
    rows.add_section()
    rows.add_row("total", "", "", *_numbers(report), "")
    out = console()
    out.print(rows)
    for kind, notices in (("note", report.notes), ("warning", report.warnings)):
        for notice in notices:
            out.print(f"{kind}: {notice}", markup=False, soft_wrap=True)
    out.print(f"{output}: {size:,} bytes", markup=False, soft_wrap=True)


def _numbers(source: LayerRow | Report) -> tuple[str, str, str]:
    def number(column: str) -> int:
        return source.total(column) if isinstance(source, Report) else int(getattr(source, column))

    kinds = (("bit_operations", "bit"), ("float_operations", "float"))
    operations = [f"{_short(number(column))} {kind}" for column, kind in kinds if number(column)]
    return f"{number('bytes_before'):,}", f"{number('bytes_after'):,}", "\n".join(operations)


def _short_name(name: str) -> str:
    """A name that fits a table; --json has the whole."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 + 1 :]}"


def _short(count: int) -> str:
    """A count with three digits or so: 712 k, 1.24 G."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
