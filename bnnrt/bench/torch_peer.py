"""PyTorch as a peer: the same network in float32, TF32 and float16, both layouts, eager and as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.bench.document import Figure, Peer
from bnnrt.bench.peers import deviation, first_line, host_times, mark_best
from bnnrt.bench.torch_network import TorchNetwork
from bnnrt.errors import BackendError
from bnnrt.graph import Graph

__all__ = ["measure"]

Array = npt.NDArray[Any]
_Measured = tuple[dict[str, Figure], dict[str, Array]]  # figures by field, and outputs by name

_WARMUP = 10
# Copies of a kernel in a graph, and of a graph in a row, that one sample is the mean of.
_COPIES, _REPLAYS = 200, 100
_SAMPLES = 10


@dataclass(frozen=True)
class _Precision:
    """``tolerance``: how far outputs may lie from NumPy's, as a fraction of their range."""

    name: str
    dtype: str
    tf32: bool
    tolerance: float


# A float of 24, 11 and 11 bits; some layers add up what each of them rounds.
_FP32 = _Precision("fp32", "float32", tf32=False, tolerance=1e-3)
_PRECISIONS = (
    _FP32,
    _Precision("TF32", "float32", tf32=True, tolerance=2e-2),
    _Precision("fp16", "float16", tf32=False, tolerance=2e-2),
)


def measure(
    graph: Graph,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    model: str,
    *,
    device: str | None = None,
    runs: int = 1000,
) -> tuple[list[Peer], list[str]]:
    """Measure a network in PyTorch, in all its configurations.

    Args:
        feeds: one batch, an array for each input of the graph in its stored type and layout.
        expected: the numpy backend's outputs for these feeds, by name.
        model: what the records call the network.
        device: PyTorch's name of the device; by default the first CUDA device, else ``cpu``.
        runs: samples of the times that are taken one run at a time.

    Returns:
        Records, and notes on what could not be measured. Nothing that PyTorch refuses stops the others.

    Raises BackendError where PyTorch is not installed or does not have the device.
    """
    torch = _package()
    device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    cuda = device.startswith("cuda")
    try:
        torch.empty(1, device=device)
    except Exception as e:  # RuntimeError, AssertionError: as the build has it
        raise BackendError(f"PyTorch cannot use the device: {first_line(e)}", device, "choose cpu") from None
    images = any(len(tensor_type.shape) == 4 for tensor_type in graph.types.values())
    batch = len(next(iter(feeds.values())))
    peers: list[Peer] = []
    notes: list[str] = [] if cuda else ["torch: no CUDA device, so float32 on the CPU, and host times only"]
    for precision in _PRECISIONS if cuda else (_FP32,):
        # Without images both layouts are the same.
        for layout in ("NCHW", "channels_last") if images else ("",):
            name = " ".join(filter(None, (precision.name, layout)))
            what = f"torch {name}, {model}, batch {batch}"
            try:
                with _settings(torch, precision, device), torch.inference_mode():
                    dtype = getattr(torch, precision.dtype)
                    network = TorchNetwork(torch, graph, device, dtype, channels_last=layout == "channels_last")
                    hosted = [network.feed(key, feeds[key]) for key in graph.inputs]
                    for mode, run in (("eager", _eager), ("graph", _as_graph)) if cuda else (("eager", _eager),):
                        figures, outputs = run(torch, network, hosted, runs)
                        apart = deviation(outputs, expected)
                        checked = apart <= precision.tolerance
                        if precision is not _FP32 or not checked:
                            more = "" if checked else f", more than {precision.tolerance:g}"
                            notes.append(
                                f"{what}, {mode}: outputs within {apart:.2g} of their range from NumPy's{more}"
                            )
                        if mode == "graph":
                            figures |= _kernels_sum(torch, network, hosted, what, notes)
                        peers.append(_record(figures, model, device, batch, f"{name} {mode}", checked))
            except Exception as e:  # what a driver or a library of PyTorch's makes of it
                notes.append(f"{what}: {first_line(e)}")
    return mark_best(peers), notes


def _record(
    figures: Mapping[str, Figure], model: str, device: str, batch: int, configuration: str, checked: bool
) -> Peer:
    return Peer(
        peer="torch",
        model=model,
        device=device,
        batch=batch,
        configuration=configuration,
        first_to_last_us=figures.get("first_to_last_us"),
        kernels_sum_us=figures.get("kernels_sum_us"),
        events_sum_us=None,
        event_floor_us=None,
        replay_us=figures.get("replay_us"),
        host_us=figures.get("host_us"),
        checked=checked,
    )


