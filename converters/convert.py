"""From an ONNX file to a bundle: the steps, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx_ir as ir

from bnnrt.bundle import Bundle, PixelBinding, Port, Provenance
from bnnrt.converters.cleanup.clean import clean
from bnnrt.converters.importer import Imported, import_graph
from bnnrt.converters.load import Source, load
from bnnrt.converters.passes.binarize import Binarize
from bnnrt.converters.passes.bits import KeepBits
from bnnrt.converters.passes.latent import SignWeights, latent_weights
from bnnrt.converters.passes.padding import MergeZeroPads
from bnnrt.converters.passes.reachable import reachable_limits, reachable_zeros, ternary_layers
from bnnrt.converters.passes.thresholds import FoldThresholds
from bnnrt.converters.pixels import PixelInput, binarized_input, pixel_input, refuse_constant_planes
from bnnrt.converters.report import Report, make_report
from bnnrt.converters.signs.recognise import recognise
from bnnrt.converters.sizes import Shapes, fix_sizes
from bnnrt.errors import ConversionError
from bnnrt.graph import Graph, Pass, class_scores
from bnnrt.ops import Domain
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.preprocess.schemes import InputBinarization

__all__ = [
    "BINARIZING",
    "CHANGES_WEIGHTS",
    "FOLDING",
    "STEPS",
    "Options",
    "convert",
    "parse_labels",
    "pixel_binding",
]

PREPARING: tuple[Pass, ...] = (KeepBits(), MergeZeroPads())
BINARIZING: tuple[Pass, ...] = (*PREPARING, Binarize())
FOLDING: tuple[Pass, ...] = (FoldThresholds(), KeepBits())

CHANGES_WEIGHTS = "--binarize-weights"
"""Stands in a bundle's provenance where its function is not the file's."""

DTYPES = {Domain.FLOAT32: "float32", Domain.UINT8: "uint8", Domain.INT32: "int32", Domain.INT64: "int64"}


@dataclass(frozen=True)
class Options:
    """What a user can say about a conversion.

    ``pixel_scale`` and ``pixel_offset``: what an image's pixels, 0 to 255, are multiplied with and then added to before
    they enter the network; without them they enter as they are. ``input_binarization``: how they become the planes of
    +1 and -1 that the model takes; None where it takes numbers. ``batch`` and ``shapes``: sizes that the model leaves
    free (:func:`fix_sizes`); ``batch`` also replaces one that it fixes. ``binarize_weights``: take the signs of weights
    that are real where a layer's input is +1 and -1, which makes another function of the network.
    """

    labels: Sequence[str] | None = None
    strict: bool = False
    pixel_scale: float | None = None
    pixel_offset: float | None = None
    input_binarization: InputBinarization | None = None
    batch: int | None = None
    shapes: Shapes = field(default_factory=dict)
    binarize_weights: bool = False


STEPS = ("reading", "cleaning up", "finding binary layers", "starting from pixels")
"""What :func:`convert` reports as its progress, in this order."""


def convert(
    path: str | Path, options: Options | None = None, progress: Callable[[str], None] = lambda step: None
) -> tuple[Bundle, Report]:
    """Convert the ONNX model at ``path``.

    Args:
        progress: told what is being done.

    Raises ConversionError if the file cannot be read, if anything in it has no exact counterpart, and, with
    ``strict``, if there is anything to warn of.
    """
    options = options or Options()
    reading, cleaning, finding, starting = STEPS
    progress(reading)
    source = load(path)
    fix_sizes(source.proto, options.batch, options.shapes)
    progress(cleaning)
    model = clean(source.proto)
    recognise(model)
    pixels = pixel_binding(model, options, source.path.name)
    progress(finding)
    imported = import_graph(model)
    of_pixels = None if pixels is None else import_graph(model, pixels)
    if of_pixels is not None and options.input_binarization is not None:
        refuse_constant_planes(of_pixels.graph)
    latent = latent_layers(imported, of_pixels) if options.binarize_weights else frozenset()
    graph, report = _network(imported, latent)
    progress(starting)
    pixel_graph = None
    if of_pixels is not None:
        pixel_graph, pixel_report = _network(of_pixels, latent)
        if options.input_binarization is not None:
            report = pixel_report  # in the model's own terms its input is real numbers
    if options.strict:
        report.refuse_warnings()
    bundle = Bundle(
        model=graph,
        pixels=pixel_graph,
        inputs=tuple(_port(value, graph, options.batch) for value in model.graph.inputs),
        outputs=tuple(_port(value, graph, options.batch) for value in model.graph.outputs),
        pipeline=None if pixels is None else ImagePipeline(pixels.height, pixels.width, pixels.pixel_channels),
        labels=_labels(source, options, graph),
        provenance=Provenance(
            source.path.name,
            source.sha256,
            f"bnnrt {_version()}" + (f" {CHANGES_WEIGHTS}" if report.notes else ""),
        ),
        binding=None if pixels is None else _recorded(pixels),
    )
    return bundle, report


def latent_layers(*networks: Imported | None) -> frozenset[str]:
    """Names of the layers that read bits in one of some imports of a model, and whose weights are latent."""
    prepared = (_passed(network.graph, PREPARING) for network in networks if network is not None)
    return frozenset(name for graph in prepared for name in latent_weights(graph))


def _network(imported: Imported, latent: frozenset[str]) -> tuple[Graph, Report]:
    graph = _passed(imported.graph, (*PREPARING, SignWeights(latent), Binarize()) if latent else BINARIZING)
    zeros = reachable_zeros(graph, imported.open_signs)
    limits = reachable_limits(graph, imported.limited_signs)
    ternary = ternary_layers(graph, zeros)
    graph = _passed(graph, FOLDING)
    return graph, make_report(graph, imported.operators, zeros, limits, ternary, latent)


def _passed(graph: Graph, passes: Iterable[Pass]) -> Graph:
    for step in passes:
        graph = step.apply(graph)
    return graph


def pixel_binding(model: ir.Model, options: Options, name: str) -> PixelInput | None:
    """How pixels feed the model, which is called ``name``; None if it takes no images."""
    scaled = options.pixel_scale is not None or options.pixel_offset is not None
    if options.input_binarization is not None:
        if scaled:
            raise ConversionError("pixels that are binarized cannot be scaled", name, "leave the scaling out")
        return binarized_input(model, options.input_binarization)
    pixels = pixel_input(model, options.pixel_scale, options.pixel_offset)
    if pixels is None and scaled:
        raise ConversionError("the model takes no images, so pixels cannot be scaled", name)
    return pixels


def _recorded(pixels: PixelInput) -> PixelBinding:
    """The binding as a bundle says it: with the numbers as float32 has them."""
    scale, offset = (None if n is None else float(np.float32(n)) for n in (pixels.scale, pixels.offset))
    return PixelBinding(scale, offset, pixels.binarization is not None)


def _port(value: ir.Value, graph: Graph, batch: int | None) -> Port:
    name = value.name or ""
    known = graph.types[name]
    shape: tuple[int | str | None, ...] = known.shape
    if value.shape is not None and len(value.shape) == len(known.shape):
        # The graph knows every size but the batch; of that, the model's own number or name.
        first = value.shape[0]
        shape = (first if isinstance(first, int) else first.value, *known.shape[1:])
    if batch is not None:
        shape = (batch, *shape[1:])
    return Port(name, shape, DTYPES[known.domain])


def _labels(source: Source, options: Options, graph: Graph) -> tuple[str, ...] | None:
    labels, where = options.labels, "labels"
    if labels is None:
        text = source.metadata.get("labels")
        if text is None:
            return None
        labels, where = parse_labels(text, "metadata property labels"), "metadata property labels"
    classes = graph.types[class_scores(graph) or graph.outputs[0]].channels
    if len(labels) != classes:
        raise ConversionError(
            f"{len(labels)} labels for {classes} classes", where, "give one label for each element of the output"
        )
    return tuple(labels)


def parse_labels(text: str, where: str) -> tuple[str, ...]:
    """A JSON list of strings, or one label a line. Raises ConversionError for other JSON lists and for no labels."""
    if text.lstrip().startswith("["):
        try:
            labels = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ConversionError(f"this is no JSON list: {e}", where) from None
        if not all(isinstance(label, str) for label in labels):
            raise ConversionError("a label is not a string", where)
    else:
        labels = [line.strip() for line in text.splitlines() if line.strip()]
    if not labels:
        raise ConversionError("there are no labels", where)
    return tuple(labels)


def _version() -> str:
    try:
        return version("bnnrt")
    except PackageNotFoundError:
        return "unknown"
