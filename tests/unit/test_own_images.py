"""``examples/own_images``: the made-up data set of docs/train-your-own.md is always the same, and calibrates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from bnnrt.calibration import MIN_IMAGES
from bnnrt.cli.evaluate import labelled_images
from bnnrt.preprocess.images import load_rgb

SHAPES = Path(__file__).parents[2] / "examples" / "own_images" / "shapes.py"
LABELS = ["circle", "square", "triangle"]


def test_the_shapes_are_always_the_same_and_dim_on_the_board(tmp_path: Path) -> None:
    for name in ("a", "b"):
        subprocess.run([sys.executable, SHAPES, tmp_path / name], check=True, timeout=120)
    light = {}
    for part, count in (("train", 120), ("board", 40)):
        found = labelled_images(tmp_path / "a" / part, LABELS)
        assert [sum(c == i for _, c in found) for i in range(len(LABELS))] == [count] * 3
        assert count >= MIN_IMAGES
        for file, _ in found:
            again = tmp_path / "b" / file.relative_to(tmp_path / "a")
            assert file.read_bytes() == again.read_bytes()
        light[part] = np.mean([load_rgb(file) for file, _ in found[::10]])
    assert light["board"] < light["train"] / 2
