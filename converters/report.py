"""What a conversion made of each layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from bnnrt.converters.draft import Array
from bnnrt.converters.passes.binarize import layers_on_bits, signed_weights
from bnnrt.errors import ConversionError
from bnnrt.graph import Graph, Node
from bnnrt.ops import (
    BinaryConv,
    BinaryDense,
    BinaryWeightConv,
    BinaryWeightDense,
    Conv,
    Dense,
    Domain,
    Pad,
    ToFloat,
)

__all__ = ["SCHEMA", "LayerRow", "Notice", "Report", "make_report"]

SCHEMA = "bnnrt-conversion-1"
"""Names the form of :meth:`Report.as_json`; docs/converter.md describes it."""

BINARY, TERNARY_RISK, BINARY_WEIGHTS, FLOAT = "binary", "ternary risk", "binary weights", "float"
BYTES_OF_FLOAT32 = 4
MOST_LEVELS = 256
"""Weights of more values than this come from no quantizer of 8 bits."""
WITHOUT_WEIGHTS = ("ReduceSum",)
"""ONNX operators that are layers with weights of 1 here, and no layers in the model."""
MOST_ZEROS = 1 / 16
"""A larger share of weights that are 0 is that of a ternary layer."""

# The kinds of warnings.
FLOAT_BETWEEN = "float between binary layers"
LATENT_WEIGHTS = "latent weights"
NOTHING_BINARY = "no binary layer"
MULTI_BIT = "multi-bit quantizer"
ZERO_WEIGHTS = "weights of 0"
SIGN_OF_ZERO = "sign of 0"
LARGE_NUMBERS = "sign of large numbers"


@dataclass(frozen=True)
class LayerRow:
    """A convolution or dense layer. Bytes are those of its weights; multiply-adds are for one image.

    ``kind`` is ``binary``; ``ternary risk``: binary behind an ONNX Sign that a 0 can reach; ``binary weights``: on real
    input; or ``float``. ``binarized``: its weights are the signs of those in the file (``--binarize-weights``).
    """

    name: str
    operator: str
    kind: str
    why: str
    parameters: int
    bytes_before: int
    bytes_after: int
    bit_operations: int
    float_operations: int
    binarized: bool = False


@dataclass(frozen=True)
class Notice:
    """Something about ``node`` that a user should know."""

    kind: str
    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}"


@dataclass(frozen=True)
class Report:
    """A row a layer, totals and warnings."""

    layers: tuple[LayerRow, ...]
    warnings: tuple[Notice, ...]

    @property
    def notes(self) -> tuple[Notice, ...]:
        """What was asked for, and yet has to be said."""
        what = "its weights are the signs of those in the file, so it computes another function (--binarize-weights)"
        return tuple(Notice("binarized weights", layer.name, what) for layer in self.layers if layer.binarized)

    def total(self, column: str) -> int:
        """Sum of a column of numbers."""
        return sum(getattr(layer, column) for layer in self.layers)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        columns = ("parameters", "bytes_before", "bytes_after", "bit_operations", "float_operations")
        return {
            "schema": SCHEMA,
            "layers": [asdict(layer) for layer in self.layers],
            "totals": {column: self.total(column) for column in columns},
            "warnings": [asdict(warning) for warning in self.warnings],
            "notes": [asdict(note) for note in self.notes],
        }

    def refuse_warnings(self) -> None:
        """Raises ConversionError for the first warning, which is what strict conversion does."""
        if self.warnings:
            first, others = self.warnings[0], len(self.warnings) - 1
            more = f" (and {others} more)" if others else ""
            raise ConversionError(f"{first.what}{more}", f"node {first.node}", "convert without --strict to accept it")


def make_report(
    graph: Graph,
    operators: Mapping[str, str],
    zeros: Collection[str],
    limits: Collection[str],
    ternary: Collection[str],
    binarized: Collection[str],
) -> Report:
    """Describe the converted ``graph``.

    Args:
        operators: the ONNX operator behind each node, by node name.
        zeros: the ONNX signs that a 0 can reach.
        limits: the signs that a number can reach which is so large that the model's own rounding loses the sign.
        ternary: layers whose bits come from one of the signs in ``zeros``.
        binarized: layers that have the signs of the file's weights.
    """
    producers = graph.producers()
    layers, warnings = [], []
    found = [
        node
        for node in graph.nodes
        if isinstance(node.op, (BinaryConv, BinaryDense, BinaryWeightConv, BinaryWeightDense, Conv, Dense))
        and operators.get(node.name) not in WITHOUT_WEIGHTS
    ]
    binary = [i for i, node in enumerate(found) if isinstance(node.op, (BinaryConv, BinaryDense))]
    on_bits = layers_on_bits(graph)
    for index, node in enumerate(found):
        operator = operators.get(node.name, type(node.op).__name__)
        kind, why = _kind(graph, producers, node, ternary, on_bits)
        layers.append(_row(graph, node, operator, kind, why, node.name in binarized))
        if kind == FLOAT:
            weights = graph.constants[node.inputs[1]].data
            between = bool(binary) and binary[0] < index < binary[-1]
            last = bool(binary) and index == len(found) - 1
            warnings += _of_float(node.name, weights, why, on_bits=node.name in on_bits, between=between, last=last)
    if len(found) > 1 and not binary and not warnings:
        text = "no layer of the network is binary: none has bits as its input and +-a as its weights"
        warnings.append(Notice(NOTHING_BINARY, found[-1].name, text))
    warnings += [
        Notice(SIGN_OF_ZERO, name, "ONNX Sign gives 0 where its input is 0; here it gives +1") for name in zeros
    ]
    lost = "ONNX Runtime's rounding loses the sign of numbers from 2**24 on in size, which is kept here"
    warnings += [Notice(LARGE_NUMBERS, name, lost) for name in limits]
    return Report(tuple(layers), tuple(warnings))


def _of_float(name: str, weights: Array, why: str, *, on_bits: bool, between: bool, last: bool) -> list[Notice]:
    """The warning that a float layer is worth, if it is: where it stands between binary ones, where its weights look
    like those that training keeps beside the binary ones, or where they come from a quantizer of several bits.

    The last layer behind binary ones is often in float, on purpose.
    """
    levels = _levels(weights)
    # Weights that are not +-a, and yet not the few values of a quantizer or of a ternary layer.
    latent = (
        on_bits
        and isinstance(signed_weights(weights), str)
        and levels is None
        and bool(np.isfinite(weights).all() and (weights != 0).all())
    )
    zeros = _zeros(weights) if on_bits else 0
    few = 0 < zeros <= MOST_ZEROS * weights.size
    some = (
        f"{zeros} of its {weights.size} weights {'is' if zeros == 1 else 'are'} 0 and the others +-a: sign(0) of a "
        "latent weight gives that; before the export, set latent weights of 0 to a small number, as w[w == 0] = 1e-8"
    )
    lost = "its input is bits but its weights are not +-a: if the export lost their sign, --binarize-weights takes it"
    if between:
        more = f"; {lost}" if latent else f"; {some}" if few else ""
        return [Notice(FLOAT_BETWEEN, name, f"stayed in float between binary layers: {why}{more}")]
    if few:
        return [Notice(ZERO_WEIGHTS, name, some)]
    if latent and not last:
        return [Notice(LATENT_WEIGHTS, name, lost)]
    if levels is not None:
        text = f"an output's weights have {levels} values, as a quantizer of several bits gives: they run in float"
        return [Notice(MULTI_BIT, name, text)]
    return []


def _zeros(weights: Array) -> int:
    """How many weights are 0, if those of each output are +-a otherwise; else 0."""
    largest = np.abs(weights).max(axis=tuple(range(1, weights.ndim)), keepdims=True)
    others_alike = not isinstance(signed_weights(np.where(weights == 0, largest, weights)), str)
    return int(((weights == 0) & (largest != 0)).sum()) if others_alike else 0


def _row(graph: Graph, node: Node, operator: str, kind: str, why: str, binarized: bool) -> LayerRow:
    weights = graph.constants[node.inputs[1]]
    parameters = prod(weights.type.with_batch(1))
    positions = prod(graph.types[node.outputs[0]].with_batch(1)[1:-1])
    operations = positions * parameters
    on_bits = kind in (BINARY, TERNARY_RISK)
    return LayerRow(
        name=node.name,
        operator=operator,
        kind=kind,
        why=f"{why}; the weights by --binarize-weights" if binarized else why,
        parameters=parameters,
        bytes_before=parameters * BYTES_OF_FLOAT32,
        bytes_after=weights.data.nbytes,
        bit_operations=operations if on_bits else 0,
        float_operations=0 if on_bits else operations,
        binarized=binarized,
    )


def _kind(
    graph: Graph, producers: Mapping[str, Node], node: Node, ternary: Collection[str], on_bits: Collection[str]
) -> tuple[str, str]:
    if isinstance(node.op, (BinaryConv, BinaryDense)):
        if node.name in ternary:
            return TERNARY_RISK, "inputs are bits, weights +-a; an ONNX Sign before it can give 0"
        return BINARY, "inputs are bits, weights +-a"
    if isinstance(node.op, (BinaryWeightConv, BinaryWeightDense)):
        return BINARY_WEIGHTS, "weights are +-a for a power of two a, inputs are real"
    weights = graph.constants[node.inputs[1]].data
    signed = signed_weights(weights)
    if isinstance(signed, str):
        levels = _levels(weights)
        zeros = _zeros(weights)
        if zeros:
            return FLOAT, f"{signed}: {zeros} of {weights.size}"
        return FLOAT, signed if levels is None else f"{signed}: {levels} values"
    if node.name in on_bits:
        return FLOAT, "half the size of its weights is no float32 number, or its terms are too many"
    if _is_padded_bits(graph, producers, node.inputs[0]):
        return FLOAT, "its input is bits, padded with another number"
    return FLOAT, "inputs are real, and the size of the weights is not a power of two"


def _is_padded_bits(graph: Graph, producers: Mapping[str, Node], tensor: str) -> bool:
    source = producers.get(tensor)
    while source is not None and isinstance(source.op, Pad):
        source = producers.get(source.inputs[0])
    return source is not None and isinstance(source.op, ToFloat) and graph.types[source.inputs[0]].domain is Domain.BIT


def _levels(weights: Array) -> int | None:
    """How many values the weights of an output have, if a quantizer of several bits made them; None if not.

    They have at most a quarter as many values as there are weights, or are all multiples of one step. Trained weights,
    of which hardly two are equal, are told by the first output.
    """
    rows = weights.reshape(len(weights), -1)
    if not np.isfinite(rows).all():
        return None
    most = 0
    for row in rows:
        values = np.unique(row)
        if len(values) > MOST_LEVELS or (4 * len(values) > len(row) and not _evenly_spaced(values)):
            return None
        most = max(most, len(values))
    return most if most > 2 else None


def _evenly_spaced(values: Array) -> bool:
    """Whether sorted numbers stand at multiples of a step, of which fewer than :data:`MOST_LEVELS` lie between them."""
    if len(values) <= 2:
        return True
    gaps = np.diff(values.astype(np.float64))
    steps = gaps / gaps.min()
    return bool(steps.sum() < MOST_LEVELS and (np.abs(steps - steps.round()) < 0.01).all())
