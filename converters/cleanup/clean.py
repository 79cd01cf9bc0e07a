"""Clean-up that ONNX libraries do: inlining, constant folding, shape inference, order, dead code.

Only steps that keep every float operation and its order are used: folding evaluates nodes whose inputs are constants,
and no rewrite fuses or moves arithmetic (docs/adr/0003 says why these libraries).
"""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes import common
from onnxscript import optimizer

from bnnrt.converters.cleanup.assignments import lower_assignments
from bnnrt.converters.cleanup.dequantize import fold_dequantized
from bnnrt.converters.cleanup.expansion import drop_expansions, expand_compared, pad_joined
from bnnrt.converters.cleanup.masks import lower_masks
from bnnrt.converters.cleanup.qonnx import lower_quantizers
from bnnrt.converters.cleanup.xnor import lower_xnor
from bnnrt.converters.handlers.shape_values import integers
from bnnrt.converters.onnx_model.node import STANDARD_DOMAINS, OnnxNode, constant_of, is_standard, static_shape
from bnnrt.converters.onnx_model.proto import nodes, versions
from bnnrt.converters.onnx_model.writer import add_constant, replace
from bnnrt.errors import ConversionError

__all__ = ["clean"]

# Folding may grow a constant (int8 weights to float32) up to this many elements.
LARGEST_FOLDED = 1 << 28

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def clean(proto: onnx.ModelProto) -> ir.Model:
    """A model whose constants are all initializers, in an order in which it can run, with shapes where known.

    Raises ConversionError if the file's graph is inconsistent.
    """
    for function in proto.functions:
        _adopt_version(function, versions(proto.opset_import, "model"))
    # The libraries log what they skip (unknown domains, for one); the importer says what matters of it.
    for name in ("onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        model = ir.from_proto(proto)
        _run(
            model,
            common.RemoveInitializersFromInputsPass(),
            common.InlinePass(),
            common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
            common.TopologicalSortPass(),
        )
        _check_inputs(model)
        fold_dequantized(model)
        lower_xnor(model)
        lower_quantizers(model)
        _fold(model)
        while _fold_several(model):
            _fold(model)
        while _fold_sizes(model):
            pass
        while _fold_picked_sizes(model):
            _fold(model)
        lower_masks(model)
        lower_assignments(model)
        _run(model, common.RemoveUnusedNodesPass())
        drop_expansions(model)
        expand_compared(model)
        pad_joined(model)
        _run(model, common.RemoveUnusedNodesPass())
    except ConversionError:
        raise
    except Exception as e:  # the libraries raise whatever a malformed graph makes them stumble over
        raise ConversionError(
            f"the model's graph is inconsistent: {_innermost(e)}", fix="export the model again"
        ) from None
    return model


def _adopt_version(function: onnx.FunctionProto, imports: dict[str, int]) -> None:
    """Let a function, in place, use the model's version of the ONNX operators, which inlining asks for.

    Raises ConversionError if one of its operators is not the same in both.
    """
    wanted = imports.get("", 0)
    for entry in function.opset_import:
        if entry.domain or entry.version == wanted:
            continue
        body = onnx.ModelProto(functions=[function])
        for node in nodes(body):
            known = [defs.has(node.op_type, version, "") for version in (entry.version, wanted)]
            if node.domain or not any(known):
                continue
            since = [
                defs.get_schema(node.op_type, version, "").since_version if has else 0
                for version, has in zip((entry.version, wanted), known, strict=True)
            ]
            if since[0] != since[1]:
                raise ConversionError(
                    f"{node.op_type}: function {function.name} uses version {entry.version} of the ONNX operators and "
                    f"the model version {wanted}, in which this one differs",
                    f"node {node.name or ', '.join(node.output)}",
                    "export both for one version",
                )
        entry.version = wanted


def _check_inputs(model: ir.Model) -> None:
    """Raises ConversionError for a node that lacks an input, as after inlining a function that was called without."""
    version = model.opset_imports.get("", 0)
    for node in model.graph:
        if node.domain in STANDARD_DOMAINS and defs.has(node.op_type, version, ""):
            needed = defs.get_schema(node.op_type, version, "").min_input
            given = [*node.inputs[:needed], *[None] * (needed - len(node.inputs))]
            if None in given:
                raise OnnxNode(node, node.name or "").error(f"input {given.index(None)} is missing")


def _run(model: ir.Model, *passes: ir.passes.InPlacePass) -> None:
    for step in passes:
        step(model)


def _fold(model: ir.Model) -> None:
    """Evaluate what depends on constants alone, and infer shapes."""
    optimizer.fold_constants(
        model,
        onnx_shape_inference=True,
        input_size_limit=LARGEST_FOLDED,
        output_size_limit=LARGEST_FOLDED,
        should_fold=_should_fold,
    )
    _run(
        model,
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True),
    )


