"""The tables of docs/accuracy.md, in Markdown, from what train.py wrote.

python report.py --runs runs
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from evaluate import interval
from recipes import RECIPES


def row(name, summary):
    """One line of the table: validation and test accuracy of the seeds, in per cent."""
    held = 100 * np.array(summary["best validation accuracy"])
    cells = [f"`{name}`", str(summary["recipe"]["epochs"]), f"{held.mean():.1f} ± {held.std(ddof=1):.1f}"]
    if "test" in summary:
        test = np.array([each["accuracy"] for each in summary["test"]])
        images = int(np.sum(summary["test"][0]["confusion"]))
        low, high = interval(test.mean() * images, images)
        cells.append(f"{100 * test.mean():.1f} ± {100 * test.std(ddof=1):.1f}")
        cells.append(f"{100 * low:.1f} to {100 * high:.1f}")
        cells.append(f"{100 * test.min():.1f} to {100 * test.max():.1f}")
    else:
        cells += ["", "", ""]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description="Print the tables of docs/accuracy.md.")
    parser.add_argument("--runs", type=Path, required=True, help="folder that train.py wrote to")
    runs = parser.parse_args().runs
    print("| recipe | epochs | validation | test | 95 % interval | least, greatest |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in RECIPES:
        file = runs / f"{name}.json"
        if file.exists():
            print(row(name, json.loads(file.read_text())))


if __name__ == "__main__":
    main()
