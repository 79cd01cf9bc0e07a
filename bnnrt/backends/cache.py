"""Compiled programs on disk, so that a board compiles each network once.

Entries are found by everything that decides the machine code: text, device, driver and options. The folder is private
to the user (mode 0700), entries appear by rename, and a lock file keeps two processes from trimming at once. A cache
that cannot be read or written is only slower, never an error. ``BNNRT_CACHE_DIR`` moves it; empty turns it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: entries still appear by rename, only trimming is unlocked
    fcntl = None  # type: ignore[assignment]

__all__ = ["ProgramCache", "default_cache"]

_ABANDONED_S = 3600
_MAGIC = b"bnnrt-program-1\n"


class ProgramCache:
    """A folder of program binaries, at most ``limit`` bytes, the least recently used dropped first."""

    def __init__(self, folder: Path, limit: int = 64 << 20) -> None:
        self.folder = folder
        self.limit = limit

    def _path(self, key: tuple[str, ...]) -> Path:
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
        return self.folder / f"{digest}.bin"

    def _is_ours(self) -> bool:
        """Whether only this user can write to the folder: what others put there must not run as ours."""
        if os.name != "posix":
            return True
        status = self.folder.stat()
        return status.st_uid == os.getuid() and not status.st_mode & 0o022

    def get(self, key: tuple[str, ...]) -> bytes | None:
        """The binary stored under ``key``, or None where there is none or it is damaged."""
        path = self._path(key)
        try:
            if not self._is_ours():
                return None
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + hashlib.sha256().digest_size
        body = data[head:]
        if data[:head] != _MAGIC + hashlib.sha256(body).digest():
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: tuple[str, ...], binary: bytes) -> None:
        """Store a binary; silently does nothing where the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(PermissionError):  # a folder of somebody else
                self.folder.chmod(0o700)
            if not self._is_ours():
                return
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(binary).digest() + binary)
                os.replace(name, self._path(key))
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
            self._trim()
        except OSError:
            return

    def _trim(self) -> None:
        with open(self.folder / "lock", "w") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            found = []
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if path.suffix == ".bin":
                        found.append((status.st_mtime, status.st_size, path))
                    elif path.suffix == ".tmp" and status.st_mtime < time.time() - _ABANDONED_S:
                        path.unlink()  # its writer was killed
            total = sum(size for _, size, _ in found)
            for _, size, path in sorted(found):
                if total <= self.limit:
                    break
                path.unlink(missing_ok=True)
                total -= size


def default_cache() -> ProgramCache | None:
    """The user's cache, or None where it is turned off."""
    chosen = os.environ.get("BNNRT_CACHE_DIR")
    if chosen == "":
        return None
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "bnnrt")
    # A folder of our own in it, since the one that is named may be shared, and this one is made private.
    return ProgramCache(Path(chosen) / "programs")
