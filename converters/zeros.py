"""ONNX Sign gives 0 at 0, which one bit cannot hold: where can a 0 arrive?"""

from __future__ import annotations

from collections.abc import Collection

from bnnrt.converters.chains import find_chain
from bnnrt.graph import Graph
from bnnrt.ops import Sign

__all__ = ["reachable_zeros"]


def reachable_zeros(graph: Graph, open_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``open_signs`` that a 0 can reach, or whose source is not known well enough to say.

    ``graph`` still holds the chains in front of its signs, with binary layers found. An accumulator's parity, a bias
    that is not an integer, or a BatchNorm often rule 0 out.
    """
    producers = graph.producers()
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Sign) and node.name in open_signs:
            chain = find_chain(graph, producers, node)
            if chain is None or any((part.after == 0).any() for part in chain.evaluate()):
                found.append(node.name)
    return found
