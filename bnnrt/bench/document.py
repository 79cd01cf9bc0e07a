"""What `bnnrt bench` writes: a JSON document of schema ``bnnrt-bench/1``, and its types.

Times are microseconds, sizes bytes, rates a second. A value is None where it cannot be measured; ``notes`` says why.
A reader ignores fields that it does not know, so that version 1 may grow; a field with a default here may be absent.
"""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from bnnrt.errors import InputError
from bnnrt.files import reason, replace_file

__all__ = [
    "FIGURES",
    "SCHEMA",
    "Device",
    "Document",
    "EmptyKernel",
    "Environment",
    "Figure",
    "Host",
    "Kernel",
    "Limits",
    "Peer",
    "Result",
    "read_document",
    "write_document",
]

_NAME, _VERSION = "bnnrt-bench", 1
SCHEMA = f"{_NAME}/{_VERSION}"

FIGURES = ("first_to_last_us", "kernels_sum_us", "events_sum_us", "event_floor_us", "replay_us", "host_us")
"""The times of a result and of a peer, by field."""


@dataclass(frozen=True)
class Figure:
    """One figure: its samples in the order in which they were taken, in microseconds, and what they come to."""

    median: float
    p10: float
    p90: float
    mean: float
    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Figure:
        """Summary of one or more samples, which are kept to a nanosecond. Raises ValueError where there is none."""
        values = np.asarray(samples, dtype=np.float64)
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise ValueError("a figure needs one or more finite samples")
        p10, median, p90 = (float(q) for q in np.quantile(values, [0.1, 0.5, 0.9]))
        kept = tuple(round(float(v), 3) for v in values)
        return cls(median=median, p10=p10, p90=p90, mean=float(values.mean()), samples=kept)


@dataclass(frozen=True)
class Host:
    cpu: str
    cores: int
    os: str
    python: str


@dataclass(frozen=True)
class Device:
    """``clocks_mhz`` has the clocks during the run by name (``sm``, ``memory``)."""

    name: str
    driver: str
    platform: str
    clocks_mhz: Mapping[str, float] | None


@dataclass(frozen=True)
class Environment:
    """What was measured where. ``devices`` are by id, such as ``cuda:0``; ``versions`` has installed packages only."""

    time: str
    commit: str | None
    command: str
    host: Host
    devices: Mapping[str, Device]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class EmptyKernel:
    """Time of a kernel that does nothing: as an event reads it, and in steady state."""

    event: float | None
    steady: float | None


@dataclass(frozen=True)
class Limits:
    """What the device was seen to do at best."""

    copy_bytes_per_s: float | None
    popcounts_per_s: float | None
    binary_ops_per_s: float | None
    tensor_core_binary_ops_per_s: float | None
    empty_kernel_us: EmptyKernel


@dataclass(frozen=True)
class Kernel:
    """One launch. ``us`` is its steady-state time, summed up in ``kernels_sum_us``; ``share`` is its part of the sum.

    A bit multiply-add counts as 2 binary operations.
    """

    name: str
    layer: str
    variant: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    local_bytes: int
    us: float | None
    event_us: float | None
    bytes: int
    binary_operations: int
    float_operations: int
    share: float | None
    fraction_of_copy: float | None
    fraction_of_popcount: float | None
    fraction_of_tensor_cores: float | None = None
    """In place of ``fraction_of_popcount`` where a kernel counts with 1-bit tensor cores."""

    @property
    def fraction_of_counting(self) -> float | None:
        """Of the rate at which the unit that this kernel counts bits with can do so."""
        return self.fraction_of_popcount if self.fraction_of_tensor_cores is None else self.fraction_of_tensor_cores


@dataclass(frozen=True)
class Result:
    """One bundle on one backend at one batch size.

    ``backend`` is as it was asked for and ``device`` the id of what it opened. ``role`` is ``binary``, or ``baseline``
    for the full-precision model. ``checked``: this run's outputs equal the numpy backend's bit for bit. ``replay_us``
    is the mean of many replays back to back; ``single_replay_us`` one by itself, until the host knows of its end.
    """

    bundle: str
    backend: str
    device: str
    batch: int
    variants: str
    role: str
    first_to_last_us: Figure | None
    kernels_sum_us: Figure | None
    events_sum_us: Figure | None
    event_floor_us: Figure | None
    replay_us: Figure | None
    host_us: Figure | None
    kernels: tuple[Kernel, ...]
    checked: bool
    arena_bytes: int
    constants_bytes: int
    single_replay_us: Figure | None = None


