"""The binarized vehicle network on OpenCL against the float network of the same shape in ONNX Runtime, on one CPU.

    python benchmarks/cpu_vs_onnxruntime.py --output benchmarks/results/pocl/cpu_vs_onnxruntime.json

Both take the same float32 arrays [N, 3, 96, 96] and give scores; `pixels` is the uint8 input that images take. ONNX
Runtime runs at its default optimization level with one and with two threads, and the faster counts. Calls alternate in
one process. Needs the extras opencl and convert, and onnxruntime.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from common import MODEL, ROOT, alternate, environment, summary, write
from float_network import float_vehicle_network

import bnnrt

PHOTOS = ROOT / "examples" / "vehicle" / "photos"


def peer(threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Idle threads must not spin while the other side is measured.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0" if threads > 1 else "1")
    model = float_vehicle_network().SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def measure(session: bnnrt.InferenceSession, batch: int, runs: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch)
    pixels = rng.integers(0, 256, (batch, 96, 96, 3), dtype=np.uint8)
    x = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
    peers = {threads: peer(threads) for threads in (1, 2)}
    calls = {
        "bnnrt": lambda: session.run(None, {"input": x}),
        "bnnrt_pixels": lambda: session.run(None, {"pixels": pixels}),
        **{f"onnxruntime_{t}": lambda s=s: s.run(None, {"input": x}) for t, s in peers.items()},
    }
    gc.disable()
    taken = alternate(calls, runs)
    gc.enable()
    results = {name: summary(samples) for name, samples in taken.items()}
    best = min((results[f"onnxruntime_{t}"]["median"], f"onnxruntime_{t}") for t in peers)[1]
    ratios = np.array(taken[best]) / np.array(taken["bnnrt"])
    return {
        "batch": batch,
        "microseconds": results,
        "best_peer": best,
        "ratio": results[best]["median"] / results["bnnrt"]["median"],
        "ratio_pixels": results[best]["median"] / results["bnnrt_pixels"]["median"],
        "ratio_pair_by_pair": summary(ratios.tolist()),
    }


def classify_peak_bytes(bundle: Path, backend: str) -> int:
    """Largest resident size of `bnnrt classify` on twelve photos."""
    photos = [str(p) for p in sorted(PHOTOS.glob("*/*641.jpg")) + sorted(PHOTOS.glob("*/*642.jpg"))]
    command = [sys.executable, "-m", "bnnrt", "classify", str(bundle), *photos, "--backend", backend, "--json"]
    # A process of its own: the peak of children is that of the largest one so far.
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    return int(done.stdout) * 1024  # Linux counts kilobytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="opencl:cpu")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "vehicle.bnn"
        subprocess.run(
            [sys.executable, "-m", "bnnrt", "convert", str(MODEL), "-o", str(bundle), "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with bnnrt.InferenceSession(bundle, arguments.backend) as session:
            device = f"{session.device.name}, {session.device.platform} {session.device.driver}"
            results = [measure(session, batch, arguments.runs) for batch in (1, 16)]
        document = {
            "schema": "bnnrt-cpu-vs-onnxruntime-1",
            "environment": environment(),
            "device": device,
            "results": results,
            "bytes": {
                "model": MODEL.stat().st_size,
                "float_model": len(float_vehicle_network().SerializeToString()),
                "bundle": bundle.stat().st_size,
                "classify_peak_resident": classify_peak_bytes(bundle, arguments.backend),
            },
        }
    for result in results:
        for name, t in result["microseconds"].items():
            spread = f"({t['p10']:.0f} to {t['p90']:.0f})"
            print(f"batch {result['batch']:2}  {name:14} {t['median']:9.0f} µs  {spread}")
        print(f"batch {result['batch']:2}  {result['ratio']:.2f} times as fast as {result['best_peer']}")
    for name, size in document["bytes"].items():
        print(f"{name:23} {size:>12,} bytes")
    if arguments.output:
        write(document, arguments.output)


if __name__ == "__main__":
    main()
