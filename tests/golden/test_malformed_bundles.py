"""Bundles that a reader must refuse: each made from a good one by one change, and refused for that reason."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bnnrt import bundle
from bnnrt.errors import BundleError

GOOD = (Path(__file__).parent / "bundles" / "tiny.bnn").read_bytes()
# Text of 4 MiB, the longest header, may take thirty times its length; anything beyond was believed, not checked.
MOST_MEMORY = 160 << 20

Document = dict[str, Any]


def split(data: bytes) -> tuple[Document, bytes]:
    """The safetensors header, parsed, and the tensors behind it."""
    end = 8 + struct.unpack_from("<Q", data)[0]
    return json.loads(data[8:end]), data[end:]


def joined(header: Document | bytes, tensors: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + tensors


HEADER, TENSORS = split(GOOD)
DOCUMENT: Document = json.loads(HEADER["__metadata__"]["bnnrt"])


def sealed(text: str, header: Document = HEADER, tensors: bytes = TENSORS) -> bytes:
    """The good file with ``text``, the JSON of a document without its hash, under a right hash."""
    rest = text[1:]
    digest = hashlib.sha256(rest.encode()).hexdigest()
    document = f'{{"sha256":"{digest}",{rest}'
    return joined({**header, "__metadata__": {"bnnrt": document}}, tensors)


def documented(edit: Callable[[Document], None]) -> bytes:
    """The good file with an edited document under a right hash."""
    document = copy.deepcopy(DOCUMENT)
    del document["sha256"]
    edit(document)
    return sealed(json.dumps(document))


def headed(edit: Callable[[Document], None]) -> bytes:
    """The good file with an edited safetensors header."""
    header = copy.deepcopy(HEADER)
    edit(header)
    return joined(header, TENSORS)


def put(*path: Any) -> Callable[[Document], None]:
    """An edit: the last of ``path`` in the place that the others name."""
    *steps, key, value = path

    def edit(document: Document) -> None:
        place: Any = document
        for step in steps:
            place = place[step]
        place[key] = value

    return edit


def drop(*path: Any) -> Callable[[Document], None]:
    """An edit: without the place that ``path`` names."""
    *steps, key = path

    def edit(document: Document) -> None:
        place: Any = document
        for step in steps:
            place = place[step]
        del place[key]

    return edit


def add(*path: Any) -> Callable[[Document], None]:
    """An edit: the last of ``path`` appended to the array that the others name."""
    *steps, value = path

    def edit(document: Document) -> None:
        place: Any = document
        for step in steps:
            place = place[step]
        place.append(value)

    return edit


BINDING: Document = {"scale": None, "offset": -0.5, "binarized": False}
CALIBRATION: Document = {
    "bundle_sha256": "ab" * 32,
    "seed": 0,
    "images": 7,
    "images_right": [5, 6],
    "held_out": 3,
    "held_out_right": [1, 2],
}


def of_version_1_1(edit: Callable[[Document], None] = lambda document: None) -> bytes:
    """The good file with the keys that version 1.1 added, edited, under a right hash."""

    def edit_both(document: Document) -> None:
        document |= {"version": [1, 1], "binding": dict(BINDING)}
        document["provenance"]["calibration"] = dict(CALIBRATION)
        edit(document)

    return documented(edit_both)


def in_text(old: str, new: str) -> bytes:
    """The good file with ``new`` for ``old`` in the text of its document, under a right hash."""
    text = json.dumps({key: value for key, value in DOCUMENT.items() if key != "sha256"})
    assert text.count(old) >= 1
    return sealed(text.replace(old, new, 1))


def node(name: str, graph: str = "model") -> tuple[Any, ...]:
    """The path of a node of the document."""
    names = [node["name"] for node in DOCUMENT[graph]["nodes"]]
    return graph, "nodes", names.index(name)


def rehashed_tensor(name: str, position: int, value: int) -> bytes:
    """The good file with one byte of a tensor changed and all hashes right."""
    begin, end = HEADER[name]["data_offsets"]
    tensors = bytearray(TENSORS)
    tensors[begin + position] = value
    document = copy.deepcopy(DOCUMENT)
    del document["sha256"]
    document["tensors"][name]["sha256"] = hashlib.sha256(tensors[begin:end]).hexdigest()
    return sealed(json.dumps(document), tensors=bytes(tensors))


def reshaped(name: str, shape: list[int], dtype: str | None = None) -> bytes:
    """The good file with another stored shape of a tensor, and its document unchanged."""
    header = copy.deepcopy(HEADER)
    header[name]["shape"] = shape
    if dtype:
        header[name]["dtype"] = dtype
    return joined(header, TENSORS)


def one_tensor_more() -> bytes:
    header = {**HEADER, "more": {"dtype": "U8", "shape": [1], "data_offsets": [len(TENSORS), len(TENSORS) + 1]}}
    return joined(header, TENSORS + b"\0")


def one_listed_tensor_more() -> bytes:
    header = {**HEADER, "more": {"dtype": "U8", "shape": [1], "data_offsets": [len(TENSORS), len(TENSORS) + 1]}}
    document = copy.deepcopy(DOCUMENT)
    del document["sha256"]
    document["tensors"]["more"] = {"domain": "uint8", "shape": [1], "sha256": hashlib.sha256(b"\0").hexdigest()}
    return sealed(json.dumps(document), header, TENSORS + b"\0")


def container_attacks() -> Iterator[tuple[str, bytes, str]]:
    yield "empty file", b"", "not a safetensors file"
    yield "only a length", GOOD[:8], "cut off"
    yield "text", b"this is no bundle, but a text", "not a safetensors file"
    yield "zip", b"PK\x03\x04" + bytes(60), "not a safetensors file"
    yield "zeros", bytes(4096), "JSON is malformed"
    yield "header length beyond the file", struct.pack("<Q", len(GOOD)) + GOOD[8:], "cut off"
    yield "header length of 2**64 - 1", b"\xff" * 8 + GOOD[8:], "cut off"
    yield "header beyond the limit", joined(b'{"a":"' + b"b" * (4 << 20) + b'"}', b""), "header has 4194312 bytes"
    yield "header is no UTF-8", joined(b'{"\xff":1}', b""), "not UTF-8"
    yield "header is UTF-16", joined("{}".encode("utf-16"), b""), "not UTF-8"
    yield "header is an array", joined(b"[]", b""), "header is an array, not an object"
    yield "header is nested", joined(b"[" * 1_000_000, b""), "nested too deeply"
    yield "header is nested objects", joined(b'{"a":' * 500_000, b""), "nested too deeply"
    yield "header of many small objects", joined(b"[" + b'{"":0},' * 599_000 + b"{}]", b""), "an array, not an object"
    yield "header with a key twice", joined(b'{"__metadata__":{},"__metadata__":{}}', b""), "key occurs twice"
    yield "no metadata", headed(drop("__metadata__")), "no key __metadata__"
    yield "metadata is null", headed(put("__metadata__", None)), "is null, not an object"
    yield "another program's safetensors", headed(put("__metadata__", {"format": "pt"})), "no key bnnrt"
    yield "document is a number", headed(put("__metadata__", "bnnrt", 1)), "an integer, not a string"
    yield "more bytes at the end", GOOD + b"\0", "do not fit the file"
    yield "tensors missing at the end", GOOD[:-4], "do not fit the file"
    yield "offsets beyond the file", headed(put("scale", "data_offsets", [0, 1 << 40])), "do not fit the file"
    yield "offsets backwards", headed(put("scale", "data_offsets", [4, 0])), "do not fit the file"
    yield "offsets negative", headed(put("scale", "data_offsets", [-4, 0])), "do not fit the file"
    yield "offsets overlap", headed(put("scale", "data_offsets", [8, 12])), "do not fit the file"
    yield "a hole between tensors", headed(drop("conv.threshold")), "do not fit the file"
    yield "stored dtype unknown", headed(put("scale", "dtype", "Q9")), "do not fit the file"
    yield "stored shape overflows", reshaped("scale", [1 << 63, 1 << 63]), "do not fit the file"
    yield "stored shape of 2**40", reshaped("scale", [1 << 40]), "do not fit the file"
    yield "stored shape negative", reshaped("scale", [-1, -1]), "do not fit the file"
    yield "stored shape unlike declared", reshaped("conv.weight", [1, 5]), "stored as U32"
    yield "stored dtype unlike declared", reshaped("scale", [1], "I32"), "stored as I32"
    yield "stored tensor that nobody listed", one_tensor_more(), "listed and not stored, or stored and not listed"
    yield "listed tensor that nobody uses", one_listed_tensor_more(), "a tensor belongs to no graph"
    yield "listed tensor that is not stored", documented(put("tensors", "more", DOCUMENT["tensors"]["scale"])), "listed"
    yield "a byte of a tensor", GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "does not have the SHA-256"
    yield "a letter of a label", GOOD.replace(b"car", b"cat"), "does not have the SHA-256"
    yield "a bit beyond the end of a row", rehashed_tensor("conv.weight", 3, 0xFF), "bits set beyond its 27 elements"


def document_attacks() -> Iterator[tuple[str, bytes, str]]:
    yield "no hash first", headed(put("__metadata__", "bnnrt", '{"version":[1,0]}')), "does not have the SHA-256"
    yield "empty document", headed(put("__metadata__", "bnnrt", "")), "does not have the SHA-256"
    yield "document is no JSON", sealed('{"version"'), "JSON is malformed"
    yield "document is nested", sealed('{"a":' + "[" * 1_000_000), "nested too deeply"
    yield "document has a key twice", sealed('{"version":[1,0],"version":[1,0]}'), "key occurs twice"
    yield "document has half a surrogate pair", in_text('"car"', '"\\ud800"'), "JSON is malformed"
    yield "no version", documented(drop("version")), "no key version"
    yield "version is text", documented(put("version", "1.0")), "is a string, not an array"
    yield "version of one number", documented(put("version", [1])), "not [major, minor]"
    yield "version is boolean", documented(put("version", [True, 0])), "is a boolean, not an integer"
    yield "version negative", documented(put("version", [1, -1])), "not between 0"
    yield "newer major version", documented(put("version", [2, 0])), "version 2.0 is unknown"
    yield "older major version", documented(put("version", [0, 9])), "version 0.9 is unknown"
    for key in sorted(DOCUMENT.keys() - {"sha256", "version"}):
        yield f"no {key}", documented(drop(key)), f"no key {key}"
    for key in ("model", "provenance", "tensors"):
        yield f"{key} is null", documented(put(key, None)), "is null, not an object"
        yield f"{key} is an array", documented(put(key, [])), "is an array, not an object"
    yield "unknown key", documented(put("more", 1)), "unknown key more"
    yield "unknown key of a graph", documented(put("pixels", "more", 1)), "pixels has an unknown key more"
    yield "unknown key of a tensor", documented(put("tensors", "scale", "more", 1)), "unknown key more"

    tuned = ("provenance", "calibration")
    yield "binding in version 1.0", of_version_1_1(put("version", [1, 0])), "unknown key binding"
    yield "calibration in version 1.0", documented(put(*tuned, CALIBRATION)), "unknown key calibration"
    yield "binding is null", of_version_1_1(put("binding", None)), "is null, not an object"
    yield "binding without scale", of_version_1_1(drop("binding", "scale")), "no key scale"
    yield "binding with unknown key", of_version_1_1(put("binding", "more", 1)), "unknown key more"
    yield "scale is text", of_version_1_1(put("binding", "scale", "1")), "a string, not a number"
    yield "scale beyond float32", of_version_1_1(put("binding", "scale", 1e39)), "beyond the range"
    yield "binarized is a number", of_version_1_1(put("binding", "binarized", 1)), "an integer, not a boolean"
    yield "calibration is null", of_version_1_1(put(*tuned, None)), "is null, not an object"
    yield "calibration without seed", of_version_1_1(drop(*tuned, "seed")), "no key seed"
    yield "calibration without hash", of_version_1_1(put(*tuned, "bundle_sha256", "ab")), "is not a SHA-256"
    yield "images negative", of_version_1_1(put(*tuned, "images", -1)), "not between 0"
    yield "right is a number", of_version_1_1(put(*tuned, "images_right", 5)), "an integer, not an array"
    yield "right is one number", of_version_1_1(put(*tuned, "images_right", [5])), "is not [before, after]"
    yield "right is three numbers", of_version_1_1(put(*tuned, "held_out_right", [1, 2, 3])), "3 elements"

    yield "unknown domain", documented(put("tensors", "scale", "domain", "float64")), "is none of bit, uint8, int32"
    yield "domain is a number", documented(put("tensors", "scale", "domain", 1)), "an integer, not a string"
    yield "tensor without hash", documented(drop("tensors", "scale", "sha256")), "no key sha256"
    yield "wrong hash", documented(put("tensors", "scale", "sha256", "0" * 64)), "does not have the SHA-256"
    yield "hash is a list", documented(put("tensors", "scale", "sha256", [])), "an array, not a string"
    yield "shape of 2**40", documented(put("tensors", "scale", "shape", [1 << 40])), "not between 1 and"
    yield "shape of 2**60 elements", documented(put("tensors", "scale", "shape", [1 << 20] * 3)), "out of range"
    yield "shape with 0", documented(put("tensors", "scale", "shape", [0])), "is 0, not between 1"
    yield "shape negative", documented(put("tensors", "scale", "shape", [-1])), "is -1, not between 1"
    yield "shape with a boolean", documented(put("tensors", "scale", "shape", [True])), "is a boolean"
    yield "shape with a fraction", documented(put("tensors", "scale", "shape", [1.0])), "is a number, not an integer"
    yield "shape without axes", documented(put("tensors", "scale", "shape", [])), "0 dimensions"
    yield "shape of 7 axes", documented(put("tensors", "scale", "shape", [1] * 7)), "7 elements"
    yield "free shape of a constant", documented(put("tensors", "scale", "shape", [None])), "free shape"
    yield "number of 21 digits", in_text('"shape": [1]', f'"shape": [{"1" * 21}]'), "too many digits"
    yield "number of a million digits", in_text('"shape": [1]', f'"shape": [{"1" * 1_000_000}]'), "too many digits"
    yield "number that overflows", in_text('"shape": [1]', '"shape": [1e999]'), "not finite"
    yield "NaN", in_text('"shape": [1]', '"shape": [NaN]'), "not finite"
    yield "minus infinity", in_text('"shape": [1]', '"shape": [-Infinity]'), "not finite"

    conv, pool, flatten, layout, sign = (node(name) for name in ("conv", "pool", "flatten", "layout", "sign"))
    window = (*conv, "parameters", "window")
    yield "unknown operator", documented(put(*conv, "op", "Exec")), "unknown operator, Exec"
    yield "base class as operator", documented(put(*conv, "op", "Op")), "unknown operator, Op"
    yield "operator is null", documented(put(*conv, "op", None)), "null, not a string"
    yield "node without name", documented(drop(*conv, "name")), "no key name"
    yield "node is text", documented(put(*conv, "Conv")), "a string, not an object"
    yield "unknown parameter", documented(put(*conv, "parameters", "more", 1)), "unknown key more"
    yield "missing parameter", documented(drop(*conv, "parameters", "groups")), "no key groups"
    yield "parameters are an array", documented(put(*conv, "parameters", [])), "an array, not an object"
    yield "parameter is text", documented(put(*conv, "parameters", "groups", "1")), "a string, not an integer"
    yield "parameter is boolean", documented(put(*conv, "parameters", "groups", True)), "a boolean, not an integer"
    yield "parameter is a fraction", documented(put(*conv, "parameters", "groups", 1.5)), "a number, not an integer"
    yield "parameter beyond 32 bits", documented(put(*conv, "parameters", "groups", 1 << 31)), "not between"
    yield "groups of 0", documented(put(*conv, "parameters", "groups", 0)), "0 groups do not divide"
    yield "pad value of 2", documented(put(*conv, "parameters", "pad_value", 2)), "pads with 2"
    yield "window is null", documented(put(*window, None)), "null, not an object"
    yield "window of three axes", documented(put(*window, "kernel", [3, 3, 3])), "3 elements, not 2"
    yield "window without strides", documented(drop(*window, "strides")), "no key strides"
    yield "window with unknown key", documented(put(*window, "more", [1])), "unknown key more"
    yield "stride of 0", documented(put(*window, "strides", [0, 1])), "strides [0, 1] is out of range"
    yield "huge pads", documented(put(*window, "pads", [1 << 30] * 4)), "is out of range"
    yield "window that does not fit", documented(put(*window, "kernel", [30, 30])), "is inconsistent"
    yield "unknown member of an enumeration", documented(put(*sign, "parameters", "zero", "no")), "is none of ge, gt"
    yield "enumeration as a number", documented(put(*sign, "parameters", "zero", 0)), "an integer, not a string"
    yield "permutation of 100000 axes", documented(put(*layout, "parameters", "perm", [0] * 100_000)), "elements"
    yield "permutation twice the same", documented(put(*layout, "parameters", "perm", [0, 1, 1, 3])), "does not fit"
    yield "reshape to a list of texts", documented(put(*flatten, "parameters", "shape", ["20"])), "a string"
    yield "reshape to other elements", documented(put(*flatten, "parameters", "shape", [21])), "other elements"
    yield "reshape to 2**62 elements", documented(put(*flatten, "parameters", "shape", [1 << 30] * 2)), "out of range"

    yield "unknown tensor", documented(put(*conv, "inputs", ["bits", "nothing"])), "read before it is written"
    yield "itself as input", documented(put(*conv, "inputs", ["sums", "conv.weight"])), "read before it is written"
    yield "input missing", documented(put(*conv, "inputs", ["bits"])), "takes 2 inputs"
    yield "input is null", documented(put(*conv, "inputs", [None, "bits"])), "null, not a string"
    yield "two outputs", documented(put(*conv, "outputs", ["sums", "more"])), "has 1 outputs, not 2"
    yield "tensor written twice", documented(put(*pool, "outputs", ["sums"])), "written twice"
    yield "nodes out of order", documented(lambda d: d["model"]["nodes"].reverse()), "read before it is written"
    yield "constant unknown", documented(put("model", "constants", "scale", "nothing")), "not among the tensors"
    yield "constant is an object", documented(put("model", "constants", "scale", {})), "an object, not a string"
    yield "constant of another domain", documented(put("model", "constants", "scale", "conv.threshold")), "is int32"
    yield "graph input twice", documented(add("model", "inputs", DOCUMENT["model"]["inputs"][0])), "another input"
    yield "graph input of 7 axes", documented(put("model", "inputs", 0, "shape", [1] * 7)), "7 elements"
    yield "graph input free inside", documented(put("model", "inputs", 0, "shape", [1, None, 4, 4])), "out of range"
    yield "graph input of 2**40", documented(put("model", "inputs", 0, "shape", [None, 3, 1 << 20, 1 << 20])), "range"
    yield "graph output unknown", documented(put("model", "outputs", ["nothing"])), "not computed"
    yield "graph output twice", documented(put("model", "outputs", ["scores", "scores"])), "each of its own name"
    yield "graph without outputs", documented(put("model", "outputs", [])), "the model needs outputs"
    yield "graph output a constant", documented(put("model", "outputs", ["scale"])), "not computed"

    yield "port of another name", documented(put("inputs", 0, "name", "x")), "not the model's inputs"
    yield "port missing", documented(put("outputs", [])), "not the model's outputs"
    yield "port twice", documented(add("inputs", DOCUMENT["inputs"][0])), "not the model's inputs"
    yield "port of another dtype", documented(put("outputs", 0, "dtype", "int64")), "output port int64"
    yield "port of another size", documented(put("outputs", 0, "shape", ["batch", 4])), "output port float32"
    yield "port of another rank", documented(put("inputs", 0, "shape", ["batch", 3, 4])), "input port float32"
    yield "port with a boolean size", documented(put("inputs", 0, "shape", [True, 3, 4, 4])), "is a boolean"
    yield "port with size 0", documented(put("inputs", 0, "shape", [0, 3, 4, 4])), "not between 1"

    yield "pixels of another size", documented(put("pipeline", "height", 5)), "does not start from pixels"
    yield "pixels without pipeline", documented(put("pipeline", None)), "or neither"
    yield "pipeline without pixels", documented(lambda d: d.update(pixels=None)), "belongs to no graph"
    yield "pixels that are floats", documented(put("pixels", DOCUMENT["model"])), "belongs to no graph"
    yield "pixels under another name", in_text('"name": "pixels"', '"name": "pixel"'), "is inconsistent"
    yield "pixels with another output", documented(put("pixels", "outputs", ["fc.float"])), "other outputs"
    yield "pipeline is text", documented(put("pipeline", "resize")), "image pipeline"
    yield "pipeline with unknown key", documented(put("pipeline", "more", 1)), "image pipeline"
    yield "pipeline of boolean height", documented(put("pipeline", "height", True)), "image pipeline"

    yield "labels of another count", documented(put("labels", ["a", "b"])), "2 labels do not fit the 3 elements"
    yield "no labels but a list", documented(put("labels", [])), "0 labels do not fit"
    yield "labels are text", documented(put("labels", "abc")), "a string, not an array"
    yield "label is a number", documented(put("labels", ["a", "b", 3])), "an integer, not a string"
    yield "label is null", documented(put("labels", ["a", "b", None])), "null, not a string"
    yield "provenance without source", documented(drop("provenance", "source")), "no key source"
    yield "provenance of another hash", documented(put("provenance", "source_sha256", "md5")), "is not a SHA-256"
    yield "provenance in numbers", documented(put("provenance", "converter", 1)), "an integer, not a string"


ATTACKS = [*container_attacks(), *document_attacks()]


@pytest.mark.parametrize(("data", "problem"), [pytest.param(*attack[1:], id=attack[0]) for attack in ATTACKS])
def test_a_malformed_bundle_is_refused(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.bnn"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(BundleError) as caught:
            bundle.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem in str(caught.value)
    assert str(path) in caught.value.where
    assert caught.value.fix
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)
    assert peak < MOST_MEMORY


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        (1e39, "beyond the range of float32"),
        (10**39, "too many digits"),
        ("0", "a string, not a number"),
        (True, "a boolean, not a number"),
        (None, "null, not a number"),
        ([0], "an array, not a number"),
    ],
)
def test_a_pad_value_is_a_finite_float32(value: object, problem: str, tmp_path: Path) -> None:
    def edit(document: Document) -> None:
        parameters = {"pads": [0, 0, 0, 0], "value": value}
        pad = {"name": "pad", "op": "Pad", "parameters": parameters, "inputs": ["nhwc"], "outputs": ["padded"]}
        document["model"]["nodes"].insert(1, pad)

    path = tmp_path / "pad.bnn"
    path.write_bytes(documented(edit))
    with pytest.raises(BundleError) as caught:
        bundle.read(path)
    assert problem in str(caught.value)


def test_version_1_1_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.bnn").write_bytes(of_version_1_1())
    found = bundle.read(tmp_path / "a.bnn")
    assert found.binding is not None
    assert found.binding.offset == -0.5
    assert found.provenance.calibration is not None
    assert found.provenance.calibration.images_right == (5, 6)


def test_a_newer_minor_version_may_hold_more(tmp_path: Path) -> None:
    def edit(document: Document) -> None:
        document["version"] = [1, 7]
        document["more"] = document["model"]["more"] = document["model"]["nodes"][0]["more"] = {"a": [1]}

    path = tmp_path / "newer.bnn"
    path.write_bytes(documented(edit))
    bundle.write(bundle.read(path), path)
    assert path.read_bytes() == GOOD


def test_a_newer_minor_version_cannot_add_a_parameter(tmp_path: Path) -> None:
    def edit(document: Document) -> None:
        document["version"] = [1, 7]
        document["model"]["nodes"][0]["parameters"]["more"] = 1

    (tmp_path / "newer.bnn").write_bytes(documented(edit))
    with pytest.raises(BundleError, match="unknown key more"):
        bundle.read(tmp_path / "newer.bnn")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.bnn"
    for length in range(len(GOOD)):
        path.write_bytes(GOOD[:length])
        with pytest.raises(BundleError):
            bundle.read(path)


fuzz = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(changes=st.dictionaries(st.integers(0, len(GOOD) - 1), st.integers(1, 255), min_size=1, max_size=4))
def test_changed_bytes_are_refused_or_change_nothing(changes: dict[int, int], tmp_path: Path) -> None:
    data = bytearray(GOOD)
    for position, mask in changes.items():
        data[position] ^= mask
    path = tmp_path / "changed.bnn"
    path.write_bytes(data)
    try:
        found = bundle.read(path)
    except BundleError:
        return
    bundle.write(found, path)
    assert path.read_bytes() == GOOD


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON document."""
    children: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


PLACES = [place for place in places(DOCUMENT) if place != ("sha256",)]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([1, 2, 3, "bits", "sums", "scores", "int32", "BinaryDense", "MaxPool"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@fuzz
@given(place=st.sampled_from(PLACES), value=json_values)
def test_a_changed_document_is_refused_or_still_a_bundle(place: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    path = tmp_path / "changed.bnn"
    path.write_bytes(documented(put(*place, value)))
    try:
        found = bundle.read(path)
    except BundleError:
        return
    bundle.write(found, path)
    bundle.read(path)
