"""Reading an ONNX file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from bnnrt.converters.onnx_node import STANDARD_DOMAINS
from bnnrt.converters.qonnx import OPERATORS
from bnnrt.errors import ConversionError

__all__ = ["Source", "load"]

OLDEST_OPSET = 7
SUBGRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


@dataclass(frozen=True, eq=False)
class Source:
    """A parsed ONNX file and the SHA-256 of its bytes."""

    path: Path
    sha256: str
    proto: onnx.ModelProto

    @property
    def metadata(self) -> dict[str, str]:
        """The model's metadata properties."""
        return {entry.key: entry.value for entry in self.proto.metadata_props}


def load(path: str | Path) -> Source:
    """Read and parse ``path``, with its external data.

    Raises ConversionError if the file is missing, unreadable, not ONNX or without nodes, or if its external data lies
    outside its own folder.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise ConversionError(f"cannot read the model: {e.strerror or e}", str(path)) from None
    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # protobuf's DecodeError, or what else the parser stumbles over
        raise ConversionError("this is not an ONNX file", str(path)) from None
    if not proto.graph.node:
        raise ConversionError("the model has no nodes", str(path), "is this an ONNX file?")
    _load_external_data(proto, path)
    _check(proto)
    return Source(path, hashlib.sha256(data).hexdigest(), proto)


def _check(proto: onnx.ModelProto) -> None:
    """Check every tensor, and every node of the standard operators, against ONNX's own definitions.

    Not the model as a whole: good models lack the import of a custom domain, and onnx refuses them for that.
    """
    context = onnx.checker.DEFAULT_CONTEXT.__class__()
    context.ir_version = proto.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in proto.opset_import}
    if context.opset_imports.get("", 0) < OLDEST_OPSET:
        version = context.opset_imports.get("", "none")
        # Before, Add and its like broadcast by other rules.
        fix = f"convert it to version {OLDEST_OPSET} or later with onnx.version_converter"
        raise ConversionError(f"the model uses version {version} of the ONNX operators", fix=fix)
    for tensor in proto.graph.initializer:
        try:
            onnx.checker.check_tensor(tensor, context)
            # The checker does not compare the shape with the number of bytes.
            onnx.numpy_helper.to_array(tensor)
        except (onnx.checker.ValidationError, ValueError, TypeError) as e:
            raise ConversionError(f"a tensor is malformed: {_first_line(e)}", f"tensor {tensor.name}") from None
    for node in proto.graph.node:
        custom = node.domain not in STANDARD_DOMAINS or node.op_type in OPERATORS
        if custom or any(a.type in SUBGRAPHS for a in node.attribute):
            continue
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as e:
            where = f"node {node.name or node.output[:1]}"
            raise ConversionError(f"{node.op_type}: this node is malformed: {_first_line(e)}", where) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _load_external_data(proto: onnx.ModelProto, path: Path) -> None:
    external = [tensor for tensor in proto.graph.initializer if uses_external_data(tensor)]
    if not external:
        return
    folder = path.resolve().parent
    for tensor in external:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        # Resolved, so that neither ".." nor a symbolic link leads out of the folder.
        if not location or not (folder / location).resolve().is_relative_to(folder):
            raise ConversionError(
                f"tensor {tensor.name} keeps its data outside the model's folder", location, "move it beside the model"
            )
    try:
        load_external_data_for_model(proto, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as e:
        raise ConversionError(f"cannot read external data: {e}", str(path)) from None
