"""Tensors of two numbers: float32 that a bit decides, such as 0 and 1, or -1 and +1 behind layout operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnnrt import reference
from bnnrt.converters.draft import Array, Draft
from bnnrt.graph import Node
from bnnrt.ops import (
    Arithmetic,
    Clip,
    Concat,
    Domain,
    Gather,
    MaxPool,
    Op,
    Pad,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    ToFloat,
    Transpose,
)

__all__ = ["Levels", "levels_behind", "operand_orders", "two_numbers"]

# Operators whose output holds no other numbers than their inputs.
MOVING: tuple[type[Op], ...] = (Concat, Gather, MaxPool, Reshape, Transpose)
PLUS_MINUS = np.array([-1, 1], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Levels:
    """``low`` where a bit is 0 and ``high`` where it is 1; either may be the greater.

    ``steps``: the operators that make them of the bits as +-1, all elements alike, first to last.
    """

    bits: str
    steps: tuple[Node, ...]
    low: np.float32
    high: np.float32

    def emit(self, draft: Draft, name: str, bits: str, output: str) -> None:
        """Emit the same numbers of other ``bits``, as ``output``."""
        if not self.steps:
            draft.emit(f"{name}/float", ToFloat(), bits, output=output)
            return
        tensor = draft.emit(f"{name}/float", ToFloat(), bits)
        for step in self.steps:
            ((index, _),) = operand_orders(draft, step)
            inputs = [tensor if i == index else name for i, name in enumerate(step.inputs)]
            tensor = draft.emit(step.name, step.op, *inputs, output=output if step is self.steps[-1] else None)


def operand_orders(draft: Draft, node: Node) -> list[tuple[int, str | None]]:
    """Of an operator that treats elements alike: which input is computed, and the constant beside it, if any."""
    if isinstance(node.op, (Relu, Clip, Sigmoid)):
        return [(0, None)]
    if isinstance(node.op, (Arithmetic, PRelu)):
        return [(i, node.inputs[1 - i]) for i in (0, 1) if draft.value(node.inputs[1 - i]) is not None]
    return []


def levels_behind(draft: Draft, tensor: str) -> Levels | None:
    """The bits behind ``tensor``, and what stands for them; None if it is not made so, all alike."""
    steps: list[Node] = []
    while draft.bits_behind(tensor) is None:
        node = draft.producer(tensor)
        orders = [] if node is None else operand_orders(draft, node)
        if node is None or len(orders) != 1 or not all(draft.types[n].shape == (1,) for n in orders[0][1:] if n):
            return None
        steps.insert(0, node)
        tensor = node.inputs[orders[0][0]]
    values = PLUS_MINUS
    for step in steps:
        ((index, operand),) = operand_orders(draft, step)
        values = _applied(step.op, index, values, None if operand is None else draft.value(operand))
    bits = draft.bits_behind(tensor)
    assert bits is not None
    return Levels(bits, tuple(steps), values[0], values[1])


def _applied(op: Op, index: int, values: Array, constant: Array | None) -> Array:
    if constant is None:
        return reference.pointwise(op, values)
    return reference.pointwise(op, *((values, constant) if index == 0 else (constant, values)))


def two_numbers(draft: Draft, tensor: str) -> tuple[np.float32, np.float32] | None:
    """The lesser and the greater of the only two numbers that ``tensor`` holds; None if that is not known."""
    found = _numbers(draft, tensor, {})
    if found is None or len(found) != 2 or not np.isfinite(found).all():
        return None
    return found[0], found[1]


def _numbers(draft: Draft, tensor: str, known: dict[str, Array | None]) -> Array | None:
    """One or two numbers, ascending, that are all that ``tensor`` holds."""
    if tensor not in known:
        known[tensor] = None
        found = _numbers_of(draft, tensor, known)
        if found is not None:
            found = np.unique(found)
            known[tensor] = found if len(found) <= 2 else None
    return known[tensor]


def _numbers_of(draft: Draft, tensor: str, known: dict[str, Array | None]) -> Array | None:
    node = draft.producer(tensor)
    if node is None:
        return None
    if isinstance(node.op, ToFloat):
        return PLUS_MINUS if draft.types[node.inputs[0]].domain is Domain.BIT else None
    if isinstance(node.op, (*MOVING, Pad)):
        moved = [name for name in node.inputs if draft.types[name].domain is Domain.FLOAT32]
        parts = [_numbers(draft, name, known) for name in moved]
        if isinstance(node.op, Pad):
            parts.append(np.array([node.op.value], dtype=np.float32))
        return None if any(part is None for part in parts) else np.concatenate([p for p in parts if p is not None])
    for index, operand in operand_orders(draft, node):
        inner = _numbers(draft, node.inputs[index], known)
        constant = None if operand is None else draft.value(operand)
        if inner is None:
            continue
        if constant is None:
            return _applied(node.op, index, inner, None)
        return _applied(node.op, index, inner[:, None], np.unique(constant)[None, :]).reshape(-1)
    return None
