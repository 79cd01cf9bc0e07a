"""``verify``: a bundle on every backend, beside ONNX Runtime on the model that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from bnnrt import reference
from bnnrt.backends import devices, open_backend, select
from bnnrt.backends.base import Backend
from bnnrt.bundle import Bundle
from bnnrt.converters.cleanup.clean import clean
from bnnrt.converters.convert import CHANGES_WEIGHTS, Options, pixel_binding
from bnnrt.converters.draft import Array
from bnnrt.converters.load import Source, load
from bnnrt.converters.onnx_model.proto import inputs
from bnnrt.converters.pixels import INPUT, PixelInput
from bnnrt.converters.signs.recognise import recognise
from bnnrt.converters.sizes import fix_sizes
from bnnrt.converters.verify.backends import DeviceGraph
from bnnrt.converters.verify.folded import distances
from bnnrt.converters.verify.inputs import Batch, Case, batches, extreme_cases, random_cases, tie_cases
from bnnrt.converters.verify.onnxruntime import OnnxRuntime, inlined, version, visible_values
from bnnrt.converters.verify.result import BackendResult, OnnxResult, SourceResult, Verification
from bnnrt.converters.verify.sections import Sections, open_sign_values
from bnnrt.converters.verify.trace import Trace, bound_input, carried, differing_constants, trace
from bnnrt.errors import BackendError, InputError
from bnnrt.graph import Graph

__all__ = ["Wanted", "verify"]

BATCH = 8
LARGEST_BATCH = 1 << 27
"""Numbers in all tensors of a batch, of which each needs up to some thirty bytes."""

Feeds = Mapping[str, Array]
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


@dataclass(frozen=True)
class Wanted:
    """What to run.

    Args:
        backends: names of backends; None for every device present.
        runs: how many random images.
        given: more images, each an array for every input of the model, or for ``pixels``.
        options: what the bundle was converted with, as far as it concerns pixels and sizes.
    """

    backends: Sequence[str] | None = None
    runs: int = 16
    seed: int = 0
    given: Sequence[Case] = ()
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, eq=False)
class _Kind:
    """One of a bundle's graphs: ``model`` or ``pixels``."""

    name: str
    first: int
    graph: Graph
    sections: Sections | None
    batches: list[Batch]


def verify(
    bundle: Bundle,
    bundle_path: str,
    model_path: str | Path,
    wanted: Wanted,
    progress: Progress = lambda items, _: items,
) -> Verification:
    """Compare ``bundle`` on backends with the reference, and the reference with ONNX Runtime.

    Raises InputError where the bundle cannot be of this model, or has been calibrated since, or ONNX Runtime does not
    run the model, ConversionError where the converter does not take it, BackendError where a backend that was asked for
    is missing.
    """
    if bundle.provenance.calibration is not None:
        raise InputError(
            "the bundle has been calibrated: its thresholds are no longer the model's",
            bundle_path,
            "verify the bundle that was calibrated",
        )
    if CHANGES_WEIGHTS in bundle.provenance.converter.split():
        raise InputError(
            f"the bundle was converted with {CHANGES_WEIGHTS}, so it computes another function than the model",
            bundle_path,
            "compare their accuracy instead",
        )
    source = load(model_path)
    fix_sizes(source.proto, wanted.options.batch, wanted.options.shapes)
    proto = inlined(source.proto)
    _check_ports(bundle, proto, source.path.name)
    runtime = OnnxRuntime(proto, (), ())  # before the converter, so that its refusal is the one that is heard
    model = clean(source.proto)
    recognise(model)
    binding = pixel_binding(model, wanted.options, source.path.name)
    traces = {"model": trace(model)}
    if bundle.pixels is not None and binding is not None:
        traces[INPUT] = trace(model, binding)
    visible = visible_values(proto)
    known = {name: carried(found.imported, visible) for name, found in traces.items()}
    names = {c.name for found in known.values() for c in found.values()}
    opens = {name for key, found in traces.items() for name in open_sign_values(found, known[key])}
    runtime = OnnxRuntime(proto, sorted(names), sorted(opens))
    result = Verification(
        bundle_path, str(model_path), wanted.seed, _source(bundle, source, traces), OnnxResult(version())
    )
    fixed, free = _fixed_batch(proto), _free_batch(bundle.model)
    kinds = []
    for name, graph, first in _graphs(bundle):
        cases = _cases(graph, name, wanted)
        result.inputs.update(case.kind for case in cases)
        sections = None
        if name in traces:
            found = traces[name]
            matched = differing_constants(graph, found.graph) is not None
            feeds_of = _feeds_of(model, name, binding)
            if matched or name == "model":
                apart = distances(proto, model, found.imported)
                sections = Sections(
                    name, first, graph, found, known[name], matched, runtime, feeds_of, apart, result.onnxruntime
                )
        kinds.append(_Kind(name, first, graph, sections, list(batches(cases, fixed or _even(len(cases), free)))))
    _run(kinds, wanted.backends, result, progress)
    return result


