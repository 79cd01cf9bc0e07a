"""Train the vehicle classifiers, export them to ONNX, and say what they get right.

    python train.py threshold --data vehicles --output runs

trains the recipe ``threshold`` of recipes.py with five seeds, which share the GPU. Recipes that learn from teachers
train these first, unless RUNS holds them. For each seed the epoch with the best validation accuracy is kept, as
RUNS/threshold-SEED.npz and .onnx; RUNS/threshold.json holds recipe, learning curve and results on the test block.
Several recipes in one call train side by side, and the GPU is used better.

Data: DIR/<label>/<label><number>.jpg, as photos/ATTRIBUTION.md says. Needs the ``train`` extra and onnxruntime.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from data import load_split
from evaluate import evaluate
from recipes import RECIPES, TEACHER_SEEDS
from trainer import Run, interleaved, load_state


def train(names, seeds, data, labels, args, teachers=()):
    """Train recipes side by side; write each as soon as it is done."""
    runs = {}
    for name in names:
        recipe = RECIPES[name]
        if args.epochs:
            recipe = replace(recipe, epochs=args.epochs)
        runs[name] = Run(recipe, seeds, data, args.device, teachers)
    for done in interleaved(list(runs.values())):
        name = next(name for name, run in runs.items() if run is done)
        done.save(args.output, name, labels)
        best = " ".join(f"{accuracy:.2%}" for accuracy, _ in done.best)
        print(f"{name}: best validation accuracy {best}", flush=True)


def load_teachers(args, labels):
    """Teachers that were trained before."""
    paths = [args.output / f"teacher-{seed}.npz" for seed in TEACHER_SEEDS]
    if not all(path.exists() for path in paths):
        return []
    return [load_state(path, RECIPES["teacher"], len(labels)) for path in paths]


def main():
    parser = argparse.ArgumentParser(description="Train the vehicle classifiers and export them to ONNX.")
    parser.add_argument("recipes", nargs="+", choices=RECIPES, metavar="RECIPE", help=", ".join(RECIPES))
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder of photos a label")
    parser.add_argument("--output", type=Path, required=True, metavar="RUNS", help="folder to write to")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--epochs", type=int, help="instead of the recipe's number")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-test", action="store_true", help="leave the test block unread")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True  # exact on -1, +1 and their sums
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = 2 * len(RECIPES)  # beyond it, networks are not compiled

    data = {}
    for split in ("train", "validation"):
        labels, images, classes, _ = load_split(args.data, split)
        data[split] = (images, classes)
        print(f"{split}: {len(classes)} images", flush=True)
    names = list(dict.fromkeys(args.recipes))
    teachers = load_teachers(args, labels)
    taught = any(RECIPES[name].teach for name in names)
    if "teacher" in names or (taught and not teachers):
        train(["teacher"], TEACHER_SEEDS, data, labels, args)
        teachers = load_teachers(args, labels)
    students = [name for name in names if name != "teacher"]
    if students:
        train(students, args.seeds, data, labels, args, teachers)
    if not args.no_test:
        for name in names:
            evaluate(args.output, name, args.data)


if __name__ == "__main__":
    main()
