"""``bnnrt calibrate``: the input thresholds of a bundle, tuned on labelled images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from bnnrt import bundle as bundles
from bnnrt.backends import open_backend
from bnnrt.backends.base import DeviceInfo
from bnnrt.bundle import Bundle, Calibration
from bnnrt.calibration import MIN_IMAGES, Calibrated, Score, calibrate, chosen_for_tuning
from bnnrt.cli.evaluate import labelled_images
from bnnrt.cli.options import BackendOption, BundleArgument, JsonOption
from bnnrt.cli.output import check_bundle_output, console, print_error, print_json, status, table, with_progress
from bnnrt.errors import ImageError, InputError
from bnnrt.graph import class_scores
from bnnrt.input_thresholds import InputThresholds
from bnnrt.preprocess.parallel import load_many
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.session import WORKERS, class_names, load_bundle

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate_command)


def calibrate_command(
    bundle: BundleArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Images in DIR/<label>/.", readable=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The bundle to write. Default: BUNDLE with -calibrated in its name.",
            show_default=False,
            readable=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Chooses the images to tune on.")] = 0,
    backend: BackendOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Tune the input thresholds on labelled images; the weights stay as they are.

    70 % of each class are for tuning. Accuracy on the others is measured before and after, and where it would fall,
    nothing is written and the exit status is 1. Images that cannot be read are listed, count for nothing, and make the
    exit status 1, too.

    Example: [bold]bnnrt calibrate vehicles.bnn photos -o tuned.bnn[/bold]
    """
    output = output or bundle.with_name(f"{bundle.stem}-calibrated.bnn")
    check_bundle_output(output, bundle, "the one that it is made from")
    loaded = load_bundle(bundle)
    thresholds = InputThresholds(loaded)
    labels = class_names(loaded)
    scores = class_scores(loaded.model)
    if scores is None or prod(loaded.model.types[scores].with_batch(1)) != len(labels):
        raise InputError("the first output is no score of each class", loaded.provenance.source, "leave T as it is")
    assert loaded.pipeline is not None  # it has thresholds on pixels
    files, classes, pixels, failed = _read(labelled_images(folder, list(labels)), loaded.pipeline)
    if not as_json:
        for failure in failed:
            print_error(failure["error"])
    _check_counts(folder, labels, classes)
    missing = [label for index, label in enumerate(labels) if index not in classes]
    tuning = chosen_for_tuning([file.relative_to(folder).as_posix() for file in files], classes, seed)
    with closing(open_backend(backend)) as device, status("calibrating") as tell:
        device_info = device.info

        def tried(count: int, loss: float) -> None:
            tell(f"calibrating: {count} thresholds tried, loss {loss:.4f}")

        found = calibrate(device, thresholds, pixels, classes, tuning, tried)
    if not found.worse:
        bundles.write(_recorded(thresholds.bundle(found.after), bundle, found, seed), output)
    document = _document(found, thresholds.names, output, seed, missing, failed, device_info)
    if as_json:
        print_json(document)
    else:
        _print(document, output)
    if found.worse:
        before, after = (_share(score) for score in found.held_out)
        raise InputError(
            f"accuracy on the images held out would fall from {before} to {after}, so nothing is written",
            str(bundle),
            "keep the bundle, or calibrate on more images",
        )
    if failed:
        raise typer.Exit(1)


def _read(
    images: list[tuple[Path, int]], pipeline: ImagePipeline
) -> tuple[list[Path], list[int], npt.NDArray[np.uint8], list[dict[str, str]]]:
    """The images that can be read: files, classes and pixels uint8 [N, H, W, C]; and what is wrong with the others."""
    files: list[Path] = []
    classes: list[int] = []
    failed: list[dict[str, str]] = []
    try:
        pixels = np.empty((len(images), pipeline.height, pipeline.width, pipeline.channels), dtype=np.uint8)
    except MemoryError:
        raise InputError(f"not enough memory for {len(images)} images", fix="give fewer") from None
    loaded = load_many((file for file, _ in images), pipeline, WORKERS)
    for (file, index), (_, result) in zip(images, with_progress(loaded, len(images), "reading"), strict=True):
        if isinstance(result, ImageError):
            failed.append({"file": str(file), "error": str(result)})
        else:
            pixels[len(files)] = result
            files.append(file)
            classes.append(index)
    return files, classes, pixels[: len(files)], failed


