"""The session: ONNX Runtime's interface, images, and what happens at the edges, on every backend."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bnnrt import (
    BackendError,
    BundleError,
    Classification,
    ConversionError,
    ImageError,
    InferenceSession,
    InputError,
    bundle,
)
from bnnrt.backends.base import Backend
from bnnrt.bundle import Bundle, Port, Provenance
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Arithmetic, ArithmeticKind, BinaryDense, Domain, Sign, TensorType, ToFloat
from bnnrt.session import load_bundle

Array = npt.NDArray[Any]

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures"
MODEL = FIXTURES / "paper_dynamo.onnx"
OTHER_MODEL = FIXTURES / "zero_pad_legacy.onnx"
PHOTOS = sorted((REPOSITORY / "examples" / "vehicle" / "photos").glob("*/*.jpg"))[::3]
LABELS = ("ant", "bee", "cow", "dog", "elk")


def golden(model: Path) -> tuple[Array, Array]:
    """Images and logits of a fixture model."""
    case, exporter = model.stem.rsplit("_", 1)
    with np.load(FIXTURES / f"{case}_golden.npz") as stored:
        return stored["x"], stored["logits" if exporter == "dynamo" else "logits_legacy"]


X, LOGITS = golden(MODEL)


def some(count: int) -> tuple[Array, Array]:
    """``count`` images and their logits."""
    chosen = np.arange(count) % len(X)
    return X[chosen], LOGITS[chosen]


def written(tmp_path: Path, graph: Graph) -> Path:
    """A bundle of a graph without images."""

    def ports(names: Any) -> tuple[Port, ...]:
        dtypes = {Domain.FLOAT32: "float32", Domain.INT32: "int32"}
        return tuple(Port(n, ("batch", *graph.types[n].shape[1:]), dtypes[graph.types[n].domain]) for n in names)

    path = tmp_path / "graph.bnn"
    origin = Provenance("graph.onnx", "0" * 64, "test")
    bundle.write(Bundle(graph, None, ports(graph.inputs), ports(graph.outputs), None, None, origin), path)
    return path


def exported(tmp_path: Path, batch: int | str, name: str = "input") -> Path:
    """An exact ONNX model of 3x6x6 images: thresholds, a convolution, a dense layer."""
    rng = np.random.default_rng(7)
    constants = {
        "T": np.array([-100.5, -127.5, -150.5], np.float32).reshape(3, 1, 1),
        "W": rng.choice(np.array([-1, 1], np.float32), (7, 3, 3, 3)),
        "D": rng.choice(np.array([-1, 1], np.float32), (112, 5)),
    }
    nodes = [
        helper.make_node("Add", [name, "T"], ["shifted"]),
        helper.make_node("Sign", ["shifted"], ["bits"]),
        helper.make_node("Conv", ["bits", "W"], ["sums"]),
        helper.make_node("Sign", ["sums"], ["hidden"]),  # of 27 terms: never 0
        helper.make_node("Flatten", ["hidden"], ["flat"]),
        helper.make_node("MatMul", ["flat", "D"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "exact",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 3, 6, 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(values, key) for key, values in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    path = tmp_path / f"{name}_{batch}.onnx"
    onnx.save(proto, path)
    return path


def by_onnx_runtime(path: Path, feeds: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


@pytest.fixture(scope="module")
def session(backend: Backend) -> Iterator[InferenceSession]:
    with InferenceSession(MODEL, backend.info.backend) as opened:
        yield opened


# What ONNX Runtime's users expect


@pytest.mark.parametrize(
    "model",
    [*sorted(FIXTURES.glob("*.onnx")), REPOSITORY / "examples/vehicle/models/vehicle_threshold.onnx"],
    ids=lambda path: path.stem,
)
def test_inputs_and_outputs_are_described_as_onnx_runtime_does(model: Path) -> None:
    ours = InferenceSession(model, "numpy")
    theirs = onnxruntime.InferenceSession(os.fspath(model), providers=["CPUExecutionProvider"])
    for found, wanted in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(a.name, a.shape, a.type) for a in found] == [(a.name, a.shape, a.type) for a in wanted]


def test_results_come_in_the_order_that_is_asked_for(backend: Backend, tmp_path: Path) -> None:
    real = TensorType((None, 3), Domain.FLOAT32)
    nodes = tuple(
        Node(kind.value, Arithmetic(kind), ("a", "b"), (kind.value,))
        for kind in (ArithmeticKind.ADD, ArithmeticKind.SUB, ArithmeticKind.MUL)
    )
    path = written(tmp_path, Graph({"a": real, "b": real}, nodes, ("add", "sub", "mul")))
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.float32(10) - a
    with InferenceSession(path, backend.info.backend) as session:
        for names in (None, ["add", "sub", "mul"], ["mul", "add"], ["sub"], ["mul", "mul"]):
            found = session.run(names, {"b": b, "a": a})
            wanted = {"add": a + b, "sub": a - b, "mul": a * b}
            assert len(found) == len(names or wanted)
            for name, array in zip(names or wanted, found, strict=True):
                np.testing.assert_array_equal(array, wanted[name])
                assert array.dtype == np.float32
        with pytest.raises(InputError, match=r"no output div.*add, sub, mul"):
            session.run(["add", "div"], {"a": a, "b": b})
        with pytest.raises(InputError, match=r"missing.*b"):
            session.run(None, {"a": a})
        with pytest.raises(InputError, match="missing"):
            session.run(None, {})
        with pytest.raises(InputError, match=r"no input c.*a, b"):
            session.run(None, {"a": a, "b": b, "c": a})
        with pytest.raises(InputError, match=r"shape \[1, 3\] \(b\)"):  # another batch than a's
            session.run(None, {"a": a, "b": b[:1]})


@pytest.mark.parametrize("batch", [1, 5, 17])
def test_any_batch_runs(session: InferenceSession, batch: int) -> None:
    x, logits = some(batch)
    (found,) = session.run(None, {"input": x})
    np.testing.assert_array_equal(found, logits)


def test_batch_of_none_gives_none(session: InferenceSession) -> None:
    (found,) = session.run(None, {"input": X[:0]})
    assert (found.shape, found.dtype) == ((0, 5), np.float32)
    (found,), timings = session.run_timed(None, {"pixels": np.zeros((0, 12, 12, 3), np.uint8)})
    assert (found.shape, found.dtype) == ((0, 5), np.float32)
    assert timings == []


def test_batch_of_none_has_the_dtype_of_the_output(backend: Backend, tmp_path: Path) -> None:
    nodes = (
        Node("sign", Sign(), ("x",), ("bits",)),
        Node("dense", BinaryDense(), ("bits", "w"), ("sums",)),
        Node("float", ToFloat(), ("sums",), ("y",)),
    )
    weights = Constant.bits([[True, False, True], [False, False, True]])
    graph = Graph({"x": TensorType((None, 3), Domain.FLOAT32)}, nodes, ("y", "sums"), {"w": weights})
    x = np.array([[1, 1, 1], [-1, 2, -3]], np.float32)
    with InferenceSession(written(tmp_path, graph), backend.info.backend) as session:
        for batch in (2, 0):
            y, sums = session.run(None, {"x": x[:batch]})
            assert (y.dtype, sums.dtype) == (np.float32, np.int32)
            np.testing.assert_array_equal(sums, np.array([[1, -1], [-3, -1]], np.int32)[:batch])
            np.testing.assert_array_equal(y, sums)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"input": X.astype(np.float64)}, r"float64 \(input\): give float32"),
        ({"input": X.astype(np.uint8)}, r"uint8 \(input\): give float32"),
        ({"input": X.astype(">f4")}, r"\(input\): give float32"),
        ({"input": X[:, :, :, :-1]}, r"shape \[6, 3, 12, 11\] \(input\): give \[N, 3, 12, 12\]"),
        ({"input": X.transpose(0, 2, 3, 1)}, r"shape \[6, 12, 12, 3\]"),
        ({"input": X[0]}, r"shape \[3, 12, 12\]"),
        ({"input": np.float32(1)}, r"shape \[\]"),
        ({"pixels": X.transpose(0, 2, 3, 1)}, r"float32 \(pixels\): give uint8"),
        ({"pixels": X.astype(np.uint8)}, r"shape \[6, 3, 12, 12\] \(pixels\): give \[N, 12, 12, 3\]"),
        ({"x": X}, "no input x: the inputs are input"),
        ({"input": X, "pixels": X}, "no input pixels"),
    ],
)
def test_feeds_that_do_not_fit_are_refused(session: InferenceSession, feeds: dict[str, Array], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        session.run(None, feeds)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(InputError, match=message):
        session.run_timed(None, feeds)


def test_arrays_may_lie_in_any_order(session: InferenceSession) -> None:
    for x in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X[::-1][::-1]):
        np.testing.assert_array_equal(session.run(None, {"input": x})[0], LOGITS)
    channels_first = np.ascontiguousarray(X.astype(np.uint8))
    (found,) = session.run(None, {"pixels": channels_first.transpose(0, 2, 3, 1)})
    np.testing.assert_array_equal(found, LOGITS)


def test_results_are_the_callers_own(session: InferenceSession) -> None:
    x = X.copy()
    (first,) = session.run(None, {"input": x})
    session.run(None, {"input": x[::-1]})
    np.testing.assert_array_equal(first, LOGITS)
    first[...] = 0
    np.testing.assert_array_equal(session.run(None, {"input": x})[0], LOGITS)
    np.testing.assert_array_equal(x, X)


def test_more_batch_sizes_than_plans_are_kept(session: InferenceSession) -> None:
    for batch in (1, 2, 3, 4, 5, 6, 1, 6):
        x, logits = some(batch)
        np.testing.assert_array_equal(session.run(None, {"input": x})[0], logits)
        np.testing.assert_array_equal(
            session.run(None, {"pixels": x.transpose(0, 2, 3, 1).astype(np.uint8)})[0], logits
        )


def test_model_of_a_fixed_batch(backend: Backend, tmp_path: Path) -> None:
    """It is described as it was exported; since every image is on its own, other batches run too."""
    path = exported(tmp_path, 4)
    x = np.random.default_rng(1).integers(0, 256, (9, 3, 6, 6)).astype(np.float32)
    wanted = np.concatenate([by_onnx_runtime(path, {"input": x[i : i + 4]})[0] for i in (0, 4)])
    with InferenceSession(path, backend.info.backend) as session:
        assert session.get_inputs()[0].shape == [4, 3, 6, 6]
        assert session.get_outputs()[0].shape == [4, 5]
        for batch in (4, 1, 8):
            np.testing.assert_array_equal(session.run(None, {"input": x[:batch]})[0], wanted[:batch])


def with_batch(free: Bundle, batch: int) -> Bundle:
    """The bundle with graphs that take ``batch`` images and no other number."""

    def fixed(graph: Graph) -> Graph:
        inputs = {n: TensorType((batch, *t.shape[1:]), t.domain) for n, t in graph.inputs.items()}
        return dataclasses.replace(graph, inputs=inputs)

    def ports(given: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(dataclasses.replace(port, shape=(batch, *port.shape[1:])) for port in given)

    assert free.pixels is not None
    return dataclasses.replace(
        free,
        model=fixed(free.model),
        pixels=fixed(free.pixels),
        inputs=ports(free.inputs),
        outputs=ports(free.outputs),
    )


@pytest.fixture
def fixed_batch(backend: Backend, tmp_path: Path) -> Iterator[InferenceSession]:
    """The usual network for four images at once."""
    bundle.write(with_batch(load_bundle(MODEL), 4), tmp_path / "fixed.bnn")
    with InferenceSession(tmp_path / "fixed.bnn", backend.info.backend) as session:
        yield session


def test_graph_of_a_fixed_batch_refuses_others(fixed_batch: InferenceSession) -> None:
    assert fixed_batch.get_inputs()[0].shape == [4, 3, 12, 12]
    x, logits = some(5)
    np.testing.assert_array_equal(fixed_batch.run(None, {"input": x[:4]})[0], logits[:4])
    for batch in (0, 1, 3, 5):
        with pytest.raises(InputError, match=rf"shape \[{batch}, 3, 12, 12\] \(input\): give \[4, 3, 12, 12\]"):
            fixed_batch.run(None, {"input": x[:batch]})


def test_graph_of_a_fixed_batch_classifies_any_number_of_images(
    fixed_batch: InferenceSession, session: InferenceSession
) -> None:
    sources: list[Any] = [*PHOTOS[:6], b"broken", *PHOTOS[6:9], b"broken"]
    found = list(fixed_batch.classify_each(sources))
    assert [source for source, _ in found] == sources
    for source, result in found:
        if source == b"broken":
            assert isinstance(result, ImageError)
        else:
            assert [result] == session.classify([source])
    assert fixed_batch.classify(PHOTOS[:1]) == session.classify(PHOTOS[:1])


def test_input_of_the_model_may_be_called_pixels(backend: Backend, tmp_path: Path) -> None:
    path = exported(tmp_path, "N", "pixels")
    x = np.random.default_rng(2).integers(0, 256, (2, 3, 6, 6)).astype(np.float32)
    with InferenceSession(path, backend.info.backend) as session:
        assert session.get_inputs()[0].name == "pixels"
        (found,) = session.run(None, {"pixels": x})
        (timed,), _ = session.run_timed(None, {"pixels": x})
        results = session.classify(PHOTOS[:3])
    np.testing.assert_array_equal(found, by_onnx_runtime(path, {"pixels": x})[0])
    np.testing.assert_array_equal(timed, found)
    with InferenceSession(exported(tmp_path, "N"), backend.info.backend) as usual:
        assert results == usual.classify(PHOTOS[:3])


# Times


@pytest.mark.parametrize("variants", ["default", "paper"])
def test_run_timed_times_the_kernels_of_the_plan(backend: Backend, variants: str) -> None:
    with InferenceSession(MODEL, backend.info.backend, variants=variants) as session:
        pixels = X.transpose(0, 2, 3, 1).astype(np.uint8)
        (logits,), timings = session.run_timed(["logits"], {"pixels": pixels})
        plan = session.plan(len(pixels))
    np.testing.assert_array_equal(logits, LOGITS)
    # A CPU's timer may not see the shortest kernels.
    assert all(timing.microseconds >= 0 for timing in timings)
    assert sum(timing.microseconds for timing in timings) > 0
    launches = [(step, launch) for step in plan.steps for launch in step.launches]
    assert [(t.kernel, t.layer, t.variant, t.grid, t.block) for t in timings] == [
        (launch.entry, step.nodes[0].name, step.variant, launch.grid, launch.block) for step, launch in launches
    ]
    assert len(timings) >= 5


def test_timed_and_untimed_runs_may_alternate(session: InferenceSession) -> None:
    for turn in range(4):
        x, logits = (X, LOGITS) if turn % 2 else (X[::-1], LOGITS[::-1])
        np.testing.assert_array_equal(session.run(None, {"input": x})[0], logits)
        (found,), _ = session.run_timed(None, {"input": x[::-1]})
        np.testing.assert_array_equal(found, logits[::-1])


# Images


@pytest.fixture(scope="module")
def classifier(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InferenceSession]:
    """The same network with labels, from a bundle on disk."""
    path = tmp_path_factory.mktemp("bundle") / "labelled.bnn"
    bundle.write(dataclasses.replace(load_bundle(MODEL), labels=LABELS), path)
    with InferenceSession(path, backend.info.backend) as opened:
        yield opened


@pytest.fixture(scope="module")
def singly(classifier: InferenceSession) -> dict[Path, Classification]:
    """What the network says of each photo, worked out by hand, one at a time."""
    pipeline = classifier.bundle.pipeline
    assert pipeline is not None
    found = {}
    for photo in PHOTOS:
        (logits,) = classifier.run(None, {"pixels": pipeline.load(photo)[None]})[0].astype(np.float64)
        powers = np.exp(logits - logits.max())
        scores = powers / powers.sum()
        index = int(np.argmax(logits))
        found[photo] = Classification(LABELS[index], index, scores[index], tuple(scores))
    assert len({r.scores for r in found.values()}) > 20  # so that an order can be seen
    return found


def test_classify_takes_paths_bytes_files_and_images(
    classifier: InferenceSession, singly: dict[Path, Classification]
) -> None:
    photo = PHOTOS[4]
    data = photo.read_bytes()
    with Image.open(photo) as image, photo.open("rb") as file:
        found = classifier.classify([photo, os.fspath(photo), data, io.BytesIO(data), file, image])
    assert found == [singly[photo]] * 6
    (result,) = found[:1]
    assert type(result.index) is int
    assert all(type(score) is float for score in (result.score, *result.scores))
    assert sum(result.scores) == pytest.approx(1, abs=1e-12)


def test_classify_takes_more_than_a_batch_and_any_iterable(
    classifier: InferenceSession, singly: dict[Path, Classification]
) -> None:
    assert len(PHOTOS) == 40
    assert classifier.classify(iter(PHOTOS)) == list(singly.values())
    assert classifier.classify([]) == []


def test_classify_stops_at_a_broken_image(classifier: InferenceSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(PHOTOS[0].read_bytes()[:500])
    with pytest.raises(ImageError, match=r"broken\.jpg"):
        classifier.classify([PHOTOS[0], broken, PHOTOS[1]])


@pytest.mark.parametrize("batch", [1, 3, 16])
@pytest.mark.parametrize(
    "broken",
    [{3}, {0}, {19}, {18, 19}, set(range(20)), set(range(1, 20)), set(range(19)), {2, 3, 5, 7, 11, 13, 17}],
    ids=["middle", "first", "last", "end", "all", "all but first", "all but last", "some"],
)
def test_classify_each_goes_on_after_broken_images(
    classifier: InferenceSession, singly: dict[Path, Classification], tmp_path: Path, batch: int, broken: set[int]
) -> None:
    sources = []
    for index, photo in enumerate(PHOTOS[:20]):
        bad = tmp_path / f"{index}.jpg"
        bad.write_bytes(b"no image")
        sources.append(bad if index in broken else photo)
    pairs = list(classifier.classify_each(sources, batch))
    assert [source for source, _ in pairs] == sources
    for index, (source, result) in enumerate(pairs):
        if index in broken:
            assert isinstance(result, ImageError)
            assert str(source) in str(result)
        else:
            assert result == singly[source]


def test_classify_each_reports_a_folder_of_broken_images_as_it_goes(classifier: InferenceSession) -> None:
    taken = 0

    def sources() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield b"no image"

    results = classifier.classify_each(sources())
    assert isinstance(next(results)[1], ImageError)
    assert taken < 200
    results.close()


def test_classify_each_may_be_left_early(classifier: InferenceSession, singly: dict[Path, Classification]) -> None:
    taken: list[Path] = []

    def sources() -> Iterator[Path]:
        for photo in PHOTOS * 10:
            taken.append(photo)
            yield photo

    results = classifier.classify_each(sources(), batch=2)
    assert next(results) == (PHOTOS[0], singly[PHOTOS[0]])
    results.close()
    assert len(taken) < 40
    assert not [t for t in threading.enumerate() if t.name.startswith("bnnrt-images")]
    assert classifier.classify(PHOTOS[:1]) == [singly[PHOTOS[0]]]


def test_labels(classifier: InferenceSession, session: InferenceSession) -> None:
    assert classifier.labels == list(LABELS)
    assert session.bundle.labels is None
    assert session.labels == ["0", "1", "2", "3", "4"]
    (result,) = session.classify(PHOTOS[:1])
    assert result.label == str(result.index)
    classifier.labels.clear()  # a copy
    assert classifier.labels == list(LABELS)


def test_networks_that_take_no_images_do_not_classify(backend: Backend, tmp_path: Path) -> None:
    real = TensorType((None, 3), Domain.FLOAT32)
    graph = Graph({"a": real}, (Node("add", Arithmetic(ArithmeticKind.ADD), ("a", "a"), ("y",)),), ("y",))
    with InferenceSession(written(tmp_path, graph), backend.info.backend) as session:
        with pytest.raises(InputError, match="does not take images"):
            session.classify(PHOTOS[:1])
        with pytest.raises(InputError, match="no input pixels"):
            session.run(None, {"pixels": np.zeros((1, 3, 3, 3), np.uint8)})


# Opening and closing


def test_bundle_and_model_are_the_same(backend: Backend, session: InferenceSession, tmp_path: Path) -> None:
    path = tmp_path / "m.bnn"
    bundle.write(load_bundle(MODEL), path)
    for name in (path, os.fspath(path)):
        with InferenceSession(name, backend=backend.info.backend) as opened:
            assert opened.get_inputs() == session.get_inputs()
            assert opened.device == backend.info
            np.testing.assert_array_equal(opened.run(None, {"input": X})[0], LOGITS)
    upper = tmp_path / "M.ONNX"
    upper.write_bytes(MODEL.read_bytes())
    with InferenceSession(upper, backend.info.backend) as opened:
        np.testing.assert_array_equal(opened.run(None, {"input": X})[0], LOGITS)


def test_files_that_are_no_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"none\.bnn"):
        InferenceSession(tmp_path / "none.bnn")
    with pytest.raises(ConversionError, match=r"none\.onnx"):
        InferenceSession(tmp_path / "none.onnx")
    wrong = tmp_path / "wrong.bnn"
    wrong.write_bytes(MODEL.read_bytes())
    with pytest.raises(BundleError, match=r"wrong\.bnn"):
        InferenceSession(wrong)


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(BackendError, match="unknown backend vulkan"):
        InferenceSession(MODEL, "vulkan")
    with pytest.raises(BackendError, match=r"no such device \(opencl:9\.9\)"):
        InferenceSession(MODEL, "opencl:9.9")


def test_unknown_variants_are_refused(backend: Backend) -> None:
    with (
        pytest.raises(InputError, match="unknown variant fastest"),
        InferenceSession(MODEL, backend.info.backend, variants="fastest") as session,
    ):
        session.run(None, {"input": X})


def test_closed_session_refuses_work(backend: Backend) -> None:
    session = InferenceSession(MODEL, backend.info.backend)
    session.run(None, {"input": X})
    session.close()
    session.close()
    uses: list[Callable[[], object]] = [
        lambda: session.run(None, {"input": X}),
        lambda: session.run(None, {"input": X[:0]}),
        lambda: session.run_timed(None, {"input": X}),
        lambda: session.classify(PHOTOS[:1]),
    ]
    for use in uses:
        with pytest.raises(InputError, match="session is closed"):
            use()


def test_session_closes_behind_a_with_block(backend: Backend) -> None:
    with InferenceSession(MODEL, backend.info.backend) as session:
        session.run(None, {"input": X})
    with pytest.raises(InputError, match="session is closed"):
        session.run(None, {"input": X})
    with pytest.raises(KeyError), InferenceSession(MODEL, backend.info.backend) as session:
        raise KeyError
    with pytest.raises(InputError, match="session is closed"):
        session.run(None, {"input": X})


# Threads and processes


def test_two_sessions_at_once(backend: Backend, session: InferenceSession) -> None:
    x, logits = golden(OTHER_MODEL)
    with InferenceSession(OTHER_MODEL, backend.info.backend) as other:
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, {"input": X})[0], LOGITS)
            np.testing.assert_array_equal(other.run(None, {"input": x})[0], logits)
    np.testing.assert_array_equal(session.run(None, {"input": X})[0], LOGITS)


def test_eight_threads_share_a_session(session: InferenceSession) -> None:
    def work(thread: int) -> None:
        for turn in range(12):
            x, logits = some(1 + (thread + turn) % 6)
            order = np.random.default_rng(100 * thread + turn).permutation(len(x))
            if turn % 3 == 2:
                found = session.run_timed(None, {"input": x[order]})[0]
            else:
                found = session.run(None, {"input": x[order]})
            np.testing.assert_array_equal(found[0], logits[order])

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, thread) for thread in range(8)]:
            done.result(timeout=60)


def in_a_child(use: Callable[[], object]) -> str:
    """The error that ``use`` gives in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            use()
            os.write(writer, b"no error")
        except BaseException as e:
            os.write(writer, f"{type(e).__name__}: {e}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        deadline = time.monotonic() + 5
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "the child hangs"
            time.sleep(0.01)
        return os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)


