"""How an image becomes the bits that a network starts from: the schemes, and their parameters as users write them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bnnrt.errors import InputError
from bnnrt.preprocess.binarize import grayscale, lbp, threshold

__all__ = ["InputBinarization", "Scheme", "chosen", "parse_thresholds"]


class Scheme(Enum):
    """The paper's ways to binarize an input."""

    THRESHOLD = "threshold"  # red, green and blue, each against its own threshold
    THRESHOLD_GRAY = "threshold-gray"  # the luma against one threshold
    LBP = "lbp"  # local binary patterns of the luma
    NONE = "none"


_PLANES = {Scheme.THRESHOLD: 3, Scheme.THRESHOLD_GRAY: 1, Scheme.LBP: 3}
_THRESHOLDS = {Scheme.THRESHOLD: 3, Scheme.THRESHOLD_GRAY: 1, Scheme.LBP: 0}


@dataclass(frozen=True)
class InputBinarization:
    """A scheme other than ``none``, with the T of X + T > 0 for each channel where it thresholds.

    Raises :class:`~bnnrt.errors.InputError` if there are not as many thresholds as the scheme takes, or one is no
    finite float32.
    """

    scheme: Scheme
    thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.scheme is Scheme.NONE:
            raise InputError("none is no binarization", fix="choose threshold, threshold-gray or lbp")
        name, wanted, given = self.scheme.value, _THRESHOLDS[self.scheme], len(self.thresholds)
        if given != wanted:
            count = {0: "no thresholds", 1: "one threshold"}.get(wanted, f"{wanted} thresholds")
            fix = {0: "leave --thresholds out", 1: "give --thresholds T"}.get(wanted, "give --thresholds T1,T2,T3")
            raise InputError(f"{name} takes {count}, not {given}", fix=fix)
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(self.thresholds, dtype=np.float32))
        if not finite.all():
            bad = self.thresholds[int(np.argmin(finite))]
            raise InputError(f"the threshold {bad} is no finite float32", fix="pixels are 0 to 255")

    @property
    def planes(self) -> int:
        """How many planes of bits come out."""
        return _PLANES[self.scheme]

    @property
    def of_luma(self) -> bool:
        """Whether the colours are made gray first."""
        return self.scheme is not Scheme.THRESHOLD

    def bits(self, rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """The planes of uint8 [..., H, W, 3] as bool [..., H, W, planes]."""
        if self.scheme is Scheme.LBP:
            return lbp(grayscale(rgb))
        return threshold(grayscale(rgb)[..., None] if self.of_luma else rgb, self.thresholds)


def chosen(scheme: Scheme | None, thresholds: str | None) -> InputBinarization | None:
    """What the options of a command ask for; None for ``none`` and where nothing is said.

    Raises :class:`~bnnrt.errors.InputError` if they do not fit each other.
    """
    given = () if thresholds is None else parse_thresholds(thresholds)
    if scheme is None or scheme is Scheme.NONE:
        if given:
            raise InputError("thresholds belong to a scheme", "--thresholds", "choose threshold or threshold-gray")
        return None
    return InputBinarization(scheme, given)


def parse_thresholds(text: str) -> tuple[float, ...]:
    """Numbers with commas between them. Raises :class:`~bnnrt.errors.InputError` for anything else."""
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is no list of numbers", "--thresholds", "write -100.5,-99,-120") from None
