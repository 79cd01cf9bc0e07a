"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping

from bnnrt.errors import OutputError

__all__ = ["reason", "replace_file"]

_REMEDIES: Mapping[int | None, str] = {
    errno.ENOENT: "create the folder first",
    errno.ENOTDIR: "create the folder first",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.ENOSPC: "make room on the disk",
}


def replace_file(name: str, data: bytes, what: str, before: Callable[[], None] = lambda: None) -> None:
    """Make ``data`` the contents of the file, or leave everything as it was and raise OutputError.

    The error calls the contents ``what``. A link is followed; the permissions are those that the umask asks for.
    ``before`` is called when only the last step, a renaming, is left; what it raises leaves everything as it was.
    """
    with _explained(name, what):
        target = os.path.realpath(name)
        if os.path.exists(target) and not os.path.isfile(target):
            raise OutputError("not a file", name, "give the path of a file")
        # Opened without tempfile, so that the file gets the permissions that the umask asks for.
        temporary = os.path.join(os.path.dirname(target), f".bnnrt-{secrets.token_hex(8)}.tmp")
    try:
        with _explained(name, what), open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        before()
        with _explained(name, what):
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _explained(name: str, what: str) -> Iterator[None]:
    """Turns what the system refuses into OutputError."""
    try:
        yield
    except (OSError, ValueError) as e:
        fix = _REMEDIES.get(getattr(e, "errno", None), "choose another path")
        raise OutputError(f"cannot write the {what}: {reason(e)}", name, fix) from None


def reason(error: OSError | ValueError) -> str:
    """What went wrong, in the system's words."""
    return getattr(error, "strerror", None) or str(error)
