"""ONNX Runtime as a peer: the ONNX model itself, on the CPU with one and with all threads, and on CUDA if it can."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.bench.document import Peer
from bnnrt.bench.peers import deviation, first_line, host_times, mark_best
from bnnrt.errors import BackendError

__all__ = ["measure"]

Array = npt.NDArray[Any]

_WARMUP = 10
# Of the outputs' range: it may sum in another order, and fuse.
_TOLERANCE = 1e-3
_FATAL = 4  # its log: what matters comes as an exception
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def measure(
    path: str | os.PathLike[str],
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    runs: int = 1000,
) -> tuple[list[Peer], list[str]]:
    """Measure an ONNX model in ONNX Runtime with all its optimizations: an array in, the outputs out.

    Args:
        feeds: one batch, an array for each input of the model in its own layout.
        expected: the numpy backend's outputs for these feeds, by name, in the model's layout.

    Returns:
        Records, and notes on what could not be measured.

    Raises BackendError where ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise BackendError(
            "ONNX Runtime is not installed", "the peer onnxruntime", "run `pip install bnnrt[convert]`"
        ) from None
    model, batch = Path(path).name, len(next(iter(feeds.values())))
    peers: list[Peer] = []
    notes: list[str] = []
    for configuration, device, provider, threads in _configurations(onnxruntime.get_available_providers()):
        what = f"onnxruntime {configuration}, {model}, batch {batch}"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        try:
            session = onnxruntime.InferenceSession(os.fspath(path), options, providers=[provider])
            if provider not in session.get_providers():
                notes.append(f"{what}: its libraries do not load")
                continue
            names = [output.name for output in session.get_outputs()]
            given = {key: np.ascontiguousarray(array) for key, array in feeds.items()}
            apart = deviation(dict(zip(names, session.run(names, given), strict=True)), expected)
            figure = host_times(partial(session.run, names, given), runs, _WARMUP)
        except Exception as e:  # it has a dozen types of its own, of no common base
            notes.append(f"{what}: {first_line(e)}")
            continue
        if apart > _TOLERANCE:
            notes.append(f"{what}: outputs within {apart:.2g} of their range from NumPy's, more than {_TOLERANCE:g}")
        peers.append(
            Peer(
                peer="onnxruntime",
                model=model,
                device=device,
                batch=batch,
                configuration=configuration,
                first_to_last_us=None,
                kernels_sum_us=None,
                events_sum_us=None,
                event_floor_us=None,
                replay_us=None,
                host_us=figure,
                checked=apart <= _TOLERANCE,
            )
        )
    return mark_best(peers), notes


def _configurations(providers: list[str]) -> list[tuple[str, str, str, int]]:
    """Configuration, device, provider and threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = [("CPU, 1 thread", "cpu", _CPU, 1)]
    if cores > 1:
        found.append((f"CPU, {cores} threads", "cpu", _CPU, cores))
    if _CUDA in providers:
        found.append(("CUDA", "cuda:0", _CUDA, 1))
    return found
