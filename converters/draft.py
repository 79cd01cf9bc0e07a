"""A graph under construction: what the importer writes into, and what each pass rewrites a graph with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.errors import GraphError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, Op, TensorType, ToFloat

__all__ = ["Array", "Draft", "rewrite"]

Array = npt.NDArray[Any]


class Draft:
    """Nodes in order, with the type of every tensor known as soon as it is written."""

    def __init__(
        self,
        inputs: Mapping[str, TensorType],
        constants: Mapping[str, Constant] | None = None,
        reserved: Iterable[str] = (),
        original: Graph | None = None,
    ) -> None:
        self.original = original
        """The graph that is being rewritten."""
        self.readers = Counter[str]() if original is None else _readers(original)
        """How often each of its tensors is read, inside it and as an output."""
        self.inputs = dict(inputs)
        self.constants = dict(constants or {})
        self.types = {**{name: c.type for name, c in self.constants.items()}, **self.inputs}
        self._nodes: list[Node] = []
        self._producers: dict[str, Node] = {}
        self._aliases: dict[str, str] = {}
        self._names = {*self.types, *reserved}

    def fresh(self, base: str) -> str:
        """A tensor name that nothing has: ``base`` itself where possible."""
        name, count = base, 1
        while name in self._names:
            name, count = f"{base}_{count}", count + 1
        self._names.add(name)
        return name

    def constant(self, base: str, values: Array) -> str:
        """Add a constant; an array of bool becomes bits. Returns its name."""
        constant = Constant.bits(values) if values.dtype == np.bool_ else Constant.of(values)
        name = self.fresh(base)
        self.constants[name] = constant
        self.types[name] = constant.type
        return name

    def emit(self, name: str, op: Op, *inputs: str, output: str | None = None) -> str:
        """Append a node and return its output, named ``output`` where given.

        Of the nodes that are needed in the end, the first called ``name`` keeps it; others get a number behind it.
        """
        sources = tuple(self._aliases.get(i, i) for i in inputs)
        try:
            (written,) = op.infer([self.types[i] for i in sources])
        except GraphError as e:
            raise GraphError(e.what, e.where or name, e.fix) from None
        target = self.fresh(name) if output is None else output
        node = Node(name, op, sources, (target,))
        self._names.add(target)
        self._nodes.append(node)
        self._producers[target] = node
        self.types[target] = written
        return target

    def copy(self, node: Node) -> None:
        """Append ``node`` as it is."""
        self.emit(node.name, node.op, *node.inputs, output=node.outputs[0])

    def alias(self, tensor: str, existing: str) -> None:
        """Let later readers of ``tensor`` read ``existing`` instead."""
        self._aliases[tensor] = self._aliases.get(existing, existing)

    def producer(self, tensor: str) -> Node | None:
        """The node that writes ``tensor``; None for inputs and constants."""
        return self._producers.get(self._aliases.get(tensor, tensor))

    def value(self, tensor: str) -> Array | None:
        """The elements of a constant, in their own shape; None for other tensors."""
        constant = self.constants.get(tensor)
        return None if constant is None else constant.unpacked()

    def bits_behind(self, tensor: str) -> str | None:
        """The bits of which ``tensor`` is the float32 form; None if it is not."""
        node = self.producer(tensor)
        if node is not None and isinstance(node.op, ToFloat) and self.types[node.inputs[0]].domain is Domain.BIT:
            return node.inputs[0]
        return None

    def rename(self, tensor: str, wanted: str) -> None:
        """Give a tensor that a node writes another name, in every node."""

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(wanted if n == tensor else n for n in names)

        self._nodes = [Node(n.name, n.op, renamed(n.inputs), renamed(n.outputs)) for n in self._nodes]
        self._producers = {name: n for n in self._nodes for name in n.outputs}
        self.types[wanted] = self.types.pop(tensor)

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        """The finished graph, without what nothing needs."""
        needed = Graph(self.inputs, tuple(self._nodes), outputs, self.constants).rebuilt(self._nodes)
        return needed.rebuilt(_uniquely_named(needed.nodes))


def _uniquely_named(nodes: Iterable[Node]) -> list[Node]:
    names: set[str] = set()
    result = []
    for node in nodes:
        name, count = node.name, 1
        while name in names:
            name, count = f"{node.name}_{count}", count + 1
        names.add(name)
        result.append(replace(node, name=name))
    return result


def _readers(graph: Graph) -> Counter[str]:
    return Counter([*(tensor for node in graph.nodes for tensor in node.inputs), *graph.outputs])


Rule = Callable[[Draft, Node], bool]
"""Looks at a node whose inputs are already in the draft. Either emits its replacement, whose last node writes the same
tensor (or aliases it), and returns true; or leaves the draft alone and returns false."""


def rewrite(graph: Graph, *rules: Rule, once: bool = False) -> Graph:
    """Apply the first rule that takes a node, over all nodes, until no rule takes any, or ``once``.

    A tensor keeps its name as long as it holds the same numbers, and the name of one that has gone is not used again.
    """
    changed = True
    used: set[str] = set()
    while changed:
        changed = False
        used.update(graph.types)
        draft = Draft(graph.inputs, graph.constants, reserved=used, original=graph)
        for node in graph.nodes:
            if any(rule(draft, node) for rule in rules):
                changed = True
            else:
                draft.copy(node)
        used.update(draft.types)
        graph = draft.graph(graph.outputs)
        changed = changed and not once
    return graph
