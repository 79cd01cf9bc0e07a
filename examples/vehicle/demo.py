"""The main job, end to end: convert the trained model, classify shipped photos, and time every kernel.

    python examples/vehicle/demo.py --backend opencl

The photos are two a class from the block of images that training never saw.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import bnnrt

HERE = Path(__file__).resolve().parent
MODEL = HERE / "models" / "vehicle_small.onnx"
PHOTOS_A_CLASS = 2
TIMED_RUNS = 50


def classify(session: bnnrt.InferenceSession, photos: list[Path], console: Console) -> None:
    table = Table("file", "class", "score", "", title="Photos", title_justify="left")
    right = 0
    for photo, result in zip(photos, session.classify(photos), strict=True):
        correct = result.label == photo.parent.name
        right += correct
        table.add_row(photo.name, result.label, f"{result.score:.2f}", "right" if correct else "wrong")
    console.print(table)
    console.print(f"{right} of {len(photos)} right\n")


def time_kernels(session: bnnrt.InferenceSession, photo: Path, console: Console) -> None:
    pipeline = session.bundle.pipeline
    assert pipeline is not None  # the vehicle network takes images
    pixels = pipeline.load(photo)[None]
    session.run_timed(None, {"pixels": pixels})  # the first launch of a kernel compiles it
    runs = [session.run_timed(None, {"pixels": pixels})[1] for _ in range(TIMED_RUNS)]
    times = np.array([[kernel.microseconds for kernel in run] for run in runs])
    medians = np.median(times, axis=0)
    table = Table(
        "kernel", "layer", "median µs", title=f"Kernels, median of {TIMED_RUNS} runs of one image", title_justify="left"
    )
    for kernel, median in zip(runs[0], medians, strict=True):
        table.add_row(kernel.kernel, kernel.layer, f"{median:.1f}")
    table.add_section()
    table.add_row("sum", "", f"{np.median(times.sum(axis=1)):.1f}")
    console.print(table)
    console.print(f"by the device's own timer, on {session.device.backend}: {session.device.name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="opencl", help="see `bnnrt devices` (default: opencl)")
    backend = parser.parse_args().backend
    console = Console(highlight=False)
    photos = [
        p
        for label in sorted((HERE / "photos").iterdir())
        if label.is_dir()
        for p in sorted(label.glob("*.jpg"))[:PHOTOS_A_CLASS]
    ]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "vehicle.bnn"
        converted = subprocess.run(
            [sys.executable, "-m", "bnnrt", "convert", str(MODEL), "-o", str(bundle)], check=False
        )
        if converted.returncode:
            return converted.returncode
        try:
            with bnnrt.InferenceSession(bundle, backend) as session:
                classify(session, photos, console)
                time_kernels(session, photos[0], console)
        except bnnrt.BnnrtError as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
