"""Kernel text: defines, the language's prelude, and the bodies, put together with ``#line`` directives.

A compiler error so names the file and line that a person can open. Nothing but integers and names from our own tables
gets into the defines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["KernelSource", "assemble"]

Define = int | str | tuple[int, ...]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class KernelSource:
    """Files of :mod:`bnnrt.kernels` (such as ``common/threshold.h``) and the defines that specialize them."""

    files: tuple[str, ...]
    defines: tuple[tuple[str, Define], ...] = ()

    @classmethod
    def of(cls, *files: str, **defines: Define) -> KernelSource:
        """Defines are integers, tuples of integers (for array initializers) or a C identifier."""
        return cls(files, tuple(sorted(defines.items())))


@cache
def _text(path: str) -> str:
    return resources.files("bnnrt.kernels").joinpath(path).read_text(encoding="utf-8")


def _value(name: str, value: Define) -> str:
    if isinstance(value, str):
        if not _NAME.fullmatch(value):
            raise ValueError(f"{name} is defined as {value!r}, which is no identifier")
        return value
    if isinstance(value, tuple):
        return ", ".join(str(int(v)) for v in value)
    return str(int(value))


def assemble(source: KernelSource, language: str) -> str:
    """The whole text in ``language``, ``cl`` or ``cu``."""
    defines: Mapping[str, Define] = dict(source.defines)
    parts = [f"#define {name} {_value(name, value)}" for name, value in defines.items()]
    for path in (f"{language}/prelude.{language}", *source.files):
        parts += [f'#line 1 "{path}"', _text(path)]
    return "\n".join(parts)
