"""What is wrong with a model before anything is translated: versions, names, tensors, nodes.

Not everything that ``onnx.checker`` refuses: good models lack the import of a custom domain, or list their nodes in
another order.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
from onnx import defs

from bnnrt.converters.cleanup.qonnx import OPERATORS
from bnnrt.converters.onnx_model.node import STANDARD_DOMAINS
from bnnrt.converters.onnx_model.proto import first_line, nodes, tensors, versions
from bnnrt.errors import ConversionError

__all__ = ["check", "is_text", "normalise_domains"]

OLDEST_OPSET = 7
"""Before, Add and its like broadcast by other rules."""
NEWEST_OPSET = 28
"""The definitions that the handlers follow. An operator that has changed since is refused."""


def is_text(message: Any) -> bool:
    """Whether every name in a protobuf ``message`` and the messages in it is UTF-8; protobuf gives others as bytes."""
    for field, value in message.ListFields():
        values = [value] if isinstance(value, (str, bytes)) or hasattr(value, "ListFields") else value
        if field.type == field.TYPE_STRING and field.name != "doc_string":
            if not all(isinstance(text, str) for text in values):
                return False
        elif field.type == field.TYPE_MESSAGE and not all(is_text(inner) for inner in values):
            return False
    return True


def normalise_domains(proto: onnx.ModelProto) -> None:
    """Write ONNX's own domain in one way, in place; it has two names."""
    for owner in (proto, *proto.functions):
        for entry in owner.opset_import:
            entry.domain = "" if entry.domain in STANDARD_DOMAINS else entry.domain
    for node in nodes(proto):
        node.domain = "" if node.domain in STANDARD_DOMAINS else node.domain


def check(proto: onnx.ModelProto, name: str) -> None:
    """Check the model in the file ``name``, its domains normalised and its external data read.

    Raises ConversionError that names the node or tensor.
    """
    if proto.ir_version > onnx.IR_VERSION:
        raise ConversionError(
            f"the model has version {proto.ir_version} of the ONNX format, and onnx {onnx.__version__} knows "
            f"{onnx.IR_VERSION}",
            name,
            "install a newer onnx, or export it in an older version",
        )
    imports = versions(proto.opset_import, name)
    _check_version(imports.get("", 0), name)
    _check_names(proto.graph, name)
    context = onnx.checker.DEFAULT_CONTEXT.__class__()
    context.ir_version = proto.ir_version
    context.opset_imports = imports
    for tensor in tensors(proto):
        _check_tensor(tensor, context)
    functions = {(function.domain, function.name) for function in proto.functions}
    for function in proto.functions:
        inner = onnx.checker.DEFAULT_CONTEXT.__class__()
        inner.ir_version = proto.ir_version
        where = f"function {function.name}"
        own = {**imports, **versions(function.opset_import, where)}
        _check_version(own[""], where)
        inner.opset_imports = own
        for node in function.node:
            _check_node(node, inner, functions)
    for node in proto.graph.node:
        _check_node(node, context, functions)


def _check_version(version: int, name: str) -> None:
    if version < OLDEST_OPSET:
        fix = f"convert it to version {OLDEST_OPSET} or later with onnx.version_converter"
        raise ConversionError(f"the model uses version {version or 'none'} of the ONNX operators", name, fix)
    if version > defs.onnx_opset_version():
        raise ConversionError(
            f"the model uses version {version} of the ONNX operators, and onnx {onnx.__version__} knows "
            f"{defs.onnx_opset_version()}",
            name,
            "install a newer onnx, or export it in an older version",
        )


def _check_names(graph: onnx.GraphProto, name: str) -> None:
    if not graph.node:
        raise ConversionError("the model has no nodes, so there is nothing to compute", name, "is this the right file?")
    if not graph.output:
        raise ConversionError("the model has no outputs", name, "export it with its outputs")
    values = [("input", value) for value in graph.input] + [("output", value) for value in graph.output]
    for side, value in values:
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", None):
            text = kind.removesuffix("_type").replace("_", " ")
            article = "an" if text[0] in "aeiou" else "a"
            raise ConversionError(
                f"an {side} is {article} {text}", f"{side} {value.name}", "export the model with plain tensors"
            )
    for tensor in graph.sparse_initializer:
        raise ConversionError("a tensor is sparse", f"tensor {tensor.values.name}", "store it dense")
    inputs, constants = [value.name for value in graph.input], [tensor.name for tensor in graph.initializer]
    outputs = [value.name for value in graph.output]
    for kind, names in (("an input", inputs), ("a tensor", constants), ("an output", outputs)):
        for found, count in Counter(names).items():
            if count > 1:
                where = f"{kind.split()[1]} {found}"
                raise ConversionError(f"{kind} is listed {count} times", where, "list it once")
    computed = {output for node in graph.node for output in node.output}
    for found in outputs:
        if found in inputs or found in constants:
            kind = "constant" if found in constants else "an input"
            raise ConversionError(f"an output is {kind}", f"output {found}", "remove it from the model's outputs")
        if found not in computed:
            raise ConversionError("no node computes this output", f"output {found}", "remove it, or export again")
    known = computed.union(inputs, constants, {""})
    for node in graph.node:
        for found in node.input:
            if found not in known:
                where = f"node {node.name or ', '.join(node.output)}"
                what = f"{node.op_type}: it reads {found}, which is no input or constant and which no node computes"
                raise ConversionError(what, where, "the exporter lost it: export again, or with another exporter")


def _check_tensor(tensor: onnx.TensorProto, context: onnx.checker.C.CheckerContext) -> None:
    if tensor.data_type == onnx.TensorProto.STRING:
        return  # no weights; what reads it is refused
    try:
        onnx.checker.check_tensor(tensor, context)
        # The checker does not compare the shape with the number of bytes.
        onnx.numpy_helper.to_array(tensor)
    except (onnx.checker.ValidationError, KeyError, TypeError, ValueError) as e:
        where = f"tensor {tensor.name}" if tensor.name else "a tensor without a name"
        raise ConversionError(f"a tensor is malformed: {first_line(e)}", where, "export the model again") from None


def _check_node(node: onnx.NodeProto, context: onnx.checker.C.CheckerContext, functions: set[tuple[str, str]]) -> None:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _check_node(inner, context, functions)
    custom = node.domain not in STANDARD_DOMAINS or node.op_type in OPERATORS
    if custom or (node.domain, node.op_type) in functions:
        return
    where = f"node {node.name or ', '.join(node.output)}"
    _check_known(node, context.opset_imports.get("", 0), where)
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
        return  # the checker would check the inner graph as a model of its own
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as e:
        raise ConversionError(
            f"{node.op_type}: this node is malformed: {first_line(e)}", where, "export the model again"
        ) from None


def _check_known(node: onnx.NodeProto, version: int, where: str) -> None:
    """Refuse operators that ONNX does not have in this version, and definitions that the handlers do not know."""
    if not node.op_type:
        raise ConversionError("a node names no operator", where, "export the model again")
    if not defs.has(node.op_type, version, ""):
        fix = "check its domain"
        if defs.has(node.op_type, ""):
            first = min(s.since_version for s in defs.get_all_schemas_with_history() if s.name == node.op_type)
            fix = f"export for version {first} or later"
        raise ConversionError(
            f"{node.op_type}: version {version} of the ONNX operators has no such operator", where, fix
        )
    since = defs.get_schema(node.op_type, version, "").since_version
    if since > NEWEST_OPSET:
        raise ConversionError(
            f"{node.op_type}: version {since} of this operator is not supported",
            where,
            f"export the model for version {NEWEST_OPSET} of the ONNX operators",
        )
