"""Steps: tensors that depend on nothing but whether a number is below, at or above a constant.

A comparison with a constant, and ONNX Sign, give steps. They are followed through operators with constant operands by
computing what becomes of their values, in the operator's own type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import COMPARISONS, clip_limits, constant_of, is_standard, unsqueezed
from bnnrt.converters.onnx_model.uniform import keeps_shape, uniform_beside

__all__ = ["LARGEST_DETACHED", "Step", "step_of", "unclipped"]

ARITHMETIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.true_divide,
}
LOGIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
SIDES = np.array([-1.0, 0.0, 1.0, np.nan])
"""A number below, at and above 0, and none."""
LARGEST_DETACHED = 2.0**23
"""``(sign(x) - x) + x`` is the sign of x in float32, as long as x is smaller than this in size."""


@dataclass(frozen=True, eq=False)
class Step:
    """A tensor that depends on ``source - offset`` alone: ``values`` where that is below, at, above 0, and NaN.

    ``is_limited``: only as long as that is smaller than 2**23 in size; beyond, the model's own rounding decides.
    """

    source: ir.Value
    offset: ir.Value | None
    values: Array
    is_limited: bool = False

    @property
    def has_two_values(self) -> bool:
        """Whether it takes one of two values, and 0 in between is none of its own."""
        below, at, above = self.values[:3]
        return bool(below != above and at in (below, above))

    def of_same(self, other: Step) -> bool:
        return self.source is other.source and self.offset is other.offset

    def become(self, values: Array) -> Step:
        return replace(self, values=values)


Steps = Mapping[ir.Value, Step]


def step_of(node: ir.Node, steps: Steps) -> Step | None:
    """The step that ``node`` computes from constants and ``steps``, if it computes one."""
    if is_standard(node, "Sign"):
        return _of_sign(node, steps)
    if is_standard(node, *COMPARISONS):
        return _of_comparison(node, steps)
    if is_standard(node, "Where"):
        return _of_where(node, steps)
    if is_standard(node, "Gather", "GatherND"):
        return _of_table(node, steps)
    first = node.inputs[0] if node.inputs else None
    inner = steps.get(first) if first is not None else None
    if is_standard(node, "Not") and inner is not None:
        return inner.become(np.logical_not(inner.values))
    if is_standard(node, "Neg") and inner is not None and inner.values.dtype == np.float32:
        return inner.become(-inner.values)
    if is_standard(node, "Cast", "Identity") and inner is not None:
        return _of_cast(node, inner)
    if is_standard(node, *ARITHMETIC):
        return _of_two(node, steps, ARITHMETIC[node.op_type])
    if is_standard(node, *LOGIC):
        return _of_two(node, steps, LOGIC[node.op_type])
    return None


def _of_sign(node: ir.Node, steps: Steps) -> Step | None:
    source = node.inputs[0]
    if source is None or source.dtype not in (None, ir.DataType.FLOAT):
        return None
    if source in steps:
        return steps[source].become(np.sign(steps[source].values))
    return Step(unclipped(source), None, SIDES.astype(np.float32))


def _of_comparison(node: ir.Node, steps: Steps) -> Step | None:
    a, b = node.inputs
    if a is None or b is None:
        return None
    compare = COMPARISONS[node.op_type]
    if constant_of(a) is not None:
        a, b = b, a
        values = compare(np.zeros(len(SIDES)), SIDES)
    else:
        values = compare(SIDES, np.zeros(len(SIDES)))
    offset = constant_of(b)
    if offset is None or constant_of(a) is not None or not keeps_shape(offset, a):
        return None
    if a in steps:
        uniform = uniform_beside(b, a)
        if uniform is None:
            return None
        given = steps[a].values
        return steps[a].become(compare(uniform, given) if a is node.inputs[1] else compare(given, uniform))
    if offset.dtype != np.float32 or not np.isfinite(offset).all():
        return None
    # x > c is x - c > 0 in float32 too: a difference rounds to 0 only if it is 0.
    return Step(a, b, values) if offset.any() else Step(unclipped(a), None, values)


def _of_where(node: ir.Node, steps: Steps) -> Step | None:
    condition, *branches = node.inputs
    step = steps.get(condition) if condition is not None else None
    if step is None or condition is None:
        return None
    chosen = []
    for branch in branches:
        if branch is None:
            return None
        if branch in steps:
            if not step.of_same(steps[branch]):
                return None
            chosen.append(steps[branch].values)
            continue
        uniform = uniform_beside(branch, condition)
        if uniform is None:
            return None
        chosen.append(np.full(len(SIDES), uniform))
    return step.become(np.where(step.values, *chosen))


def _of_table(node: ir.Node, steps: Steps) -> Step | None:
    """``table[index]``, of a constant vector and an integer step: Gather, or GatherND of it with one more axis."""
    table, index = constant_of(node.inputs[0]), node.inputs[1]
    if is_standard(node, "GatherND"):
        rank = 0 if index is None or index.shape is None else len(index.shape)
        index = unsqueezed(index, rank - 1)
    step = steps.get(index) if index is not None else None
    if step is None or table is None or table.ndim != 1 or not np.issubdtype(step.values.dtype, np.integer):
        return None
    if not ((step.values >= -len(table)) & (step.values < len(table))).all():
        return None
    return step.become(table[step.values])


def _of_cast(node: ir.Node, step: Step) -> Step | None:
    if node.op_type == "Identity":
        return step
    try:
        target = ir.DataType(node.attributes["to"].as_int()).numpy()
    except (KeyError, TypeError, ValueError):
        return None
    numbers = step.values.astype(np.float64)
    lost = ~np.isfinite(numbers) | (np.issubdtype(target, np.unsignedinteger) & (numbers < 0))
    if np.issubdtype(target, np.integer) and lost.any():
        # What a negative number, or one that is none, becomes there differs from one processor to the next.
        return None
    return step.become(step.values.astype(target))


def _of_two(node: ir.Node, steps: Steps, function: Callable[[Array, Array], Array]) -> Step | None:
    operands: list[Array] = []
    found: Step | None = None
    for value, other in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if value is None or other is None:
            return None
        if value in steps:
            if found is not None and not found.of_same(steps[value]):
                return None
            found = steps[value]
            operands.append(found.values)
            continue
        uniform = uniform_beside(value, other)
        if uniform is None:
            return None
        operands.append(uniform)
    if found is None:
        return None
    with np.errstate(all="ignore"):
        values = function(*operands)
    if not np.issubdtype(operands[0].dtype, np.floating) and node.op_type == "Div":
        return None
    return found.become(values.astype(found.values.dtype))


def unclipped(source: ir.Value) -> ir.Value:
    """What stands before a Clip whose limits lie on both sides of 0: it changes no sign."""
    node = source.producer()
    if not is_standard(node, "Clip") or node is None:
        return source
    limits, first = clip_limits(node), node.inputs[0]
    return first if first is not None and limits is not None and limits[0] < 0 < limits[1] else source
