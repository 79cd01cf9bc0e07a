"""Runs the backend tests on every device of this machine, and keeps the counts.

    python tests/checkers/gpu_test.py [--output F.json] [--check CHECK.py --manifest M.json]

Each device has a process of its own, several at once where there are cores for them; two devices of the same name and
platform are tested once. Every test compares with numpy or the unpacked reference, so devices that pass are equal to
one another. CHECK.py is called as ``CHECK.py M.json --backend NAME`` and ends with "N passed, M failed". Exit status 1
if anything fails, or if there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bnnrt.backends import devices
from bnnrt.backends.base import DeviceInfo, DeviceKind

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import common  # noqa: E402


def environment(commit: str | None) -> dict[str, Any]:
    """Machine, versions and commit; the one that is given knows better than the folder."""
    found: dict[str, Any] = common.environment()
    if commit:
        found |= {"commit": commit, "uncommitted_changes": False}
    return {**found, "nvidia_driver": driver_of_nvidia()}


def write(document: dict[str, Any], path: Path) -> None:
    common.write(document, path)


def distinct(found: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The first of devices that are the same but for their number."""
    return list({(info.name, info.platform, info.driver): info for info in reversed(found)}.values())[::-1]


def folder(info: DeviceInfo) -> Path:
    """Where results of a device lie, such as benchmarks/results/nvidia-h200."""
    name = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")
    return REPOSITORY / "benchmarks" / "results" / name


def driver_of_nvidia() -> str | None:
    """The version of NVIDIA's driver package; CUDA itself tells only which CUDA it supports."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None


def suite(info: DeviceInfo, workers: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Counts of tests/backends on one device."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "tests/backends", "-q", f"--junitxml={report}", *arguments]
        if workers > 1 and importlib.util.find_spec("xdist"):
            command += ["-n", str(workers), "--dist", "worksteal"]
        started = time.monotonic()
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "BNNRT_TEST_BACKENDS": info.backend},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = round(time.monotonic() - started, 1)
        if not report.exists():
            last = (done.stdout + done.stderr).strip().splitlines()[-20:]
            return {"passed": 0, "failed": 1, "skipped": 0, "seconds": seconds, "failures": {"pytest": "\n".join(last)}}
        outcome = counts(ElementTree.parse(report).getroot())
    if done.returncode and not outcome["failed"]:  # a crash, or no test at all
        outcome["failed"] = 1
        outcome["failures"]["pytest"] = f"exit status {done.returncode}: {done.stdout.strip()[-500:]}"
    return {**outcome, "seconds": seconds}


def counts(report: ElementTree.Element) -> dict[str, Any]:
    """Of pytest's report: how many passed, which failed with what, and why the others were skipped."""
    failures: dict[str, str] = {}
    skipped = Counter[str]()
    cases = list(report.iter("testcase"))
    for case in cases:
        wrong = [part for part in case if part.tag in ("failure", "error")]
        if wrong:
            message = (wrong[0].get("message") or wrong[0].text or "").strip()
            failures[f"{case.get('classname')}.{case.get('name')}"] = message[:500]
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message") or ""] += 1
    return {
        "passed": len(cases) - len(failures) - skipped.total(),
        "failed": len(failures),
        "skipped": skipped.total(),
        "failures": failures,
        "skipped_because": dict(skipped),
    }


def acceptance(info: DeviceInfo, check: Path, manifest: Path) -> dict[str, Any]:
    """Counts of the models in a manifest."""
    started = time.monotonic()
    command = [sys.executable, str(check), str(manifest), "--backend", info.backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    found = re.fullmatch(r"(\d+) passed, (\d+) failed", lines[-1]) if lines else None
    passed, failed = map(int, found.groups()) if found else (0, 1)
    result: dict[str, Any] = {"passed": passed, "failed": failed, "seconds": round(time.monotonic() - started, 1)}
    if failed or done.returncode:
        wrong = [line for line in lines if line.startswith("FAIL")] if found else (lines + done.stderr.splitlines())
        result |= {"failed": max(failed, 1), "failures": wrong[-20:]}
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, help="default: gpu_test.json in benchmarks/results/<name of the GPU>")
    parser.add_argument("--check", type=Path, help="a script that checks models")
    parser.add_argument("--manifest", type=Path, help="what it checks")
    parser.add_argument("--backend", action="append", help="only this device; may be given several times")
    parser.add_argument("--commit", help="to record, where the sources are no checkout of it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("pytest_args", nargs="*", help="more arguments for pytest, after --")
    arguments = parser.parse_args()
    if (arguments.check is None) != (arguments.manifest is None):
        parser.error("--check and --manifest go together")

    present = devices()
    if arguments.backend:
        chosen = [info for info in present if info.backend in arguments.backend]
        if absent := set(arguments.backend) - {info.backend for info in chosen}:
            parser.error(f"no {', '.join(sorted(absent))}; present are {', '.join(info.backend for info in present)}")
    else:
        chosen = distinct(present)
        if not any(info.kind is DeviceKind.GPU for info in chosen):
            print(f"no GPU among the devices: {', '.join(info.name for info in chosen)}", file=sys.stderr)
            return 1
    output: Path = arguments.output or folder(chosen[0]) / "gpu_test.json"

    at_once = min(len(chosen), arguments.jobs)
    workers = max(1, arguments.jobs // at_once)

    def test(info: DeviceInfo) -> dict[str, Any]:
        # The models need one core, the tests all others.
        with ThreadPoolExecutor(1) as beside:
            models = beside.submit(acceptance, info, arguments.check, arguments.manifest) if arguments.check else None
            result: dict[str, Any] = {
                "backend": info.backend,
                "device": info.name,
                "kind": info.kind.value,
                "platform": info.platform,
                "driver": info.driver,
                "tests": suite(info, workers, arguments.pytest_args),
            }
            if models:
                result["models"] = models.result()
        summary = ", ".join(
            f"{part} {result[part]['passed']} passed, {result[part]['failed']} failed in {result[part]['seconds']} s"
            for part in ("tests", "models")
            if part in result
        )
        print(f"{info.backend} ({info.name}): {summary}", flush=True)
        return result

    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(test, chosen))
    failed = sum(result[part]["failed"] for result in results for part in ("tests", "models") if part in result)
    document = {
        **environment(arguments.commit),
        "manifest": arguments.manifest.name if arguments.manifest else None,
        "failed": failed,
        "backends": results,
    }
    write(document, output)
    print(f"{'all passed' if not failed else f'{failed} failed'}: {output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
