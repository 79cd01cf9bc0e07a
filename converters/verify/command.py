"""``bnnrt verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bnnrt.bundle import Bundle
from bnnrt.cli.evaluate import SUFFIXES
from bnnrt.cli.options import BundleArgument, JsonOption, ThresholdsOption
from bnnrt.cli.output import console, print_json, table, with_progress
from bnnrt.converters.convert import Options
from bnnrt.converters.options import BatchOption, ShapeOption
from bnnrt.converters.sizes import parse_shapes
from bnnrt.converters.verify.inputs import Case
from bnnrt.converters.verify.result import Verification
from bnnrt.errors import InputError
from bnnrt.preprocess.schemes import Scheme, chosen
from bnnrt.session import PIXELS, load_bundle

__all__ = ["register"]

HELP = """Compare a bundle with ONNX Runtime and between backends, tensor by tensor.

Runs random, extreme and given inputs on every device present, and on ONNX Runtime without optimizations. The exit
status is 1 if something differs that rounding does not explain.

Example: bnnrt verify vehicle.bnn vehicle.onnx --images photos
"""


def register(app: typer.Typer) -> None:
    """Add ``verify`` to the command line."""
    app.command("verify", help=HELP)(verify_command)


def verify_command(
    bundle: BundleArgument,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.onnx", help="The model that it was converted from.", show_default=False, readable=False
        ),
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="A backend, as elsewhere; may be repeated. Default: every device present.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=0, help="How many random inputs.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    given: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE.npz",
            help="Arrays named as the model's inputs, or pixels, batch first; may be repeated.",
            show_default=False,
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR_OR_FILE", help="Image files; may be repeated.", show_default=False),
    ] = None,
    pixel_scale: Annotated[float | None, typer.Option(help="As given to convert.")] = None,
    pixel_offset: Annotated[float | None, typer.Option(help="As given to convert.")] = None,
    input_binarization: Annotated[Scheme | None, typer.Option(help="As given to convert.")] = None,
    thresholds: ThresholdsOption = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
) -> None:
    try:
        from bnnrt.converters.verify.run import Wanted, verify
    except ImportError as e:
        if (e.name or "").split(".")[0] != "onnxruntime":
            raise
        raise InputError("ONNX Runtime is not installed", fix="run `pip install bnnrt[verify]`") from None
    opened = load_bundle(bundle)
    cases = [case for path in given or () for case in read_cases(path, opened)]
    cases += image_cases(images or [], opened)
    options = Options(
        pixel_scale=pixel_scale,
        pixel_offset=pixel_offset,
        input_binarization=chosen(input_binarization, thresholds),
        batch=batch,
        shapes=parse_shapes(shape or []),
    )
    wanted = Wanted(backend or None, runs, seed, cases, options)
    result = verify(opened, str(bundle), model, wanted, lambda items, n: with_progress(items, n, "verifying"))
    if as_json:
        print_json(result.as_json())
    else:
        print_result(result)
    if not result.equal:
        raise typer.Exit(1)


def read_cases(path: Path, bundle: Bundle) -> list[Case]:
    """The images of an .npz file: arrays for the model's inputs, or ``pixels``.

    Raises InputError where the file cannot be read or does not fit.
    """
    try:
        with np.load(path) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError("this is not an .npz file", str(path), "write it with numpy.savez")
            arrays = {name: file[name] for name in file.files}
    except OSError as e:
        raise InputError(f"cannot read the inputs: {e.strerror or e}", str(path)) from None
    except InputError:
        raise
    except Exception:  # zipfile's, zlib's and pickle's own
        raise InputError("this is not an .npz file of numbers", str(path), "write it with numpy.savez") from None
    types = dict(bundle.model.inputs)
    if bundle.pixels is not None and PIXELS in arrays and PIXELS not in types:
        types = dict(bundle.pixels.inputs)
    feeds = {}
    for name, known in types.items():
        if name not in arrays:
            has = ", ".join(arrays) or "nothing"
            raise InputError(f"there is no array {name}, only {has}", str(path), f"name the arrays {', '.join(types)}")
        array = arrays[name]
        dtype = "uint8" if known.domain.value == "uint8" else "float32"
        shape = known.shape[1:]
        if array.dtype != np.dtype(dtype) or array.shape[1:] != shape or array.ndim != len(known.shape):
            wanted = f"{dtype} [N, {', '.join(map(str, shape))}]"
            raise InputError(f"{name} is {array.dtype} {list(array.shape)}", str(path), f"give {wanted}")
        feeds[name] = array
    counts = {len(array) for array in feeds.values()}
    if len(counts) != 1:
        raise InputError("the arrays hold different numbers of images", str(path))
    return [
        Case("given", f"{path.name}[{i}]", {name: np.ascontiguousarray(array[i]) for name, array in feeds.items()})
        for i in range(counts.pop())
    ]


def image_cases(paths: list[Path], bundle: Bundle) -> list[Case]:
    """Image files, and those in folders and the folders in them, through the bundle's image pipeline."""
    if not paths:
        return []
    if bundle.pipeline is None:
        raise InputError("the network does not take images", bundle.provenance.source, "give --input")
    files: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise InputError("there are no images", str(path))
        files += inside
    return [Case("image", str(file), {PIXELS: bundle.pipeline.load(file)}) for file in files]


