"""Capsules against NumPy, which lends and borrows the same way as the libraries that own device memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnnrt.backends import dlpack
from bnnrt.errors import InputError

DTYPES = [np.float32, np.int32, np.uint8, np.float64, np.int64]


class Lender:
    """Lends a NumPy array through our capsules."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(self, **options: object) -> object:
        return dlpack.lend(
            dlpack.Lent(self.array.ctypes.data, self.array.shape, self.array.dtype, (dlpack.CPU, 0), self)
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_what_numpy_lends(dtype: type[np.generic]) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    lent = dlpack.read(array.__dlpack__())
    assert (lent.pointer, lent.shape, lent.dtype, lent.device) == (array.ctypes.data, (2, 3, 4), dtype, (dlpack.CPU, 0))


def test_read_refuses_strides() -> None:
    array = np.zeros((4, 6), dtype=np.float32)
    for strided in (array[:, ::2], array.T, array[::2]):
        with pytest.raises(InputError, match="strided"):
            dlpack.read(strided.__dlpack__())
    assert dlpack.read(array[1:2].__dlpack__()).pointer == array.ctypes.data + 24


def test_read_refuses_other_elements() -> None:
    with pytest.raises(InputError, match="elements"):
        dlpack.read(np.zeros(3, dtype=np.complex64).__dlpack__())


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_borrows(dtype: type[np.generic]) -> None:
    array = np.arange(24).reshape(4, 6).astype(dtype)
    borrowed = np.from_dlpack(Lender(array))
    np.testing.assert_array_equal(borrowed, array)
    assert borrowed.ctypes.data == array.ctypes.data
    assert borrowed.dtype == dtype


def test_owner_lives_as_long_as_its_borrower() -> None:
    lender = Lender(np.arange(5, dtype=np.float32))
    seen = weakref.ref(lender)
    borrowed = np.from_dlpack(lender)
    del lender
    gc.collect()
    assert seen() is not None
    np.testing.assert_array_equal(borrowed, np.arange(5))
    del borrowed
    gc.collect()
    assert seen() is None


def test_a_capsule_that_nobody_takes_gives_its_owner_back() -> None:
    lender = Lender(np.arange(5, dtype=np.float32))
    seen = weakref.ref(lender)
    capsule = lender.__dlpack__()
    del lender
    gc.collect()
    assert seen() is not None
    del capsule
    gc.collect()
    assert seen() is None
    assert not dlpack._borrowed
