"""One run of ``bnnrt bench``: every network on every device at every batch size, and the peers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bnnrt.backends import open_backend
from bnnrt.backends.base import Backend
from bnnrt.bench import onnxruntime_peer, torch_peer
from bnnrt.bench.document import Device, Document, Limits, Peer, Result
from bnnrt.bench.environment import describe, environment
from bnnrt.bench.limits import measure_limits
from bnnrt.bench.measure import Subject, expected, measure, random_feeds
from bnnrt.errors import BnnrtError, InputError
from bnnrt.graph import Graph

__all__ = ["PEERS", "PeerModel", "Request", "run"]

PEERS = ("onnxruntime", "torch")


@dataclass(frozen=True)
class PeerModel:
    """What peers run: the network by the name of its file, from its own inputs; ``onnx`` where it is an ONNX file."""

    name: str
    graph: Graph
    onnx: Path | None


@dataclass(frozen=True)
class Request:
    """What to measure. ``backends`` are named as for a session; every subject runs on each, at each batch size."""

    subjects: Sequence[Subject]
    backends: Sequence[str]
    batches: Sequence[int]
    runs: int
    peers: Sequence[str] = ()
    peer_models: Sequence[PeerModel] = ()


@dataclass
class _Found:
    limits: dict[str, Limits] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(request: Request, progress: Callable[[str], None] = lambda _: None) -> tuple[Document, list[BnnrtError]]:
    """Measure it all; ``progress`` is told of each step.

    Returns:
        The document, and what could not be measured, which the document's notes have too: the rest goes on.

    Raises BackendError where a backend cannot be opened, before anything is measured, and InputError where a peer is
    unknown.
    """
    for peer in request.peers:
        if peer not in PEERS:
            raise InputError(f"unknown peer {peer}", "--peer", f"use {' or '.join(PEERS)}")
    found, errors = _Found(), []
    with ExitStack() as stack:
        opened: list[tuple[str, Backend]] = []
        for asked in request.backends:
            opened.append((asked, open_backend(asked)))
            stack.callback(opened[-1][1].close)
        for asked, backend in opened:
            errors += _on_device(request, asked, backend, found, progress)
    errors += _beside(request, found, progress)
    document = Document(
        environment=environment(found.devices.items()),
        limits=found.limits,
        results=tuple(found.results),
        peers=tuple(found.peers),
        notes=(*found.notes, *map(str, errors)),
    )
    return document, errors


def _on_device(
    request: Request, asked: str, backend: Backend, found: _Found, progress: Callable[[str], None]
) -> list[BnnrtError]:
    errors: list[BnnrtError] = []
    device = backend.info.backend
    if device not in found.limits:
        progress(f"limits of {device}")
        found.limits[device], notes = measure_limits(backend)
        found.notes += notes
        found.devices[device] = describe(backend.info)
    for batch in request.batches:
        for subject in request.subjects:
            progress(f"{subject.bundle} ({subject.variants}) on {device}, batch {batch}")
            try:
                found.results.append(measure(backend, subject, asked, batch, request.runs, found.limits[device]))
            except BnnrtError as e:
                errors.append(e)
    return errors


def _beside(request: Request, found: _Found, progress: Callable[[str], None]) -> Iterator[BnnrtError]:
    for model in request.peer_models if request.peers else ():
        for batch in request.batches:
            feeds = random_feeds(model.graph, batch, np.random.default_rng(0))
            judged = expected(model.graph, feeds)
            for peer in request.peers:
                progress(f"{model.name} in {peer}, batch {batch}")
                try:
                    if peer == "torch":
                        records, notes = torch_peer.measure(model.graph, feeds, judged, model.name, runs=request.runs)
                    elif model.onnx is None:
                        records, notes = [], [f"onnxruntime: {model.name} is no ONNX file; --baseline names one"]
                    else:
                        records, notes = onnxruntime_peer.measure(model.onnx, feeds, judged, runs=request.runs)
                except BnnrtError as e:
                    yield e
                    continue
                found.peers += records
                found.notes += [note for note in notes if note not in found.notes]
