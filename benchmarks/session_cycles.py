"""Open, run and close a session many times, and watch the process's memory and handles: both must stay flat.

python benchmarks/session_cycles.py --cycles 10000 --output benchmarks/results/pocl/session_cycles.json
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import MODEL, environment, write
from soak import resident_bytes

import bnnrt

# A cycle allocates about 700 kB on the device and the host; one in a thousand kept would show.
GROWTH_ALLOWED = 8 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="opencl")
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 96, 96, 3), dtype=np.uint8)
    resident: list[int] = []
    handles: list[int] = []
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "vehicle.bnn"
        convert = [sys.executable, "-m", "bnnrt", "convert", str(MODEL), "-o", str(bundle), "--json"]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
        with bnnrt.InferenceSession(bundle, "numpy") as session:
            (expected,) = session.run(None, {"pixels": pixels})
        for cycle in range(arguments.cycles):
            with bnnrt.InferenceSession(bundle, arguments.backend) as session:
                wrong += not np.array_equal(session.run(None, {"pixels": pixels})[0], expected)
                device = f"{session.device.backend}: {session.device.name}"
            if (cycle + 1) % max(1, arguments.cycles // 100) == 0:
                gc.collect()
                resident.append(resident_bytes())
                handles.append(len(os.listdir("/proc/self/fd")))
    growth = max(resident) - resident[len(resident) // 10]
    document = {
        "schema": "bnnrt-session-cycles-1",
        "environment": environment(),
        "device": device,
        "cycles": arguments.cycles,
        "wrong_answers": wrong,
        "resident_bytes": resident,
        "open_files": handles,
        "growth_bytes_after_first_tenth": growth,
    }
    print(", ".join(f"{k} {v}" for k, v in document.items() if isinstance(v, int)))
    if arguments.output:
        write(document, arguments.output)
    return 0 if not wrong and growth <= GROWTH_ALLOWED and max(handles) == min(handles) else 1


if __name__ == "__main__":
    sys.exit(main())
