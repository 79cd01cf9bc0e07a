"""The command line. Packages above this one add commands through the entry-point group ``bnnrt.commands``."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any

import typer

from bnnrt.cli import bench, calibrate, classify, devices, evaluate, inspect, preview
from bnnrt.errors import BnnrtError, InputError

__all__ = ["app", "main"]

app = typer.Typer(
    name="bnnrt",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Run trained binarized neural networks on embedded GPUs, bit for bit.",
)
for module in (inspect, devices, classify, evaluate, calibrate, preview, bench):
    module.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bnnrt {version('bnnrt')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _add_missing(entry: EntryPoint) -> None:
    """A command whose package is not installed says how to get it."""

    @app.command(
        entry.name,
        help=f"Needs `pip install bnnrt\\[{entry.name}]`.",
        context_settings={"ignore_unknown_options": True},
    )
    def missing(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise InputError(f"{entry.name} is not installed", fix=f"run `pip install bnnrt[{entry.name}]`")


def _add_plugins() -> None:
    """Commands of the packages above. They are loaded only where one may be meant: a board starts faster without."""
    if len(sys.argv) > 1 and sys.argv[1] in {command.name for command in app.registered_commands}:
        return
    for entry in sorted(entry_points(group="bnnrt.commands"), key=lambda e: e.name):
        try:
            register = entry.load()
        except ImportError:
            _add_missing(entry)
        else:
            register(app)


# Typer brings Click along under one name or another; this is its base of all complaints about a command
# line.
_ClickException: Any = typer.BadParameter.__mro__[2]


def _complaint(error: Any) -> str:
    """A complaint of Click's as one line."""
    what = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{what}: see `{context.command_path if context else 'bnnrt'} --help`"


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def main() -> None:
    """Run the command that the process was started with; the exit status is 1 on any error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
    # Of an odd image the user is told in our own line.
    warnings.filterwarnings("ignore", module=r"PIL\b")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    _add_plugins()
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="bnnrt", standalone_mode=False)
        sys.stdout.flush()
    except BnnrtError as e:
        _fail(str(e))
    except (KeyboardInterrupt, typer.Abort):
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as e:
        _fail(f"the output cannot be written: {e.strerror or e}")
    except Exception as e:
        if not isinstance(e, _ClickException):
            raise
        _fail(_complaint(e))
    sys.exit(status if isinstance(status, int) else 0)
