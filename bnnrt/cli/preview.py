"""``bnnrt preview``: a picture of what a network sees of an image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from bnnrt import reference
from bnnrt.bundle import Bundle
from bnnrt.cli.options import JsonOption, ThresholdsOption
from bnnrt.cli.output import console, print_json
from bnnrt.errors import InputError, OutputError
from bnnrt.graph import Graph
from bnnrt.ops import Arithmetic, Domain, Grayscale, LocalBinaryPattern, Sign, Threshold, ToFloat
from bnnrt.preprocess.images import load_rgb
from bnnrt.preprocess.pictures import save_png
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.preprocess.schemes import InputBinarization, Scheme, chosen
from bnnrt.session import PIXELS, load_bundle

__all__ = ["register"]

Array = npt.NDArray[Any]

# Small images are enlarged by whole numbers, to about this many pixels.
_PICTURE = 400
# Operators that turn an image into one of the same height and width.
_IMAGE_TO_IMAGE = (Arithmetic, Grayscale, LocalBinaryPattern, Sign, Threshold, ToFloat)


def register(app: typer.Typer) -> None:
    app.command("preview")(preview)


def preview(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file.", readable=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The PNG file to write.", show_default=False, readable=False)
    ],
    binarization: Annotated[
        Scheme | None, typer.Option("--binarization", help="The scheme; none shows the pixels.", show_default=False)
    ] = None,
    thresholds: ThresholdsOption = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="HxW", help="Resize first. Default: the image's own size.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="B.bnn", readable=False, help="Take size and scheme from a bundle instead."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a picture of what a network sees of an image.

    Bits are black and white: three planes become red, green and blue, one becomes gray; of several planes a colour, the
    share that is set becomes its brightness. Small images are enlarged, each pixel to a square.

    Example: [bold]bnnrt preview road.jpg --binarization lbp --size 96x96 -o seen.png[/bold]
    """
    _check_output(output, image, bundle)
    if bundle is not None:
        if binarization is not None or thresholds is not None or size is not None:
            raise InputError("a bundle has a size and a scheme of its own", "--bundle", "leave the other options out")
        seen = _seen_by_bundle(load_bundle(bundle), image)
    else:
        seen = _seen(image, size, chosen(binarization, thresholds))
    of_bits = seen.dtype == np.bool_
    height, width, planes = seen.shape
    enlarged = max(1, _PICTURE // max(height, width))
    save_png(_shades(seen) if of_bits else seen, output, enlarged)
    if as_json:
        found = {"height": height, "width": width, "planes": planes, "bits": of_bits, "enlarged": enlarged}
        print_json({"file": str(image), "picture": str(output), **found})
    else:
        what = f"{planes} plane{'s' if planes > 1 else ''} of {height}x{width} {'bits' if of_bits else 'pixels'}"
        times = f", {enlarged} times as large" if enlarged > 1 else ""
        console().print(f"{output}: {what}{times}", markup=False, soft_wrap=True)


def _shades(bits: Array) -> Array:
    """Planes [H, W, planes], colour by colour for each threshold, as uint8 [H, W, 3], or [H, W, 1] if no three."""
    height, width, planes = bits.shape
    colors = 1 if planes % 3 else 3
    shades: Array = bits.reshape(height, width, -1, colors).mean(axis=2) * 255
    return shades.round().astype(np.uint8)


def _check_output(output: Path, image: Path, bundle: Path | None) -> None:
    if output.suffix.lower() != ".png":
        raise OutputError("the picture is a PNG file", str(output), "let its name end in .png")
    for source in (image, bundle):
        if source is not None and output.exists() and source.exists() and output.samefile(source):
            raise OutputError(f"the picture would overwrite {source.name}", str(output), "choose another output")


def _seen(image: Path, size: str | None, binarization: InputBinarization | None) -> Array:
    """Bits or pixels of an image file, [H, W, planes]."""
    rgb = load_rgb(image) if size is None else ImagePipeline(*_parsed(size)).load(image)
    return rgb if binarization is None else binarization.bits(rgb)


def _parsed(size: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", size)
    if found is None:
        raise InputError(f"{size!r} is no size", "--size", "give height x width, such as 96x96")
    return int(found[1]), int(found[2])


def _seen_by_bundle(bundle: Bundle, image: Path) -> Array:
    if bundle.pixels is None or bundle.pipeline is None:
        raise InputError("the network does not take images", bundle.provenance.source, "choose another bundle")
    seen: Array = bundle.pipeline.load(image)
    head = _head(bundle.pixels)
    if head is not None:
        (planes,) = reference.run(head, {PIXELS: seen[None]}).values()
        seen = planes[0] > 0
    return seen[..., ::-1] if bundle.pipeline.color == "bgr" else seen


def _head(graph: Graph) -> Graph | None:
    """The part of a pixel graph that makes its first bits, if they are an image; None where it starts on numbers."""
    images = {PIXELS}
    for node in graph.nodes:
        if not isinstance(node.op, _IMAGE_TO_IMAGE) or not images.intersection(node.inputs):
            continue
        if all(name in images or name in graph.constants for name in node.inputs):
            (written,) = node.outputs
            if graph.types[written].domain is Domain.BIT:
                return Graph(graph.inputs, graph.nodes, (written,), graph.constants).rebuilt(graph.nodes)
            images.add(written)
    return None
