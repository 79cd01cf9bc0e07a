"""Backends that the tests run on: numpy, and every device that is present, with at least one of OpenCL (such as PoCL).

BNNRT_TEST_BACKENDS, names with commas between them, takes the place of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bnnrt.backends import devices, open_backend
from bnnrt.backends.base import Backend


def _names() -> list[str]:
    if chosen := os.environ.get("BNNRT_TEST_BACKENDS"):
        return chosen.split(",")
    found = [info.backend for info in devices()]
    # Without this name in the list, a machine without OpenCL would pass by testing nothing.
    return found if any(name.startswith("opencl") for name in found) else [*found, "opencl"]


@pytest.fixture(scope="session", params=_names())
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    opened = open_backend(request.param)
    yield opened
    opened.close()
