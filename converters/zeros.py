"""ONNX Sign gives 0 at 0, which one bit cannot hold: where can a 0 arrive?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bnnrt.converters.binarize import REPACKED
from bnnrt.converters.chains import find_chain
from bnnrt.graph import Graph, Node
from bnnrt.ops import BinaryConv, BinaryDense, Sign

__all__ = ["reachable_zeros", "ternary_layers"]


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


def ternary_layers(graph: Graph, signs: Collection[str]) -> frozenset[str]:
    """Names of the binary layers whose bits come from one of ``signs``, which a 0 can reach.

    In the model, the inputs of such a layer can be -1, 0 and +1.
    """
    producers = graph.producers()
    return frozenset(
        node.name
        for node in graph.nodes
        if isinstance(node.op, (BinaryConv, BinaryDense))
        and any(sign in signs for sign in _signs_behind(graph, producers, node.inputs[0]))
    )


def _signs_behind(graph: Graph, producers: Mapping[str, Node], tensor: str) -> Iterator[str]:
    """Names of the signs from which the bits ``tensor`` come, moved as bits or, in between, in float32."""
    node = producers.get(tensor)
    if node is None:
        return
    if isinstance(node.op, Sign) and not node.name.endswith(REPACKED):
        yield node.name
        return
    for source in node.inputs:
        if source not in graph.constants:
            yield from _signs_behind(graph, producers, source)
