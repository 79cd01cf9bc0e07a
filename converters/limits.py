"""``sign(x) - x + x`` is the sign of x as long as x is not too large: where can a number arrive that is?"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bnnrt.converters.chains import find_chain
from bnnrt.graph import Graph
from bnnrt.ops import Sign

__all__ = ["reachable_limits"]

LIMIT = 2.0**23


def reachable_limits(graph: Graph, limited_signs: Collection[str]) -> list[str]:
    """Those of the signs named ``limited_signs`` that a number of 2**23 or more in size can reach, as far as is known.

    A binary layer adds up fewer terms than that; what scales them seldom makes them so large.
    """
    producers = graph.producers()
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Sign) and node.name in limited_signs:
            chain = find_chain(graph, producers, node)
            if chain is None or not all((np.abs(part.after) < LIMIT).all() for part in chain.evaluate()):
                found.append(node.name)
    return found
