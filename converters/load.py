"""Reading an ONNX file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx

from bnnrt.converters.check import check, is_text, normalise_domains
from bnnrt.converters.external import LARGEST_MODEL, load_external
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
    """Read and parse ``path``, with its external data, and check it.

    Raises ConversionError if the file is missing, unreadable or not ONNX, if :func:`check` refuses the model, or if its
    external data cannot be read or lie outside its own folder.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST_MODEL:
            raise ConversionError(
                "the file has more than 2 GB, which protobuf cannot read",
                str(path),
                "export the model with external data",
            )
        data = path.read_bytes()
    except OSError as e:
        raise ConversionError(f"cannot read the model: {e.strerror or e}", str(path), "check the path") from None
    digest = hashlib.sha256(data).hexdigest()
    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # protobuf's DecodeError, or what else the parser stumbles over
        raise _no_onnx(path) from None
    del data
    if not proto.HasField("graph"):
        raise _no_onnx(path)
    if not is_text(proto):
        raise ConversionError("a name in the model is not UTF-8", str(path), "export the model again")
    normalise_domains(proto)
    load_external(proto, path)
    check(proto, path.name)
    return Source(path, digest, proto)


def _no_onnx(path: Path) -> ConversionError:
    return ConversionError("this is not an ONNX file", str(path), "export the model again, or copy it again")
