"""From a graph to launches: which variant runs each node on a device, and which slot of an arena holds each tensor.

A plan is made for one device and one batch, and can be printed (``bnnrt inspect --plan``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends.base import DeviceInfo
from bnnrt.errors import BackendError, InputError
from bnnrt.graph import STORAGE, Graph, Node
from bnnrt.variants import candidates
from bnnrt.variants.base import LaunchSpec, Site, StepCode, Variant, stored_shape

__all__ = ["Placement", "Plan", "Step", "make_plan"]

# Kernels index with int32.
_MAX_ELEMENTS = (1 << 31) - 1


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies: at the start of a slot of the arena, as ``shape`` of ``dtype``."""

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Step:
    """One variant at work: its launches, why the variants before it in the table were passed over, and its notes."""

    nodes: tuple[Node, ...]
    variant: str
    launches: tuple[LaunchSpec, ...]
    passed_over: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """Steps in order, the arena's slots, and the constants as the kernels want them.

    ``arena`` has the size of each slot in bytes. Tensors share a slot if they are never needed at the same time.
    """

    graph: Graph
    device: DeviceInfo
    batch: int
    steps: tuple[Step, ...]
    arena: tuple[int, ...]
    placements: Mapping[str, Placement]
    constants: Mapping[str, npt.NDArray[Any]]

    @property
    def device_bytes(self) -> int:
        """Device memory that the plan needs: arena and constants."""
        return sum(self.arena) + sum(c.nbytes for c in self.constants.values())

    def bytes_moved(self, launch: LaunchSpec) -> int:
        """Bytes of the tensors and constants that a launch reads and writes, each counted once."""
        names = dict.fromkeys(a for a in launch.args if isinstance(a, str))
        return sum(self.placements[n].nbytes if n in self.placements else self.constants[n].nbytes for n in names)


def _chain(
    graph: Graph, readers: Mapping[str, list[Node]], known: Collection[str], first: Node, length: int
) -> tuple[Node, ...] | None:
    """``length`` nodes from ``first`` on, each the only reader of the one before, as its first operand, or None.

    Their other operands are ``known``, computed before ``first``, or constants.
    """
    chain = [first]
    while len(chain) < length:
        tensor = chain[-1].outputs[0]
        following = readers.get(tensor, [])
        if len(following) != 1 or tensor in graph.outputs:
            return None
        first_operand, *others = following[0].inputs
        if first_operand != tensor or any(name not in known and name not in graph.constants for name in others):
            return None
        chain.append(following[0])
    return tuple(chain)


def _choose(
    graph: Graph,
    readers: Mapping[str, list[Node]],
    known: Collection[str],
    node: Node,
    batch: int,
    device: DeviceInfo,
    variants: str,
) -> tuple[Variant, Site, list[tuple[str, str]]]:
    passed_over: dict[str, str] = {}
    rows = candidates(type(node.op), device.language, variants)
    # What was asked for by name, the paper's kernels among it, is not put off.
    put_off = [v for v in rows if v.staged and not device.dedicated_local_memory and variants not in (v.name, "paper")]
    order = [*(v for v in rows if v not in put_off), *put_off]
    for index, variant in enumerate(order):
        chain = _chain(graph, readers, known, node, len(variant.ops))
        if chain is None or any(type(n.op) is not op for n, op in zip(chain, variant.ops, strict=True)):
            # Where it has rows for other chains, what those say is worth more.
            passed_over.setdefault(variant.name, "the nodes after it do not match")
            continue
        site = Site(graph, chain, batch, device)
        reason = variant.supports(site)
        if reason is None:
            untried = {v.name: "its local memory is main memory" for v in order[index + 1 :] if v in put_off}
            others = {**passed_over, **untried}
            return variant, site, [item for item in others.items() if item[0] != variant.name]
        passed_over[variant.name] = reason
    reasons = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items()) or "no kernel for this operator"
    raise BackendError(
        f"{type(node.op).__name__} cannot run on {device.backend}: {reasons}", node.name, "choose another backend"
    )


@dataclass
class _Life:
    """A tensor's storage and the steps between which it must stay untouched."""

    nbytes: int
    first: int
    last: int


