"""Constants that a model repeats at run time to the shape of the tensor beside them, as ``bias.expand_as(x)``."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.onnx_model.node import constant_of, is_standard
from bnnrt.converters.onnx_model.uniform import same_shape

__all__ = ["drop_expansions"]

ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"),
)


def drop_expansions(model: ir.Model) -> None:
    """Let element-wise operators read constants themselves, in place, where they read an Expand of them.

    They broadcast; the result is the same if another operand has the shape that Expand asks for. ``model`` has to have
    its shapes inferred.
    """
    for node in model.graph:
        if not is_standard(node, "Expand") or constant_of(node.inputs[0]) is None:
            continue
        expanded = node.outputs[0]
        for reader, index in tuple(expanded.uses()):
            if is_standard(reader, *ELEMENTWISE):
                others = [value for value in reader.inputs if value is not expanded]
            else:
                # Of PRelu, only the slopes are broadcast.
                others = [reader.inputs[0]] if is_standard(reader, "PRelu") and index == 1 else []
            if any(same_shape(value, expanded) for value in others):
                reader.replace_input_with(index, node.inputs[0])
    common.RemoveUnusedNodesPass()(model)
