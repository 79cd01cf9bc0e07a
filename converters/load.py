"""Reading an ONNX file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from bnnrt.errors import ConversionError

__all__ = ["Source", "load"]


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
    return Source(path, hashlib.sha256(data).hexdigest(), proto)


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
