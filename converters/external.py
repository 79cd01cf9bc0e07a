"""Tensors of a model whose data lie in files of their own, beside the model and never outside its folder."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from bnnrt.converters.onnx_model.proto import first_line, tensors
from bnnrt.errors import ConversionError

__all__ = ["LARGEST_MODEL", "load_external"]

LARGEST_MODEL = (1 << 31) - 1
"""How many bytes a model may have: protobuf reads no more, and the libraries behind it neither."""


def load_external(proto: onnx.ModelProto, path: Path) -> None:
    """Read into ``proto`` what the model at ``path`` keeps in other files.

    Raises ConversionError, naming the tensor, where a file lies outside the model's folder, is missing, or is shorter
    than the tensor.
    """
    external = [(tensor, _file(tensor, path)) for tensor in tensors(proto) if uses_external_data(tensor)]
    if sum(_size(tensor) for tensor, _ in external) > LARGEST_MODEL:
        raise ConversionError("the model's tensors have more than 2 GB together", str(path), "that is too large")
    for tensor, file in external:
        _read(tensor, file, path)


def _file(tensor: onnx.TensorProto, path: Path) -> Path:
    """The file that holds the data of ``tensor``, without ".." and links."""
    folder = path.resolve().parent
    location = _entry(tensor, "location")
    where = f"tensor {tensor.name}"
    if not location:
        raise ConversionError("its external data lie in a file that has no name", where, "export the model again")
    # Resolved, so that neither ".." nor a symbolic link leads out of the folder.
    try:
        file = (folder / location).resolve()
    except (OSError, RuntimeError, ValueError) as e:  # a loop of links, a NUL in the name
        raise ConversionError(
            f"its external data cannot be read from {location}: {e}", where, "export the model again"
        ) from None
    if not file.is_relative_to(folder):
        raise ConversionError(
            f"its external data lie outside the model's folder, in {location}", where, "move that file beside the model"
        )
    if Path(location).is_absolute():
        raise ConversionError(
            f"its external data lie under an absolute path, {location}", where, "export the model with relative paths"
        )
    if not file.is_file():
        problem = "not a file" if file.exists() else "missing"
        raise ConversionError(f"its external data are {problem}: {location}", where, "put that file beside the model")
    return file


def _entry(tensor: onnx.TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def _size(tensor: onnx.TensorProto) -> int:
    length = _entry(tensor, "length")
    return int(length) if length.isdecimal() else 0


def _read(tensor: onnx.TensorProto, file: Path, path: Path) -> None:
    folder = path.resolve().parent
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = str(file.relative_to(folder))  # the library takes no links, not even inside the folder
    try:
        load_external_data_for_tensor(tensor, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as e:
        raise ConversionError(
            f"its external data cannot be read: {first_line(e)}",
            f"tensor {tensor.name}",
            "copy the model and its data again",
        ) from None
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
