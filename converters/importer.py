"""An ONNX graph, cleaned up and with its signs recognised, to a :class:`bnnrt.graph.Graph`, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import onnx_ir as ir

from bnnrt.converters.draft import Draft
from bnnrt.converters.handlers import layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import Scope
from bnnrt.converters.handlers.shape_values import computes_shape
from bnnrt.converters.onnx_model.node import (
    STANDARD_DOMAINS,
    OnnxNode,
    constant_of,
    is_standard,
    qualified,
    static_shape,
)
from bnnrt.converters.operators import HANDLERS
from bnnrt.converters.refusals import refuse
from bnnrt.errors import ConversionError, GraphError, printable
from bnnrt.graph import Graph
from bnnrt.ops import Domain, Reshape, TensorType, ToFloat, ToInt64

__all__ = ["Imported", "InputBinding", "import_graph", "input_shape", "reads_channels_first"]

# Operators that keep the layout of an image, whatever it is.
LAYOUT_KEEPING = (
    *("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Pow", "Reciprocal"),
    *("Cast", "Concat", "Identity", "Dropout", "Pad", "Slice", "Split"),
    *("Abs", "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "PRelu", "Relu", "Sigmoid", "Tanh"),
)
# Operators that take their image as [batch, channels, rows, columns].
CHANNELS_FIRST = ("Conv", "MaxPool", "BatchNormalization", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")

# Operators that say more of why a model is refused than those that exporters write around them.
AT_LARGE = ("GRU", "If", "LSTM", "Loop", "RNN", "Scan")

DOMAINS = {ir.DataType.FLOAT: Domain.FLOAT32, ir.DataType.UINT8: Domain.UINT8}


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph of float32 operators, and what the graph itself does not say."""

    graph: Graph
    operators: Mapping[str, str]
    """The ONNX operator behind each node of the graph, by node name."""
    open_signs: frozenset[str]
    """Names of the Sign nodes that are ONNX signs, which give 0 at 0."""
    limited_signs: frozenset[str]
    """Names of the Sign nodes that are the model's function only for numbers smaller than 2**23 in size."""
    constants: Mapping[str, tuple[str, ...]]
    """Of which ONNX constants each constant of the graph was made, all by their names."""
    values: Mapping[str, Value]
    """How each computed ONNX value lies in a tensor, by its name; the tensor may not be needed and so not be there."""


class InputBinding(Protocol):
    """Decides what feeds a network's input."""

    def inputs(self, model: ir.Model) -> Mapping[str, TensorType]:
        """The graph's inputs."""

    def bind(self, draft: Draft, model: ir.Model) -> Mapping[str, Value]:
        """The ONNX inputs, by name, in terms of the graph's inputs."""


class OwnInputs:
    """The model's own inputs, as they are."""

    def inputs(self, model: ir.Model) -> Mapping[str, TensorType]:
        found = {}
        for value in model.graph.inputs:
            domain = DOMAINS.get(value.dtype) if value.dtype is not None else None
            if domain is None:
                kind = "of no tensor type" if value.dtype is None else value.dtype.name.lower()
                fix = "export the model with float32 inputs (uint8 is supported too)"
                if not value.uses():
                    fix = "nothing in the model needs it: remove it"
                raise ConversionError(f"an input is {kind}", f"input {value.name}", fix)
            found[value.name or ""] = TensorType((None, *input_shape(value)), domain)
        return found

    def bind(self, draft: Draft, model: ir.Model) -> Mapping[str, Value]:
        values = {}
        for value in model.graph.inputs:
            tensor = name = value.name or ""
            if value.dtype == ir.DataType.UINT8:
                if not all(is_standard(node, "Cast") for node in value.consumers()):
                    raise ConversionError(
                        "8-bit numbers are computed with", f"input {name}", "cast the input to float32 first"
                    )
                tensor = draft.emit(f"{name}/float", ToFloat(), name)
            bound = Value.plain(tensor, input_shape(value))
            values[name] = layout.as_image(draft, name, bound) if reads_channels_first(value) else bound
        return values


def input_shape(value: ir.Value) -> tuple[int, ...]:
    """The shape of an input without its batch. Raises ConversionError if it is not known."""
    shape = static_shape(value)
    if not shape or len(shape) < 2:
        what = "an input has no shape" if shape is None else f"an input of {len(shape)} dimensions"
        fix = (
            f"convert with --shape, as --shape {value.name}=N,3,224,224"
            if shape is None
            else "only [N, ...] is supported"
        )
        raise ConversionError(what, f"input {value.name}", fix)
    sizes = [d for d in shape[1:] if d is not None and d > 0]
    if len(sizes) != len(shape) - 1:
        example = ",".join(["N", *("SIZE" if d is None else str(d) for d in shape[1:])])
        raise ConversionError(
            "a dimension other than the batch is free",
            f"input {value.name}",
            f"convert with --shape {value.name}={example}",
        )
    return tuple(sizes)


