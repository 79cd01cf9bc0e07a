"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BackendOption", "BundleArgument", "JsonOption"]

BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle (.bnn), or a model to convert first.")]
BackendOption = Annotated[
    str,
    typer.Option("--backend", help="auto, numpy, opencl, opencl:gpu, opencl:cpu or opencl:P.D (see bnnrt devices)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
