"""The bundle: a converted network in one safetensors file, specified in ``docs/bundle.md``.

A bundle may come from anywhere, so a reader believes nothing: sizes are compared with the file before memory is
taken, what is parsed is what was hashed, and every fault is a BundleError. The hashes detect damage; they do not say
who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import save

from bnnrt.errors import BundleError, GraphError
from bnnrt.files import reason, replace_file
from bnnrt.graph import STORAGE, Constant, Graph, class_scores
from bnnrt.graph_json import MAX_RANK, Value, decode_graph, decode_type, encode_graph, encode_type, parse
from bnnrt.ops import Domain, Grayscale, TensorType
from bnnrt.preprocess.pipeline import ImagePipeline

__all__ = ["FORMAT_VERSION", "Bundle", "Calibration", "PixelBinding", "Port", "Provenance", "read", "write"]

FORMAT_VERSION = (1, 1)
MAX_FILE_BYTES = 1 << 30
# JSON takes up to thirty times its length once parsed; a thousand layers and as many labels take a quarter of this.
MAX_HEADER_BYTES = 4 << 20

_METADATA = "__metadata__"
_KEY = "bnnrt"
_LENGTH_BYTES = 8
# A hash cannot cover itself, so it stands first, at a fixed place, and covers every byte after it.
_SEAL = re.compile(r'\{"sha256":"([0-9a-f]{64})",')
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORED_DTYPES = {
    Domain.BIT: "U32",
    Domain.UINT8: "U8",
    Domain.INT32: "I32",
    Domain.INT64: "I64",
    Domain.FLOAT32: "F32",
}
# The library declares no types.
_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize
_DAMAGED = "convert the model again, or copy the bundle again"


@dataclass(frozen=True)
class Port:
    """An input or output of the ONNX model, in its own words.

    ``shape`` has a number, the name of a symbolic size, or ``None`` for a nameless one; ``dtype`` is NumPy's name.
    """

    name: str
    shape: tuple[int | str | None, ...]
    dtype: str


@dataclass(frozen=True)
class PixelBinding:
    """How pixels, 0 to 255, become the model's own input.

    ``value = pixel * scale + offset``, float32 operations, each left out where it is None. With ``binarized`` the value
    is one of +1 and -1 that the pixel graph makes of the pixels, and the model knows nothing of its thresholds.
    """

    scale: float | None = None
    offset: float | None = None
    binarized: bool = False


@dataclass(frozen=True)
class Calibration:
    """That input thresholds were tuned on labelled images, and with what result.

    ``bundle_sha256`` is the SHA-256 of the file that was calibrated (64 hex digits), ``images`` the number of images
    that it was tuned on, ``held_out`` that of others; ``images_right`` and ``held_out_right`` say how many of them were
    classified correctly, before and after. ``seed`` chose which are which.

    Raises BundleError if the hash is none.
    """

    bundle_sha256: str
    seed: int
    images: int
    images_right: tuple[int, int]
    held_out: int
    held_out_right: tuple[int, int]

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.bundle_sha256):
            raise BundleError("calibration.bundle_sha256 is not a SHA-256", fix="give 64 lower-case hex digits")


@dataclass(frozen=True)
class Provenance:
    """Where a bundle comes from: the model's file name, the SHA-256 of its bytes (64 hex digits), and the converter.

    ``calibration`` is the last one that the bundle has been through since.

    Raises BundleError if the hash is none.
    """

    source: str
    source_sha256: str
    converter: str
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.source_sha256):
            raise BundleError("provenance.source_sha256 is not a SHA-256", self.source, "give 64 lower-case hex digits")


@dataclass(frozen=True, eq=False)
class Bundle:
    """A network and what is needed to feed it and to name its results.

    ``model`` starts from the ONNX model's own inputs: ``inputs`` has one port for each, in the same order and of the
    same name, and ``outputs`` likewise. ``pixels`` is the same network from one input ``pixels``, uint8 [N, H, W, C],
    with the same outputs; it and ``pipeline`` are there if the model takes images. ``labels`` names the elements of the
    last axis of the first output, or of what that picks the greatest of. ``binding`` says how ``pixels`` and ``model``
    belong together; None where the format did not hold that yet.

    Raises BundleError if these do not fit each other.
    """

    model: Graph
    pixels: Graph | None
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    pipeline: ImagePipeline | None
    labels: tuple[str, ...] | None
    provenance: Provenance
    binding: PixelBinding | None = None

    def __post_init__(self) -> None:
        outputs = {name: self.model.types[name] for name in self.model.outputs}
        if not outputs or len(outputs) != len(self.model.outputs):
            raise BundleError("the model needs outputs, each of its own name")
        _check_ports("input", self.inputs, self.model.inputs)
        _check_ports("output", self.outputs, outputs)
        _check_pixels(self.pixels, self.pipeline, outputs)
        if self.binding is not None and self.pixels is None:
            raise BundleError("pixels are bound to the model's input, and there is no pixel graph")
        if self.labels is not None:
            classes = self.model.types[class_scores(self.model) or self.model.outputs[0]].shape[-1]
            if classes is not None and len(self.labels) != classes:
                raise BundleError(f"{len(self.labels)} labels do not fit the {classes} elements of the first output")


def _check_ports(kind: str, ports: Sequence[Port], types: Mapping[str, TensorType]) -> None:
    if [port.name for port in ports] != list(types):
        raise BundleError(f"the {kind} ports are not the model's {kind}s")
    for port in ports:
        tensor_type = types[port.name]
        if not _fits(port, tensor_type):
            raise BundleError(f"{kind} port {port.dtype}{list(port.shape)} is not the graph's {tensor_type}", port.name)


def _fits(port: Port, tensor_type: TensorType) -> bool:
    # No ONNX tensor holds packed bits.
    if (
        tensor_type.domain is Domain.BIT
        or port.dtype != STORAGE[tensor_type.domain].name
        or len(port.shape) != len(tensor_type.shape)
    ):
        return False
    # The graph may leave a batch free that the model fixes, and fix a size that the model only names.
    sizes = zip(port.shape, tensor_type.shape, strict=True)
    return all(size == given for size, given in sizes if isinstance(size, int) and given is not None)


def _check_pixels(graph: Graph | None, pipeline: ImagePipeline | None, outputs: Mapping[str, TensorType]) -> None:
    if graph is None and pipeline is None:
        return
    if graph is None or pipeline is None:
        raise BundleError("a bundle has both a pixel graph and an image pipeline, or neither")
    size = (pipeline.height, pipeline.width, pipeline.channels)
    tensor_type = graph.inputs.get("pixels")
    if (
        tensor_type is None
        or len(graph.inputs) != 1
        or tensor_type.domain is not Domain.UINT8
        or tensor_type.shape[1:] != size
    ):
        raise BundleError(f"the pixel graph does not start from pixels, uint8[N, {', '.join(map(str, size))}]")
    if pipeline.color != "rgb" and any(isinstance(node.op, Grayscale) for node in graph.nodes):
        raise BundleError(
            f"the pixel graph takes the luma of red, green, blue, and the pipeline gives {pipeline.color}"
        )
    if [(name, graph.types[name]) for name in graph.outputs] != list(outputs.items()):
        raise BundleError("the pixel graph has other outputs than the model")


def write(bundle: Bundle, path: str | os.PathLike[str], before: Callable[[int], None] = lambda size: None) -> None:
    """Write ``bundle``: the whole file or nothing, and the same bytes for the same bundle.

    Args:
        before: called with the size in bytes when the file only has to be renamed to ``path``; if it raises, there is
            no file.

    Raises:
        BundleError: no reader would take the bundle: a parameter is NaN, a name is not Unicode, it is too large.
        OutputError: the file cannot be written at ``path``.
    """
    data = _encode(bundle)
    _check_size(len(data))
    _decode(data)
    replace_file(os.fspath(path), data, "bundle", lambda: before(len(data)))


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle; its constants are read-only.

    Raises:
        BundleError: the file is missing, damaged, malformed, or of another major version.
    """
    name = os.fspath(path)
    try:
        return _decode(_contents(name))
    except BundleError as e:
        raise BundleError(e.what, ", ".join(filter(None, (name, e.where))), e.fix or _DAMAGED) from None


