"""ONNX Sign gives 0 at 0, which one bit cannot hold: where can a 0 arrive? And where a number that is too large?"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from bnnrt.converters.chains import find_chain
from bnnrt.converters.draft import Array
from bnnrt.graph import Graph
from bnnrt.ops import Sign

__all__ = ["reachable_limits", "reachable_zeros"]

LIMIT = 2.0**23


def reachable_zeros(graph: Graph, open_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``open_signs`` that a 0 can reach, or whose source is not known well enough to say.

    ``graph`` still holds the chains in front of its signs, with binary layers found. An accumulator's parity, a bias
    that is not an integer, or a BatchNorm often rule 0 out.
    """
    return _reached(graph, open_signs, lambda numbers: numbers == 0)


def reachable_limits(graph: Graph, limited_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``limited_signs`` that a number of 2**23 or more in size can reach, as far as is known.

    A binary layer adds up fewer terms than that; what scales them seldom makes them so large.
    """
    return _reached(graph, limited_signs, lambda numbers: ~(np.abs(numbers) < LIMIT))


def _reached(graph: Graph, names: Collection[str], condition: Callable[[Array], Array]) -> list[str]:
    producers = graph.producers()
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Sign) and node.name in names:
            chain = find_chain(graph, producers, node)
            if chain is None or any(condition(part.after).any() for part in chain.evaluate()):
                found.append(node.name)
    return found