def _package() -> Any:
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library of its own is missing
        raise BackendError("PyTorch is not installed", "the peer torch", "run `pip install torch`") from None
    return torch


@contextmanager
def _settings(torch: Any, precision: _Precision, device: str) -> Iterator[None]:
    """TF32 on or off, and the fastest of cuDNN's algorithms; afterwards everything is as it was."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, precision.tf32, precision.tf32
    try:
        # Streams, events and graphs are those of the current device.
        with torch.cuda.device(device) if device.startswith("cuda") else nullcontext():
            yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


def _eager(torch: Any, network: TorchNetwork, hosted: Sequence[Array], runs: int) -> _Measured:
    def whole() -> list[Array]:
        outputs = network.run([network.upload(array) for array in hosted])
        return [tensor.cpu().numpy() for tensor in outputs]

    figures = {"host_us": host_times(whole, runs, _WARMUP)}
    inputs = [network.upload(array) for array in hosted]
    if inputs[0].is_cuda:
        figures["first_to_last_us"] = _event_times(torch, lambda: network.run(inputs), runs)
    return figures, network.arrays(network.run(inputs))


def _as_graph(torch: Any, network: TorchNetwork, hosted: Sequence[Array], runs: int) -> _Measured:
    # What a program does that feeds a graph: copy in, replay, copy out, over memory that stays where it is.
    staged = [torch.from_numpy(array).pin_memory() for array in hosted]
    targets = [stage.to(network.device) for stage in staged]
    inputs = [network.view(target) for target in targets]
    outputs: list[Any] = []

    def call() -> None:
        outputs[:] = network.run(inputs)

    graph = _captured(torch, call, 1)

    def whole() -> list[Array]:
        for stage, array, target in zip(staged, hosted, targets, strict=True):
            np.copyto(stage.numpy(), array)
            target.copy_(stage, non_blocking=True)
        graph.replay()
        return [tensor.cpu().numpy() for tensor in outputs]

    figures = {
        "host_us": host_times(whole, runs, _WARMUP),
        "first_to_last_us": _event_times(torch, graph.replay, runs),
        "replay_us": _means(torch, [graph.replay], _REPLAYS),
    }
    for tensor in (*targets, *outputs):
        tensor.zero_()
    whole()
    return figures, network.arrays(outputs)


def _captured(torch: Any, call: Callable[[], object], copies: int) -> Any:
    """A graph of so many calls one after the other."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    # Libraries choose algorithms and allocate at the first calls, which a capture does not allow.
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            call()
    return graph


def _event_times(torch: Any, call: Callable[[], object], runs: int) -> Figure:
    """Time between events before and after a call, one call at a time."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for index in range(_WARMUP + runs):
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        end.synchronize()
        if index >= _WARMUP:
            samples.append(1000 * start.elapsed_time(end))
    return Figure.of(samples)


def _means(torch: Any, replays: Sequence[Callable[[], object]], repeats: int, calls: int = 1) -> Figure:
    """For each sample the sum, over ``replays``, of the mean time of ``repeats`` in a row, over ``calls`` in each."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for _ in range(_SAMPLES):
        total = 0.0
        for replay in replays:
            replay()
            torch.cuda.synchronize()
            start.record()
            for _ in range(repeats):
                replay()
            end.record()
            end.synchronize()
            total += 1000 * start.elapsed_time(end) / repeats / calls
        samples.append(total)
    return Figure.of(samples)


def _kernels_sum(
    torch: Any, network: TorchNetwork, hosted: Sequence[Array], what: str, notes: list[str]
) -> dict[str, Figure]:
    """Steady-state times of all steps: a graph of 200 copies of each, over 200. Nothing, and a note, where it fails."""
    replays = []
    try:
        for step, operands, output in network.calls([network.upload(array) for array in hosted]):
            # A view launches nothing, and there is no graph of nothing.
            if any(output.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in operands):
                continue
            replays.append(_captured(torch, partial(step.function, *operands), _COPIES).replay)
        return {"kernels_sum_us": _means(torch, replays, 1, _COPIES)}
    except Exception as e:  # it needs more memory than a run does
        notes.append(f"{what}, sum of kernels: {first_line(e)}")
        return {}
