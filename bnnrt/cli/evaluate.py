"""``bnnrt eval``: how often a network is right on a folder of labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bnnrt.cli.options import BackendOption, BundleArgument, JsonOption
from bnnrt.cli.output import console, print_error, print_json, table, with_progress
from bnnrt.errors import ImageError, InputError
from bnnrt.session import InferenceSession

__all__ = ["register"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".tif", ".tiff"})


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


def is_image(file: Path) -> bool:
    """Whether the name is that of an image, and not of a hidden file."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def labelled_images(folder: Path, labels: list[str]) -> list[tuple[Path, int]]:
    """Images of ``folder/<label>/`` and the index of their label, sorted.

    Raises InputError where a folder is no label, or there is nothing to read.
    """
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise InputError(f"several classes are called {min(twice)}", str(folder), "give the classes different labels")
    try:
        entries = sorted(folder.iterdir())
        found = []
        for entry in entries:
            if not entry.is_dir() or entry.name.startswith("."):
                continue
            if entry.name not in labels:
                raise InputError(f"the folder is no label of the network: {', '.join(labels)}", str(entry), "rename it")
            index = labels.index(entry.name)
            found += [(file, index) for file in sorted(entry.iterdir()) if is_image(file)]
    except OSError as e:
        raise InputError(f"the folder cannot be read: {e.strerror}", str(folder), "check the path") from None
    if not found:
        raise InputError("there are no images", str(folder), "put them into DIR/<label>/")
    return found


def _summary(labels: list[str], confusion: list[list[int]], failed: list[dict[str, str]]) -> dict[str, Any]:
    def share(correct: int, images: int) -> float | None:
        return correct / images if images else None

    per_class = {
        label: {"images": sum(row), "correct": row[i], "top1": share(row[i], sum(row))}
        for i, (label, row) in enumerate(zip(labels, confusion, strict=True))
    }
    images = sum(map(sum, confusion))
    correct = sum(row[i] for i, row in enumerate(confusion))
    return {
        "images": images,
        "correct": correct,
        "top1": share(correct, images),
        "per_class": per_class,
        "labels": labels,
        "confusion": confusion,
        "failed": failed,
    }


def evaluate(
    bundle: BundleArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Images in DIR/<label>/.", readable=False)],
    backend: BackendOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure accuracy on labelled images.

    The confusion matrix has a row for each true class and a column for each answer. Images that cannot be read are
    listed, count for nothing, and make the exit status 1.

    Example: [bold]bnnrt eval vehicles.bnn photos --json[/bold]
    """
    with InferenceSession(bundle, backend) as session:
        labels = session.labels
        images = labelled_images(folder, labels)
        confusion = [[0] * len(labels) for _ in labels]
        failed: list[dict[str, str]] = []
        results = session.classify_each(file for file, _ in images)
        for (file, truth), (_, result) in zip(images, with_progress(results, len(images), "evaluating"), strict=True):
            if isinstance(result, ImageError):
                failed.append({"file": str(file), "error": str(result)})
            else:
                confusion[truth][result.index] += 1
        summary = {
            **_summary(labels, confusion, failed),
            "backend": session.device.backend,
            "device": session.device.name,
        }
    if as_json:
        print_json(summary)
    else:
        for failure in failed:
            print_error(failure["error"])
        _print(summary)
    if failed:
        raise typer.Exit(1)


def _print(summary: dict[str, Any]) -> None:
    labels: list[str] = summary["labels"]
    rows = table(None, "true class", "images", "right", *labels, right=["images", "right", *labels])
    for label, row in zip(labels, summary["confusion"], strict=True):
        score = summary["per_class"][label]
        share = "" if score["top1"] is None else f"{100 * score['top1']:.1f} %"
        rows.add_row(label, str(score["images"]), share, *(str(n) for n in row))
    console().print(rows)
    if summary["images"]:
        share = f"{100 * summary['top1']:.2f} %"
        console().print(
            f"{summary['correct']} of {summary['images']} right, {share}, on {summary['backend']}: {summary['device']}"
        )
