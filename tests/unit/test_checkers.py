"""What the scripts in tests/checkers make of what other tools print."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from bnnrt.backends.base import DeviceKind, Language
from bnnrt.backends.numpy_backend import device

CHECKERS = Path(__file__).parents[1] / "checkers"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> object:
    """Scripts there import one another by name."""
    monkeypatch.setattr(sys, "path", [str(CHECKERS), *sys.path])
    return importlib.import_module


@pytest.fixture
def sanitize(load: object) -> ModuleType:
    return importlib.import_module("sanitize")


@pytest.fixture
def gpu_test(load: object) -> ModuleType:
    return importlib.import_module("gpu_test")


@pytest.mark.parametrize(
    ("summary", "errors"),
    [
        ("ERROR SUMMARY: 0 errors", 0),
        ("ERROR SUMMARY: 1 error", 1),
        ("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0),
        ("RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)", 3),
    ],
)
def test_errors_of_a_sanitizer(sanitize: ModuleType, summary: str, errors: int) -> None:
    text = f"========= COMPUTE-SANITIZER\n24 kernels on cuda:0 (NVIDIA): pad\n========= {summary}\n"
    result = sanitize.outcome("memcheck", text, 0)
    assert result["errors"] == errors
    assert "refused" not in result
    assert ("output" in result) == (errors > 0)


def test_a_program_that_fails_under_a_sanitizer_is_an_error(sanitize: ModuleType) -> None:
    text = "========= COMPUTE-SANITIZER\nTraceback\nKeyError: 'x'\n========= ERROR SUMMARY: 0 errors\n"
    result = sanitize.outcome("memcheck", text, 1)
    assert result["errors"] == 1
    assert "KeyError: 'x'" in result["output"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "========= COMPUTE-SANITIZER\n========= Error: Device not supported. See the documentation\n"
            "========= ERROR SUMMARY: 0 errors\n",
            "Error: Device not supported. See the documentation",
        ),
        (
            "========= COMPUTE-SANITIZER\n=========     Internal Sanitizer Error: no device\n",
            "Internal Sanitizer Error: no device",
        ),
        ("Segmentation fault\n", "it gave no summary"),
    ],
)
def test_a_sanitizer_that_cannot_watch_says_why(sanitize: ModuleType, text: str, said: str) -> None:
    result = sanitize.outcome("memcheck", text, 1)
    assert (result["errors"], result["refused"]) == (None, said)


def test_counts_of_a_test_report(gpu_test: ModuleType) -> None:
    report = ElementTree.fromstring("""
        <testsuites><testsuite name="pytest">
            <testcase classname="a" name="right"/>
            <testcase classname="a" name="wrong"><failure message="1 is not 2">long</failure></testcase>
            <testcase classname="a" name="broken"><error>no such fixture</error></testcase>
            <testcase classname="b" name="left_out"><skipped message="needs a folder"/></testcase>
        </testsuite></testsuites>
    """)
    assert gpu_test.counts(report) == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "failures": {"a.wrong": "1 is not 2", "a.broken": "no such fixture"},
        "skipped_because": {"needs a folder": 1},
    }


def test_kernels_for_tensor_cores_are_missed_only_where_there_are_some(load: object) -> None:
    entries = importlib.import_module("every_kernel").entries
    found, without = (entries(Language.CUDA, DeviceKind.GPU, cores) for cores in (True, False))
    assert found - without == {"conv_tensor"}


def test_equal_devices_are_tested_once(gpu_test: ModuleType) -> None:
    host = device()
    first, second = (dataclasses.replace(host, backend=f"cuda:{n}", name="card") for n in range(2))
    assert gpu_test.distinct([first, second, host]) == [first, host]
    assert gpu_test.folder(dataclasses.replace(host, name="NVIDIA H200")).name == "nvidia-h200"