def _encode(bundle: Bundle) -> bytes:
    """The bytes of the file."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    table: dict[str, Any] = {}
    names: dict[tuple[TensorType, str], str] = {}

    def encode(graph: Graph) -> dict[str, Any]:
        stored = {name: store(name, constant) for name, constant in sorted(graph.constants.items())}
        return encode_graph(graph, stored)

    def store(name: str, constant: Constant) -> str:
        """The name under which the contents of ``constant`` are stored, by now."""
        data = np.ascontiguousarray(constant.data, dtype=_little_endian(constant.type))
        digest = hashlib.sha256(data.data).hexdigest()
        if (constant.type, digest) not in names:
            # The safetensors header keeps its metadata under this name.
            while name in tensors or name == _METADATA:
                name += "'"
            names[constant.type, digest] = name
            tensors[name] = data
            table[name] = {**encode_type(constant.type), "sha256": digest}
        return names[constant.type, digest]

    document: dict[str, Any] = {
        "version": (1, 0),
        "model": encode(bundle.model),
        "pixels": None if bundle.pixels is None else encode(bundle.pixels),
        "inputs": [asdict(port) for port in bundle.inputs],
        "outputs": [asdict(port) for port in bundle.outputs],
        "pipeline": None if bundle.pipeline is None else bundle.pipeline.to_json(),
        "labels": bundle.labels,
        "provenance": asdict(bundle.provenance),
        "tensors": table,
    }
    # What version 1.0 does not know is written only where it is there, so that other bundles stay the same bytes.
    if bundle.provenance.calibration is None:
        del document["provenance"]["calibration"]
    if bundle.binding is not None:
        document["binding"] = asdict(bundle.binding)
    if bundle.binding is not None or bundle.provenance.calibration is not None:
        document["version"] = FORMAT_VERSION
    sealed = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))[1:]
    try:
        digest = hashlib.sha256(sealed.encode()).hexdigest()
    except UnicodeEncodeError:
        raise BundleError("a name or label is not Unicode", fix="rename it in the model") from None
    return save(tensors, metadata={_KEY: f'{{"sha256":"{digest}",{sealed}'})


def _decode(data: bytes) -> Bundle:
    """The bundle in the bytes of a file; an error does not name the file."""
    document = _document(data)
    version = _version(document)
    members = Value(document.raw, document.where, version > FORMAT_VERSION).fields(
        *("sha256", "version", "model", "pixels", "inputs", "outputs", "pipeline", "labels", "provenance", "tensors"),
        optional=("binding",) if version >= (1, 1) else (),
    )
    tensors = _decode_tensors(members["tensors"], data)
    model = decode_graph(members["model"], tensors)
    pixels = None if members["pixels"].raw is None else decode_graph(members["pixels"], tensors)
    used = {id(c) for graph in (model, pixels) if graph is not None for c in graph.constants.values()}
    for name, constant in tensors.items():
        if id(constant) not in used:
            raise BundleError("a tensor belongs to no graph", name)
    return Bundle(
        model=model,
        pixels=pixels,
        inputs=tuple(_decode_port(item) for item in members["inputs"].items()),
        outputs=tuple(_decode_port(item) for item in members["outputs"].items()),
        pipeline=None if members["pipeline"].raw is None else ImagePipeline.from_json(members["pipeline"].raw),
        labels=None if members["labels"].raw is None else members["labels"].texts(),
        provenance=_decode_provenance(members["provenance"], version),
        binding=_decode_binding(members["binding"]) if "binding" in members else None,
    )


def _decode_provenance(value: Value, version: tuple[int, int]) -> Provenance:
    optional = ("calibration",) if version >= (1, 1) else ()
    members = value.fields("source", "source_sha256", "converter", optional=optional)
    calibration = _decode_calibration(members["calibration"]) if "calibration" in members and optional else None
    return Provenance(
        members["source"].text(), members["source_sha256"].text(), members["converter"].text(), calibration
    )


def _decode_calibration(value: Value) -> Calibration:
    members = value.fields("bundle_sha256", "seed", "images", "images_right", "held_out", "held_out_right")
    return Calibration(
        bundle_sha256=members["bundle_sha256"].text(),
        seed=members["seed"].integer(least=0),
        images=members["images"].integer(least=0),
        images_right=_decode_pair(members["images_right"]),
        held_out=members["held_out"].integer(least=0),
        held_out_right=_decode_pair(members["held_out_right"]),
    )


def _decode_pair(value: Value) -> tuple[int, int]:
    items = value.items(2)
    if len(items) != 2:
        value.fail("is not [before, after]")
    return items[0].integer(least=0), items[1].integer(least=0)


def _decode_binding(value: Value) -> PixelBinding:
    members = value.fields("scale", "offset", "binarized")
    scale, offset = (None if members[name].raw is None else members[name].number() for name in ("scale", "offset"))
    return PixelBinding(scale, offset, members["binarized"].boolean())


def _document(data: bytes) -> Value:
    """The JSON document in the header of a file, after its hash has been compared."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or length > len(data) - _LENGTH_BYTES:
        raise BundleError("the file is not a safetensors file, or is cut off")
    if length > MAX_HEADER_BYTES:
        raise BundleError(f"the header has {length} bytes; at most {MAX_HEADER_BYTES} are possible")
    try:
        header = parse(data[_LENGTH_BYTES : _LENGTH_BYTES + length].decode())
    except UnicodeDecodeError:
        raise BundleError("the header is not UTF-8") from None
    text = _member(_member(Value(header, "header"), _METADATA), _KEY).text()
    seal = _SEAL.match(text)
    if seal is None or hashlib.sha256(text[seal.end() :].encode()).hexdigest() != seal[1]:
        raise BundleError("the document does not have the SHA-256 that it claims")
    return Value(parse(text), "document")


