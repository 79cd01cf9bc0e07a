"""What a conversion made of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from bnnrt.converters.binarize import signed_weights
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
)

__all__ = ["LayerRow", "Notice", "Report", "make_report"]

BINARY, BINARY_WEIGHTS, FLOAT = "binary", "binary weights", "float"
BYTES_OF_FLOAT32 = 4


@dataclass(frozen=True)
class LayerRow:
    """A convolution or dense layer. Bytes are those of its weights; multiply-adds are for one image."""

    name: str
    operator: str
    kind: str
    why: str
    parameters: int
    bytes_before: int
    bytes_after: int
    bit_operations: int
    float_operations: int


@dataclass(frozen=True)
class Notice:
    """Something about ``node`` that a user should know."""

    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}"


@dataclass(frozen=True)
class Report:
    """A row a layer, totals and warnings."""

    layers: tuple[LayerRow, ...]
    warnings: tuple[Notice, ...]

    def total(self, column: str) -> int:
        """Sum of a column of numbers."""
        return sum(getattr(layer, column) for layer in self.layers)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        columns = ("parameters", "bytes_before", "bytes_after", "bit_operations", "float_operations")
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "totals": {column: self.total(column) for column in columns},
            "warnings": [asdict(warning) for warning in self.warnings],
        }

    def refuse_warnings(self) -> None:
        """Raises ConversionError for the first warning, which is what strict conversion does."""
        if self.warnings:
            first, others = self.warnings[0], len(self.warnings) - 1
            more = f" (and {others} more)" if others else ""
            raise ConversionError(f"{first.what}{more}", f"node {first.node}", "convert without --strict to accept it")


def make_report(graph: Graph, operators: Mapping[str, str], zeros: list[str], limits: list[str]) -> Report:
    """Describe the converted ``graph``.

    Args:
        operators: the ONNX operator behind each node, by node name.
        zeros: the ONNX signs that a 0 can reach.
        limits: the signs that a number can reach which is so large that the model's own rounding loses the sign.
    """
    producers = graph.producers()
    layers = tuple(
        _row(graph, producers, node, operators.get(node.name, type(node.op).__name__))
        for node in graph.nodes
        if isinstance(node.op, (BinaryConv, BinaryDense, BinaryWeightConv, BinaryWeightDense, Conv, Dense))
    )
    warnings = [Notice(layer.name, f"stayed in float between binary layers: {layer.why}") for layer in _between(layers)]
    warnings += [Notice(name, "ONNX Sign gives 0 where its input is 0; here it gives +1") for name in zeros]
    lost = "ONNX Runtime's rounding loses the sign of numbers from 2**24 on in size, which is kept here"
    warnings += [Notice(name, lost) for name in limits]
    return Report(layers, tuple(warnings))


def _between(layers: tuple[LayerRow, ...]) -> list[LayerRow]:
    """The float layers that have binary layers before and behind them."""
    binary = [i for i, layer in enumerate(layers) if layer.kind == BINARY]
    return [layer for i, layer in enumerate(layers) if layer.kind == FLOAT and binary and binary[0] < i < binary[-1]]


def _row(graph: Graph, producers: Mapping[str, Node], node: Node, operator: str) -> LayerRow:
    weights = graph.constants[node.inputs[1]]
    shape = weights.type.with_batch(1)
    parameters = prod(shape)
    positions = prod(graph.types[node.outputs[0]].with_batch(1)[1:-1])
    operations = positions * parameters
    kind, why = _kind(graph, producers, node)
    return LayerRow(
        name=node.name,
        operator=operator,
        kind=kind,
        why=why,
        parameters=parameters,
        bytes_before=parameters * BYTES_OF_FLOAT32,
        bytes_after=weights.data.nbytes,
        bit_operations=operations if kind == BINARY else 0,
        float_operations=0 if kind == BINARY else operations,
    )


def _kind(graph: Graph, producers: Mapping[str, Node], node: Node) -> tuple[str, str]:
    if isinstance(node.op, (BinaryConv, BinaryDense)):
        return BINARY, "inputs and weights are +-1"
    if isinstance(node.op, (BinaryWeightConv, BinaryWeightDense)):
        return BINARY_WEIGHTS, "weights are +-1, inputs are real"
    signed = signed_weights(graph.constants[node.inputs[1]].data)
    if isinstance(signed, str):
        return FLOAT, signed
    source = producers.get(node.inputs[0])
    if source is not None and isinstance(source.op, Pad):
        return FLOAT, "its input is padded in two ways"
    if source is not None and graph.types[source.inputs[0]].domain is Domain.BIT:
        return FLOAT, "its input is bits in another layout"
    return FLOAT, "inputs are real, and the size of the weights is not a power of two"