def print_result(result: Verification) -> None:
    """Tables for people."""
    out = console()

    def say(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    counts = ", ".join(f"{count} {kind}" for kind, count in result.inputs.items())
    say(f"{result.bundle} and {result.model}: {result.inputs.total()} inputs ({counts}), seed {result.seed}")
    for note in result.source.notes:
        say(f"note: {note}")
    onnx = result.onnxruntime
    rows = table(None, "compared", "with", "tensors", "result", right=["tensors"])
    for row in result.backends:
        outcome = f"cannot run it: {row.refused}" if row.refused else _outcome(row.equal)
        rows.add_row(f"{row.backend}: {row.device}", "reference", str(row.tensors), outcome)
    rows.add_row("reference", f"ONNX Runtime {onnx.version}", str(onnx.tensors), _outcome(onnx.equal))
    out.print(rows)
    signs = [sign for sign in onnx.signs.values() if sign.elements or sign.zeros]
    if signs:
        numbers = ("elements", "at the threshold", "ONNX Sign of 0", "within rounding", "of them flipped")
        rows = table(None, "sign", *numbers, right=numbers)
        for sign in signs:
            counted = (sign.elements, sign.ties, sign.zeros, sign.near, sign.flipped)
            rows.add_row(sign.node, *(f"{n:,}" for n in counted))
        out.print(rows)
    for output in onnx.outputs.values():
        say(
            f"output {output.name}: {_output(output.images, output.left_out, output.differing)}; "
            f"largest difference {output.largest_difference:.3g}, largest bound {output.bound:.3g}"
        )
    if onnx.images_with_zeros:
        say(f"an ONNX Sign met 0 for {onnx.images_with_zeros} of {onnx.images} images: 0 there, and here +1")
    if onnx.rounded:
        say(f"{onnx.rounded:,} numbers inside the network differ by no more than their rounding bound")
    for row in result.backends:
        if row.first_difference is not None:
            say(f"{row.backend} differs from the reference: {row.first_difference}")
    if onnx.first_difference is not None:
        say(f"the reference differs from ONNX Runtime: {onnx.first_difference}")
    say("equal" if result.equal else "not equal")


def _outcome(equal: bool) -> str:
    return "equal" if equal else "differs"


def _output(images: int, left_out: int, differing: int) -> str:
    text = f"{images} images compared"
    if left_out:
        text += f", {left_out} left out (a bit flipped)"
    return text + (f", {differing:,} elements differ" if differing else ", every element equal")
