"""Chains of float32 operators between integers and a sign: how they are found and evaluated.

The integers are accumulators of binary layers, 8-bit pixels, or bits. Each channel is a function of one integer, so it
can be evaluated at every value that the integer can have, with the chain's own operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnnrt import reference
from bnnrt.converters.draft import Array
from bnnrt.graph import Graph, Node
from bnnrt.ops import (
    Arithmetic,
    BinaryConv,
    BinaryDense,
    Clip,
    Concat,
    Domain,
    MaxPool,
    Op,
    PRelu,
    Relu,
    Sign,
    SignOfZero,
    ToFloat,
)

__all__ = ["Chain", "Evaluated", "Operation", "find_chain", "signs"]

# float32 values evaluated at a time: 16 MB.
CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation, alone or with a constant: float32 [C] or [1]."""

    op: Op
    constant: Array | None = None
    constant_first: bool = False

    def of(self, x: Array, channels: slice) -> Array:
        """Apply to x float32 [channels, values]."""
        if self.constant is None:
            return reference.pointwise(self.op, x)
        operand = self.constant[channels, None] if self.constant.size > 1 else self.constant
        return reference.pointwise(self.op, *((operand, x) if self.constant_first else (x, operand)))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Some channels of a chain at every value: ``before`` and ``after`` float32 [channels, values].

    ``before`` is what enters the pool of the chain, or what enters the sign if it has none; ``after`` enters the sign.
    """

    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class Chain:
    """What stands between integers and a sign."""

    source: str
    """The integers: a bit, int32 or uint8 tensor."""
    values: Array
    """Every value they can have, int32, ascending."""
    channels: int
    """Of the chain: those of the source, or several times as many where a Concat repeats 8-bit pixels."""
    before: tuple[Operation, ...]
    pool: Node | None
    after: tuple[Operation, ...]

    def evaluate(self) -> list[Evaluated]:
        """The chain at every value, some channels at a time."""
        step = max(1, CHUNK // len(self.values))
        return [self._evaluate(slice(i, min(i + step, self.channels))) for i in range(0, self.channels, step)]

    def _evaluate(self, channels: slice) -> Evaluated:
        count = channels.stop - channels.start
        x: Array = np.broadcast_to(self.values.astype(np.float32), (count, len(self.values)))
        with np.errstate(all="ignore"):
            for step in self.before:
                x = step.of(x, channels)
            before = x
            for step in self.after:
                x = step.of(x, channels)
        return Evaluated(before, x)


def find_chain(graph: Graph, producers: dict[str, Node], sign: Node) -> Chain | None:
    """The chain that ends in ``sign``; None if it does not start at integers or holds another operator."""
    steps: list[Operation] = []
    after: list[Operation] | None = None
    pool: Node | None = None
    copies = 1
    tensor = sign.inputs[0]
    while True:
        node = producers.get(tensor)
        if node is None:
            return None
        if isinstance(node.op, ToFloat):
            break
        if isinstance(node.op, Concat):
            # The same pixels several times, each with a threshold of its own.
            copies, first = len(node.inputs), producers.get(node.inputs[0])
            if len(set(node.inputs)) > 1 or first is None or not isinstance(first.op, ToFloat):
                return None
            node = first
            break
        if isinstance(node.op, (Arithmetic, Clip, PRelu, Relu)):
            found = _step(graph, node)
            if found is None:
                return None
            step, tensor = found
            steps.insert(0, step)
        elif isinstance(node.op, MaxPool) and pool is None:
            pool, after, steps, tensor = node, steps, [], node.inputs[0]
        else:
            return None
    source = node.inputs[0]
    if copies > 1 and graph.types[source].domain is not Domain.UINT8:
        return None
    values = _possible_values(graph, producers, source)
    if values is None:
        return None
    channels = copies * graph.types[source].channels
    before, rest = (steps, after) if after is not None else ((), steps)
    return Chain(source, values, channels, tuple(before), pool, tuple(rest))


def _step(graph: Graph, node: Node) -> tuple[Operation, str] | None:
    if len(node.inputs) == 1:
        return Operation(node.op), node.inputs[0]
    for index in (0, 1):
        constant = graph.constants.get(node.inputs[index])
        if constant is not None:
            return Operation(node.op, constant.data, index == 0), node.inputs[1 - index]
    return None


def _possible_values(graph: Graph, producers: dict[str, Node], tensor: str) -> Array | None:
    """Every value of a tensor: of bits, -1 and 1; of uint8, 0 to 255; of a binary layer over K terms, -K to K."""
    if graph.types[tensor].domain is Domain.BIT:
        return np.array([-1, 1], dtype=np.int32)
    if graph.types[tensor].domain is Domain.UINT8:
        return np.arange(256, dtype=np.int32)
    node = producers.get(tensor)
    if node is None or not isinstance(node.op, (BinaryConv, BinaryDense)):
        return None
    weights = graph.types[node.inputs[1]].with_batch(1)
    terms, per_tap = int(np.prod(weights[1:])), weights[-1]
    # The sum of K terms +-1 is odd where K is. Taps left out at the border change K by an odd number if each has an odd
    # number of channels.
    dropped = isinstance(node.op, BinaryConv) and node.op.pad_value == 0 and any(node.op.window.pads)
    spacing = 1 if dropped and per_tap % 2 else 2
    return np.arange(-terms, terms + 1, spacing, dtype=np.int32)


def signs(x: Array, op: Sign) -> Array:
    """What ``op`` makes of float32 values: bool. NaN is false."""
    result: Array = x >= 0 if op.zero is SignOfZero.GE else x > 0
    return result
