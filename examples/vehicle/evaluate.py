"""What trained networks get right on the test block: this reads it, once, at the end.

Binary networks are exported, and ONNX Runtime answers; those in full precision answer in torch.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from data import load_split
from export import export, file_input, run_onnx
from recipes import RECIPES
from trainer import load_state, predict


def confusion_matrix(classes, found, count):
    """Rows are true classes, columns are answers."""
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (classes, found), 1)
    return matrix


def interval(correct, images, z=1.96):
    """The 95 % interval of a share (Wilson): what so many images allow to say, if they were independent."""
    share = correct / images
    middle = (share + z * z / (2 * images)) / (1 + z * z / images)
    width = z / (1 + z * z / images) * (share * (1 - share) / images + z * z / (4 * images * images)) ** 0.5
    return middle - width, middle + width


def evaluate(folder, name, data, log=print):
    """Export every seed of a run to ONNX and count what it gets right; adds ``test`` to the run's JSON file."""
    folder, recipe = Path(folder), RECIPES[name]
    labels, images, classes, paths = load_split(data, "test")
    summary = json.loads((folder / f"{name}.json").read_text())
    tests = []
    for seed in summary["seeds"]:
        model = load_state(folder / f"{name}-{seed}.npz", recipe, len(labels))
        if recipe.kind == "binary" and not recipe.real:
            path = folder / f"{name}-{seed}.onnx"
            export(model, labels, path)
            found = run_onnx(path, file_input(model, images)).argmax(1)
        else:
            found = predict(model, torch.from_numpy(images)).argmax(1).numpy()
        matrix = confusion_matrix(classes, found, len(labels))
        wrong = [f"{paths[i].name} {labels[found[i]]}" for i in np.flatnonzero(found != classes)]
        test = {
            "seed": seed,
            "accuracy": float((found == classes).mean()),
            "confusion": matrix.tolist(),
            "wrong": wrong,
        }
        if hasattr(model.input, "threshold"):
            test["thresholds"] = model.input.levels().flatten().tolist()
        tests.append(test)
    accuracies = np.array([test["accuracy"] for test in tests])
    low, high = interval(accuracies.mean() * len(classes), len(classes))
    spread = accuracies.std(ddof=1) if len(tests) > 1 else 0.0
    each = " ".join(f"{accuracy:.2%}" for accuracy in accuracies)
    log(
        f"{name}: test {accuracies.mean():.2%}, standard deviation of {len(tests)} seeds {spread:.2%}, "
        f"95 % interval of {len(classes)} images {low:.1%} to {high:.1%}; each {each}"
    )
    summary["test"] = tests
    (folder / f"{name}.json").write_text(json.dumps(summary))
    return summary
