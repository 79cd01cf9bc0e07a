"""Recognises the forms that sign takes in ONNX files and puts one operator, ``bnnrt.Sign``, in their place.

Tensors that depend on nothing but whether a number is below, at or above a constant are found in two ways: a comparison
or a Sign is followed through operators with constants (:mod:`bnnrt.converters.steps`), and what several operators make
of one number is evaluated on intervals (:mod:`bnnrt.converters.jumps`). Of those, float32 tensors of two values become
a sign, however they were written: -1 and +1 the sign itself, 0 and 1 or any other two a sign and the multiplication and
addition that give exactly these.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.jumps import Jumps
from bnnrt.converters.steps import Step, step_of

__all__ = ["recognise"]

# The values of ONNX Sign, and of its negative, below, at and above 0.
ONNX_SIGNS = ((-1, 0, 1), (1, 0, -1))


def recognise(model: ir.Model) -> None:
    """Replace every sign in ``model``, in place, by ``bnnrt.Sign``.

    Its attribute ``zero`` says what it gives at 0: ``ge`` +1, ``gt`` -1, ``onnx`` 0. NaN becomes -1 if it is ``ge`` or
    ``gt``; that of ``onnx``, which is NaN in ONNX, has no meaning.
    """
    steps: dict[ir.Value, Step] = {}
    jumps = Jumps(model.graph)
    writer = _Writer(model.graph)
    for node in list(model.graph):
        if len(node.outputs) != 1:
            continue
        step = step_of(node, steps) or jumps.step_of(node)
        if step is None:
            continue
        steps[node.outputs[0]] = step
        written = writer.write(node, step)
        if written is not None:
            steps[written] = step
    model.graph.opset_imports.setdefault("bnnrt", 1)
    common.RemoveUnusedNodesPass()(model)


class _Writer:
    """Writes steps in terms of ``bnnrt.Sign``, Mul and Add into a graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._numbers: dict[int, ir.Value] = {}

    def write(self, node: ir.Node, step: Step) -> ir.Value | None:
        """Put a step in the place of ``node``; returns its output, or None where ``node`` has to stay."""
        found = _as_sign(step.values)
        if found is None:
            return None
        zero, negated, factor, offset = found
        old = node.outputs[0]
        name = node.name or f"{old.name}/sign"
        source = step.source
        if step.offset is not None:
            source = self._add(node, f"{name}/minus_offset", "Sub", source, step.offset)
        if negated:
            source = self._add(node, f"{name}/negated", "Mul", source, self._number(-1))
        scaled = [(op, n, "scaled" if op == "Mul" else "shifted") for op, n in (("Mul", factor), ("Add", offset))]
        scaled = [part for part in scaled if part[1] != (part[0] == "Mul")]  # not by 1, and not by 0
        made = self._add(node, name, "Sign", source, domain="bnnrt", zero=zero)
        for operator, number, part in scaled:
            made = self._add(node, f"{name}/{part}", operator, made, self._number(number))
        made.name, old.name = old.name, f"{old.name}/step"
        ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
        return made

    def _add(
        self, before: ir.Node, name: str, operator: str, *inputs: ir.Value, domain: str = "", **attributes: str
    ) -> ir.Value:
        new = ir.node(operator, list(inputs), domain=domain, attributes=attributes, name=name)
        output = new.outputs[0]
        output.name = f"{name}/value"
        output.type, output.shape = ir.TensorType(ir.DataType.FLOAT), inputs[0].shape
        self._graph.insert_before(before, new)
        return output

    def _number(self, number: float) -> ir.Value:
        array = np.array(number, dtype=np.float32)
        key = int(array.view(np.int32))
        if key not in self._numbers:
            value = ir.Value(name=f"bnnrt/{number!r}", const_value=ir.tensor(array))
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
            self._graph.register_initializer(value)
            self._numbers[key] = value
        return self._numbers[key]


def _as_sign(values: Array) -> tuple[str, bool, float, float] | None:
    """A step as ``sign(source) * factor + offset``, each operation exact: what the sign gives at 0, whether of the
    negated source, factor and offset. None if it is not one."""
    if values.dtype != np.float32:
        return None
    below, at, above, none = values
    if (below, at, above) in ONNX_SIGNS:
        return "onnx", bool(below > 0), 1.0, 0.0
    if below == above or at not in (below, above) or not np.isfinite(values[:3]).all():
        return None
    # Sign makes NaN -1: where NaN goes with the numbers above, it has to be the sign of the negated source.
    negated = bool(none == above)
    if not negated and not (none == below or np.isnan(none)):
        return None
    low, high = (above, below) if negated else (below, above)
    with np.errstate(all="ignore"):
        factor, offset = high / 2 - low / 2, high / 2 + low / 2
        written = np.array([-1, 1], dtype=np.float32) * factor + offset
    if (written.view(np.int32) != np.array([low, high], dtype=np.float32).view(np.int32)).any():
        return None
    return ("ge" if at == high else "gt"), negated, float(factor), float(offset)
