"""Options that ``convert`` and ``verify`` share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["BatchOption", "ShapeOption"]

BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        max=(1 << 31) - 1,
        help="The batch: where the model leaves it free, and in place of the one that it fixes.",
        show_default=False,
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="An input's shape, as image=N,3,224,224, or the size of a free dimension, as height=224; may be repeated.",
        show_default=False,
    ),
]
