"""Recognises the forms that sign takes in ONNX files and puts one operator, ``bnnrt.Sign``, in their place.

A comparison with a constant, and ONNX Sign, give a tensor that depends on nothing but whether its source is below, at
or above 0: a step. Steps are followed through operators with constant operands by computing what becomes of the three
values, in the operator's own type. Where they become -1 and +1, that tensor is a sign, however it was written:

- ``Sign``; ``Sign -> Add 0.1 -> Sign``
- ``GreaterOrEqual``, ``Greater``, ``Less``, ``LessOrEqual`` and ``Equal``, followed by ``Not``, ``Where``, ``Cast``,
  ``Mul``, ``Add``, ``Sub`` and ``Div``

A tensor that takes other values, such as 0 and 1, is no sign and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_node import constant_of, is_standard
from bnnrt.converters.uniform import keeps_shape, uniform_beside

__all__ = ["recognise"]

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
}
ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.true_divide,
}
# A number below, at and above 0.
SIDES = np.array([-1.0, 0.0, 1.0])
# The values of a step that is a sign, below, at and above 0, and what to do with its source to get it.
SIGNS = {
    (-1, 0, 1): ("onnx", False),
    (-1, 1, 1): ("ge", False),
    (-1, -1, 1): ("gt", False),
    (1, 0, -1): ("onnx", True),
    (1, 1, -1): ("ge", True),
    (1, -1, -1): ("gt", True),
}


@dataclass(frozen=True, eq=False)
class Step:
    """A tensor that depends on the sign of ``source - offset`` alone: its values below, at and above 0."""

    source: ir.Value
    offset: ir.Value | None
    values: Array

    def of_same(self, other: Step) -> bool:
        return self.source is other.source and self.offset is other.offset

    def become(self, values: Array) -> Step:
        return Step(self.source, self.offset, values)


def recognise(model: ir.Model) -> None:
    """Replace every sign in ``model``, in place, by ``bnnrt.Sign``.

    Its attribute ``zero`` says what it gives at 0: ``ge`` +1, ``gt`` -1, ``onnx`` 0.
    """
    steps: dict[ir.Value, Step] = {}
    for node in list(model.graph):
        step = _step(node, steps)
        if step is None or len(node.outputs) != 1:
            continue
        steps[node.outputs[0]] = step
        kind = SIGNS.get(tuple(step.values.tolist()))
        if kind is not None and step.values.dtype == np.float32:
            steps[_replace(model.graph, node, step, *kind)] = step
    model.graph.opset_imports.setdefault("bnnrt", 1)
    common.RemoveUnusedNodesPass()(model)


def _step(node: ir.Node, steps: dict[ir.Value, Step]) -> Step | None:
    """The step that ``node`` computes, if it computes one."""
    if is_standard(node, "Sign"):
        return _of_sign(node, steps)
    if is_standard(node, *COMPARISONS):
        return _of_comparison(node, steps)
    if is_standard(node, "Where"):
        return _of_where(node, steps)
    first = node.inputs[0] if node.inputs else None
    inner = steps.get(first) if first is not None else None
    if is_standard(node, "Not") and inner is not None:
        return inner.become(np.logical_not(inner.values))
    if is_standard(node, "Cast", "Identity") and inner is not None:
        return _of_cast(node, inner)
    if is_standard(node, *ARITHMETIC):
        return _of_arithmetic(node, steps)
    return None


def _of_sign(node: ir.Node, steps: dict[ir.Value, Step]) -> Step | None:
    source = node.inputs[0]
    if source is None or source.dtype not in (None, ir.DataType.FLOAT):
        return None
    if source in steps:
        return steps[source].become(np.sign(steps[source].values))
    return Step(_unclipped(source), None, np.array([-1, 0, 1], dtype=np.float32))


def _of_comparison(node: ir.Node, steps: dict[ir.Value, Step]) -> Step | None:
    a, b = node.inputs
    if a is None or b is None:
        return None
    compare = COMPARISONS[node.op_type]
    if constant_of(a) is not None:
        a, b = b, a
        values = compare(np.zeros(3), SIDES)
    else:
        values = compare(SIDES, np.zeros(3))
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
    return Step(a, b, values) if offset.any() else Step(_unclipped(a), None, values)


def _of_where(node: ir.Node, steps: dict[ir.Value, Step]) -> Step | None:
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
        chosen.append(np.full(3, uniform))
    return step.become(np.where(step.values, *chosen))


def _of_cast(node: ir.Node, step: Step) -> Step | None:
    if node.op_type == "Identity":
        return step
    try:
        target = ir.DataType(node.attributes["to"].as_int()).numpy()
    except (KeyError, TypeError, ValueError):
        return None
    if np.issubdtype(target, np.unsignedinteger):
        # What a negative number becomes there differs from one processor to the next.
        return None
    return step.become(step.values.astype(target))


def _of_arithmetic(node: ir.Node, steps: dict[ir.Value, Step]) -> Step | None:
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
        values = ARITHMETIC[node.op_type](*operands)
    if not np.issubdtype(operands[0].dtype, np.floating) and node.op_type == "Div":
        return None
    return found.become(values.astype(found.values.dtype))


def _unclipped(source: ir.Value) -> ir.Value:
    """What stands before a Clip whose limits lie on both sides of 0: it changes no sign."""
    node = source.producer()
    if not is_standard(node, "Clip") or node is None:
        return source
    limits = []
    for index, name in ((1, "min"), (2, "max")):
        if name in node.attributes:
            limits.append(node.attributes[name].as_float())
        else:
            constant = constant_of(node.inputs[index]) if len(node.inputs) > index else None
            limits.append(float(constant) if constant is not None and constant.size == 1 else 0.0)
    first = node.inputs[0]
    return first if first is not None and limits[0] < 0 < limits[1] else source


def _replace(graph: ir.Graph, node: ir.Node, step: Step, zero: str, negated: bool) -> ir.Value:
    """Put ``bnnrt.Sign`` of the step's source in the place of ``node``; returns its output."""
    old = node.outputs[0]
    name = node.name or f"{old.name}/sign"

    def add(node_name: str, domain: str, operator: str, *inputs: ir.Value, **attributes: str) -> ir.Value:
        new = ir.Node(domain, operator, inputs, ir.convenience.convert_attributes(attributes), name=node_name)
        new.outputs[0].name = node_name
        new.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        new.outputs[0].shape = step.source.shape
        graph.insert_before(node, new)
        return new.outputs[0]

    source = step.source
    if step.offset is not None:
        source = add(f"{name}/minus_offset", "", "Sub", source, step.offset)
    if negated:
        factor = ir.Value(name=f"{name}/minus_one", const_value=ir.tensor(np.array(-1, dtype=np.float32)))
        factor.type, factor.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
        graph.register_initializer(factor)
        source = add(f"{name}/negated", "", "Mul", source, factor)
    made = add(name, "bnnrt", "Sign", source, zero=zero)
    made.name, old.name = old.name, f"{old.name}/step"
    ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
    return made
