"""Every error that bnnrt raises on purpose.

The command line prints one line, ``error: <what> (<where>): <what to do>``, and exits with status 1.
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "BnnrtError",
    "BundleError",
    "ConversionError",
    "GraphError",
    "ImageError",
    "InputError",
    "OutputError",
]


def printable(text: str) -> str:
    """``text`` with control characters and their like as escapes: names in files may hold what steers a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class BnnrtError(Exception):
    """Base of all bnnrt errors.

    ``what`` says what is wrong, ``where`` names the file, node, tensor or device, ``fix`` says what to do about it.
    ``str()`` of the error is always one line.
    """

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = (printable(" ".join(part.split())) for part in (what, where, fix))
        text = self.what
        if self.where:
            text += f" ({self.where})"
        if self.fix:
            text += f": {self.fix}"
        super().__init__(text)

    def __reduce__(self) -> tuple[type[BnnrtError], tuple[str, str, str]]:
        # Exception would be rebuilt from the joined text; keep the parts across process boundaries.
        return type(self), (self.what, self.where, self.fix)


class GraphError(BnnrtError):
    """A graph is inconsistent: shapes, domains or names do not fit."""


class BundleError(BnnrtError):
    """A bundle is damaged, malformed or of an unknown version."""


class ConversionError(BnnrtError):
    """A model cannot be converted exactly."""


class ImageError(BnnrtError):
    """An image file cannot be read."""


class InputError(BnnrtError):
    """An argument, feed or name given by the caller does not fit."""


class BackendError(BnnrtError):
    """A backend or device is missing, or refused its work."""


class OutputError(BnnrtError):
    """A result cannot be written where it was asked for."""
