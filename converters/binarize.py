"""Finds the layers that are binary, and those whose weights are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bnnrt.converters.draft import Array, Draft, rewrite
from bnnrt.converters.padding import PaddedBits, padded_bits, with_pads
from bnnrt.graph import Graph, Node
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    BinaryConv,
    BinaryDense,
    BinaryWeightConv,
    BinaryWeightDense,
    Conv,
    Dense,
    Op,
    ToFloat,
)

__all__ = ["Binarize", "SignedWeights", "signed_weights"]

LARGEST_SUM = 1 << 24
NOWHERE = (0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class SignedWeights:
    """Weights that are a sign times one number per output: ``bits`` bool [O, ...], ``scale`` float32 [O], 0 or more.

    Scale 0 is an output that is constant: a BatchNorm with a factor of 0, fused into the weights.
    """

    bits: Array
    scale: Array

    @property
    def is_plain(self) -> bool:
        """Whether the weights are +-1."""
        return bool((self.scale == 1).all())

    @property
    def is_exact(self) -> bool:
        """Whether every scale is a power of two, by which a float32 sum can be multiplied after the fact."""
        return bool((np.frexp(self.scale)[0] == 0.5).all())


def signed_weights(weights: Array) -> SignedWeights | str:
    """The weights float32 [O, ...] as signs and scales, or why they are not that."""
    rows = np.abs(weights).reshape(len(weights), -1)
    if rows.shape[1] >= LARGEST_SUM:
        return "it sums more terms than float32 can count"
    if not np.isfinite(rows).all():
        return "a weight is not finite"
    if ((rows == 0).any(axis=1) & (rows != 0).any(axis=1)).any():
        return "some weights of an output are 0"
    if (rows != rows[:, :1]).any():
        return "the weights of an output differ in size"
    return SignedWeights(weights > 0, np.ascontiguousarray(rows[:, 0]))


class Binarize:
    """Conv and Dense with weights +-a become operators on bits; a scale other than 1 becomes a multiplication after.

    On bits the accumulator is the exact integer, whatever a is. On real input, a must be a power of two: only then is
    the scaled sum the sum of scaled products in every bit. Everything else stays in float32.
    """

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _binarize)


def _binarize(draft: Draft, node: Node) -> bool:
    if not isinstance(node.op, (Conv, Dense)):
        return False
    weights = draft.value(node.inputs[1])
    signed = "" if weights is None else signed_weights(weights)
    if isinstance(signed, str):
        return False
    bits = padded_bits(draft, node.inputs[0])
    op = None if bits is None else _on_bits(node.op, bits)
    if bits is not None and op is not None:
        return _emit(draft, node, op, bits.tensor, signed)
    if not signed.is_exact:
        return False
    return _emit(draft, node, _on_reals(node.op), node.inputs[0], signed)


def _on_bits(op: Conv | Dense, bits: PaddedBits) -> Op | None:
    """The operator on bits; None where padding of two values meets."""
    if isinstance(op, Dense):
        return BinaryDense()
    if bits.value is None:
        return BinaryConv(op.window, op.groups, pad_value=0)
    if op.window.pads != NOWHERE:
        return None
    window = replace(op.window, pads=with_pads(op.window.pads, bits.pads))
    return BinaryConv(window, op.groups, pad_value=bits.value)


def _on_reals(op: Conv | Dense) -> Op:
    return BinaryWeightDense() if isinstance(op, Dense) else BinaryWeightConv(op.window, op.groups)


def _emit(draft: Draft, node: Node, op: Op, x: str, signed: SignedWeights) -> bool:
    """Emit ``op`` on ``x`` as float32, scaled, in the place of ``node``."""
    weights = draft.constant(f"{node.inputs[1]}/bits", signed.bits)
    steps: list[tuple[str, Op, tuple[str, ...]]] = [(node.name, op, (weights,))]
    if isinstance(op, (BinaryConv, BinaryDense)):
        steps.append((f"{node.name}/float", ToFloat(), ()))
    if not signed.is_plain:
        scale = draft.constant(f"{node.inputs[1]}/scale", signed.scale)
        steps.append((f"{node.name}/scale", Arithmetic(ArithmeticKind.MUL), (scale,)))
    if (signed.scale == 0).any():
        # A negative accumulator times 0 is -0.0, a sum of zeros is 0.0, and a division would tell them apart.
        zero = draft.constant(f"{node.inputs[1]}/zero", np.zeros(1, dtype=np.float32))
        steps.append((f"{node.name}/zero", Arithmetic(ArithmeticKind.ADD), (zero,)))
    for name, step, operands in steps:
        last = name == steps[-1][0]
        x = draft.emit(name, step, x, *operands, output=node.outputs[0] if last else None)
    return True
