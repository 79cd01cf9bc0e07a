"""The example that a new user runs first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bnnrt import InferenceSession, bundle
from bnnrt.session import load_bundle

VEHICLE = Path(__file__).parents[2] / "examples" / "vehicle"
DEMO = VEHICLE / "demo.py"
LABELS = sorted(folder.name for folder in (VEHICLE / "photos").iterdir() if folder.is_dir())


def demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, os.fspath(DEMO), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": os.fspath(folder), "COLUMNS": "120"},
        timeout=300,
        check=False,
    )


def cells(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"[│┃|]", line)[1:-1]]


def test_demo_prints_photos_kernels_and_device(tmp_path: Path) -> None:
    done = demo("--backend", "numpy", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    photos = [p for label in LABELS for p in sorted((VEHICLE / "photos" / label).glob("*.jpg"))[:2]]
    assert len(photos) == 12

    with InferenceSession(VEHICLE / "models" / "vehicle_small.onnx", "numpy") as session:
        results = session.classify(photos)
        plan = session.plan()
        device = session.device.name
    right = 0
    rows = {cells(line)[0]: cells(line)[1:] for line in lines if len(cells(line)) == 4}
    for photo, result in zip(photos, results, strict=True):
        correct = result.label == photo.parent.name
        right += correct
        assert rows[photo.name] == [result.label, f"{result.score:.2f}", "right" if correct else "wrong"]
    assert f"{right} of 12 right" in lines
    assert right >= 10

    times = {cells(line)[0]: cells(line)[2] for line in lines if len(cells(line)) == 3}
    kernels = [launch.entry for step in plan.steps for launch in step.launches]
    assert [name for name in times if name in kernels] == kernels
    total = float(times["sum"])
    each = [float(times[kernel]) for kernel in kernels]
    assert all(time > 0 for time in each)
    assert 0.5 * sum(each) < total < 2 * sum(each)  # medians of sums, and sums of medians
    assert lines[-1] == f"by the device's own timer, on numpy: {device}"

    assert list(tmp_path.iterdir()) == []  # the bundle was temporary


def test_demo_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    done = demo("--backend", "opencl:9.9", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no such device (opencl:9.9)")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "most"), [("small", 90_000), ("threshold", 300_000)])
def test_shipped_model_is_small_and_labelled(name: str, most: int, tmp_path: Path) -> None:
    model = VEHICLE / "models" / f"vehicle_{name}.onnx"
    assert model.stat().st_size < 2_500_000
    loaded = load_bundle(model)
    assert loaded.labels == tuple(LABELS)
    assert [len(list((VEHICLE / "photos" / label).glob("*.jpg"))) for label in LABELS] == [20] * 6
    bundle.write(loaded, tmp_path / "v.bnn")
    assert (tmp_path / "v.bnn").stat().st_size < most


@pytest.mark.parametrize("label", LABELS)
def test_shipped_photos_are_of_the_block_that_training_never_saw(label: str) -> None:
    numbers = {int(photo.stem.removeprefix(label)) for photo in (VEHICLE / "photos" / label).glob("*.jpg")}
    assert numbers <= set(range(641, 721))
