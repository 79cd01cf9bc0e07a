"""Latent weights: the real numbers that training keeps behind +-1 weights, and that some exports hold in their place.

Taking their sign is the one thing a conversion does that changes a network's function, and only where the user asks for
it (``--binarize-weights``).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bnnrt.converters.draft import Draft, rewrite
from bnnrt.converters.passes.binarize import layers_on_bits, signed_weights
from bnnrt.graph import Graph, Node
from bnnrt.ops import Conv, Dense

__all__ = ["SignWeights", "latent_weights"]


def latent_weights(graph: Graph) -> frozenset[str]:
    """Names of the Conv and Dense nodes on bits whose weights are finite, and not of one size for each output."""
    on_bits = layers_on_bits(graph)
    found = []
    for node in graph.nodes:
        if node.name in on_bits:
            weights = graph.constants[node.inputs[1]].data
            if isinstance(signed_weights(weights), str) and np.isfinite(weights).all():
                found.append(node.name)
    return frozenset(found)


class SignWeights:
    """The weights of the Conv and Dense nodes of these names become their signs, +1 for 0."""

    def __init__(self, layers: Collection[str]) -> None:
        self.layers = layers

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._sign, once=True)

    def _sign(self, draft: Draft, node: Node) -> bool:
        weights = draft.value(node.inputs[1]) if node.name in self.layers and len(node.inputs) > 1 else None
        if weights is None or not isinstance(node.op, (Conv, Dense)):
            return False
        signs = draft.constant(f"{node.inputs[1]}/signs", np.where(weights >= 0, np.float32(1), np.float32(-1)))
        draft.emit(node.name, node.op, node.inputs[0], signs, output=node.outputs[0])
        return True