def _member(value: Value, key: str) -> Value:
    """One member of an object that may hold others."""
    members = value.mapping()
    if key not in members:
        value.fail(f"has no key {key}")
    return members[key]


def _version(document: Value) -> tuple[int, int]:
    """The version of the format; another major version is refused."""
    version = _member(document, "version").items(2)
    if len(version) != 2:
        document.fail("has a version that is not [major, minor]")
    major, minor = (number.integer(least=0) for number in version)
    if major != FORMAT_VERSION[0]:
        raise BundleError(
            f"format version {major}.{minor} is unknown; this is a reader of {FORMAT_VERSION[0]}",
            fix="convert the model again" if major < FORMAT_VERSION[0] else "update bnnrt",
        )
    return major, minor


def _decode_tensors(value: Value, data: bytes) -> dict[str, Constant]:
    """The tensors of a file by name, as ``value`` describes them."""
    table = value.mapping()
    try:
        # Compares every size with the file before it copies a tensor out of it.
        stored = dict(_deserialize(data))
    except safetensors.SafetensorError as e:
        raise BundleError(f"the tensors do not fit the file: {e}") from None
    for name in sorted(table.keys() ^ stored.keys()):
        raise BundleError("a tensor is listed and not stored, or stored and not listed", name)
    return {name: _decode_tensor(item, stored[name]) for name, item in table.items()}


