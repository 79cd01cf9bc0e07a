"""Compiles the sources that cuda_sources.py wrote, for every architecture of this NVRTC, and checks what they take.

    python tests/checkers/compile_cuda.py build/cuda --table tests/golden/cuda_resources.json [--update]

Needs cuda-bindings and NVRTC, and nothing else: no GPU, no driver, no bnnrt. The table holds registers, memory and
spills of each kernel and architecture; a difference from it is an error, and ``--update`` writes it anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc

# CUDA 12 is the last for these Maxwell, Pascal and Volta boards; JetPack 6 (sm_87) has it too.
ARCHITECTURES = {
    12: ("sm_53", "sm_62", "sm_72", "sm_80", "sm_87"),
    13: ("sm_75", "sm_86", "sm_87", "sm_89", "sm_90", "sm_110"),
}
# 32-bit registers of a block, where there are fewer than elsewhere: Jetson Nano, TX1 and TX2.
BLOCK_REGISTERS = {"sm_53": 1 << 15, "sm_62": 1 << 15}
USUAL_BLOCK_REGISTERS = 1 << 16

# Other architectures have no 1-bit tensor cores, or emulate them: plans never give them kernels for these.
BIT_TENSOR_CORES = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90"}

COLUMNS = ("ptx", "registers", "stack", "spill_stores", "spill_loads", "shared", "constant")
"""PTX instructions; registers of a thread; bytes: of a thread's stack and spills, of shared and constant memory."""

Resources = dict[str, int]
# A null in the table: an architecture that this kernel is not made for.
NOT_COMPILED: dict[str, None] = dict.fromkeys(COLUMNS)

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_BODY = re.compile(r"^\.visible \.entry (\w+)\(.*?^\{(.*?)^\}", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?[a-z][\w.:]*[^;{}]*;", re.MULTILINE)
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Job:
    path: Path
    architecture: str
    options: tuple[str, ...]


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(str(status))
    return values[0] if len(values) == 1 else tuple(values)


def resources(log: str) -> dict[str, Resources]:
    """What ``ptxas -v`` says of each kernel."""
    found: dict[str, Resources] = {}
    current: Resources = {}
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            current = found[entry[1]] = dict.fromkeys(COLUMNS, 0)
        elif frame := _FRAME.search(line):
            current.update(zip(COLUMNS[1:4], map(int, frame.groups()), strict=True))
        elif used := re.search(r"Used (\d+) registers", line):
            current["registers"] = int(used[1])
            current["shared"] = sum(map(int, re.findall(r"(\d+) bytes smem", line)))
            current["constant"] = sum(map(int, re.findall(r"(\d+) bytes cmem", line)))
    return found


def instructions(program: Any) -> dict[str, int]:
    """PTX instructions of each kernel: what the compiler made of the source, before the assembler optimizes."""
    text = bytearray(_checked(nvrtc.nvrtcGetPTXSize(program)))
    _checked(nvrtc.nvrtcGetPTX(program, text))
    return {entry[1]: len(_INSTRUCTION.findall(entry[2])) for entry in _BODY.finditer(text.decode())}


def compiled(job: Job) -> tuple[str, dict[str, Resources]]:
    """The compiler's complaint or nothing, and what each kernel takes. A warning is a complaint too."""
    program = _checked(nvrtc.nvrtcCreateProgram(job.path.read_bytes(), job.path.name.encode(), 0, [], []))
    options = [f"--gpu-architecture={job.architecture}", *job.options, "--ptxas-options=-v"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    raw = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, raw))
    # NVRTC 12.9 says of every architecture below sm_75 that it is deprecated.
    lines = raw.rstrip(b"\0").decode(errors="replace").splitlines()
    log = "\n".join(line for line in lines if "are deprecated" not in line)
    counts = instructions(program) if int(status) == 0 else {}
    nvrtc.nvrtcDestroyProgram(program)
    if int(status) != 0:
        return log.strip() or str(status), {}
    found = resources(log)
    for name, used in found.items():
        used["ptx"] = counts[name]
    return log.strip() if "warning" in log else "", found


def users(kernels: dict[str, Any]) -> str:
    return ", ".join(sorted({name for kernel in kernels.values() for name in kernel["used_by"]}))