class _Memory:
    """Collects what the steps of a plan read and write, and lays it out."""

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._roots: dict[str, str] = {}  # a tensor that is another one's memory -> that other one
        self._lives: dict[str, _Life] = {}

    def declare(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """A tensor, before its first use. Raises InputError where kernels cannot index it."""
        if prod(shape) > _MAX_ELEMENTS:
            raise InputError(f"a tensor of {prod(shape)} elements is too large", name, "use a smaller batch")
        self._shapes[name] = (shape, dtype)

    def alias(self, name: str, source: str) -> None:
        """``name`` is the memory of ``source``."""
        self._roots[name] = self._roots.get(source, source)

    def use(self, name: str, step: int) -> None:
        """A step, counted upwards, reads or writes the tensor."""
        name = self._roots.get(name, name)
        shape, dtype = self._shapes[name]
        life = self._lives.setdefault(name, _Life(prod(shape) * dtype.itemsize, step, step))
        life.last = step

    def lay_out(self) -> tuple[dict[str, Placement], tuple[int, ...]]:
        """A slot for each tensor such that no two in a slot live at once, and the sizes of the slots.

        Largest first, so that whatever joins a slot fits it.
        """
        chosen: dict[str, int] = {}
        slots: list[list[_Life]] = []
        for name, life in sorted(self._lives.items(), key=lambda item: (-item[1].nbytes, item[1].first, item[0])):
            free = (
                index
                for index, others in enumerate(slots)
                if all(other.last < life.first or life.last < other.first for other in others)
            )
            index = next(free, len(slots))
            if index == len(slots):
                slots.append([])
            slots[index].append(life)
            chosen[name] = index
        placements = {
            name: Placement(chosen[root], shape, dtype)
            for name, (shape, dtype) in self._shapes.items()
            if (root := self._roots.get(name, name)) in chosen
        }
        return placements, tuple(others[0].nbytes for others in slots)


def _schedule(graph: Graph, device: DeviceInfo, batch: int, variants: str) -> list[tuple[Step, Site, StepCode]]:
    """A step for each node, or for each chain of nodes that a variant runs at once, in the graph's order."""
    readers = graph.consumers()
    scheduled: list[tuple[Step, Site, StepCode]] = []
    done = set(graph.inputs)
    for node in graph.nodes:
        if node.outputs[0] in done:
            continue
        variant, site, passed_over = _choose(graph, readers, done, node, batch, device, variants)
        code = variant.build(site)
        done.update(n.outputs[0] for n in site.nodes)
        step = Step(site.nodes, variant.name, code.launches, tuple(passed_over), code.notes)
        scheduled.append((step, site, code))
    return scheduled


def make_plan(graph: Graph, device: DeviceInfo, batch: int, variants: str = "default") -> Plan:
    """Schedule ``graph`` on ``device`` for ``batch`` images.

    Raises:
        BackendError: no variant can run a node on this device; the text gives each variant's reason.
        InputError: the batch is below 1 or too large to index, or ``variants`` is unknown.
    """
    if batch < 1:
        raise InputError(f"a batch of {batch} has no plan", "batch", "give at least 1")
    scheduled = _schedule(graph, device, batch, variants)
    memory = _Memory()
    constants: dict[str, npt.NDArray[Any]] = {}

    def declare(name: str) -> None:
        tensor_type = graph.types[name]
        memory.declare(name, stored_shape(tensor_type, batch), STORAGE[tensor_type.domain])

    for name in graph.inputs:
        declare(name)
        memory.use(name, -1)
    for index, (step, site, code) in enumerate(scheduled):
        declare(site.output)
        for name, (shape, dtype) in code.scratch.items():
            memory.declare(name, shape, dtype)
        constants.update(code.constants)
        if code.alias:
            memory.alias(site.output, site.node.inputs[0])
        for arg in (arg for launch in step.launches for arg in launch.args if isinstance(arg, str)):
            if arg in graph.constants:
                constants[arg] = graph.constants[arg].data
            elif arg not in constants:
                memory.use(arg, index)
    for name in graph.outputs:
        memory.use(name, len(scheduled))
    placements, arena = memory.lay_out()
    return Plan(graph, device, batch, tuple(step for step, _, _ in scheduled), arena, placements, constants)
