"""Folds what stands between integers and a sign into one integer threshold a channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnnrt.converters.draft import Array, Draft, rewrite
from bnnrt.converters.passes.chains import Chain, Evaluated, find_chain, signs
from bnnrt.graph import Graph, Node
from bnnrt.ops import BitPool, Domain, MaxPool, Sign, Threshold

__all__ = ["FoldThresholds", "Folded", "fold"]


@dataclass(frozen=True, eq=False)
class Folded:
    """``(x >= threshold) != falling``, per channel: int32 [C], bool [C].

    ``minimum`` bool [C]: the channels in which the pool of the chain becomes a minimum of the bits.
    """

    threshold: Array
    falling: Array
    minimum: Array


class FoldThresholds:
    """Accumulators or pixels -> float32 arithmetic, at most one MaxPool -> Sign becomes Threshold (-> BitPool).

    The chain is evaluated at every value that can occur. A chain whose sign changes more than once in some channel
    stays as it is.
    """

    def apply(self, graph: Graph) -> Graph:
        producers = graph.producers()

        def rule(draft: Draft, node: Node) -> bool:
            if not isinstance(node.op, Sign):
                return False
            chain = find_chain(graph, producers, node)
            if chain is None or graph.types[chain.source].domain is Domain.BIT:
                return False
            folded = fold(chain, node.op)
            if folded is None:
                return False
            _emit(draft, node, chain, folded)
            return True

        return rewrite(graph, rule, once=True)


def _emit(draft: Draft, node: Node, chain: Chain, folded: Folded) -> None:
    threshold = draft.constant(f"{node.name}/threshold", folded.threshold)
    falling = draft.constant(f"{node.name}/falling", folded.falling)
    if chain.pool is None or not isinstance(chain.pool.op, MaxPool):
        draft.emit(node.name, Threshold(), chain.source, threshold, falling, output=node.outputs[0])
        return
    bits = draft.emit(node.name, Threshold(), chain.source, threshold, falling)
    minimum = draft.constant(f"{chain.pool.name}/minimum", folded.minimum)
    draft.emit(chain.pool.name, BitPool(chain.pool.op.window), bits, minimum, output=node.outputs[0])


def fold(chain: Chain, op: Sign) -> Folded | None:
    """Thresholds of a chain; None if some channel changes more than once."""
    parts = []
    for evaluated in chain.evaluate():
        part = _fold_part(chain, op, evaluated)
        if part is None:
            return None
        parts.append(part)
    return Folded(
        threshold=np.concatenate([p.threshold for p in parts]),
        falling=np.concatenate([p.falling for p in parts]),
        minimum=np.concatenate([p.minimum for p in parts]),
    )


def _fold_part(chain: Chain, op: Sign, evaluated: Evaluated) -> Folded | None:
    bits = signs(evaluated.after, op)
    changes = bits[:, 1:] != bits[:, :-1]
    if (changes.sum(axis=1) > 1).any():
        return None
    minimum = np.zeros(len(bits), dtype=np.bool_)
    if chain.pool is not None:
        falls = _falls_after_pool(evaluated.before, bits)
        if falls is None:
            return None
        minimum = falls
    constant = ~changes.any(axis=1)
    # The first value behind the change; of a constant channel, the least value (always reached) for bit 1, and one more
    # than the greatest (never reached) for bit 0.
    position = np.argmax(changes, axis=1) + 1
    beyond = np.append(chain.values, chain.values[-1] + 1).astype(np.int32)
    position = np.where(constant, np.where(bits[:, 0], 0, len(chain.values)), position)
    return Folded(beyond[position], bits[:, 0] & ~constant, minimum)


def _falls_after_pool(pooled: Array, bits: Array) -> Array | None:
    """For each channel, whether the final bit falls as the pooled value rises; None if it does neither.

    Where it rises, the bit of the maximum is the maximum of the bits; where it falls, the minimum.
    """
    if np.isnan(pooled).any():
        return None
    order = np.argsort(pooled, axis=1, kind="stable")
    sorted_bits = np.take_along_axis(bits, order, axis=1)
    changes = sorted_bits[:, 1:] != sorted_bits[:, :-1]
    if (changes.sum(axis=1) > 1).any():
        return None
    falls: Array = sorted_bits[:, 0] & ~sorted_bits[:, -1]
    return falls
