"""Errors say what, where and what to do, in one line, and survive a trip to another process."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnnrt import errors
from bnnrt.errors import BnnrtError

KINDS = [getattr(errors, name) for name in errors.__all__]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=errors.__all__)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("no OpenCL platform",), "no OpenCL platform"),
        (("no OpenCL platform", "opencl:gpu"), "no OpenCL platform (opencl:gpu)"),
        (("no OpenCL platform", "", "install pocl"), "no OpenCL platform: install pocl"),
        (("no OpenCL platform", "opencl:gpu", "install pocl"), "no OpenCL platform (opencl:gpu): install pocl"),
        (("what\nin  two\r\n lines", "a\tb", " fix\n"), "what in two lines (a b): fix"),
        (("what", "\n", " \t"), "what"),
    ],
)
def test_text(parts: tuple[str, ...], text: str) -> None:
    assert str(BnnrtError(*parts)) == text


def test_parts_can_be_named() -> None:
    error = BnnrtError(what="w", fix="f", where="p")
    assert (error.what, error.where, error.fix) == ("w", "p", "f")
    assert str(error) == "w (p): f"


# The characters that str.splitlines() takes for line ends are rare in plain text(): ask for them.
LINES = st.lists(st.sampled_from("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029 ab") | st.text(max_size=3)).map("".join)


@given(what=LINES, where=LINES, fix=LINES)
def test_text_is_one_line(what: str, where: str, fix: str) -> None:
    assert len(str(BnnrtError(what, where, fix)).splitlines()) <= 1


@EVERY_KIND
def test_all_are_bnnrt_errors(kind: type[BnnrtError]) -> None:
    assert issubclass(kind, BnnrtError)
    assert kind.__doc__


def test_all_names_every_error() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined == set(errors.__all__)


@EVERY_KIND
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_kind_and_parts(kind: type[BnnrtError], protocol: int) -> None:
    error = kind("what (with: marks)", "where: x", "fix (y)")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is kind
    assert (again.what, again.where, again.fix) == (error.what, error.where, error.fix)
    assert str(again) == str(error)


def test_copy_keeps_parts() -> None:
    error = BnnrtError("what", "where", "fix")
    for again in (copy.copy(error), copy.deepcopy(error)):
        assert (again.what, again.where, again.fix, str(again)) == ("what", "where", "fix", str(error))
