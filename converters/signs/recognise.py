"""Recognises the forms that sign takes in ONNX files and puts one operator, ``bnnrt.Sign``, in their place.

Tensors that depend on nothing but whether a number is below, at or above a constant are found in two ways: a comparison
or a Sign is followed through operators with constants (:mod:`bnnrt.converters.signs.steps`), and what several operators
make of one number is evaluated on intervals (:mod:`bnnrt.converters.signs.jumps`). Of those, float32 tensors of two
values become a sign, however they were written: -1 and +1 the sign itself, 0 and 1 or any other two a sign and
operators that give exactly these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import LARGEST_FLOAT32, constant_of, is_standard
from bnnrt.converters.onnx_model.writer import Replacement, replace
from bnnrt.converters.signs.jumps import Jumps
from bnnrt.converters.signs.steps import Step, step_of

__all__ = ["recognise"]

# The values of ONNX Sign, and of its negative, below, at and above 0.
ONNX_SIGNS = ((-1, 0, 1), (1, 0, -1))


def recognise(model: ir.Model) -> None:
    """Replace every sign in ``model``, in place, by ``bnnrt.Sign``.

    Its attribute ``zero`` says what it gives at 0: ``ge`` +1, ``gt`` -1, ``onnx`` 0. NaN becomes -1 if it is ``ge`` or
    ``gt``; that of ``onnx``, which is NaN in ONNX, has no meaning. ``limited``: whether it is the model's function only
    for numbers smaller than 2**23 in size.
    """
    steps: dict[ir.Value, Step] = {}
    differences: dict[ir.Value, Step] = {}
    jumps = Jumps(model.graph)
    for node in list(model.graph):
        if len(node.outputs) != 1:
            continue
        step = step_of(node, steps)
        if step is None or not step.has_two_values:
            # A Sign of what is never negative, for one, is 0 or 1.
            other = jumps.step_of(node)
            step = other if step is None or (other is not None and other.has_two_values) else step
        if step is None:
            # Only where nothing else is known of it: what compares two functions of one number may be a step of that.
            step = _of_difference(model.graph, node) or step_of(node, differences)
            if step is not None:
                differences[node.outputs[0]] = step
                _replace(model.graph, node, step)
            continue
        steps[node.outputs[0]] = step
        written = _replace(model.graph, node, step)
        if written is not None:
            steps[written] = step
    model.graph.opset_imports.setdefault("bnnrt", 1)
    common.RemoveUnusedNodesPass()(model)


def _of_difference(graph: ir.Graph, node: ir.Node) -> Step | None:
    """Greater and Less of two computed tensors: a > b is a - b > 0 in float32 too.

    A difference rounds to 0 only if it is 0, and it is NaN where a and b are one infinity, of which neither is greater;
    so the same does not hold of GreaterOrEqual.
    """
    if not is_standard(node, "Greater", "Less"):
        return None
    a, b = node.inputs if node.op_type == "Greater" else node.inputs[::-1]
    if a is None or b is None or a.dtype != ir.DataType.FLOAT or b.dtype != ir.DataType.FLOAT:
        return None
    if any(value.is_initializer() or constant_of(value) is not None for value in (a, b)):
        return None
    source = Replacement(graph, node, "comparison").add("Sub", a, b, part="difference")
    source.type, source.shape = ir.TensorType(ir.DataType.FLOAT), node.outputs[0].shape
    return Step(source, None, np.array([False, False, True, False]))


@dataclass(frozen=True)
class _Written:
    """A step as ``bnnrt.Sign`` and what follows: the attribute ``zero``, whether of the negated source, and operators
    of one tensor, with a number or with attributes."""

    zero: str
    negated: bool
    following: tuple[tuple[str, float | dict[str, float]], ...] = ()


def _replace(graph: ir.Graph, node: ir.Node, step: Step) -> ir.Value | None:
    """Put a step in the place of ``node``; returns its output, or None where ``node`` has to stay."""
    written = _written(step.values)
    if written is None:
        return None
    new = Replacement(graph, node, "sign")

    def like_source(output: ir.Value) -> ir.Value:
        output.type, output.shape = ir.TensorType(ir.DataType.FLOAT), step.source.shape
        return output

    tensor = step.source
    if step.offset is not None:
        tensor = like_source(new.add("Sub", tensor, step.offset, part="minus_offset"))
    if written.negated:
        tensor = like_source(new.add("Mul", tensor, new.constant("negated", -1), part="negated"))
    how: dict[str, str | int | float] = {"zero": written.zero, "limited": int(step.is_limited)}
    tensor = like_source(new.add("Sign", tensor, domain="bnnrt", attributes=how))
    for operator, given in written.following:
        part = operator.lower()
        if isinstance(given, dict):
            tensor = new.add(operator, tensor, part=part, attributes=given)
        else:
            tensor = new.add(operator, tensor, new.constant(part, given), part=part)
        like_source(tensor)
    replace(node, tensor)
    return tensor


def _written(values: Array) -> _Written | None:
    """How a step is written, each operation exact; None if it is not one of two numbers."""
    if values.dtype != np.float32:
        return None
    below, at, above, none = values
    if (below, at, above) in ONNX_SIGNS:
        return _Written("onnx", negated=bool(below > 0))
    if below == above or at not in (below, above) or not np.isfinite(values[:3]).all():
        return None
    # Sign makes NaN -1: where NaN goes with the numbers above, it has to be the sign of the negated source.
    negated = bool(none == above)
    low, high = (above, below) if negated else (below, above)
    return _Written("ge" if at == high else "gt", negated, _levels(low, high))


def _levels(low: np.float32, high: np.float32) -> tuple[tuple[str, float | dict[str, float]], ...]:
    """Operators that make ``low`` of -1 and ``high`` of +1."""
    with np.errstate(all="ignore"):
        factor, offset = high / 2 - low / 2, high / 2 + low / 2
        made = np.array([-1, 1], dtype=np.float32) * factor + offset
    if made.tobytes() == np.array([low, high], dtype=np.float32).tobytes():
        scaled: tuple[tuple[str, float | dict[str, float]], ...] = () if factor == 1 else (("Mul", float(factor)),)
        return scaled if offset == 0 else (*scaled, ("Add", float(offset)))
    least, greatest = sorted([float(low), float(high)])
    return ("Mul", LARGEST_FLOAT32 if low < high else -LARGEST_FLOAT32), ("Clip", {"min": least, "max": greatest})