def _check_counts(folder: Path, labels: Sequence[str], classes: list[int]) -> None:
    """Raises InputError where there is less than two classes, or few images of one."""
    fix = f"give at least {MIN_IMAGES} of each class"
    if len(set(classes)) < 2:
        found = f"all images are of class {labels[classes[0]]}" if classes else "no image can be read"
        raise InputError(found, str(folder), f"{fix}, and of two classes or more")
    for index in sorted(set(classes)):
        if (count := classes.count(index)) < MIN_IMAGES:
            images = "one image" if count == 1 else f"{count} images"
            raise InputError(f"there is only {images} of class {labels[index]}", str(folder / labels[index]), fix)


def _recorded(calibrated: Bundle, source: Path, found: Calibrated, seed: int) -> Bundle:
    """The bundle, with where it comes from."""
    calibration = Calibration(
        bundle_sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        seed=seed,
        images=found.tuned[0].images,
        images_right=(found.tuned[0].right, found.tuned[1].right),
        held_out=found.held_out[0].images,
        held_out_right=(found.held_out[0].right, found.held_out[1].right),
    )
    return replace(calibrated, provenance=replace(calibrated.provenance, calibration=calibration))


def _document(
    found: Calibrated,
    names: Sequence[str],
    output: Path,
    seed: int,
    missing: list[str],
    failed: list[dict[str, str]],
    device: DeviceInfo,
) -> dict[str, Any]:
    def scores(pair: tuple[Score, Score]) -> dict[str, Any]:
        before, after = (
            {"correct": score.right, "top1": score.right / score.images, "loss": score.loss} for score in pair
        )
        return {"images": pair[0].images, "before": before, "after": after}

    return {
        "bundle": None if found.worse else str(output),
        "thresholds": [
            {"plane": name, "before": before, "after": after}
            for name, before, after in zip(names, found.before, found.after, strict=True)
        ],
        "tuning": scores(found.tuned),
        "held_out": scores(found.held_out),
        "evaluations": found.evaluations,
        "seed": seed,
        "missing": missing,
        "failed": failed,
        "backend": device.backend,
        "device": device.name,
    }


def _share(score: Score) -> str:
    return f"{100 * score.right / score.images:.2f} %"


def _print(document: dict[str, Any], output: Path) -> None:
    out = console()
    rows = table(None, "", "before", "after", right=["before", "after"])
    for plane in document["thresholds"]:
        rows.add_row(f"threshold, {plane['plane']}", str(plane["before"]), str(plane["after"]))
    rows.add_section()
    for key, what in (("tuning", "to tune on"), ("held_out", "held out")):
        part = document[key]
        count = part["images"]
        scores = [part[when] for when in ("before", "after")]
        rows.add_row(f"right of {count} {what}", *(f"{s['correct']}, {100 * s['top1']:.2f} %" for s in scores))
        rows.add_row("loss", *(f"{s['loss']:.4f}" for s in scores))
    out.print(rows)
    if document["missing"]:
        out.print(f"warning: there are no images of {', '.join(document['missing'])}", markup=False, soft_wrap=True)
    out.print(
        f"{document['evaluations']} thresholds tried, on {document['backend']}: {document['device']}", soft_wrap=True
    )
    if document["bundle"] is not None:
        same = all(plane["before"] == plane["after"] for plane in document["thresholds"])
        what = "no others have a lower loss, so the thresholds are as they were" if same else "calibrated"
        out.print(f"{output}: {what}", markup=False, soft_wrap=True)
