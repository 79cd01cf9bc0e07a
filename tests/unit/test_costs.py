"""What the shipped models cost whatever the machine: launches, bytes moved, memory. A change has to be meant.

``python tests/unit/test_costs.py`` writes the numbers anew, after a change to plans or variants.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from bnnrt.backends.base import DeviceKind, Language
from bnnrt.plan import make_plan
from bnnrt.session import load_bundle
from bnnrt.variants import SETS

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "checkers"))

from cuda_sources import DEVICE  # noqa: E402

MODELS = sorted(REPOSITORY.glob("examples/vehicle/models/*.onnx"))
PINNED = REPOSITORY / "tests" / "golden" / "costs.json"
BATCHES = (1, 16)

ORIN = dataclasses.replace(DEVICE, name="Orin", compute_units=16)
CPU = dataclasses.replace(
    ORIN,
    backend="opencl:0.0",
    name="CPU",
    kind=DeviceKind.CPU,
    language=Language.OPENCL,
    compute_units=4,
    dedicated_local_memory=False,
)


def costs(model: Path) -> dict[str, dict[str, int]]:
    """Launches, bytes that they read and write, bytes of arena and constants, by device, variant set and batch."""
    graph = load_bundle(model).pixels
    assert graph is not None
    found = {}
    for device in (ORIN, CPU):
        for chosen in SETS:
            for batch in BATCHES:
                plan = make_plan(graph, device, batch, chosen)
                launches = [launch for step in plan.steps for launch in step.launches]
                found[f"{device.name}, {chosen}, batch {batch}"] = {
                    "launches": len(launches),
                    "bytes_moved": sum(plan.bytes_moved(launch) for launch in launches),
                    "arena": sum(plan.arena),
                    "constants": sum(c.nbytes for c in plan.constants.values()),
                }
    return found


def test_every_model_is_pinned() -> None:
    assert MODELS
    assert set(json.loads(PINNED.read_text())) == {model.stem for model in MODELS}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_costs_are_as_pinned(model: Path) -> None:
    assert costs(model) == json.loads(PINNED.read_text())[model.stem]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({model.stem: costs(model) for model in MODELS}, indent=1) + "\n")
