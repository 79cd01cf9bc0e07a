"""Kernel text: put together from files that a compiler's message can name, with defines that are no code."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from bnnrt.backends import open_backend
from bnnrt.backends.numpy_backend import NumpyBackend
from bnnrt.backends.source import KernelSource, assemble
from bnnrt.errors import BackendError

KERNELS = Path(str(resources.files("bnnrt.kernels")))
LANGUAGES = pytest.mark.parametrize("language", ["cl", "cu"])


def text(path: str) -> str:
    return (KERNELS / path).read_text(encoding="utf-8")


@LANGUAGES
def test_text_is_defines_then_prelude_then_files(language: str) -> None:
    source = KernelSource.of("common/window.h", "common/bit_pool.h", WORDS=3, STRIDE_H=-2, SOURCE="uchar", DIMS=(4, 5))
    prelude = f"{language}/prelude.{language}"
    assert assemble(source, language) == "\n".join(
        [
            "#define DIMS 4, 5",
            "#define SOURCE uchar",
            "#define STRIDE_H -2",
            "#define WORDS 3",
            f'#line 1 "{prelude}"',
            text(prelude),
            '#line 1 "common/window.h"',
            text("common/window.h"),
            '#line 1 "common/bit_pool.h"',
            text("common/bit_pool.h"),
        ]
    )


@LANGUAGES
@pytest.mark.parametrize("path", sorted(p.relative_to(KERNELS).as_posix() for p in KERNELS.glob("c*/*.*")))
def test_every_line_keeps_its_number_and_file(language: str, path: str) -> None:
    """Counted as a compiler does, every line of the text is the line of the file that it says it is."""
    where, number = "", 0
    seen = set()
    for line in assemble(KernelSource.of(path, ONE=1), language).split("\n"):
        if line.startswith("#line "):
            _, first, name = line.split()
            where, number = name.strip('"'), int(first)
            continue
        if where:
            lines = text(where).split("\n")
            if number <= len(lines):
                assert line == lines[number - 1]
                seen.add((where, number))
            else:
                assert line == ""
            number += 1
    assert {(path, n + 1) for n in range(text(path).count("\n"))} <= seen


def test_every_kernel_file_ends_its_last_line() -> None:
    """Otherwise a directive of the next file could be swallowed."""
    found = sorted(KERNELS.glob("c*/*.*"))
    assert len(found) > 15
    for path in found:
        assert path.read_text(encoding="utf-8").endswith("\n"), path
        assert "\\\n\n" not in path.read_text(encoding="utf-8") + "\n", path


def test_sources_with_the_same_defines_are_the_same() -> None:
    one, other = KernelSource.of("a.h", A=1, B=(2, 3)), KernelSource.of("a.h", B=(2, 3), A=1)
    assert one == other
    assert hash(one) == hash(other)
    assert one != KernelSource.of("a.h", A=1, B=(2, 4))
    assert one != KernelSource.of("b.h", A=1, B=(2, 3))


@pytest.mark.parametrize(
    "value",
    [
        *["", " ", "1x", "a b", "a;", "a\n", "a\n#define b", "x)", "float*", "é", "a-b", '"a"', "a//", "a\\", "0"],
        "while(1)",
    ],
)
def test_text_that_is_no_identifier_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"SOURCE is defined as .* no identifier"):
        assemble(KernelSource.of("common/to_float.h", SOURCE=value), "cl")


@pytest.mark.parametrize("value", ["uchar", "float", "_x1", "A"])
def test_identifiers_are_taken(value: str) -> None:
    assert f"#define SOURCE {value}\n" in assemble(KernelSource.of("common/to_float.h", SOURCE=value), "cl")


def test_numbers_are_written_as_integers() -> None:
    class Sly(int):
        def __str__(self) -> str:
            return "1; evil()"

    found = assemble(KernelSource.of("common/to_float.h", A=True, B=-(2**31), C=(1, -1), D=Sly(7), E=(Sly(8),)), "cl")
    assert found.startswith("#define A 1\n#define B -2147483648\n#define C 1, -1\n#define D 7\n#define E 8\n#line")


@pytest.mark.parametrize(
    ("files", "at_fault"),
    [
        (["common/sign.h"], "common/sign.h"),
        (["common/window.h", "common/bit_pool.h"], "common/bit_pool.h"),
    ],
)
def test_a_compilers_message_names_the_real_file_and_line(files: list[str], at_fault: str) -> None:
    lines = text(at_fault).split("\n")
    code = lines.index(next(line for line in lines if line.startswith("KERNEL")))
    line = next(n for n, content in enumerate(lines) if n >= code and "WORDS" in content) + 1
    window = dict.fromkeys(["KERNEL_H", "KERNEL_W", "STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W"], 1)
    sizes = dict.fromkeys(["HEIGHT", "WIDTH", "OUT_HEIGHT", "OUT_WIDTH"], 4)
    # WORDS is missing.
    source = KernelSource.of(*files, **window, **sizes, PAD_TOP=0, PAD_LEFT=0, CHANNELS=3, ZERO_IS_PLUS=1)
    backend = open_backend("opencl")
    try:
        with pytest.raises(BackendError, match="a kernel does not compile") as caught:
            backend.compile(source, "any")
    finally:
        backend.close()
    assert f"{at_fault}:{line}" in str(caught.value)
    assert "WORDS" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_each_backend_takes_only_its_own_code() -> None:
    with pytest.raises(BackendError, match="no Python function"):
        NumpyBackend().compile(KernelSource.of("common/sign.h"), "sign_pack")
