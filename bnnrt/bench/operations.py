"""How much arithmetic a layer is: a multiplication and an addition are two operations, of bits or of floats."""

from __future__ import annotations

from math import prod

from bnnrt.graph import Graph, Node
from bnnrt.ops import BinaryConv, BinaryDense, BinaryWeightConv, BinaryWeightDense, Conv, Dense, Domain

__all__ = ["operations"]

_BINARY = (BinaryConv, BinaryDense)
_FLOAT = (BinaryWeightConv, BinaryWeightDense, Conv, Dense)


def operations(graph: Graph, nodes: tuple[Node, ...], batch: int) -> tuple[int, int]:
    """Binary and float operations of these nodes for ``batch`` images.

    A node that is no convolution or dense layer counts as one float operation for each float32 that it writes.
    """
    binary = floats = 0
    for node in nodes:
        out = graph.types[node.outputs[0]]
        written = prod(out.with_batch(batch))
        if isinstance(node.op, _BINARY + _FLOAT):
            weights = graph.types[node.inputs[1]].with_batch(1)
            count = 2 * written * prod(weights[1:])
            if isinstance(node.op, _BINARY):
                binary += count
            else:
                floats += count
        elif out.domain is Domain.FLOAT32:
            floats += written
    return binary, floats
