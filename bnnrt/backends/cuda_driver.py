"""Two calls of the CUDA driver that PyCUDA does not have, through cuda-bindings; with a context current."""

from __future__ import annotations

from bnnrt.errors import BackendError

try:
    from cuda.bindings import driver
except ImportError:  # only arrays that are lent by __cuda_array_interface__ need it
    driver = None

__all__ = ["device_of", "wait_for_stream"]


def wait_for_stream(stream: int | None) -> None:
    """Wait for the stream that ``__cuda_array_interface__`` names: 1 and 2 are CUDA's default streams; None is none.

    Raises BackendError where the stream is none of this process's.
    """
    if stream is None:
        return
    if driver is None:
        raise BackendError("cuda-bindings is not installed", "device array", "run `pip install bnnrt[cuda]`")
    (status,) = driver.cuStreamSynchronize(driver.CUstream(stream))
    if int(status) != 0:
        raise BackendError(f"the array's stream cannot be waited for: {status}", "device array")


def device_of(pointer: int) -> int | None:
    """Number of the device that memory lies on, None for none. Raises BackendError without cuda-bindings."""
    if driver is None:
        raise BackendError("cuda-bindings is not installed", "device array", "run `pip install bnnrt[cuda]`")
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, device = driver.cuPointerGetAttribute(attribute, pointer)
    return int(device) if int(status) == 0 else None
