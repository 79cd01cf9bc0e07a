"""What the commands print: JSON for machines on stdout, tables for people, progress on stderr."""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bnnrt.errors import OutputError

__all__ = ["check_bundle_output", "console", "print_error", "print_json", "status", "table", "with_progress"]

T = TypeVar("T")

# A pipe or a file has no width of its own; wide enough that names are not folded.
_PLAIN_WIDTH = 160


def check_bundle_output(output: Path, source: Path, name: str) -> None:
    """Refuse to write a bundle over ``source``, called ``name``, which it is made from, or over what is no bundle."""
    if output.exists() and source.exists() and output.samefile(source):
        raise OutputError(f"the bundle would overwrite {name}", str(output), "choose another output")
    if output.is_file():
        with contextlib.suppress(OSError), output.open("rb") as file:
            start = file.read(9)
            # safetensors: the length of the header, then a JSON object
            if start and not (len(start) == 9 and start.endswith(b"{")):
                raise OutputError("a file that is no bundle would be overwritten", str(output), "choose another output")


def console() -> Console:
    """The console for tables on stdout."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name may be no text, or none that the terminal can show
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False, markup=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def print_json(document: Any) -> None:
    """One line of JSON; numbers that are not finite are null."""
    print(json.dumps(_finite(document), allow_nan=False), flush=True)


def print_error(message: object) -> None:
    print(f"error: {message}", file=sys.stderr)


def table(title: str | None, *columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table; the columns in ``right`` hold numbers."""
    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(Text(column), justify="right" if column in set(right) else "left", overflow="fold")
    return made


@contextmanager
def status(what: str) -> Iterator[Callable[[str], None]]:
    """A function that says what is going on now, on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True, markup=False).status(what) as shown:
        yield lambda text: shown.update(Text(text))


def with_progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, with a progress bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as progress:
        yield from progress.track(items, total=total, description=what)
