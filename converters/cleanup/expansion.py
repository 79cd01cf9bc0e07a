"""Constants that a model repeats at run time to the shape of the tensor beside them, as ``bias.expand_as(x)``.

And tensors that a larger constant beside them repeats, as thermometer codes do, ``x[:, :, None] >= thresholds``; and
those that one number is joined to, as shortcuts to more channels do, ``cat([x, zeros_like(x)])``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import COMPARISONS, constant_of, is_standard, static_shape
from bnnrt.converters.onnx_model.uniform import is_shape_of, keeps_shape, same_shape, uniform_beside
from bnnrt.converters.onnx_model.writer import Replacement, add_constant, replace

__all__ = ["drop_expansions", "expand_compared", "pad_joined"]

ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"),
)
SHAPE_KEEPING = ("BatchNormalization", "Cast", "Clip", "Identity", "LeakyRelu", "Neg", "PRelu", "Relu")


def drop_expansions(model: ir.Model) -> None:
    """Let element-wise operators read constants themselves, in place, where they read an Expand of them.

    They broadcast; the result is the same if another operand has the shape that Expand asks for. ``model`` has to have
    its shapes inferred.
    """
    for node in model.graph:
        if is_standard(node, *SHAPE_KEEPING):
            _take_shape(node, node.inputs[0])
        constant = constant_of(node.inputs[0]) if is_standard(node, "Expand") else None
        if constant is None:
            continue
        expanded = node.outputs[0]
        for reader, index in tuple(expanded.uses()):
            if is_standard(reader, *ELEMENTWISE):
                others = [value for value in reader.inputs if value is not expanded]
            else:
                # Of PRelu, only the slopes are broadcast.
                others = [reader.inputs[0]] if is_standard(reader, "PRelu") and index == 1 else []
            sizes = node.inputs[1]
            alike = [value for value in others if value and (same_shape(value, expanded) or is_shape_of(sizes, value))]
            if alike:
                reader.replace_input_with(index, node.inputs[0])
            if alike and len(reader.inputs) == 2 and keeps_shape(constant, alike[0]):
                _take_shape(reader, alike[0])
    common.RemoveUnusedNodesPass()(model)


def _take_shape(node: ir.Node, value: ir.Value | None) -> None:
    """Let the output of ``node`` have the shape of ``value``: inference has given its free sizes other names."""
    output = node.outputs[0]
    if value is not None and value.shape is not None and not output.is_graph_output():
        output.shape = ir.Shape(list(value.shape))


def expand_compared(model: ir.Model) -> None:
    """Repeat, in place, what a comparison with a larger constant broadcasts, along axes other than the batch.

    The constant then keeps the shape of the tensor beside it, so that the comparison can be a step of that. ``model``
    has to have its shapes inferred.
    """
    for node in list(model.graph):
        if is_standard(node, *COMPARISONS):
            for index, constant in enumerate(map(constant_of, node.inputs[::-1])):
                value = node.inputs[index]
                if value is not None and value.shape is not None and constant is not None:
                    _expand(model.graph, node, index, value, constant)


def _expand(graph: ir.Graph, node: ir.Node, index: int, value: ir.Value, constant: Array) -> None:
    shape = static_shape(value) or ()
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    grows = [known == 1 and size > 1 for known, size in zip(shape, sizes, strict=False)]
    if len(sizes) != len(shape) or not any(grows) or grows[0] or constant_of(value) is not None:
        return
    new = Replacement(graph, node, "comparison")
    target = add_constant(graph, f"{node.outputs[0].name}/sizes", np.where(grows, sizes, 1).astype(np.int64))
    expanded = new.add("Expand", value, target, part="expanded")
    dims = [size if larger else dim for dim, size, larger in zip(value.shape or (), sizes, grows, strict=True)]
    expanded.type, expanded.shape = value.type, ir.Shape(dims)
    node.replace_input_with(index, expanded)


def pad_joined(model: ir.Model) -> None:
    """Write, in place, a Concat of tensors with one number before or behind them as a Pad.

    ``model`` has to have its shapes inferred.
    """
    for node in list(model.graph):
        if not is_standard(node, "Concat") or node.outputs[0].dtype != ir.DataType.FLOAT:
            continue
        numbers = [None if value is None else uniform_beside(value, value) for value in node.inputs]
        kept = [index for index, number in enumerate(numbers) if number is None]
        fills = {number.tobytes() for number in numbers if number is not None}
        if kept and len(fills) == 1 and kept == list(range(kept[0], kept[-1] + 1)):
            _pad(model.graph, node, kept, next(number for number in numbers if number is not None))


def _pad(graph: ir.Graph, node: ir.Node, kept: list[int], number: Array) -> None:
    shapes = [list(value.shape) if value is not None and value.shape is not None else [] for value in node.inputs]
    rank, axis = len(shapes[0]), node.attributes["axis"].as_int()
    if any(len(shape) != rank for shape in shapes) or not -rank <= axis < rank or axis % rank == 0:
        return
    sizes = [shape.pop(axis) for shape in shapes]
    if any(shape != shapes[0] for shape in shapes):
        return
    pads = np.zeros((2, rank), dtype=np.int64)
    for side, added in enumerate((sizes[: kept[0]], sizes[kept[-1] + 1 :])):
        if not all(isinstance(size, int) for size in added):
            return
        pads[side, axis] = sum(size for size in added if isinstance(size, int))
    new = Replacement(graph, node, "join")
    inner = [value for value in node.inputs[kept[0] : kept[-1] + 1] if value is not None]
    joined = inner[0]
    if len(inner) > 1:
        joined = new.add("Concat", *inner, part="joined", attributes={"axis": axis})
        joined.dtype = ir.DataType.FLOAT
    target = add_constant(graph, f"{node.outputs[0].name}/pads", pads.reshape(-1))
    padded = new.add("Pad", joined, target, new.constant("filled", number), part="padded")
    padded.type, padded.shape = node.outputs[0].type, node.outputs[0].shape
    replace(node, padded)
    graph.remove(node, safe=True)
