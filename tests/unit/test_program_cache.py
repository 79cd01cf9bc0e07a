"""Compiled programs on disk: what is stored comes back or is compiled again, and nothing else is ever run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnnrt import ops, reference
from bnnrt.backends import open_backend
from bnnrt.backends.cache import ProgramCache, default_cache
from bnnrt.executor import Executor
from bnnrt.graph import Graph, Node
from bnnrt.ops import Domain, TensorType
from bnnrt.plan import make_plan

KEY = ("text", "device", "driver", "-option")
BINARY = bytes(range(40))

posix = pytest.mark.skipif(os.name != "posix", reason="users and modes are POSIX")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.bin"))


@pytest.fixture
def cache(tmp_path: Path) -> ProgramCache:
    return ProgramCache(tmp_path / "a" / "cache")


@pytest.mark.parametrize("binary", [BINARY, b"", b"\0" * 100_000])
def test_what_is_stored_comes_back(cache: ProgramCache, binary: bytes) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, binary)
    assert cache.get(KEY) == binary
    assert ProgramCache(cache.folder).get(KEY) == binary
    cache.put(KEY, b"another")
    assert cache.get(KEY) == b"another"
    assert len(entries(cache.folder)) == 1


def test_every_part_of_a_key_counts(cache: ProgramCache) -> None:
    cache.put(KEY, BINARY)
    for index in range(len(KEY)):
        other = (*KEY[:index], KEY[index] + "x", *KEY[index + 1 :])
        assert cache.get(other) is None
    assert cache.get(KEY[:-1]) is None
    assert cache.get((KEY[0] + KEY[1], *KEY[2:])) is None
    assert cache.get((KEY[1], KEY[0], *KEY[2:])) is None


def test_cut_off_entries_are_none(cache: ProgramCache) -> None:
    cache.put(KEY, BINARY)
    (path,) = entries(cache.folder)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert cache.get(KEY) is None, length
    for wrong in (data + b"\0", data[1:], data + data, BINARY):
        path.write_bytes(wrong)
        assert cache.get(KEY) is None
    path.write_bytes(data)
    assert cache.get(KEY) == BINARY


def test_entries_with_a_flipped_bit_are_none(cache: ProgramCache) -> None:
    cache.put(KEY, BINARY)
    (path,) = entries(cache.folder)
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert cache.get(KEY) is None, bit


def test_an_entry_that_is_a_folder_is_none(cache: ProgramCache) -> None:
    cache.put(KEY, BINARY)
    (path,) = entries(cache.folder)
    path.unlink()
    path.mkdir()
    assert cache.get(KEY) is None
    cache.put(KEY, BINARY)  # cannot replace it, and says nothing
    assert cache.get(KEY) is None
    assert not list(cache.folder.glob("*.tmp"))


@posix
def test_only_the_user_may_look_inside(cache: ProgramCache) -> None:
    before = os.umask(0)
    try:
        cache.put(KEY, BINARY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    cache.folder.chmod(0o777)
    cache.put(("another",), BINARY)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


@posix
def test_a_folder_of_somebody_else_is_neither_written_nor_believed(
    cache: ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(KEY, BINARY)
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    cache.put(("another",), BINARY)
    assert len(entries(cache.folder)) == 1
    assert cache.get(KEY) is None


def test_a_folder_that_cannot_be_written_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        cache = ProgramCache(folder)
        cache.put(KEY, BINARY)
        assert cache.get(KEY) is None

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    cache = ProgramCache(tmp_path / "full")
    monkeypatch.setattr(os, "replace", full)
    cache.put(KEY, BINARY)
    assert cache.get(KEY) is None
    assert not list(cache.folder.glob("*.tmp"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_silent(cache: ProgramCache) -> None:
    cache.put(KEY, BINARY)
    cache.folder.parent.chmod(0o500)
    cache.folder.chmod(0o500)
    try:
        other = ProgramCache(cache.folder.parent / "other")
        other.put(KEY, BINARY)
        assert other.get(KEY) is None
        assert cache.get(KEY) == BINARY
    finally:
        cache.folder.parent.chmod(0o700)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.bin"))


def test_the_folder_stays_below_its_limit(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, limit=1000)
    for index in range(50):
        cache.put((str(index),), bytes(100))
        assert size(tmp_path) <= 1000
    assert size(tmp_path) > 800
    assert cache.get(("49",)) == bytes(100)
    assert cache.get(("0",)) is None
    cache.put(("large",), bytes(2000))
    assert size(tmp_path) <= 1000


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, limit=1000)
    for index in range(6):
        cache.put((str(index),), bytes(100))
        for path in entries(tmp_path):  # as if an hour went by
            status = path.stat()
            os.utime(path, (status.st_atime - 3600, status.st_mtime - 3600))
    assert cache.get(("0",)) == bytes(100)
    cache.put(("6",), bytes(100))
    assert cache.get(("0",)) == bytes(100)
    assert cache.get(("1",)) is None
    assert cache.get(("2",)) == bytes(100)


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, limit=100)
    note = tmp_path / "note.txt"
    note.write_bytes(bytes(500))
    cache.put(KEY, bytes(500))
    assert note.exists()
    assert entries(tmp_path) == []


WRITER = """
import sys
from pathlib import Path
from bnnrt.backends.cache import ProgramCache

