"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BackendOption", "BundleArgument", "JsonOption", "ThresholdsOption"]

# Unreadable files are ours to report: Typer would refuse the whole command for one of them.
BundleArgument = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A bundle (.bnn), or a model to convert first.", readable=False)
]
BackendOption = Annotated[
    str,
    typer.Option(
        "--backend", help="auto, numpy, cuda, cuda:N, opencl, opencl:gpu, opencl:cpu or opencl:P.D (see bnnrt devices)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
ThresholdsOption = Annotated[
    str | None,
    typer.Option(
        "--thresholds",
        metavar="T1,T2,T3",
        help="T of X + T > 0 for red, green and blue, or one T for gray; X is 0 to 255.",
        show_default=False,
    ),
]
