"""Writes every CUDA source that the plan uses for the shipped models, and for the cases of every_kernel.py.

    python tests/checkers/cuda_sources.py build/cuda

No GPU and no CUDA package is needed: plans are made for a described device. ``sources.json`` beside the sources says
which kernels stand in each, with which parameters and launches, which need 1-bit tensor cores, and how to compile them;
compile_cuda.py does that.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from every_kernel import BATCH, cases, entries

from bnnrt.backends.base import DeviceInfo, DeviceKind, Language
from bnnrt.backends.nvrtc import EXACT
from bnnrt.backends.source import KernelSource, assemble
from bnnrt.plan import Plan, make_plan
from bnnrt.session import load_bundle
from bnnrt.variants import SETS
from bnnrt.variants.base import LaunchSpec

REPOSITORY = Path(__file__).resolve().parents[2]
# Models whose kernels stand in the table of resources, with those of every_kernel.py; the others only compile.
IN_TABLE = sorted(REPOSITORY.glob("examples/vehicle/models/*.onnx"))
MODELS = [*IN_TABLE, *sorted(REPOSITORY.glob("tests/fixtures/*.onnx"))]
EVERY_KERNEL = "every_kernel"
BATCHES = (1, 16)

# What every CUDA device of these architectures offers at least.
DEVICE = DeviceInfo(
    backend="cuda:0",
    name="a CUDA device",
    kind=DeviceKind.GPU,
    language=Language.CUDA,
    platform="CUDA",
    driver="none",
    compute_units=1,
    max_group_size=1024,
    max_group_shape=(1024, 1024, 64),
    local_memory=48 << 10,
    dedicated_local_memory=True,
    memory=4 << 30,
    max_allocation=4 << 30,
    exact_division=True,
)
# The plan may split work by the number of multiprocessors: a Jetson Nano's, an Orin's, a data centre card's.
DEVICES = [
    dataclasses.replace(DEVICE, compute_units=units, bit_tensor_cores=cores)
    for cores in (False, True)
    for units in (1, 16, 132)
]


def plans() -> Iterator[tuple[str, Plan]]:
    """A name and a plan for everything that is to compile."""
    for path in MODELS:
        bundle = load_bundle(path)
        for graph in filter(None, (bundle.model, bundle.pixels)):
            for variants in SETS:
                for batch in BATCHES:
                    for device in DEVICES:
                        yield path.stem, make_plan(graph, device, batch, variants)
    for variants, graph, _ in cases(np.random.default_rng(0)):
        for device in DEVICES:
            yield EVERY_KERNEL, make_plan(graph, device, BATCH, variants)


def row_name(launch: LaunchSpec, code: KernelSource) -> str:
    """The kernel and a digest of its parameters, which stays the same while its text is edited."""
    digest = hashlib.sha256(repr((code.files, code.defines)).encode()).hexdigest()
    return f"{launch.entry} {digest[:8]}"


def collect() -> tuple[dict[str, dict[str, Any]], set[str]]:
    """Texts, and for each its kernels: what is known of each; and the texts that any device may be given."""
    found: dict[str, dict[str, Any]] = {}
    anywhere: set[str] = set()
    for name, plan in plans():
        for launch in (launch for step in plan.steps for launch in step.launches):
            assert isinstance(launch.code, KernelSource)  # a CUDA plan has no other
            text = assemble(launch.code, "cu")
            if not plan.device.bit_tensor_cores:
                anywhere.add(text)
            kernel = found.setdefault(text, {}).setdefault(
                launch.entry,
                {
                    "row": row_name(launch, launch.code),
                    "defines": " ".join(f"{key}={value}" for key, value in launch.code.defines),
                    "used_by": [],
                    "threads": 0,
                    "shared": 0,
                },
            )
            if name not in kernel["used_by"]:
                kernel["used_by"].append(name)
            kernel["threads"] = max(kernel["threads"], int(np.prod(launch.block)))
            kernel["shared"] = max(kernel["shared"], launch.local_bytes)
    return found, anywhere


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="made anew")
    folder: Path = parser.parse_args().folder
    found, anywhere = collect()
    missing = entries(Language.CUDA, DeviceKind.GPU, True) - {entry for kernels in found.values() for entry in kernels}
    for name in sorted(missing):
        print(f"no plan uses {name}: add a case to every_kernel.py", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sources: list[dict[str, Any]] = []
    for text, kernels in found.items():
        file = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cu"
        (folder / file).write_text(text, encoding="utf-8")
        sources.append({"file": file, "bit_tensor_cores": text not in anywhere, "kernels": kernels})
    document = {
        "options": EXACT,
        "in_table": [*(path.stem for path in IN_TABLE), EVERY_KERNEL],
        "sources": sorted(sources, key=lambda source: source["file"]),
    }
    (folder / "sources.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