cache = ProgramCache(Path(sys.argv[1]), limit=8000)
print("ready", flush=True)
sys.stdin.readline()
for turn in range(150):
    key = (str(turn % 13),)
    body = (f"{turn % 13} " * 200).encode()
    cache.put(key, body)
    found = cache.get((str(turn * 7 % 13),))
    assert found is None or found == (f"{turn * 7 % 13} " * 200).encode(), found
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, os.fspath(tmp_path / "cache")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for writer in writers:  # all at once, and not one after the other as they start
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        results = []
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            results.append((writer.communicate(timeout=60)[1], writer.returncode))
    finally:
        for writer in writers:
            writer.kill()
    assert results == [("", 0)] * len(writers)
    assert 0 < size(tmp_path / "cache") <= 8000
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_where_the_users_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNNRT_CACHE_DIR", os.fspath(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "home"))

    def folder() -> Path:
        found = default_cache()
        assert found is not None
        return found.folder

    assert folder() == tmp_path / "chosen" / "programs"
    monkeypatch.delenv("BNNRT_CACHE_DIR")
    assert folder() == tmp_path / "xdg" / "bnnrt" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert folder() == tmp_path / "home" / ".cache" / "bnnrt" / "programs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder() == tmp_path / "home" / ".cache" / "bnnrt" / "programs"
    assert default_cache().limit > 1 << 20  # type: ignore[union-attr]
    monkeypatch.setenv("BNNRT_CACHE_DIR", "")
    assert default_cache() is None


# With OpenCL


NETWORK = Graph(
    {"x": TensorType((None, 4), Domain.FLOAT32)},
    (
        Node("double", ops.Arithmetic(ops.ArithmeticKind.ADD), ("x", "x"), ("doubled",)),
        Node("sign", ops.Sign(), ("doubled",), ("bits",)),
        Node("float", ops.ToFloat(), ("bits",), ("y",)),
    ),
    ("y",),
)


class Recorded:
    """What the OpenCL backend asks of its cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hits: list[tuple[str, ...]] = []
        self.stored: list[tuple[str, ...]] = []
        get, put = ProgramCache.get, ProgramCache.put

        def recorded_get(cache: ProgramCache, key: tuple[str, ...]) -> bytes | None:
            found = get(cache, key)
            self.hits += [key] if found is not None else []
            return found

        def recorded_put(cache: ProgramCache, key: tuple[str, ...], binary: bytes) -> None:
            self.stored.append(key)
            put(cache, key, binary)

        monkeypatch.setattr(ProgramCache, "get", recorded_get)
        monkeypatch.setattr(ProgramCache, "put", recorded_put)

    def run(self) -> tuple[int, int]:
        """Run a network on OpenCL, compare its result, and count programs (taken from the cache, stored in it)."""
        self.hits.clear()
        self.stored.clear()
        x = np.array([[1, -2, 0, 0.5], [-0.25, 3, -1, -0.0]], np.float32)
        backend = open_backend("opencl")
        executor = Executor(backend, make_plan(NETWORK, backend.info, len(x)))
        np.testing.assert_array_equal(executor.run({"x": x})["y"], reference.run(NETWORK, {"x": x})["y"])
        executor.close()
        backend.close()
        return len(self.hits), len(self.stored)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setenv("BNNRT_CACHE_DIR", os.fspath(tmp_path / "cache"))
    return Recorded(monkeypatch)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_programs_come_from_the_cache_and_damaged_ones_are_compiled_again(recorded: Recorded, tmp_path: Path) -> None:
    assert recorded.run() == (0, 3)
    assert recorded.run() == (3, 0)

    damages: list[Callable[[Path], object]] = [cut, flip, Path.unlink]
    paths = entries(tmp_path / "cache" / "programs")
    for count in (1, 3):
        for path, damage in zip(paths[:count], damages[:count], strict=True):
            damage(path)
        assert recorded.run() == (3 - count, count)
        assert recorded.run() == (3, 0)

    # Whole, but no binary that the driver takes.
    cache = ProgramCache(tmp_path / "cache" / "programs")
    for key, garbage in zip(list(recorded.hits), (b"", b"garbage", bytes(5000)), strict=True):
        cache.put(key, garbage)
    assert recorded.run()[1] == 3
    assert recorded.run() == (3, 0)


def test_no_cache_is_no_error(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNNRT_CACHE_DIR", "")
    assert recorded.run() == (0, 0)
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("BNNRT_CACHE_DIR", os.fspath(file))
    assert recorded.run() == (0, 3)
