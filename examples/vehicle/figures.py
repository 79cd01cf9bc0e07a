"""The pictures of docs/accuracy.md: learning curves, and images as the networks see them.

python figures.py --runs runs --output ../../docs/images
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from data import SIZE, load_image
from network import gray, local_binary_patterns
from PIL import Image
from ship import best

CURVES = ("float", "small", "none", "threshold", "lbp", "threshold-gray", "paper-threshold")
PHOTOS = Path(__file__).parent / "photos"


def curves(runs, path):
    """Accuracy on the validation block against the epoch: the mean of the seeds and their range."""
    mpl.rcParams.update({"font.size": 9})
    figure, axes = plt.subplots(figsize=(7.5, 4.2), dpi=110)
    for name in CURVES:
        history = json.loads((runs / f"{name}.json").read_text())["history"]
        epochs = [entry["epoch"] for entry in history]
        accuracies = 100 * np.array([entry["validation accuracy"] for entry in history])
        (line,) = axes.plot(epochs, accuracies.mean(1), label=name, linewidth=1.2)
        axes.fill_between(epochs, accuracies.min(1), accuracies.max(1), color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="epoch", xscale="log", ylabel="validation accuracy, %", ylim=(55, 100))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def seen(runs, path):
    """One photo a class, and what each scheme makes of it: planes as red, green and blue, one plane as gray."""

    def thresholds(name):
        summary = json.loads((runs / f"{name}.json").read_text())
        return torch.tensor(summary["test"][best(summary)]["thresholds"]).view(-1, 1, 1)

    columns = []
    for folder in sorted(folder for folder in PHOTOS.iterdir() if folder.is_dir()):
        pixels = torch.tensor(load_image(sorted(folder.glob("*.jpg"))[0])).float()
        levels = (pixels.repeat(3, 1, 1) + thresholds("small") > 0).view(3, 3, SIZE, SIZE)
        parts = [
            pixels / 255,
            pixels + thresholds("threshold") > 0,
            (gray(pixels[None])[0] + thresholds("threshold-gray") > 0).repeat(3, 1, 1),
            local_binary_patterns(pixels[None])[0] > 0,
            levels.float().mean(0),  # how many of a colour's three thresholds are passed
        ]
        columns.append(torch.cat([part.float() for part in parts], 1))
    picture = (torch.cat(columns, 2) * 255).byte().permute(1, 2, 0).numpy()
    Image.fromarray(picture).quantize(256).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/accuracy.md.")
    parser.add_argument("--runs", type=Path, required=True, help="folder that train.py wrote to")
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    curves(args.runs, args.output / "vehicle-curves.png")
    seen(args.runs, args.output / "vehicle-seen.png")


if __name__ == "__main__":
    main()
