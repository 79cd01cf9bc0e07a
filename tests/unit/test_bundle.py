"""Bundles: what is kept, what is shared, what a bundle refuses to be, and how files are written and missed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from bnnrt import bundle, files
from bnnrt.bundle import Bundle, Calibration, PixelBinding, Port, Provenance
from bnnrt.errors import BundleError, OutputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.graph_json import Value, decode_parameters, encode_parameters
from bnnrt.ops import (
    OPS,
    Arithmetic,
    ArithmeticKind,
    AveragePool,
    BinaryDense,
    Domain,
    Grayscale,
    LocalBinaryPattern,
    Op,
    Pad,
    Reshape,
    Sign,
    TensorType,
    Threshold,
    ToFloat,
    Transpose,
    Window,
)
from bnnrt.preprocess.pipeline import ImagePipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "bundles" / "tiny.bnn"
PAGE = Path(__file__).parents[2] / "docs" / "bundle.md"
PROVENANCE = Provenance("model.onnx", "ab" * 32, "bnnrt 0.1.0")
CALIBRATED = dataclasses.replace(PROVENANCE, calibration=Calibration("cd" * 32, 7, 70, (50, 60), 30, (20, 21)))


def made(**changes: Any) -> Bundle:
    """A bundle of one dense layer over 2x2 images of three channels."""
    weights = {"w": Constant.bits(np.arange(24).reshape(2, 12) % 5 < 2)}
    layers = (
        Node("flatten", Reshape((12,)), ("bits",), ("flat",)),
        Node("fc", BinaryDense(), ("flat", "w"), ("sums",)),
        Node("cast", ToFloat(), ("sums",), ("y",)),
    )
    model = Graph(
        {"x": TensorType((None, 3, 2, 2), Domain.FLOAT32)},
        (
            Node("layout", Transpose((0, 2, 3, 1)), ("x",), ("nhwc",)),
            Node("sign", Sign(), ("nhwc",), ("bits",)),
            *layers,
        ),
        ("y",),
        weights,
    )
    pixels = Graph(
        {"pixels": TensorType((None, 2, 2, 3), Domain.UINT8)},
        (Node("threshold", Threshold(), ("pixels", "t", "f"), ("bits",)), *layers),
        ("y",),
        {**weights, "t": Constant.of(np.zeros(3, np.int32)), "f": Constant.bits([False] * 3)},
    )
    whole = Bundle(
        model=model,
        pixels=pixels,
        inputs=(Port("x", ("batch", 3, 2, 2), "float32"),),
        outputs=(Port("y", ("batch", 2), "float32"),),
        pipeline=ImagePipeline(height=2, width=2),
        labels=("no", "yes"),
        provenance=PROVENANCE,
    )
    return dataclasses.replace(whole, **changes)


def of_graph(graph: Graph) -> Bundle:
    """A bundle around a graph that takes no images."""

    def ports(types: dict[str, TensorType]) -> tuple[Port, ...]:
        dtypes = {Domain.FLOAT32: "float32", Domain.INT32: "int32", Domain.UINT8: "uint8"}
        return tuple(Port(name, tensor_type.shape, dtypes[tensor_type.domain]) for name, tensor_type in types.items())

    outputs = {name: graph.types[name] for name in graph.outputs}
    return Bundle(graph, None, ports(dict(graph.inputs)), ports(outputs), None, None, PROVENANCE)


def document(path: Path) -> dict[str, Any]:
    """The JSON document of a bundle, as any safetensors reader sees it."""
    with safe_open(path, framework="numpy") as file:
        found: dict[str, Any] = json.loads(file.metadata()["bnnrt"])
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made.bnn"


def test_everything_is_kept(path: Path) -> None:
    expected = made()
    bundle.write(expected, path)
    found = bundle.read(path)
    for name in ("inputs", "outputs", "pipeline", "labels", "provenance"):
        assert getattr(found, name) == getattr(expected, name)
    for graph, other in ((found.model, expected.model), (found.pixels, expected.pixels)):
        assert graph is not None
        assert other is not None
        assert dict(graph.inputs) == dict(other.inputs)
        assert (graph.nodes, graph.outputs, graph.types) == (other.nodes, other.outputs, other.types)
        assert {name: c.data.tolist() for name, c in graph.constants.items()} == {
            name: c.data.tolist() for name, c in other.constants.items()
        }


def test_what_is_absent_stays_absent(path: Path) -> None:
    bundle.write(made(pixels=None, pipeline=None, labels=None), path)
    found = bundle.read(path)
    assert (found.pixels, found.pipeline, found.labels) == (None, None, None)


@pytest.mark.parametrize("binding", [None, PixelBinding(), PixelBinding(1 / 255, -0.5), PixelBinding(binarized=True)])
@pytest.mark.parametrize("provenance", [PROVENANCE, CALIBRATED])
def test_what_version_1_1_adds(binding: PixelBinding | None, provenance: Provenance, path: Path) -> None:
    bundle.write(made(binding=binding, provenance=provenance), path)
    found = bundle.read(path)
    assert (found.binding, found.provenance) == (binding, provenance)
    added = {"binding"} & document(path).keys() | {"calibration"} & document(path)["provenance"].keys()
    assert document(path)["version"] == ([1, 1] if added else [1, 0])
    assert len(added) == (binding is not None) + (provenance is CALIBRATED)


def test_constants_are_read_only(path: Path) -> None:
    bundle.write(made(), path)
    with pytest.raises(ValueError, match="read-only"):
        bundle.read(path).model.constants["w"].data[0, 0] = 1


def test_any_safetensors_reader_gets_the_tensors(path: Path) -> None:
    bundle.write(made(), path)
    with safe_open(path, framework="numpy") as file:
        assert sorted(file.keys()) == ["f", "t", "w"]
        assert np.array_equal(file.get_tensor("w"), made().model.constants["w"].data)


def test_the_same_content_is_stored_once(path: Path) -> None:
    value = np.arange(6, dtype=np.float32)
    x = {"x": TensorType((None, 6), Domain.FLOAT32)}
    nodes = (
        Node("a", Arithmetic(ArithmeticKind.ADD), ("x", "a"), ("y",)),
        Node("b", Arithmetic(ArithmeticKind.ADD), ("y", "b"), ("z",)),
    )
    bundle.write(of_graph(Graph(x, nodes, ("z",), {"b": Constant.of(value), "a": Constant.of(value.copy())})), path)
    assert document(path)["model"]["constants"] == {"a": "a", "b": "a"}
    found = bundle.read(path).model.constants
    assert found["a"] is found["b"]


def test_the_same_bytes_of_another_type_are_stored_apart(path: Path) -> None:
    zeros = {"t": Constant.of(np.zeros(1, np.int32)), "f": Constant.bits([False])}
    graph = Graph(
        {"x": TensorType((None, 1), Domain.INT32)},
        (Node("t", Threshold(), ("x", "t", "f"), ("bits",)), Node("cast", ToFloat(), ("bits",), ("y",))),
        ("y",),
        zeros,
    )
    bundle.write(of_graph(graph), path)
    assert document(path)["model"]["constants"] == {"t": "t", "f": "f"}


def test_one_name_for_two_contents(path: Path) -> None:
    whole = made()
    assert whole.pixels is not None
    nodes = (*whole.pixels.nodes[:2], Node("fc", BinaryDense(), ("flat", "w"), ("sums",)), whole.pixels.nodes[3])
    other = Constant.bits(np.ones((2, 12), np.bool_))
    pixels = Graph(whole.pixels.inputs, nodes, ("y",), {**whole.pixels.constants, "w": other})
    bundle.write(made(pixels=pixels), path)
    found = bundle.read(path)
    assert found.pixels is not None
    assert found.pixels.constants["w"].unpacked().all()
    assert not found.model.constants["w"].unpacked().all()


@pytest.mark.parametrize("name", ["__metadata__", "", " ", "a/b.c:0", "größe", "a\nb", '"', "\0", "x" * 5000])
def test_any_name_will_do(name: str, path: Path) -> None:
    graph = Graph(
        {"x": TensorType((None, 2), Domain.FLOAT32)},
        (Node(name, Arithmetic(ArithmeticKind.DIV), ("x", name), ("y",)),),
        ("y",),
        {name: Constant.of(np.ones(2, np.float32))},
    )
    bundle.write(of_graph(graph), path)
    found = bundle.read(path).model
    assert list(found.constants) == [name]
    assert found.nodes == graph.nodes


def test_the_order_of_inputs_is_kept(path: Path) -> None:
    inputs = {name: TensorType((None, 2), Domain.FLOAT32) for name in ("z", "a", "m")}
    nodes = (
        Node("1", Arithmetic(ArithmeticKind.SUB), ("z", "a"), ("za",)),
        Node("2", Arithmetic(ArithmeticKind.MUL), ("za", "m"), ("y",)),
    )
    bundle.write(of_graph(Graph(inputs, nodes, ("y", "za"))), path)
    found = bundle.read(path)
    assert list(found.model.inputs) == ["z", "a", "m"]
    assert [port.name for port in found.outputs] == ["y", "za"]


def test_constants_of_any_layout_and_order_give_the_same_file(path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)

    def written(constants: dict[str, Constant]) -> bytes:
        nodes = (
            Node("a", Arithmetic(ArithmeticKind.ADD), ("x", "a"), ("u",)),
            Node("b", Arithmetic(ArithmeticKind.ADD), ("u", "b"), ("y",)),
        )
        x = {"x": TensorType((3, 4), Domain.FLOAT32)}
        bundle.write(of_graph(Graph(x, nodes, ("y",), constants)), path)
        return path.read_bytes()

    tensor_type = TensorType((3, 4), Domain.FLOAT32)
    a, b = Constant(tensor_type, values), Constant(tensor_type, values + 1)
    assert written({"a": a, "b": b}) == written({"b": b, "a": Constant(tensor_type, np.asfortranarray(values))})


ranges = st.integers(1, 5)
pairs = st.tuples(ranges, ranges)
windows = st.builds(Window, pairs, pairs, st.tuples(*[st.integers(0, 5)] * 4), pairs)


def _hints(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass and their types."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in dataclasses.fields(kind)}


def _strategy(kind: Any) -> st.SearchStrategy[Any]:
    if kind is Window:
        return windows
    if kind is float:
        return st.floats(width=32, allow_nan=False, allow_infinity=False)
    if kind is int:
        return st.integers(-1, 1)
    if get_origin(kind) is tuple:
        elements = get_args(kind)
        return (
            st.lists(ranges, max_size=6).map(tuple)
            if elements[-1] is Ellipsis
            else st.tuples(*[ranges] * len(elements))
        )
    return st.sampled_from(list(kind))


@st.composite
def operators(draw: st.DrawFn) -> Op:
    op = draw(st.sampled_from(list(OPS.values())))
    if op is AveragePool:  # counts no more than it pads
        window = draw(windows)
        return AveragePool(window, draw(st.tuples(*(st.integers(0, pad) for pad in window.pads))))
    return op(**{name: draw(_strategy(kind)) for name, kind in _hints(op).items()})


@settings(deadline=None)
@given(op=operators())
def test_every_operator_survives_json(op: Op) -> None:
    encoded = json.loads(json.dumps(encode_parameters(op)))
    assert encoded.keys() == _hints(type(op)).keys()
    assert decode_parameters(type(op), Value(encoded, "op")) == op


def _kinds(kind: Any) -> Iterator[Any]:
    """The types that the parameters of a dataclass are made of."""
    for hint in _hints(kind).values():
        if hint is Window:
            yield from _kinds(Window)
        elif get_origin(hint) is tuple:
            yield from (element for element in get_args(hint) if element is not Ellipsis)
        else:
            yield hint


@pytest.mark.parametrize("op", OPS.values())
def test_parameters_are_numbers_and_enumerations(op: type[Op]) -> None:
    assert all(kind in (int, float) or issubclass(kind, Enum) for kind in _kinds(op))


def test_the_page_names_every_operator_and_parameter() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*)$", page, re.MULTILINE))
    for name, op in OPS.items():
        parameters = re.findall(r"`(\w+)`", rows[name].split("|")[0])
        assert parameters == list(_hints(op)), name
        for kind in _kinds(op):
            if issubclass(kind, Enum):
                assert all(f"`{member.value}`" in page for member in kind)
    assert all(f"`{name}`" in page for name in _hints(Window))
    assert set(rows) >= set(OPS)


def test_the_page_names_every_key(path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    bundle.write(made(binding=PixelBinding(), provenance=CALIBRATED), path)

    def check(value: Any, free: bool = False) -> None:
        for key, child in value.items() if isinstance(value, dict) else ():
            assert free or f"`{key}`" in page, key
            check(child, free=key in ("tensors", "constants"))
        for child in value if isinstance(value, list) else ():
            check(child)

    check(document(path))
    version = ".".join(map(str, bundle.FORMAT_VERSION))
    assert f"version {version}" in page.splitlines()[0]


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_luma_is_taken_of_red_green_and_blue(color: str) -> None:
    whole = made()
    assert whole.pixels is not None
    nodes = (
        Node("gray", Grayscale(), ("pixels",), ("luma",)),
        Node("lbp", LocalBinaryPattern(), ("luma",), ("bits",)),
        *whole.pixels.nodes[1:],
    )
    changes = {"pixels": whole.pixels.rebuilt(nodes), "pipeline": ImagePipeline(2, 2, color=color)}
    if color == "rgb":
        assert made(**changes).pixels is changes["pixels"]
    else:
        with pytest.raises(BundleError, match="luma of red, green, blue, and the pipeline gives bgr"):
            made(**changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pipeline": None}, "or neither"),
        ({"pixels": None}, "or neither"),
        ({"pipeline": ImagePipeline(height=2, width=2, channels=1)}, "does not start from pixels"),
        ({"pixels": None, "pipeline": None, "binding": PixelBinding()}, "there is no pixel graph"),
        ({"labels": ("no",)}, "1 labels do not fit the 2 elements"),
        ({"inputs": ()}, "input ports are not the model's inputs"),
        ({"outputs": (Port("z", (None, 2), "float32"),)}, "output ports are not the model's outputs"),
        ({"outputs": (Port("y", (None, 3), "float32"),)}, "output port float32[None, 3] is not"),
        ({"outputs": (Port("y", (2,), "float32"),)}, "output port float32[2] is not"),
        ({"inputs": (Port("x", ("N", 3, 2, 2), "float64"),)}, "input port float64"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(BundleError) as caught:
        made(**changes)
    assert problem in str(caught.value)


def test_bits_are_no_port() -> None:
    graph = Graph({"x": TensorType((1, 3), Domain.BIT)}, (), ("x",))
    port = (Port("x", (1, 3), "uint32"),)
    with pytest.raises(BundleError, match="is not the graph's bit"):
        Bundle(graph, None, port, port, None, None, PROVENANCE)


@pytest.mark.parametrize("shape", [(1, 3, 2, 2), (None, "C", "H", "W"), ("batch", 3, None, 2), (7, 3, 2, 2)])
def test_a_port_may_say_more_or_less_than_the_graph(shape: tuple[int | str | None, ...], path: Path) -> None:
    ports = (Port("x", shape, "float32"),)
    bundle.write(made(inputs=ports), path)
    assert bundle.read(path).inputs == ports


def test_labels_need_an_axis_of_known_size(path: Path) -> None:
    graph = Graph({"x": TensorType((None,), Domain.FLOAT32)}, (), ("x",))
    bundle.write(dataclasses.replace(of_graph(graph), labels=("a", "b", "a")), path)
    assert bundle.read(path).labels == ("a", "b", "a")


@pytest.mark.parametrize("digest", ["", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"])
def test_provenance_needs_a_hash(digest: str) -> None:
    with pytest.raises(BundleError, match="is not a SHA-256"):
        Provenance("model.onnx", digest, "bnnrt")


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": ("a", "\ud800")},
        {"provenance": dataclasses.replace(PROVENANCE, source="\udcff")},
        {"provenance": dataclasses.replace(PROVENANCE, source="x" * (4 << 20))},
    ],
)
def test_what_no_reader_takes_is_not_written(changes: dict[str, Any], path: Path) -> None:
    with pytest.raises(BundleError):
        bundle.write(made(**changes), path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("value", [float("inf"), 1e39])
def test_a_parameter_beyond_float32_is_not_written(value: float, path: Path) -> None:
    x = {"x": TensorType((None, 2, 2, 1), Domain.FLOAT32)}
    graph = Graph(x, (Node("pad", Pad((1, 1, 1, 1), value), ("x",), ("y",)),), ("y",))
    with pytest.raises(BundleError):
        bundle.write(of_graph(graph), path)
    assert not list(path.parent.iterdir())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    values=st.sampled_from([np.float32, np.int32, np.uint8, np.bool_]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=40))
    )
)
def test_any_constant_survives(values: npt.NDArray[Any], tmp_path: Path) -> None:
    constant = Constant.bits(values) if values.dtype == np.bool_ else Constant.of(values)
    graph = Graph({"x": TensorType((None, 1), Domain.FLOAT32)}, (), ("x",), {"c": constant})
    bundle.write(of_graph(graph), tmp_path / "made.bnn")
    found = bundle.read(tmp_path / "made.bnn").model.constants["c"]
    assert found.type == constant.type
    assert found.data.dtype == constant.data.dtype
    assert found.data.tobytes() == constant.data.tobytes()


def test_a_file_gets_the_permissions_of_the_umask(path: Path) -> None:
    before = os.umask(0o027)
    try:
        bundle.write(made(), path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_older_file_is_replaced(path: Path) -> None:
    path.write_text("older")
    bundle.write(made(), str(path))
    assert bundle.read(str(path)).labels == ("no", "yes")
    assert list(path.parent.iterdir()) == [path]


def test_a_link_is_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path.symlink_to("real/target.bnn")
    bundle.write(made(), path)
    assert path.is_symlink()
    assert (tmp_path / "real" / "target.bnn").is_file()
    assert bundle.read(path).labels == ("no", "yes")


@pytest.mark.parametrize("name", ["missing/made.bnn", "", ".", "a\0b", "x" * 300, "file/made.bnn"])
def test_an_unwritable_path_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError) as caught:
        bundle.write(made(), os.path.join(tmp_path, name))
    assert str(tmp_path) in caught.value.where
    assert caught.value.fix
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OutputError, match="not a file"):
        bundle.write(made(), tmp_path / "fifo")
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="may write to"):
            bundle.write(made(), tmp_path / "made.bnn")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("function", "code", "fix"),
    [
        ("fsync", errno.ENOSPC, "make room"),
        ("replace", errno.EACCES, "may write to"),
        ("fsync", errno.EROFS, "may write to"),
        ("fsync", errno.EIO, "another path"),
    ],
)
def test_a_failed_write_leaves_what_was_there(
    function: str, code: int, fix: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("older")

    def fail(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OutputError) as caught:
        bundle.write(made(), path)
    assert fix in caught.value.fix
    assert os.strerror(code) in caught.value.what
    assert list(path.parent.iterdir()) == [path]
    assert path.read_text() == "older"


def test_an_interrupted_write_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bundle.write(made(), path)
    assert not list(path.parent.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_full_disk_is_noticed_when_the_file_is_flushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def full(name: str, mode: str) -> Any:
        real(name, mode).close()
        return real("/dev/full", "wb")

    monkeypatch.setattr(files, "open", full, raising=False)
    with pytest.raises(OutputError, match="make room"):
        bundle.write(made(), path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("name", ["missing.bnn", "missing/made.bnn", "", ".", "a\0b", "x" * 300, "fifo"])
def test_an_unreadable_path_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BundleError) as caught:
        bundle.read(os.path.join(tmp_path, name))
    assert str(tmp_path) in caught.value.where
    assert caught.value.fix


def test_a_file_beyond_the_limit_is_not_read(path: Path) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2) + b"{}")
        file.truncate(bundle.MAX_FILE_BYTES + 1)
    with pytest.raises(BundleError, match="at most"):
        bundle.read(path)


def test_a_file_beyond_the_limit_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_FILE_BYTES", 1000)
    with pytest.raises(BundleError, match="at most 1000"):
        bundle.write(made(), path)
    assert not list(path.parent.iterdir())


def test_the_error_names_the_file_and_what_to_do(path: Path) -> None:
    path.write_bytes(GOLDEN.read_bytes()[:-1])
    with pytest.raises(BundleError) as caught:
        bundle.read(path)
    assert caught.value.where == str(path)
    assert str(caught.value).endswith("convert the model again, or copy the bundle again")