def _check_ports(bundle: Bundle, proto: onnx.ModelProto, name: str) -> None:
    for kind, ports, values in (
        ("inputs", bundle.inputs, inputs(proto)),
        ("outputs", bundle.outputs, proto.graph.output),
    ):
        given = [value.name for value in values]
        if [port.name for port in ports] != given:
            has = ", ".join(port.name for port in ports)
            raise InputError(
                f"the bundle's {kind} are {has}, the model's {', '.join(given)}",
                name,
                "give the model that it comes from",
            )
        for port, value in zip(ports, values, strict=True):
            dims = value.type.tensor_type.shape.dim
            sizes = [d.dim_value if d.HasField("dim_value") else None for d in dims]
            fits = len(sizes) == len(port.shape) and all(
                a == b for a, b in zip(port.shape[1:], sizes[1:], strict=True) if isinstance(a, int) and b is not None
            )
            if dims and not fits:
                shapes = f"{list(port.shape)} in the bundle and {sizes} in the model"
                raise InputError(f"{port.name} has the shape {shapes}", name, "give the model that it comes from")


def _graphs(bundle: Bundle) -> list[tuple[str, Graph, int]]:
    graphs = [("model", bundle.model, 0)]
    if bundle.pixels is not None:
        graphs.append((INPUT, bundle.pixels, len(bundle.model.nodes) + 1))
    return graphs


def _source(bundle: Bundle, source: Source, traces: Mapping[str, Trace]) -> SourceResult:
    notes = []
    same_file = bundle.provenance.source_sha256 == source.sha256
    if not same_file:
        notes.append(f"the bundle was converted from another file ({bundle.provenance.source}, by its SHA-256)")
    same_graph = True
    for name, graph, _ in _graphs(bundle):
        differing = differing_constants(graph, traces[name].graph) if name in traces else None
        if differing == []:
            continue
        same_graph = False
        if differing:
            more = "" if len(differing) == 1 else f" and {len(differing) - 1} more"
            again = " (give verify the options that convert was given)" if name == INPUT else ""
            notes.append(
                f"{name}: the constant {differing[0]}{more} is not what this converter makes of the model{again}"
            )
        elif name == "model":
            notes.append(
                f"model: this converter makes another graph of the model than {bundle.provenance.converter} did: "
                "only outputs are compared with ONNX Runtime"
            )
        else:
            notes.append(
                f"{name}: this converter makes another graph of the model with these options: "
                "compared between backends, not with ONNX Runtime"
            )
    return SourceResult(same_file, same_graph, tuple(notes))


def _fixed_batch(proto: onnx.ModelProto) -> int | None:
    """The batch that ONNX Runtime takes; a bundle takes any."""
    dims = [value.type.tensor_type.shape.dim for value in inputs(proto)]
    return next((d[0].dim_value for d in dims if d and d[0].HasField("dim_value")), None)


def _free_batch(graph: Graph) -> int:
    """How many images at a time, so that a large network fits memory too."""
    numbers = sum(prod(known.with_batch(1)) for known in graph.types.values())
    return max(1, min(BATCH, LARGEST_BATCH // max(1, numbers)))


def _even(cases: int, largest: int) -> int:
    """The smallest batch that takes no more batches than ``largest`` does."""
    return -(-cases // -(-cases // largest))


def _cases(graph: Graph, name: str, wanted: Wanted) -> list[Case]:
    given = [
        case for case in wanted.given if (INPUT in case.feeds and name == INPUT) or set(case.feeds) == set(graph.inputs)
    ]
    return [
        *random_cases(graph.inputs, wanted.runs, wanted.seed),
        *extreme_cases(graph.inputs),
        *tie_cases(graph, wanted.seed),
        *given,
    ]


def _feeds_of(model: ir.Model, name: str, binding: PixelInput | None) -> Callable[[Feeds], Feeds]:
    """What the ONNX model is fed where a graph of the bundle is fed something."""
    if name != INPUT or binding is None:
        return lambda feeds: feeds
    graph, port = bound_input(model, binding)
    dtype = np.uint8 if model.graph.inputs[0].dtype == ir.DataType.UINT8 else np.float32

    def feeds_of(feeds: Feeds) -> Feeds:
        (found,) = reference.run(graph, feeds).values()
        return {port: found.astype(dtype)}

    return feeds_of


def _run(kinds: list[_Kind], names: Sequence[str] | None, result: Verification, progress: Progress) -> None:
    """All batches, on the reference, every device and ONNX Runtime."""
    infos = devices() if names is None else list({info.backend: info for info in map(select, names)}.values())
    opened: list[Backend] = []
    graphs: list[tuple[BackendResult, dict[str, DeviceGraph]]] = []
    try:
        for info in infos:
            row = BackendResult(info.backend, info.name)
            result.backends.append(row)
            made: dict[str, DeviceGraph] = {}
            graphs.append((row, made))
            try:
                opened.append(open_backend(info.backend))
                for kind in kinds:
                    size = len(next(iter(kind.batches[0].feeds.values())))
                    made[kind.name] = DeviceGraph(opened[-1], kind.graph, kind.name, kind.first, size)
                    row.tensors += made[kind.name].tensors
            except BackendError as e:
                if names is not None:
                    raise
                row.refused = str(e)
        todo = [(kind, batch) for kind in kinds for batch in kind.batches]
        for kind, batch in progress(todo, len(todo)):
            wanted = reference.run(kind.graph, batch.feeds, everything=True)
            for row, made in graphs:
                if kind.name in made:
                    made[kind.name].compare(batch, wanted, row)
            if kind.sections is not None:
                kind.sections.compare(batch, wanted)
    finally:
        for _, made in graphs:
            for graph in made.values():
                graph.close()
        for backend in opened:
            backend.close()