@dataclass(frozen=True)
class Peer:
    """The same network in another runtime. ``best``: the fastest of this peer's configurations at this batch size."""

    peer: str
    model: str
    device: str
    batch: int
    configuration: str
    first_to_last_us: Figure | None
    kernels_sum_us: Figure | None
    events_sum_us: Figure | None
    event_floor_us: Figure | None
    replay_us: Figure | None
    host_us: Figure | None
    checked: bool
    best: bool = False


@dataclass(frozen=True)
class Document:
    """Everything that one run of `bnnrt bench` measured. ``limits`` are by device id."""

    environment: Environment
    limits: Mapping[str, Limits]
    results: tuple[Result, ...]
    peers: tuple[Peer, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = field(default=SCHEMA)

    @classmethod
    def parse(cls, data: object, where: str = "") -> Document:
        """The document that JSON data holds; ``where`` names it in errors. Raises InputError where it does not fit."""
        schema = data.get("schema") if isinstance(data, Mapping) else None
        name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
        if name != _NAME:
            raise InputError("not a file that bnnrt bench wrote", where, "give its JSON output")
        if version.partition(".")[0] != str(_VERSION):
            raise InputError(f"bench results of version {version}", where, f"this bnnrt reads version {_VERSION}")
        try:
            parsed: Document = _parsed(cls, data, "")
        except _MisfitError as e:
            raise InputError(str(e), where, "measure again, or restore the file") from None
        return parsed

    def as_json(self) -> dict[str, Any]:
        """The document as JSON has it; ``schema`` comes first."""
        return {"schema": self.schema, **asdict(self)}


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a file that `bnnrt bench` wrote.

    Raises InputError where it cannot be read, is no JSON, of another schema or version, or lacks a field.
    """
    where = os.fspath(path)
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, RecursionError, ValueError) as e:
        if isinstance(e, OSError):
            raise InputError(f"cannot read the bench results: {reason(e)}", where, "check the path") from None
        raise InputError("the bench results are no JSON", where, "give the JSON output of bnnrt bench") from None
    return Document.parse(data, where)


def write_document(document: Document, path: str | os.PathLike[str]) -> None:
    """Write the document as JSON, or leave everything as it was and raise OutputError."""
    text = json.dumps(document.as_json(), indent=1, allow_nan=False)
    replace_file(os.fspath(path), text.encode() + b"\n", "bench results")


class _MisfitError(Exception):
    """Says which field does not fit."""


def _parsed(wanted: Any, value: Any, place: str) -> Any:
    """``value`` as the type ``wanted``: a dataclass, tuple, mapping, union with None, or a scalar."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (a for a in arguments if a is not type(None))
        return _parsed(inner, value, place)
    if is_dataclass(wanted):
        return _record(wanted, value, place)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _MisfitError(f"{place} is no list")
        return tuple(_parsed(arguments[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _MisfitError(f"{place} is no object")
        return {key: _parsed(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    return _scalar(wanted, value, place)


def _record(wanted: Any, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise _MisfitError(f"{place} is no object")
    hints = get_type_hints(wanted)
    arguments = {}
    for f in fields(wanted):
        at = f"{place}.{f.name}" if place else f.name
        if f.name in value:
            arguments[f.name] = _parsed(hints[f.name], value[f.name], at)
        elif f.default is MISSING:
            raise _MisfitError(f"{at} is missing")
    return wanted(**arguments)


def _scalar(wanted: type, value: Any, place: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is float and number:
        # An integer of any length is JSON too.
        if abs(value) <= 1e300 and math.isfinite(value):
            return float(value)
    elif isinstance(value, wanted) and (wanted is not int or number):
        return value
    kind = {float: "finite number", int: "integer", str: "text", bool: "boolean"}[wanted]
    raise _MisfitError(f"{place} is no {kind}")