def misfit(planned: dict[str, Any], architecture: str, used: Resources | None) -> str | None:
    """Why the largest launch that a plan makes could not run, or None."""
    if used is None:
        return "there is no such kernel in its source"
    if used["shared"] > planned["shared"]:
        return f"takes {used['shared']} bytes of shared memory, and the plan says {planned['shared']}"
    most = BLOCK_REGISTERS.get(architecture, USUAL_BLOCK_REGISTERS)
    # A warp's registers come in units of 256, eight a thread.
    taken = -(-used["registers"] // 8) * 8 * -(-planned["threads"] // 32) * 32
    if taken > most:
        return f"{planned['threads']} threads take {taken} registers, and a block has {most}"
    return None


def short(values: list[int | None]) -> int | list[int | None] | None:
    """One number where all architectures agree."""
    return values[0] if len(set(values)) == 1 else values


def full(value: int | list[int | None], length: int) -> list[int | None]:
    return value if isinstance(value, list) else [value] * length


def differences(section: str, wanted: dict[str, Any], found: dict[str, Any], names: dict[str, str]) -> list[str]:
    """What changed between two sections of the table, one line a kernel and column."""
    if wanted.get("architectures") != found["architectures"]:
        return [f"{section}: the table does not hold {', '.join(found['architectures'])} of this version"]
    architectures = found["architectures"]
    before, after = wanted["kernels"], found["kernels"]
    lines = []
    for row in sorted({*before, *after}):
        name = f"{section}: {row} ({names.get(row, 'used by nothing')})"
        if row not in before or row not in after:
            lines.append(f"{name}: {'is new' if row in after else 'is gone'}")
            continue
        for column in COLUMNS:
            olds, news = (full(rows[row].get(column, 0), len(architectures)) for rows in (before, after))
            changed = [
                f"{architecture} {old} -> {new}"
                for architecture, old, new in zip(architectures, olds, news, strict=True)
                if old != new
            ]
            if changed:
                lines.append(f"{name}: {column.replace('_', ' ')}: {', '.join(changed)}")
    return lines


def one_line_each(document: dict[str, Any]) -> str:
    """JSON with a line for each kernel, so that a difference can be read."""

    def block(value: dict[str, Any], indent: str, depth: int) -> str:
        if depth == 0:
            return json.dumps(value)
        parts = [
            f"{indent} {json.dumps(key)}: "
            + (block(item, indent + " ", depth - 1) if isinstance(item, dict) else json.dumps(item))
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"

    sections = [
        f" {json.dumps(name)}: {block(section, ' ', 1 if name == 'kernels' else 2)}"
        for name, section in document.items()
    ]
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="what cuda_sources.py wrote")
    parser.add_argument("--table", type=Path, required=True, help="the JSON file to compare with")
    parser.add_argument("--update", action="store_true", help="write the table instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()

    major, minor = _checked(nvrtc.nvrtcVersion())
    section, architectures = f"CUDA {major}.{minor}", ARCHITECTURES[major]
    document = json.loads((arguments.folder / "sources.json").read_text(encoding="utf-8"))
    sources, options = document["sources"], tuple(document["options"])
    wanted = [
        (source, architecture)
        for source in sources
        for architecture in architectures
        if not source["bit_tensor_cores"] or architecture in BIT_TENSOR_CORES
    ]
    jobs = [Job(arguments.folder / source["file"], architecture, options) for source, architecture in wanted]
    with multiprocessing.Pool(arguments.workers) as pool:
        results = pool.map(compiled, jobs, chunksize=4)

    legend: dict[str, dict[str, Any]] = {}  # row of the table -> what it is
    taken: dict[str, dict[str, Resources]] = {}  # row of the table -> architecture -> what it takes
    complaints: dict[str, list[str]] = {}  # in words -> architectures
    spilling = set()
    by_job = dict(zip(jobs, results, strict=True))
    for source, architecture in wanted:
        job = Job(arguments.folder / source["file"], architecture, options)
        log, used = by_job[job]
        if log:
            complaints.setdefault(f"{job.path}, used by {users(source['kernels'])}:\n{log}", []).append(architecture)
            continue
        for entry, planned in source["kernels"].items():
            row = planned["row"]
            if reason := misfit(planned, architecture, used.get(entry)):
                complaints.setdefault(f"{row}, used by {users({entry: planned})}: {reason}", []).append(architecture)
                continue
            if used[entry]["spill_stores"] or used[entry]["spill_loads"]:
                spilling.add(row)
            # The table names no model beside its own, so that it stays the same when they change.
            if named := [name for name in planned["used_by"] if name in document["in_table"]]:
                legend[row] = {"used_by": named, "threads": planned["threads"], "defines": planned["defines"]}
                taken.setdefault(row, {})[architecture] = used[entry]
    if complaints:
        for complaint, where in complaints.items():
            print(f"{', '.join(where)}: {complaint}", file=sys.stderr)
        print(f"{section}: {len(complaints)} complaints", file=sys.stderr)
        return 1

    found = {
        "architectures": list(architectures),
        "kernels": {
            row: {
                column: short(values)
                for column in COLUMNS
                if any(values := [by_architecture.get(a, NOT_COMPILED)[column] for a in architectures])
            }
            for row, by_architecture in sorted(taken.items())
        },
    }
    legend = dict(sorted(legend.items()))
    table = json.loads(arguments.table.read_text(encoding="utf-8")) if arguments.table.exists() else {}
    names = {row: ", ".join(kernel["used_by"][:2]) for row, kernel in {**table.get("kernels", {}), **legend}.items()}
    changed = differences(section, table.get(section, {}), found, names)
    if table.get("kernels") != legend and not changed:
        changed = [f"{section}: the parameters or users of kernels changed, and not what they take"]
    if arguments.update:
        kept = {name: part for name, part in table.items() if name.split(".")[0] != section.split(".")[0]}
        kept |= {section: found, "kernels": legend}
        ordered = {name: kept[name] for name in ("kernels", *sorted(kept.keys() - {"kernels"}))}
        arguments.table.write_text(one_line_each(ordered), encoding="utf-8")
    for line in changed:
        print(line, file=sys.stdout if arguments.update else sys.stderr)
    if changed and not arguments.update:
        print(f"{arguments.table} says otherwise; if this is meant, run `make cuda-table`", file=sys.stderr)
        return 1
    spills = f"spills in {', '.join(sorted(spilling))}" if spilling else "no spills"
    print(
        f"{section}: {len(sources)} sources compile for {', '.join(architectures)}, {spills}; "
        f"{len(taken)} kernels {'written to' if arguments.update else 'as in'} {arguments.table}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
