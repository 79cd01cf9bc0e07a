"""Keeps bits bits through operators that only move or select them, and moves layout operators out of their way."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Draft, rewrite
from bnnrt.graph import Graph, Node
from bnnrt.ops import (
    Arithmetic,
    BitPool,
    Clip,
    Domain,
    Gather,
    MaxPool,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    ToFloat,
    Transpose,
)

__all__ = ["KeepBits"]


class KeepBits:
    """MaxPool and Reshape of bits in float32 become the same of the bits, and sign of them the bits themselves.

    Reshape and Transpose commute with element-wise operators: Reshape goes behind them, Transpose, which bits do not
    have, before them.
    """

    def apply(self, graph: Graph) -> Graph:
        return rewrite(
            graph,
            _pool_of_bits,
            _reshape_of_bits,
            _gather_of_bits,
            _sign_of_bits,
            _sign_of_reshape,
            _pointwise_of_reshape,
            _reshape_of_reshape,
            _transpose_of_transpose,
            _transpose_of_elementwise,
        )


def _is_output(draft: Draft, node: Node) -> bool:
    return draft.original is not None and node.outputs[0] in draft.original.outputs


def _pool_of_bits(draft: Draft, node: Node) -> bool:
    """The maximum of +-1 is the OR of bits."""
    bits = draft.bits_behind(node.inputs[0]) if isinstance(node.op, MaxPool) else None
    if bits is None or not isinstance(node.op, MaxPool):
        return False
    channels = draft.types[bits].channels
    minimum = draft.constant(f"{node.name}/minimum", np.zeros(channels, dtype=np.bool_))
    pooled = draft.emit(node.name, BitPool(node.op.window), bits, minimum)
    draft.emit(f"{node.name}/float", ToFloat(), pooled, output=node.outputs[0])
    return True


def _reshape_of_bits(draft: Draft, node: Node) -> bool:
    """Accumulators are left alone: their chain to the next sign must start at the layer itself."""
    bits = draft.bits_behind(node.inputs[0]) if isinstance(node.op, Reshape) else None
    if bits is None:
        return False
    shaped = draft.emit(node.name, node.op, bits)
    draft.emit(f"{node.name}/float", ToFloat(), shaped, output=node.outputs[0])
    return True


def _gather_of_bits(draft: Draft, node: Node) -> bool:
    bits = draft.bits_behind(node.inputs[0]) if isinstance(node.op, Gather) else None
    if bits is None:
        return False
    picked = draft.emit(node.name, node.op, bits, node.inputs[1])
    draft.emit(f"{node.name}/float", ToFloat(), picked, output=node.outputs[0])
    return True


def _sign_of_bits(draft: Draft, node: Node) -> bool:
    bits = draft.bits_behind(node.inputs[0]) if isinstance(node.op, Sign) else None
    if bits is None or _is_output(draft, node):
        return False
    draft.alias(node.outputs[0], bits)
    return True


def _sign_of_reshape(draft: Draft, node: Node) -> bool:
    source = draft.producer(node.inputs[0])
    if not isinstance(node.op, Sign) or source is None or not isinstance(source.op, Reshape):
        return False
    bits = draft.emit(node.name, node.op, source.inputs[0])
    draft.emit(source.name, source.op, bits, output=node.outputs[0])
    return True


def _pointwise_of_reshape(draft: Draft, node: Node) -> bool:
    """An operator of Reshape(x), perhaps with a constant, which repeats itself with the channels of x."""
    for index, operand in _pointwise(draft, node):
        source = draft.producer(node.inputs[index])
        if source is None or not isinstance(source.op, Reshape):
            continue
        inner = source.inputs[0]
        if draft.types[inner].domain is not Domain.FLOAT32:
            continue
        constant = None if operand is None else draft.value(operand)
        if operand is not None and constant is not None and constant.size > 1:
            channels = draft.types[inner].channels
            if constant.size % channels:
                continue
            rows = constant.reshape(-1, channels)
            if not (rows.view(np.uint32) == rows[0].view(np.uint32)).all():
                continue
            operand = draft.constant(operand, np.ascontiguousarray(rows[0]))
        result = draft.emit(node.name, node.op, *_operands(index, inner, operand))
        draft.emit(source.name, source.op, result, output=node.outputs[0])
        return True
    return False


def _pointwise(draft: Draft, node: Node) -> list[tuple[int, str | None]]:
    """Of an operator that treats elements alike: which input is computed, and the constant beside it, if any."""
    if isinstance(node.op, (Relu, Clip, Sigmoid)):
        return [(0, None)]
    if isinstance(node.op, (Arithmetic, PRelu)):
        return [(i, node.inputs[1 - i]) for i in (0, 1) if draft.value(node.inputs[1 - i]) is not None]
    return []


def _operands(index: int, x: str, constant: str | None) -> tuple[str, ...]:
    """The inputs of such an operator, where ``x`` is the input ``index``."""
    if constant is None:
        return (x,)
    return (x, constant) if index == 0 else (constant, x)


def _reshape_of_reshape(draft: Draft, node: Node) -> bool:
    source = draft.producer(node.inputs[0])
    if not isinstance(node.op, Reshape) or source is None or not isinstance(source.op, Reshape):
        return False
    draft.emit(node.name, node.op, source.inputs[0], output=node.outputs[0])
    return True


def _transpose_of_transpose(draft: Draft, node: Node) -> bool:
    source = draft.producer(node.inputs[0])
    if not isinstance(node.op, Transpose) or source is None or not isinstance(source.op, Transpose):
        return False
    perm = tuple(source.op.perm[p] for p in node.op.perm)
    draft.emit(node.name, Transpose(perm), source.inputs[0], output=node.outputs[0])
    return True


def _transpose_of_elementwise(draft: Draft, node: Node) -> bool:
    """Transpose of an operator that treats elements alike, where nothing else reads that: the Transpose goes first.

    Not at the end of the network, where it would only stand between a layer and its sign.
    """
    if _is_output(draft, node):
        return False
    source = draft.producer(node.inputs[0])
    if not isinstance(node.op, Transpose) or source is None or draft.readers.get(source.outputs[0]) != 1:
        return False
    if isinstance(source.op, ToFloat):
        sign = draft.producer(source.inputs[0])
        if sign is None or not isinstance(sign.op, Sign) or draft.readers.get(source.inputs[0]) != 1:
            return False
        moved = draft.emit(node.name, node.op, sign.inputs[0])
        bits = draft.emit(sign.name, sign.op, moved)
        draft.emit(source.name, source.op, bits, output=node.outputs[0])
        return True
    for index, operand in _pointwise(draft, source):
        constant = None if operand is None else draft.value(operand)
        if constant is None or constant.size == 1:
            moved = draft.emit(node.name, node.op, source.inputs[index])
            draft.emit(source.name, source.op, *_operands(index, moved, operand), output=node.outputs[0])
            return True
    return False