def reads_channels_first(value: ir.Value) -> bool:
    """Whether a 4-D value reaches, through operators that keep layout, one that takes channels first."""
    shape = static_shape(value)
    if shape is None or len(shape) != 4:
        return False
    waiting, seen = [value], set()
    while waiting:
        current = waiting.pop()
        for node in current.consumers():
            if is_standard(node, *CHANNELS_FIRST):
                return True
            keeping = is_standard(node, *LAYOUT_KEEPING) or node.domain == "bnnrt"
            if keeping and id(node) not in seen:
                seen.add(id(node))
                waiting.extend(node.outputs)
    return False


def import_graph(model: ir.Model, binding: InputBinding | None = None) -> Imported:
    """Translate ``model`` (from :func:`cleanup.clean` and :func:`signs.recognise`).

    The batch stays free: every supported operator treats each image on its own.

    Raises ConversionError naming the node and its operator where there is no exact counterpart.
    """
    binding = binding or OwnInputs()
    try:
        return _import(model, binding)
    except GraphError as e:
        raise ConversionError(e.what, e.where, e.fix) from None


def _import(model: ir.Model, binding: InputBinding) -> Imported:
    outputs = tuple(value.name or "" for value in model.graph.outputs)
    draft = Draft(binding.inputs(model), reserved=outputs)
    _refuse_at_large(model)
    scope = Scope(draft, _batch(model), _opset(model))
    scope.values.update(binding.bind(draft, model))
    constants: dict[str, tuple[str, ...]] = {}
    for node, name in zip(model.graph, _names(model), strict=True):
        if computes_shape(node):
            continue
        named = OnnxNode(node, name)
        handler = HANDLERS.get(qualified(node))
        if handler is None:
            refuse(named)
        given = len(draft.constants)
        made = handler(scope, named)
        read = tuple(value.name or "" for value in node.inputs if constant_of(value) is not None and value is not None)
        constants.update(dict.fromkeys(islice(draft.constants, given, None), read))
        scope.operators[name] = named.operator
        for output, value in zip(node.outputs, [made] if isinstance(made, Value) else made, strict=False):
            scope.values[output.name or ""] = value
    finished: set[str] = set()
    for output in model.graph.outputs:
        _finish(scope, output, finished)
    signs = frozenset(scope.open_signs), frozenset(scope.limited_signs)
    return Imported(draft.graph(outputs), scope.operators, *signs, constants, scope.values)


def _refuse_at_large(model: ir.Model) -> None:
    """Refuse control flow, sequences and recurrent layers before what exporters put in front of them."""
    for node, name in zip(model.graph, _names(model), strict=True):
        if is_standard(node, *AT_LARGE):
            refuse(OnnxNode(node, name))


def _names(model: ir.Model) -> list[str]:
    """A name for each node: its own where it has one that no node before it has."""
    names: dict[str, None] = {}
    for index, node in enumerate(model.graph):
        name = printable(node.name or f"{node.op_type}_{index}")
        while name in names:
            name = f"{name}_{index}"
        names[name] = None
    return list(names)


def _opset(model: ir.Model) -> int:
    """The version of the ONNX operators."""
    return max(model.opset_imports.get(domain, 0) for domain in STANDARD_DOMAINS)


def _batch(model: ir.Model) -> int | None:
    """The batch where it is fixed. Raises ConversionError if the inputs that are read disagree about it."""
    batches = {value.name: str(value.shape[0]) for value in model.graph.inputs if value.shape and value.uses()}
    if len(set(batches.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in batches.items())
        raise ConversionError(f"the inputs have different batches: {listed}", fix="use one for all")
    shape = static_shape(model.graph.inputs[0]) if model.graph.inputs else None
    return shape[0] if shape else None


def _finish(scope: Scope, output: ir.Value, finished: set[str]) -> None:
    """Let the graph have ``output`` under its own name, in ONNX's shape and order."""
    draft, name = scope.draft, output.name or ""
    value = scope.values.get(name)
    if value is None:
        raise ConversionError("an output is constant", f"output {name}", "remove it from the model")
    tensor = layout.in_onnx_order(draft, name, value).tensor
    if draft.types[tensor].domain is Domain.INT32 and output.dtype != ir.DataType.INT32:
        draft.emit(f"{name}/int64", ToInt64(), tensor, output=name)
    elif draft.producer(tensor) is None or tensor in finished:
        draft.emit(f"{name}/copy", Reshape(value.shape), tensor, output=name)
    else:
        draft.rename(tensor, name)
        scope.values = {n: replace(v, tensor=name) if v.tensor == tensor else v for n, v in scope.values.items()}
    finished.add(name)
