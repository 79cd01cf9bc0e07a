"""Whole networks, on every backend and set of variants: the logits of ONNX Runtime, in every element.

ONNX Runtime runs without graph optimizations: its usual level fuses BatchNormalization and moves ties.

Where the sums of a model are exact in float32, so is the comparison. Exporters fuse a BatchNormalization into the layer
before it, and what is then added is rounded, in an order that is ONNX Runtime's own:

- before a sign, a sum that is nearer to zero than its rounding may have either sign. Images with such a sum are left
  out of the comparison with ONNX Runtime (and counted), never of that with the unpacked reference;
- in the last layer, the logits are those of an exact sum, rounded once, over the bits that ONNX Runtime found.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from bnnrt import InferenceSession, reference
from bnnrt.backends.base import Backend, Language
from bnnrt.executor import Executor
from bnnrt.plan import make_plan
from bnnrt.session import load_bundle

Array = npt.NDArray[Any]
Sessions = Callable[..., InferenceSession]

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures"
VEHICLE = REPOSITORY / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"
PHOTOS = sorted((REPOSITORY / "examples" / "vehicle" / "photos").glob("*/*.jpg"))
SHARED = REPOSITORY.parent / "shared"

CASES = ("paper", "sign_function", "greater_cast", "zero_pad", "real_input", "asymmetric")
MODELS = [f"{case}_{exporter}" for case in CASES for exporter in ("dynamo", "legacy")]
# The only one that ends in a layer of real weights, so that its logits are rounded sums.
REAL_ENDED = "real_input_dynamo"
UNIT = 2.0**-24  # a float32 operation is off by at most this share of its result

every_model = pytest.mark.parametrize("model", MODELS)
every_set = pytest.mark.parametrize("variants", ["default", "paper"])
with_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the optional folder ../shared of models and photos")


def of_onnx_runtime(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class RealLayer:
    """A Conv or Gemm whose weights are no +-1: its input, output, weights [outputs, terms] and bias."""

    input: str
    output: str
    weights: Array
    bias: Array


class Expected:
    """ONNX Runtime's answers for a fixture model, and what is known of their rounding."""

    def __init__(self, path: Path) -> None:
        proto = onnx.load(path)
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
        self.layers = []
        for node in proto.graph.node:
            weights = constants.get(node.input[1]) if node.op_type in ("Conv", "Gemm", "MatMul") else None
            if weights is not None and not np.isin(weights, (-1, 1)).all():
                assert node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute)
                bias = constants[node.input[2]]
                self.layers.append(RealLayer(node.input[0], node.output[0], weights.reshape(len(weights), -1), bias))
        self.outputs = [output.name for output in proto.graph.output]
        inner = {name for layer in self.layers for name in (layer.input, layer.output)} - set(self.outputs)
        for name in sorted(inner):
            proto.graph.output.add().name = name
        self.session = of_onnx_runtime(proto.SerializeToString())

    def __call__(self, x: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The logits, and which images they are certain for."""
        names = [output.name for output in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(names, {"input": x}), strict=True))
        logits = found[self.outputs[0]]
        certain = np.ones(len(x), dtype=np.bool_)
        for layer in self.layers:
            assert np.isin(found[layer.input], (-1, 0, 1)).all()  # so the terms are the weights themselves
            if layer.output == self.outputs[0]:
                logits = exactly_summed(found[layer.input], layer)
                continue
            sums = np.abs(found[layer.output].astype(np.float64))
            terms = layer.weights.shape[1] + 1
            room = 2 * terms * UNIT * (np.abs(layer.weights).sum(axis=1, dtype=np.float64) + np.abs(layer.bias))
            room = room.reshape(1, -1, *[1] * (sums.ndim - 2))
            # A channel without weights (a BatchNormalization with scale 0) is its bias, unrounded.
            rounded = np.any(layer.weights != 0, axis=1).reshape(room.shape)
            certain &= ~np.any((sums <= room) & rounded, axis=tuple(range(1, sums.ndim)))
        return logits, certain


def exactly_summed(bits: Array, layer: RealLayer) -> Array:
    """The layer as the converter defines it where an output's weights are all +-a: an exact sum of signs, times a."""
    scale = np.abs(layer.weights).max(axis=1)
    assert np.isin(layer.weights, (scale[:, None], -scale[:, None])).all()
    sums = bits.astype(np.int64) @ np.sign(layer.weights).astype(np.int64).T
    total: Array = sums.astype(np.float32) * scale + layer.bias
    return total


@cache
def expected(model: str) -> Expected:
    return Expected(FIXTURES / f"{model}.onnx")


@pytest.fixture(scope="module")
def sessions(backend: Backend) -> Iterator[Sessions]:
    """Sessions on the backend, opened once for each model and set of variants."""
    opened: dict[tuple[Path, str], InferenceSession] = {}

    def session(path: Path, variants: str = "default") -> InferenceSession:
        if (path, variants) not in opened:
            opened[path, variants] = InferenceSession(path, backend.info.backend, variants=variants)
        return opened[path, variants]

    yield session
    for each in opened.values():
        each.close()


def check(
    session: InferenceSession, model: str, logits: Array, x: Array, record: Callable[[str, object], None]
) -> None:
    """Compare logits with the reference for every image, and with ONNX Runtime for those that it is certain of."""
    (of_reference,) = reference.run(session.bundle.model, {"input": x}).values()
    np.testing.assert_array_equal(logits, of_reference)
    wanted, certain = expected(model)(x)
    record("images left out of the comparison with ONNX Runtime", int((~certain).sum()))
    assert certain.sum() > len(x) // 2
    np.testing.assert_array_equal(logits[certain], wanted[certain])


def golden_images(model: str) -> Array:
    """The model's golden images."""
    with np.load(FIXTURES / f"{model.rsplit('_', 1)[0]}_golden.npz") as golden:
        x: Array = golden["x"]
    return x


@every_set
@every_model
def test_fixture_models_equal_onnx_runtime(
    sessions: Sessions, model: str, variants: str, record_property: Callable[[str, object], None]
) -> None:
    session = sessions(FIXTURES / f"{model}.onnx", variants)
    x = golden_images(model)
    (logits,) = session.run(["logits"], {"input": x})
    check(session, model, logits, x, record_property)


@every_model
def test_fixture_models_give_their_golden_logits(sessions: Sessions, model: str) -> None:
    case, exporter = model.rsplit("_", 1)
    session = sessions(FIXTURES / f"{model}.onnx")
    with np.load(FIXTURES / f"{case}_golden.npz") as golden:
        (logits,) = session.run(["logits"], {"input": golden["x"]})
        wanted = golden["logits" if exporter == "dynamo" else "logits_legacy"]
    if model == REAL_ENDED:  # two summations of the same 40 terms and a bias, each off by no more than its rounding
        (last,) = (layer for layer in expected(model).layers if layer.output == "logits")
        terms = last.weights.shape[1] + 1
        room = 2 * terms * UNIT * (np.abs(last.weights).sum(axis=1, dtype=np.float64) + np.abs(last.bias))
        assert (np.abs(logits.astype(np.float64) - wanted) <= room).all()
    else:
        np.testing.assert_array_equal(logits, wanted)


@every_set
@every_model
def test_fixture_models_equal_onnx_runtime_on_photos_from_pixels(
    sessions: Sessions, model: str, variants: str, record_property: Callable[[str, object], None]
) -> None:
    session = sessions(FIXTURES / f"{model}.onnx", variants)
    pipeline = session.bundle.pipeline
    assert pipeline is not None
    pixels = np.stack([pipeline.load(photo) for photo in PHOTOS[::20]])
    x = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
    (from_pixels,) = session.run(None, {"pixels": pixels})
    (from_input,) = session.run(None, {"input": x})
    np.testing.assert_array_equal(from_pixels, from_input)
    check(session, model, from_pixels, x, record_property)


@every_set
@pytest.mark.parametrize(("group", "local"), [(16, 1 << 10), (64, 4 << 10), (256, 0)])
def test_plans_for_smaller_devices_give_the_same_logits(
    backend: Backend, group: int, local: int, variants: str
) -> None:
    """Made for smaller work-groups and less local memory than the device has, so that it can run them too."""
    info = backend.info
    smaller = dataclasses.replace(
        info,
        max_group_size=min(group, info.max_group_size),
        max_group_shape=tuple(min(group, size) for size in info.max_group_shape),
        local_memory=min(local, info.local_memory),
    )
    graph = load_bundle(FIXTURES / "paper_dynamo.onnx").model
    with np.load(FIXTURES / "paper_golden.npz") as golden:
        executor = Executor(backend, make_plan(graph, smaller, len(golden["x"]), variants))
        executor.poison()
        np.testing.assert_array_equal(executor.run({"input": golden["x"]})["logits"], golden["logits"])
        executor.close()


def test_real_layers_are_where_the_exporters_fused() -> None:
    """The comparison above rests on finding them."""
    found = {model: len(expected(model).layers) for model in MODELS}
    assert found == {
        **dict.fromkeys(MODELS, 0),
        "sign_function_dynamo": 1,
        "greater_cast_dynamo": 3,
        "greater_cast_legacy": 2,
        "zero_pad_dynamo": 1,
        "real_input_dynamo": 2,
        "asymmetric_dynamo": 1,
    }
    assert [model for model in MODELS if any(e.output == "logits" for e in expected(model).layers)] == [REAL_ENDED]


@cache
def vehicle_of_onnx_runtime() -> onnxruntime.InferenceSession:
    return of_onnx_runtime(os.fspath(VEHICLE))


def check_vehicle(session: InferenceSession, photos: list[Path]) -> Array:
    """Both inputs, in batches of 12, against ONNX Runtime on the same pixels; returns the logits."""
    pipeline = session.bundle.pipeline
    assert pipeline is not None
    parts = []
    for start in range(0, len(photos), 12):
        pixels = np.stack([pipeline.load(photo) for photo in photos[start : start + 12]])
        x = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
        (wanted,) = vehicle_of_onnx_runtime().run(["logits"], {"input": x})
        (from_pixels,) = session.run(["logits"], {"pixels": pixels})
        np.testing.assert_array_equal(from_pixels, wanted)
        if session.device.language is not Language.NUMPY or start == 0:
            (from_input,) = session.run(["logits"], {"input": x})
            np.testing.assert_array_equal(from_input, wanted)
        parts.append(from_pixels)
    return np.concatenate(parts)


@every_set
def test_vehicle_model_equals_onnx_runtime_on_the_shipped_photos(sessions: Sessions, variants: str) -> None:
    session = sessions(VEHICLE, variants)
    slow = session.device.language is Language.NUMPY or variants == "paper"
    logits = check_vehicle(session, PHOTOS[::10] if slow else PHOTOS)
    assert len(set(logits.argmax(axis=1))) >= len(session.labels) - 1  # so the photos do differ


# Larger models and all test photos, where the folder that holds them lies beside the repository


def cnv_input(x: Array) -> Array:
    """The 8-bit fixed-point input of BNN-PYNQ, NCHW."""
    steps = np.minimum(np.floor((x.astype(np.float64) / 255 * 2 - 1) * 128 + 0.5), 127) / 128
    return steps.astype(np.float32).transpose(0, 3, 1, 2)


def lfc_input(x: Array) -> Array:
    return np.where(x.reshape(len(x), 784) > 127, 1, -1).astype(np.float32)


@with_shared
@pytest.mark.parametrize(
    ("model", "golden", "key", "prepare"),
    [
        ("cnv_w1a1_cifar10", "cnvW1A1_cifar10", "x_uint8_nhwc", cnv_input),
        ("lfc_w1a1_mnist", "lfcW1A1_mnist", "x_uint8", lfc_input),
    ],
)
def test_published_models_give_their_recorded_logits(
    backend: Backend, tmp_path: Path, model: str, golden: str, key: str, prepare: Callable[[Array], Array]
) -> None:
    path = tmp_path / f"{model}.onnx"
    path.write_bytes(gzip.decompress((SHARED / "models" / f"{path.name}.gz").read_bytes()))
    count = 4 if backend.info.language is Language.NUMPY else 20
    with np.load(SHARED / "golden" / f"{golden}.npz") as recorded:
        x, wanted = prepare(recorded[key][:count]), recorded["logits"][:count]
    with InferenceSession(path, backend.info.backend) as session:
        fixed = session.get_inputs()[0].shape[0]
        step = fixed if isinstance(fixed, int) else count
        name = session.get_inputs()[0].name
        parts = [session.run(None, {name: x[i : i + step]})[0] for i in range(0, count, step)]
    np.testing.assert_array_equal(np.concatenate(parts).reshape(wanted.shape), wanted)


@with_shared
def test_vehicle_model_equals_onnx_runtime_on_all_test_photos(sessions: Sessions) -> None:
    session = sessions(VEHICLE)
    photos = [SHARED / "data" / "vehicles" / c / f"{c}{n}.jpg" for c in session.labels for n in range(641, 721)]
    assert len(photos) == 480
    check_vehicle(session, photos)