def _fold_several(model: ir.Model) -> bool:
    """Evaluate nodes of constants that have several outputs, which the library leaves; whether there were any."""
    found = [
        node
        for node in model.graph
        if is_standard(node, "Split", "TopK") and all(v is None or constant_of(v) is not None for v in node.inputs)
    ]
    for node in found:
        feeds = {value.name or "": constant_of(value) for value in node.inputs if value is not None}
        results = _evaluator(model, node, list(feeds)).run(None, feeds)
        for index, (output, array) in enumerate(zip(node.outputs, results, strict=True)):
            replace(node, add_constant(model.graph, f"{output.name}/folded", array), index)
        model.graph.remove(node, safe=True)
    return bool(found)


def _evaluator(model: ir.Model, node: ir.Node, inputs: list[str]) -> ReferenceEvaluator:
    """Computes ``node`` alone."""
    given, found = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in names]
        for names in (inputs, [output.name or "" for output in node.outputs])
    )
    graph = onnx.helper.make_graph([ir.to_proto(node)], "several", given, found)
    opset = onnx.helper.make_opsetid("", model.opset_imports[""])
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[opset]))


def _fold_sizes(model: ir.Model) -> bool:
    """Fold again where a shape is computed that inference has found only after folding; whether there was any."""
    waiting = _static_shapes(model)
    if waiting:
        _fold(model)
    return _static_shapes(model) < waiting


def _fold_picked_sizes(model: ir.Model) -> bool:
    """Evaluate Gather and Slice of a shape of which they pick known sizes; whether there were any."""
    found = False
    for node in list(model.graph):
        source = node.inputs[0].producer() if is_standard(node, "Gather", "Slice") and node.inputs[0] else None
        shape = static_shape(source.inputs[0]) if source is not None and is_standard(source, "Shape") else None
        if source is None or not shape:
            continue
        of = source.inputs[0]
        sizes = integers(node.outputs[0], {of.name or "": shape[1:]} if of is not None else {}, shape[0])
        if sizes is None or None in sizes:
            continue
        picked = np.array(sizes, dtype=np.int64)
        index = constant_of(node.inputs[1])
        if node.op_type == "Gather" and index is not None:
            picked = picked.reshape(index.shape)
        replace(node, add_constant(model.graph, f"{node.outputs[0].name}/sizes", picked))
        model.graph.remove(node, safe=True)
        found = True
    return found


def _static_shapes(model: ir.Model) -> int:
    shapes = [static_shape(node.inputs[0]) for node in model.graph if is_standard(node, "Shape")]
    return sum(shape is not None and None not in shape for shape in shapes)


def _should_fold(node: ir.Node) -> bool:
    # Everything constant, DequantizeLinear and ConstantOfShape too, which the library would keep; nothing random.
    if is_standard(node, "Dropout") and len(node.inputs) > 2 and node.inputs[2] is not None:
        training = constant_of(node.inputs[2])
        return training is not None and not training.any()
    return node.op_type not in RANDOM


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