def _decode_tensor(value: Value, stored: Mapping[str, Any]) -> Constant:
    members = value.fields("domain", "shape", "sha256")
    tensor_type = decode_type(members)
    shape = Constant.stored_shape(tensor_type)
    if stored["dtype"] != _STORED_DTYPES[tensor_type.domain] or tuple(stored["shape"]) != shape:
        value.fail(f"is {tensor_type}, but stored as {stored['dtype']}{stored['shape']}")
    if hashlib.sha256(stored["data"]).hexdigest() != members["sha256"].text():
        value.fail("does not have the SHA-256 that it claims")
    array = np.frombuffer(stored["data"], dtype=_little_endian(tensor_type)).astype(
        STORAGE[tensor_type.domain], copy=False
    )
    array.flags.writeable = False
    try:
        return Constant(tensor_type, array.reshape(shape))
    except GraphError as e:
        value.fail(f"is refused: {e}")


def _little_endian(tensor_type: TensorType) -> np.dtype[Any]:
    return STORAGE[tensor_type.domain].newbyteorder("<")


def _decode_port(value: Value) -> Port:
    members = value.fields("name", "shape", "dtype")
    shape = members["shape"].items(MAX_RANK)
    return Port(members["name"].text(), tuple(_decode_size(item) for item in shape), members["dtype"].text())


def _decode_size(value: Value) -> int | str | None:
    if value.raw is None or type(value.raw) is str:
        return value.raw
    return value.integer(least=1)


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise BundleError(f"a bundle of {size} bytes is too large; at most {MAX_FILE_BYTES} are possible")


def _contents(name: str) -> bytes:
    """The bytes of the file. Raises BundleError."""
    if os.path.exists(name) and not os.path.isfile(name):
        raise BundleError("not a file", fix="give the path of a bundle")
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            _check_size(size)
            return file.read(size)
    except (OSError, ValueError) as e:
        raise BundleError(f"cannot read the bundle: {reason(e)}", fix="check the path") from None
