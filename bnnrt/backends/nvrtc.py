"""NVRTC, NVIDIA's run-time compiler, through cuda-bindings: machine code for any architecture, GPU or not."""

from __future__ import annotations

from functools import cache
from typing import Any

from bnnrt.errors import BackendError

try:
    from cuda.bindings import nvrtc
except ImportError:  # optional: PyCUDA's nvcc is the other compiler
    nvrtc = None

__all__ = ["EXACT", "compile_cubin", "version"]

EXACT = ("--fmad=false", "--prec-div=true", "--ftz=false")
"""Options for float32 as the model means it. Contraction would round a product and a sum once, not twice."""


def _checked(result: tuple[Any, ...]) -> Any:
    """The value of a call that worked. Raises RuntimeError with NVRTC's own name of what did not."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(str(status))
    return values[0] if len(values) == 1 else tuple(values)


@cache
def version() -> tuple[int, int] | None:
    """Major and minor version of the library, or None where there is none."""
    if nvrtc is None:
        return None
    try:
        major, minor = _checked(nvrtc.nvrtcVersion())
    except RuntimeError:  # cuda-bindings is installed, the library is not
        return None
    return int(major), int(minor)


def compile_cubin(text: str, architecture: str) -> bytes:
    """Machine code of a CUDA C++ source for an architecture such as ``sm_87``.

    Raises BackendError with the compiler's message.
    """
    supported = _checked(nvrtc.nvrtcGetSupportedArchs())
    if int(architecture.removeprefix("sm_")) not in list(supported):
        raise BackendError(
            f"NVRTC {version()} does not know {architecture}",
            architecture,
            "install cuda-bindings of another CUDA version",
        )
    try:
        program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"bnnrt.cu", 0, [], []))
    except RuntimeError as e:
        raise BackendError(f"NVRTC failed: {e}", architecture) from None
    try:
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *EXACT)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(status) != 0:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            nvrtc.nvrtcGetProgramLog(program, log)
            message = log.rstrip(b"\0").decode(errors="replace") or str(status)
            raise BackendError(f"a kernel does not compile: {message}", architecture, "please report it")
        cubin = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin)
    except RuntimeError as e:
        raise BackendError(f"NVRTC failed: {e}", architecture) from None
    finally:
        nvrtc.nvrtcDestroyProgram(program)
