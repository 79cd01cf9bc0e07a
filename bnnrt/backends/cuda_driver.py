"""What PyCUDA does not have of the CUDA driver, through cuda-bindings; with a context current."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bnnrt.errors import BackendError

try:
    from cuda.bindings import driver
except ImportError:  # graphs, and arrays that are lent by __cuda_array_interface__, need it
    driver = None

__all__ = ["AVAILABLE", "capture", "destroy_graph", "device_of", "launch_graph", "wait_for_stream"]

AVAILABLE = driver is not None
"""Whether cuda-bindings is installed."""


def _checked(result: tuple[Any, ...]) -> Any:
    """The value of a call that worked. Raises BackendError with the driver's own name of what did not."""
    status, *values = result
    if int(status) != 0:
        raise BackendError(f"the device failed: {status.name}", "CUDA graph", "see the driver's log")
    return values[0] if values else None


def capture(stream: int, enqueue: Callable[[], object]) -> object:
    """What ``enqueue`` puts on ``stream``, as a graph that :func:`launch_graph` repeats. Nothing of it runs yet."""
    handle = driver.CUstream(stream)
    # Other threads may go on with what a capture forbids, such as allocating.
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    _checked(driver.cuStreamBeginCapture(handle, mode))
    try:
        enqueue()
    finally:
        # Also ends a capture that failed; the stream stays unusable otherwise.
        graph = _checked(driver.cuStreamEndCapture(handle))
    try:
        return _checked(driver.cuGraphInstantiate(graph, 0))
    finally:
        driver.cuGraphDestroy(graph)


def launch_graph(graph: Any, stream: int) -> None:
    """Enqueue a graph that :func:`capture` made."""
    _checked(driver.cuGraphLaunch(graph, driver.CUstream(stream)))


def destroy_graph(graph: Any) -> None:
    """Free a graph that :func:`capture` made; one that is running ends first."""
    driver.cuGraphExecDestroy(graph)


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
