"""Choose what is shipped: of each recipe the seed that is best on the validation block.

    python ship.py small threshold lbp --runs runs --output models

copies its ONNX file to models/vehicle_RECIPE.onnx, and writes to models/results.json how it is converted and what it
answers on the test block, which ``bnnrt eval`` must answer too.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from data import SPLITS
from evaluate import confusion_matrix
from recipes import RECIPES


def best(summary):
    """Index of the seed with the best validation accuracy; of equal ones, with the least loss at that epoch."""

    def key(i):
        return max((e["validation accuracy"][i], -e["validation loss"][i]) for e in summary["history"])

    return max(range(len(summary["seeds"])), key=key)


def conversion(recipe, test):
    """What ``bnnrt convert`` must be told beside the file."""
    if recipe.input == "lbp":
        return {"input_binarization": "lbp"}
    if recipe.input == "threshold-gray":
        return {"input_binarization": "threshold-gray", "thresholds": test["thresholds"]}
    return {}


def photos_confusion(wrong, labels, photos):
    """The part of a confusion matrix that is about the photos in a folder, from the list of wrong answers."""
    answers = dict(entry.split() for entry in wrong)
    paths = sorted(photos.glob("*/*.jpg"))
    truth = [labels.index(path.parent.name) for path in paths]
    found = [labels.index(answers.get(path.name, path.parent.name)) for path in paths]
    return confusion_matrix(np.array(truth), np.array(found), len(labels))


def main():
    parser = argparse.ArgumentParser(description="Choose what is shipped.")
    parser.add_argument("recipes", nargs="+", choices=RECIPES, metavar="RECIPE")
    parser.add_argument("--runs", type=Path, required=True, help="folder that train.py wrote to")
    parser.add_argument("--output", type=Path, required=True, help="folder to copy to")
    args = parser.parse_args()
    file = args.output / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in args.recipes:
        summary = json.loads((args.runs / f"{name}.json").read_text())
        i = best(summary)
        test = summary["test"][i]
        model = f"vehicle_{name.replace('-', '_')}.onnx"
        shutil.copy(args.runs / f"{name}-{test['seed']}.onnx", args.output / model)
        results[model] = {
            "recipe": name,
            "seed": test["seed"],
            "epochs": summary["recipe"]["epochs"],
            "convert": conversion(RECIPES[name], test),
            "labels": summary["labels"],
            "validation_accuracy": summary["best validation accuracy"][i],
            "test_block": [SPLITS["test"].start, SPLITS["test"].stop - 1],
            "test_accuracy": round(test["accuracy"], 4),
            "test_confusion": test["confusion"],
            "photos_confusion": photos_confusion(
                test["wrong"], summary["labels"], Path(__file__).parent / "photos"
            ).tolist(),
            "wrong": test["wrong"],
        }
        print(f"{model}: seed {test['seed']}, test {test['accuracy']:.2%}")
    file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
