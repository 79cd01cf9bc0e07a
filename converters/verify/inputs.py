"""What a verification feeds: random numbers, extremes, and numbers at which the first sign changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bnnrt import reference
from bnnrt.converters.draft import Array
from bnnrt.converters.signs.float_order import number_at, position_of
from bnnrt.graph import Graph, Node
from bnnrt.ops import Arithmetic, Domain, Reshape, Sign, TensorType, Threshold, Transpose

__all__ = ["Batch", "Case", "batches", "extreme_cases", "random_cases", "tie_cases"]

Feeds = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Case:
    """One image: an array for each input, without the batch. ``kind`` is random, extreme, tie, given or image."""

    kind: str
    name: str
    feeds: Feeds


@dataclass(frozen=True, eq=False)
class Batch:
    """Cases side by side. Behind them, copies of the last one fill the batch where the model fixes its size."""

    cases: tuple[Case, ...]
    feeds: Feeds


def batches(cases: Sequence[Case], size: int) -> Iterator[Batch]:
    """``size`` cases at a time, the last batch filled up."""
    for start in range(0, len(cases), size):
        some = tuple(cases[start : start + size])
        filled = [*some, *[some[-1]] * (size - len(some))]
        yield Batch(some, {name: np.stack([case.feeds[name] for case in filled]) for name in some[0].feeds})


def _case(kind: str, name: str, types: Mapping[str, TensorType], make: Callable[[tuple[int, ...]], Array]) -> Case:
    feeds = {}
    for port, known in types.items():
        dtype = np.uint8 if known.domain is Domain.UINT8 else np.float32
        feeds[port] = np.ascontiguousarray(make(known.with_batch(1)[1:]).astype(dtype))
    return Case(kind, name, feeds)


def random_cases(types: Mapping[str, TensorType], count: int, seed: int) -> list[Case]:
    """Pixels, +-1, small integers and normally distributed numbers in turn; of 8-bit inputs, pixels."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, Callable[[tuple[int, ...]], Array]] = {
        "pixels": lambda shape: rng.integers(0, 256, shape),
        "+-1": lambda shape: rng.integers(0, 2, shape) * 2 - 1,
        "integers": lambda shape: rng.integers(-8, 9, shape),
        "normal": lambda shape: rng.standard_normal(shape),
    }
    if all(known.domain is Domain.UINT8 for known in types.values()):
        kinds = {"pixels": kinds["pixels"]}
    chosen = [list(kinds)[i % len(kinds)] for i in range(count)]
    return [_case("random", f"random {i} ({kind})", types, kinds[kind]) for i, kind in enumerate(chosen)]


def extreme_cases(types: Mapping[str, TensorType]) -> list[Case]:
    """One number all over."""
    numbers = [0.0, 255.0]
    if any(known.domain is not Domain.UINT8 for known in types.values()):
        numbers = [1.0, -1.0, 0.0, -0.0, 255.0]

    def filled(number: float) -> Callable[[tuple[int, ...]], Array]:
        return lambda shape: np.full(shape, number)

    return [_case("extreme", f"all {number:g}", types, filled(number)) for number in numbers]


def tie_cases(graph: Graph, seed: int) -> list[Case]:
    """Where the first sign of an input comes before any layer: the numbers at which it changes, and those just below.

    Found by bisection over all float32 numbers between -10000 and 10000 (of pixels, 0 to 255), for each element. Other
    inputs are 1.
    """
    rng = np.random.default_rng(seed)
    cases = []
    for node in graph.nodes:
        path = _elementwise(graph, node)
        if path is None:
            continue
        source, nodes = path
        known = graph.types[source]
        levels = graph.types[node.outputs[0]].channels // graph.types[node.inputs[0]].channels
        for level in range(levels):
            low, high = _switch(graph, source, nodes, known, level)
            mixed = np.where(rng.integers(0, 2, low.shape) > 0, high, low)
            which = "the threshold" if levels == 1 else f"threshold {level + 1}"
            for name, array in ((f"at {which}", high), (f"below {which}", low), (f"around {which}", mixed)):
                feeds = {
                    port: array if port == source else np.ones(other.with_batch(1)[1:], dtype=array.dtype)
                    for port, other in graph.inputs.items()
                }
                cases.append(Case("tie", f"{name} of {node.name}", feeds))
    return cases


def _elementwise(graph: Graph, last: Node) -> tuple[str, list[Node]] | None:
    """The input behind a sign, and the operators between, if each element of the sign comes from one of the input.

    An element of the input may give several of the sign: pixels with several thresholds a channel.
    """
    if not isinstance(last.op, (Sign, Threshold)):
        return None
    producers = graph.producers()
    nodes, tensor = [last], last.inputs[0]
    while tensor not in graph.inputs:
        node = producers[tensor]
        if isinstance(node.op, Arithmetic):
            varying = [name for name in node.inputs if name not in graph.constants]
            if len(varying) != 1:
                return None
            tensor = varying[0]
        elif isinstance(node.op, (Reshape, Transpose)):
            tensor = node.inputs[0]
        else:
            return None
        nodes.insert(0, node)
    return tensor, nodes


def _switch(graph: Graph, source: str, nodes: list[Node], known: TensorType, level: int) -> tuple[Array, Array]:
    """For each element of an input, neighbours between which its bit changes: the lower, and the upper.

    ``level`` says which of its bits, where it has several.
    """
    shape = known.with_batch(1)
    part = Graph({source: known}, tuple(nodes), nodes[-1].outputs, graph.constants).rebuilt(nodes)
    order = np.arange(int(np.prod(shape))).reshape(shape)
    for node in nodes:
        if isinstance(node.op, Transpose):
            order = order.transpose(node.op.perm)
        elif isinstance(node.op, Reshape):
            order = order.reshape(1, *node.op.shape)
    order = order.reshape(-1)

    channels = part.types[nodes[-1].inputs[0]].channels

    def bits(keys: Array) -> Array:
        found = reference.run(part, {source: _number(keys, known).reshape(shape)})[nodes[-1].outputs[0]]
        laid = np.empty(len(order))
        laid[order] = found[..., level * channels : (level + 1) * channels].reshape(-1)
        return laid

    limit = 255 if known.domain is Domain.UINT8 else position_of(10000)
    low = np.full(len(order), 0 if known.domain is Domain.UINT8 else -limit, dtype=np.int64)
    high = np.full(len(order), limit, dtype=np.int64)
    first = bits(low)
    while (high - low > 1).any():
        middle = (low + high) // 2
        same = bits(middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return _number(low, known).reshape(shape)[0], _number(high, known).reshape(shape)[0]


def _number(keys: Array, known: TensorType) -> Array:
    """Integers in the order of the numbers that they stand for: pixels themselves, or float32 by their bits."""
    if known.domain is Domain.UINT8:
        return keys.astype(np.uint8)
    return number_at(keys)
