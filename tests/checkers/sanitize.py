"""Runs every CUDA kernel under the tools of compute-sanitizer, and keeps what they found.

    python tests/checkers/sanitize.py [--output F.json]

Exit status 1 if a tool finds an error, or if compute-sanitizer is missing or cannot watch the device.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_test import environment, folder, write

from bnnrt.backends import select
from bnnrt.errors import BackendError

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PROGRAM = Path(__file__).resolve().parent / "every_kernel.py"
KEPT_LINES = 40

# The last line of a tool that has watched a program to its end; racecheck has one of its own.
_SUMMARY = re.compile(r"^========= (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", re.MULTILINE)
# What a tool says of itself; what it says of the program has other words.
_REFUSAL = re.compile(r"^=========\s+((?:Internal Sanitizer )?Error: .*)$", re.MULTILINE)


def find_sanitizer() -> str | None:
    """compute-sanitizer on the path, or where a toolkit puts it."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=f"{home}/bin")


def version_of(sanitizer: str) -> str:
    lines = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return next((line.strip() for line in lines if line.startswith("Version")), "unknown")


def outcome(tool: str, text: str, status: int) -> dict[str, Any]:
    """What a tool's output says: ``errors``, and ``refused`` where the tool could not watch the program."""
    found = _SUMMARY.findall(text)
    reports = [line for line in text.splitlines() if line.startswith("=========")]
    refusal = _REFUSAL.search(text)
    if refusal or not found:
        said = refusal[1] if refusal else "it gave no summary"
        return {"tool": tool, "errors": None, "refused": said, "output": text.splitlines()[-KEPT_LINES:]}
    result: dict[str, Any] = {"tool": tool, "errors": sum(int(a or b) for a, b in found)}
    # Where the program itself fails without a report, a result was wrong or the program did not run.
    if status and not result["errors"]:
        result["errors"] = 1
        result["output"] = text.splitlines()[-KEPT_LINES:]
    elif result["errors"]:
        result["output"] = reports[:KEPT_LINES]
    return result


def run(sanitizer: str, tool: str, backend: str) -> dict[str, Any]:
    command = [sanitizer, "--tool", tool, "--print-limit", "100", "--target-processes", "all"]
    if tool == "memcheck":
        # The bindings ask the driver for functions that it may lack, which is no error; what fails of the calls that
        # are made fails the program.
        command += ["--leak-check", "no", "--report-api-errors", "no"]
    # No program cache: what is checked is what these sources compile to.
    environment = {**os.environ, "BNNRT_CACHE_DIR": ""}
    started = time.monotonic()
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM), "--backend", backend],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    kernels = re.search(r"^(\d+) kernels on ", done.stdout, re.MULTILINE)
    result = outcome(tool, done.stdout, done.returncode)
    result |= {"kernels": int(kernels[1]) if kernels else 0, "seconds": round(time.monotonic() - started, 1)}
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, help="default: sanitize.json in benchmarks/results/<name of the GPU>")
    parser.add_argument("--backend", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--sanitizer", help="compute-sanitizer, where it is not found by itself")
    parser.add_argument("--commit", help="to record where the sources are no git checkout")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool; may be given several times")
    arguments = parser.parse_args()
    try:
        info = select(arguments.backend)
    except BackendError as e:
        print(e, file=sys.stderr)
        return 1
    sanitizer = arguments.sanitizer or find_sanitizer()
    if sanitizer is None:
        print("compute-sanitizer is missing: install it with the CUDA toolkit, or set CUDA_HOME", file=sys.stderr)
        return 1
    results = []
    for tool in arguments.tool or TOOLS:
        result = run(sanitizer, tool, info.backend)
        results.append(result)
        said = f"refused: {result['refused']}" if "refused" in result else f"{result['errors']} errors"
        print(f"{tool}: {said}; {result['kernels']} kernels in {result['seconds']} s", flush=True)
        for line in result.get("output", []):
            print(f"  {line}", file=sys.stderr)
    document = {
        **environment(arguments.commit),
        "device": info.name,
        "driver": info.driver,
        "sanitizer": version_of(sanitizer),
        "tools": results,
    }
    write(document, arguments.output or folder(info) / "sanitize.json")
    return 0 if all(result["errors"] == 0 for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