forking = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks in a process with threads


@forking
def test_forked_child_is_refused(backend: Backend) -> None:
    wanted = "InputError: the session was opened in another process: "
    wanted += "open it there; start the process by spawn if this one has used a device"
    with InferenceSession(MODEL, backend.info.backend) as session:
        session.run(None, {"input": X})
        assert in_a_child(lambda: session.run(None, {"input": X})) == wanted
        assert in_a_child(lambda: session.run_timed(None, {"input": X})) == wanted
        assert in_a_child(lambda: session.classify(PHOTOS[:1])) == wanted
        assert in_a_child(lambda: session.__exit__(None, None, None)) == "no error"
        np.testing.assert_array_equal(session.run(None, {"input": X})[0], LOGITS)


class Waiting:
    """Something like an array that lets nobody read it until it is told to."""

    def __init__(self) -> None:
        self.asked, self.told = threading.Event(), threading.Event()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.asked.set()
        assert self.told.wait(60)
        return X


@forking
def test_forked_child_is_refused_while_another_thread_runs(backend: Backend) -> None:
    waiting = Waiting()
    with InferenceSession(MODEL, backend.info.backend) as session, ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, None, {"input": waiting})
        assert waiting.asked.wait(60)
        try:
            found = in_a_child(lambda: session.run(None, {"input": X}))
        finally:
            waiting.told.set()
        np.testing.assert_array_equal(running.result(timeout=60)[0], LOGITS)
    assert found.startswith("InputError: the session was opened in another process")


def test_one_thing_is_no_list(session: InferenceSession) -> None:
    for image in ("road.jpg", Path("road.jpg"), b"\xff\xd8"):
        with pytest.raises(InputError, match="no list of images"):
            session.classify(image)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no list of outputs"):
        session.run("logits", {"input": X})
