"""Finds the layers that are binary, and those whose weights are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bnnrt.converters.draft import Array, Draft, rewrite
from bnnrt.converters.passes.levels import two_numbers
from bnnrt.converters.passes.padding import NOWHERE, padded_levels, with_pads
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
    Sign,
    SignOfZero,
    ToFloat,
)

__all__ = ["REPACKED", "Binarize", "SignedWeights", "layers_on_bits", "signed_weights"]

REPACKED = "/repacked"
"""How the names of signs end that make bits again of numbers that bits were."""

LARGEST_SUM = 1 << 24
UNIT = 2.0**-24
"""A float32 operation is off by at most this share of its result."""


@dataclass(frozen=True, eq=False)
class SignedWeights:
    """Weights that are a sign times one number per output: ``bits`` bool [O, ...], ``scale`` float32 [O], 0 or more.

    Scale 0 is an output that is constant: a BatchNorm with a factor of 0, fused into the weights. ``is_equal``: whether
    they are that in every bit; if not, the sizes of an output differ by a few roundings (:func:`signed_weights`).
    """

    bits: Array
    scale: Array
    is_equal: bool = True

    @property
    def is_exact(self) -> bool:
        """Whether every scale is a power of two, by which a float32 sum can be multiplied after the fact."""
        return self.is_equal and bool((np.frexp(self.scale)[0] == 0.5).all())

    @property
    def sums(self) -> Array:
        """The sum of the signs of each output, float32 [O]."""
        rows = self.bits.reshape(len(self.bits), -1)
        result: Array = (2 * rows.sum(axis=1, dtype=np.int64) - rows.shape[1]).astype(np.float32)
        return result


def signed_weights(weights: Array) -> SignedWeights | str:
    """The weights float32 [O, ...] as signs and scales, or why they are not that.

    ONNX Runtime's sum of K products may be wrong by K roundings of the sum of their sizes, and ours, an integer and two
    multiplications, by two. Sizes that differ from one scale by no more than the rest of it cannot be told from equal
    ones by what either computes: weights that a network computed as ``a * sign(w) - w + w``, for example.
    """
    rows = np.abs(weights).reshape(len(weights), -1)
    if rows.shape[1] >= LARGEST_SUM:
        return "it sums more terms than float32 can count"
    if not np.isfinite(rows).all():
        return "a weight is not finite"
    if ((rows == 0).any(axis=1) & (rows != 0).any(axis=1)).any():
        return "some weights of an output are 0"
    bits = weights > 0
    if (rows == rows[:, :1]).all():
        return SignedWeights(bits, np.ascontiguousarray(rows[:, 0]))
    least, greatest = rows.min(axis=1).astype(np.float64), rows.max(axis=1)
    scale = ((least + greatest) / 2).astype(np.float32)
    apart = np.maximum(greatest - scale.astype(np.float64), scale - least)
    if (apart > max(0, rows.shape[1] - 2) * UNIT * least).any():
        return "the weights of an output differ in size"
    return SignedWeights(bits, scale, is_equal=False)


@dataclass(frozen=True, eq=False)
class _BitInput:
    """What a layer reads, as ``size`` times +-1, or times 0 and 1 if ``from_zero``.

    ``op``: the layer on bits. ``inverted``: bit 1 stands for the lesser number. ``negative``: 0 or less, all of them.
    """

    op: BinaryConv | BinaryDense
    bits: str
    size: np.float32
    from_zero: bool
    inverted: bool
    negative: bool


class Binarize:
    """Conv and Dense with weights +-a become operators on bits; a scale other than 1 becomes a multiplication after.

    On bits the accumulator is the exact integer, whatever a is. Where bits stand for 0 and s, the sum of those that are
    1 is (accumulator + sum of the signs of the weights) / 2, exact too. On real input, a must be a power of two: only
    then is the scaled sum the sum of scaled products in every bit. Everything else stays in float32.
    """

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, _binarize)


def layers_on_bits(graph: Graph) -> frozenset[str]:
    """Names of the Conv and Dense nodes that read what bits decide, whatever their weights are."""
    found = set()

    def look(draft: Draft, node: Node) -> bool:
        if isinstance(node.op, (Conv, Dense)) and _bit_input(draft, node) is not None:
            found.add(node.name)
        return False

    rewrite(graph, look, once=True)
    return frozenset(found)


def _binarize(draft: Draft, node: Node) -> bool:
    weights = draft.value(node.inputs[1]) if isinstance(node.op, (Conv, Dense)) else None
    signed = "" if weights is None else signed_weights(weights)
    if isinstance(signed, str):
        return False
    found = _bit_input(draft, node)
    if found is not None and _emit_on_bits(draft, node, found, signed):
        return True
    return signed.is_exact and _emit_on_reals(draft, node, signed)


def _bit_input(draft: Draft, node: Node) -> _BitInput | None:
    """The bits that a layer reads; None if there are none, or if its padding is neither of their numbers."""
    tensor = node.inputs[0]
    padded = padded_levels(draft, tensor)
    if padded is not None:
        found = _fitting(node, padded.levels.bits, padded.levels.low, padded.levels.high, padded.pads, padded.value)
        if found is not None:
            return found
    numbers = two_numbers(draft, tensor)
    if numbers is None or _fitting(node, tensor, *numbers) is None:
        return None
    # They are bits that were moved in float32: their sign gives the bits back.
    zero = SignOfZero.GT if numbers[0] == 0 else SignOfZero.GE
    return _fitting(node, draft.emit(node.name + REPACKED, Sign(zero), tensor), *numbers)


def _fitting(
    node: Node,
    bits: str,
    low: np.float32,
    high: np.float32,
    pads: tuple[int, int, int, int] = NOWHERE,
    value: float = 0.0,
) -> _BitInput | None:
    """The layer on ``bits`` that stand for ``low`` and ``high`` and are surrounded by ``pads`` of ``value``."""
    from_zero = low == 0 or high == 0
    size = max(abs(low), abs(high))
    if low == high or not np.isfinite([low, high]).all() or not (from_zero or low == -high):
        return None
    op: BinaryConv | BinaryDense = BinaryDense()
    if isinstance(node.op, Conv):
        own = node.op.window.pads
        if own != NOWHERE and pads != NOWHERE and value != 0:
            return None
        around = value if pads != NOWHERE else 0.0
        window = replace(node.op.window, pads=with_pads(own, pads))
        known = {float(low): -1, float(high): 1}
        if window.pads == NOWHERE or not from_zero:
            known.setdefault(0.0, 0)
        if around not in known:
            return None
        op = BinaryConv(window, node.op.groups, pad_value=known[around] if window.pads != NOWHERE else 0)
    elif pads != NOWHERE:
        return None
    negative = bool(from_zero and (low < 0 or high < 0))
    return _BitInput(
        op, bits, size, from_zero, inverted=bool(abs(low) > abs(high) if from_zero else low > high), negative=negative
    )


def _emit_on_bits(draft: Draft, node: Node, found: _BitInput, signed: SignedWeights) -> bool:
    """Emit the layer on bits, and what makes its numbers of the accumulator, in the place of ``node``."""
    scale, size = signed.scale, found.size
    with np.errstate(over="ignore"):
        largest = np.float32(signed.bits[0].size) * scale * size
    if not np.isfinite(largest).all():
        return False  # the model's own sum may be infinite on its way, which an integer is not
    if found.from_zero:
        if signed.bits[0].size >= LARGEST_SUM // 2:
            return False
        half = scale / 2
        if (half * 2 != scale).any():
            return False
        scale = half
    product = scale * size
    if np.frexp(size)[0] == 0.5 and (product / size == scale).all() and np.isfinite(product).all():
        scale, size = product, np.float32(1)  # as good as two multiplications, then
    of_values = replace(signed, bits=signed.bits != found.negative)
    weights = draft.constant(f"{node.inputs[1]}/bits", of_values.bits != found.inverted)
    steps: list[tuple[str, Op, Array | None]] = [("float", ToFloat(), None)]
    if found.from_zero:
        steps.append(("offset", Arithmetic(ArithmeticKind.ADD), of_values.sums))
    steps += _scaled(scale, size)
    _emit(draft, node, found.op, found.bits, weights, steps)
    return True


def _emit_on_reals(draft: Draft, node: Node, signed: SignedWeights) -> bool:
    op = BinaryWeightConv(node.op.window, node.op.groups) if isinstance(node.op, Conv) else BinaryWeightDense()
    weights = draft.constant(f"{node.inputs[1]}/bits", signed.bits)
    _emit(draft, node, op, node.inputs[0], weights, _scaled(signed.scale, np.float32(1)))
    return True


def _scaled(scale: Array, size: np.float32) -> list[tuple[str, Op, Array | None]]:
    """Multiplications by the scale of the weights, and by the size of what the layer reads."""
    times = Arithmetic(ArithmeticKind.MUL)
    steps: list[tuple[str, Op, Array | None]] = []
    if (scale != 1).any():
        steps.append(("scale", times, scale))
    if size != 1:
        steps.append(("size", times, np.full(1, size, dtype=np.float32)))
    if (scale == 0).any():
        # A negative accumulator times 0 is -0.0, a sum of zeros is 0.0, and a division would tell them apart.
        steps.append(("zero", Arithmetic(ArithmeticKind.ADD), np.zeros(1, dtype=np.float32)))
    return steps


def _emit(draft: Draft, node: Node, op: Op, x: str, weights: str, steps: list[tuple[str, Op, Array | None]]) -> None:
    """Emit ``op`` of ``x`` and ``weights``, then ``steps`` with their constants; the last gives what ``node`` gave."""
    tensor = draft.emit(node.name, op, x, weights, output=None if steps else node.outputs[0])
    for index, (part, step, constant) in enumerate(steps):
        operands = [] if constant is None else [draft.constant(f"{node.inputs[1]}/{part}", constant)]
        last = index == len(steps) - 1
        tensor = draft.emit(f"{node.name}/{part}", step, tensor, *operands, output=node.outputs[0] if last else None)
