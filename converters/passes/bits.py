"""Keeps bits bits through operators that only move or select them, and moves layout operators out of their way."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.draft import Draft, rewrite
from bnnrt.converters.passes.chains import signs
from bnnrt.converters.passes.levels import levels_behind, operand_orders
from bnnrt.graph import Graph, Node
from bnnrt.ops import Arithmetic, ArithmeticKind, BitPool, Domain, Gather, MaxPool, Reshape, Sign, ToFloat, Transpose

__all__ = ["KeepBits"]


class KeepBits:
    """MaxPool, Reshape and Gather of bits in float32 become the same of the bits, and sign of them the bits themselves.

    So it is too where the bits stand for other numbers than +-1 there, 0 and 1 for example.

    Reshape and Transpose commute with element-wise operators: Reshape goes behind them, Transpose, which bits do not
    have, before them.
    """

    def apply(self, graph: Graph) -> Graph:
        return rewrite(
            graph,
            _pool_of_bits,
            _move_of_bits,
            _sign_of_bits,
            _float_of_negated_bits,
            _sign_of_reshape,
            _pointwise_of_reshape,
            _reshape_of_reshape,
            _transpose_of_transpose,
            _transpose_of_elementwise,
        )


def _is_output(draft: Draft, node: Node) -> bool:
    return draft.original is not None and node.outputs[0] in draft.original.outputs


def _pool_of_bits(draft: Draft, node: Node) -> bool:
    """The maximum of +-1 is the OR of bits; that of numbers of which bit 1 stands for the lesser, the AND."""
    levels = levels_behind(draft, node.inputs[0]) if isinstance(node.op, MaxPool) else None
    if levels is None or not isinstance(node.op, MaxPool):
        return False
    if levels.low == levels.high or np.isnan([levels.low, levels.high]).any():
        return False
    falling = np.full(draft.types[levels.bits].channels, levels.low > levels.high)
    minimum = draft.constant(f"{node.name}/minimum", falling)
    pooled = draft.emit(node.name, BitPool(node.op.window), levels.bits, minimum)
    levels.emit(draft, node.name, pooled, node.outputs[0])
    return True


def _move_of_bits(draft: Draft, node: Node) -> bool:
    """Accumulators are left alone: their chain to the next sign must start at the layer itself."""
    levels = levels_behind(draft, node.inputs[0]) if isinstance(node.op, (Gather, Reshape)) else None
    if levels is None:
        return False
    moved = draft.emit(node.name, node.op, levels.bits, *node.inputs[1:])
    levels.emit(draft, node.name, moved, node.outputs[0])
    return True


def _sign_of_bits(draft: Draft, node: Node) -> bool:
    levels = levels_behind(draft, node.inputs[0]) if isinstance(node.op, Sign) else None
    if levels is None or not isinstance(node.op, Sign) or _is_output(draft, node):
        return False
    if signs(np.array([levels.low, levels.high]), node.op).tolist() != [False, True]:
        return False
    draft.alias(node.outputs[0], levels.bits)
    return True


def _float_of_negated_bits(draft: Draft, node: Node) -> bool:
    """The sign of numbers of which bit 1 stands for the negative one, as +-1."""
    sign = draft.producer(node.inputs[0]) if isinstance(node.op, ToFloat) else None
    if sign is None or not isinstance(sign.op, Sign):
        return False
    levels = levels_behind(draft, sign.inputs[0])
    if levels is None or signs(np.array([levels.low, levels.high]), sign.op).tolist() != [True, False]:
        return False
    bits = draft.emit(node.name, ToFloat(), levels.bits)
    minus_one = draft.constant(f"{sign.name}/minus_one", np.full(1, -1, dtype=np.float32))
    draft.emit(sign.name, Arithmetic(ArithmeticKind.MUL), bits, minus_one, output=node.outputs[0])
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
    for index, operand in operand_orders(draft, node):
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
    for index, operand in operand_orders(draft, source):
        constant = None if operand is None else draft.value(operand)
        if constant is None or constant.size == 1:
            moved = draft.emit(node.name, node.op, source.inputs[index])
            draft.emit(source.name, source.op, *_operands(index, moved, operand), output=node.outputs[0])
            return True
    return False
