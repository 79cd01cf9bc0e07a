"""Classify images for a long time, one in fifty of them broken, and check answers, counts and memory.

    python benchmarks/soak.py --images 200000 --output benchmarks/results/pocl/soak.json

The shipped photos go round as bytes. Every answer must be, bit for bit, what the numpy backend said of that photo
beforehand; every broken image must be an error and nothing else; the process must not grow after the first tenth.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from common import MODEL, ROOT, environment, write

import bnnrt

PHOTOS = ROOT / "examples" / "vehicle" / "photos"
BROKEN_ONE_IN = 50
# What an allocator may keep for itself; a leak of a single image (27 kB) in a hundred would be thirty times more.
GROWTH_ALLOWED = 16 << 20


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def broken(data: bytes, rng: random.Random) -> bytes:
    """A damaged copy: cut short, empty, no image at all, or with its header overwritten."""
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(1, len(data) // 2)]
    if kind == 1:
        return b""
    if kind == 2:
        return rng.randbytes(len(data))
    return b"\0" * 32 + data[32:]


def stream(photos: list[bytes], count: int, rng: random.Random) -> Iterator[tuple[int | None, bytes]]:
    """Pairs of a photo's number, or None for a broken image, and the bytes."""
    for index in range(count):
        number = rng.randrange(len(photos))
        if index % BROKEN_ONE_IN == BROKEN_ONE_IN - 1:
            yield None, broken(photos[number], rng)
        else:
            yield number, photos[number]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="opencl")
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    photos = [path.read_bytes() for path in sorted(PHOTOS.glob("*/*.jpg"))]
    wrong = errors = answers = missed = 0
    resident: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "vehicle.bnn"
        convert = [sys.executable, "-m", "bnnrt", "convert", str(MODEL), "-o", str(bundle), "--json"]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
        with bnnrt.InferenceSession(bundle, "numpy") as reference:
            expected = reference.classify(photos)
        with bnnrt.InferenceSession(bundle, arguments.backend) as session:
            device = f"{session.device.backend}: {session.device.name}, {session.device.driver}"
            order: list[int | None] = []

            def images() -> Iterator[bytes]:
                for number, data in stream(photos, arguments.images, random.Random(0)):
                    order.append(number)
                    yield data

            start = perf_counter()
            for index, (_, result) in enumerate(session.classify_each(images())):
                number = order[index]
                if isinstance(result, bnnrt.ImageError):
                    errors += 1
                    missed += number is not None
                else:
                    answers += 1
                    wrong += number is None or result != expected[number]
                if (index + 1) % max(1, arguments.images // 100) == 0:
                    resident.append(resident_bytes())
            seconds = perf_counter() - start
    growth = max(resident) - resident[len(resident) // 10]
    document = {
        "schema": "bnnrt-soak-1",
        "environment": environment(),
        "device": device,
        "images": arguments.images,
        "answers": answers,
        "wrong_answers": wrong,
        "errors": errors,
        "good_images_refused": missed,
        "broken_images": arguments.images // BROKEN_ONE_IN,
        "seconds": round(seconds, 1),
        "resident_bytes": resident,
        "growth_bytes_after_first_tenth": growth,
    }
    print(", ".join(f"{k} {v}" for k, v in document.items() if isinstance(v, int | float)))
    if arguments.output:
        write(document, arguments.output)
    counts_right = answers + errors == arguments.images and errors == arguments.images // BROKEN_ONE_IN
    return 0 if counts_right and not wrong and not missed and growth <= GROWTH_ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
