"""What can reach a sign: a 0, for which ONNX Sign gives 0, or a number too large for the model's own rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from bnnrt.converters.draft import Array
from bnnrt.converters.passes.binarize import REPACKED
from bnnrt.converters.passes.chains import find_chain
from bnnrt.converters.signs.steps import LARGEST_DETACHED
from bnnrt.graph import Graph, Node
from bnnrt.ops import BinaryConv, BinaryDense, Sign

__all__ = ["reachable_limits", "reachable_zeros", "ternary_layers"]


def reachable_zeros(graph: Graph, open_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``open_signs`` that a 0 can reach, or whose source is not known well enough to say.

    ``graph`` still holds the chains in front of its signs, with binary layers found. An accumulator's parity, a bias
    that is not an integer, or a BatchNorm often rule 0 out.
    """
    return _reachable(graph, open_signs, lambda numbers: numbers == 0)


def reachable_limits(graph: Graph, limited_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``limited_signs`` that a number of 2**23 or more in size can reach, as far as is known.

    There ``sign(x) - x + x`` may no longer be the sign of x. A binary layer adds up fewer terms than that; what scales
    them seldom makes them so large. ``graph`` as for :func:`reachable_zeros`.
    """
    return _reachable(graph, limited_signs, lambda numbers: ~(np.abs(numbers) < LARGEST_DETACHED))


def _reachable(graph: Graph, signs: Collection[str], wanted: Callable[[Array], Array]) -> list[str]:
    """The signs, of those named ``signs``, that a number can reach for which ``wanted`` is true, or any number."""
    producers = graph.producers()
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Sign) and node.name in signs:
            chain = find_chain(graph, producers, node)
            if chain is None or any(wanted(part.after).any() for part in chain.evaluate()):
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
