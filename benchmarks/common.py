"""What every benchmark needs: the environment it ran in, summaries of samples, and JSON that keeps them all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from bnnrt.bench.environment import processor, versions

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"

_PACKAGES = (
    "bnnrt",
    "numpy",
    "pyopencl",
    "pocl-binary-distribution",
    "onnxruntime",
    "pycuda",
    "torch",
    "cupy",
    "pyclblast",
)


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict[str, Any]:
    """Machine, versions and commit, for the head of a result."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions(_PACKAGES),
    }


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median, tenth and ninetieth percentile, and every sample."""
    p10, median, p90 = (float(q) for q in np.quantile(samples, [0.1, 0.5, 0.9]))
    return {"median": median, "p10": p10, "p90": p90, "samples": [round(float(s), 2) for s in samples]}


def alternate(calls: Mapping[str, Callable[[], object]], runs: int, warmup: int = 10) -> dict[str, list[float]]:
    """Microseconds of each call, taken in turn, so that a drift of the machine meets all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(warmup + runs):
        for name, call in calls.items():
            start = perf_counter_ns()
            call()
            taken = (perf_counter_ns() - start) / 1000
            if run >= warmup:
                samples[name].append(taken)
    return samples


def write(document: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
