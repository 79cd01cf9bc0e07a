"""DLPack, the protocol by which array libraries lend each other memory: capsules read and made with ctypes.

See the specification of DLPack and of ``__dlpack__`` in the Python array API. Only what bnnrt needs: dense arrays of
plain numbers.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bnnrt.errors import InputError

__all__ = ["CPU", "CUDA", "ON_CUDA", "ON_HOST", "Lent", "is_c_order", "lend", "read"]

CPU, CUDA = 1, 2
"""Device types of the specification. Managed CUDA memory (13) counts as CUDA."""

_CUDA_MANAGED = 13
_CUDA_PINNED_HOST = 3
ON_CUDA = (CUDA, _CUDA_MANAGED)
ON_HOST = (CPU, _CUDA_PINNED_HOST)
_NAME = b"dltensor"
_KINDS = {"i": 0, "u": 1, "f": 2}


class _Device(Structure):
    _fields_ = (("type", c_int32), ("index", c_int32))


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_Deleter = CFUNCTYPE(None, c_void_p)


class _ManagedTensor(Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", _Deleter))


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = (ctypes.py_object, c_char_p), c_void_p
_Destructor = CFUNCTYPE(None, c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = (c_void_p, c_char_p, _Destructor), ctypes.py_object
# The same functions for a capsule that is being destroyed, which must not be referenced any more.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_dying_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@dataclass(frozen=True)
class Lent:
    """Memory of somebody else: ``pointer`` to elements of ``dtype`` in C order, for as long as ``owner`` lives."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: tuple[int, int]
    owner: object


def is_c_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of a dense array in C order."""
    expected = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return all(size <= 1 or s == e for size, s, e in zip(shape, strides, expected, strict=True))


def read(capsule: object) -> Lent:
    """What a capsule of ``__dlpack__`` describes. The capsule stays the owner and frees the memory when it goes.

    Raises InputError for strided arrays and for element types that bnnrt does not have.
    """
    tensor = _ManagedTensor.from_address(_get_pointer(capsule, _NAME)).tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides and not is_c_order(shape, tuple(tensor.strides[axis] for axis in range(tensor.ndim))):
        raise InputError("the array is strided", "device array", "give a contiguous copy")
    kinds = {code: kind for kind, code in _KINDS.items()}
    if tensor.dtype.code not in kinds or tensor.dtype.lanes != 1 or tensor.dtype.bits not in (8, 16, 32, 64):
        raise InputError(f"the array has elements of DLPack type {tensor.dtype.code}", "device array")
    dtype = np.dtype(f"{kinds[tensor.dtype.code]}{tensor.dtype.bits // 8}")
    kind = CUDA if tensor.device.type == _CUDA_MANAGED else tensor.device.type
    return Lent((tensor.data or 0) + tensor.byte_offset, shape, dtype, (kind, tensor.device.index), capsule)


# What a borrower holds, by the address of its struct: the struct, its shape, and the owner of the memory.
_borrowed: dict[int, tuple[object, ...]] = {}


def _give_back(address: int) -> None:
    _borrowed.pop(address, None)


def _destroy(capsule: int) -> None:
    # A consumer renames the capsule and calls the deleter itself.
    if _is_valid(capsule, _NAME):
        _give_back(_dying_pointer(capsule, _NAME))


# C functions of these, alive as long as the module.
_give_back_c, _destroy_c = _Deleter(_give_back), _Destructor(_destroy)


def lend(lent: Lent) -> object:
    """A capsule for ``__dlpack__`` to return. ``lent.owner`` lives until the borrower gives it back."""
    shape = (c_int64 * len(lent.shape))(*lent.shape)
    managed = _ManagedTensor()
    managed.tensor.data = lent.pointer
    managed.tensor.device = _Device(*lent.device)
    managed.tensor.ndim = len(lent.shape)
    managed.tensor.dtype = _DataType(_KINDS[lent.dtype.kind], lent.dtype.itemsize * 8, 1)
    managed.tensor.shape = ctypes.cast(shape, POINTER(c_int64))
    managed.deleter = _give_back_c
    address = ctypes.addressof(managed)
    _borrowed[address] = (managed, shape, lent.owner)
    capsule: object = _new_capsule(address, _NAME, _destroy_c)
    return capsule
