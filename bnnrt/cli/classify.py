"""``bnnrt classify``: what a network sees in each image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bnnrt.cli.options import BackendOption, BundleArgument, JsonOption
from bnnrt.cli.output import console, print_error, print_json, table, with_progress
from bnnrt.errors import ImageError
from bnnrt.session import InferenceSession

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("classify")(classify)


def classify(
    bundle: BundleArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.", readable=False)],
    backend: BackendOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Classify images.

    An image that cannot be read is reported, the others are still classified, and the exit status is 1. With
    [bold]--json[/bold], one line an image: file, label, index, score and scores, or file and error.

    Example: [bold]bnnrt classify vehicles.bnn road/*.jpg --backend opencl[/bold]
    """
    failed = False
    rows = table(None, "file", "class", "score", right=["score"])
    with InferenceSession(bundle, backend) as session:
        results = with_progress(session.classify_each(images), len(images), "classifying")
        for file, result in results:
            if isinstance(result, ImageError):
                failed = True
                if as_json:
                    print_json({"file": str(file), "error": str(result)})
                else:
                    print_error(result)
            elif as_json:
                print_json({"file": str(file), **asdict(result)})
            else:
                rows.add_row(str(file), result.label, f"{result.score:.3f}")
        if not as_json and rows.rows:
            console().print(rows)
            console().print(f"{session.device.backend}: {session.device.name}")
    if failed:
        raise typer.Exit(1)
