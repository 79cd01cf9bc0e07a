"""From photos to bits: on every backend as on the host, and as Pillow has it; and whole networks behind each scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from bnnrt import InferenceSession, bundle, ops, packing
from bnnrt.backends.base import Backend
from bnnrt.converters.convert import Options, convert
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType
from bnnrt.plan import make_plan
from bnnrt.preprocess import binarize
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.preprocess.schemes import InputBinarization, Scheme

Array = npt.NDArray[Any]

REPOSITORY = Path(__file__).parents[2]
PHOTOS = sorted((REPOSITORY / "examples" / "vehicle" / "photos").glob("*/*.jpg"))
# Fractions, and numbers that some pixels meet exactly.
T = (-93.5, -128.0, -155.25)

SCHEMES = {
    "threshold": InputBinarization(Scheme.THRESHOLD, T),
    "threshold-gray": InputBinarization(Scheme.THRESHOLD_GRAY, T[1:2]),
    "lbp": InputBinarization(Scheme.LBP),
}


def run(backend: Backend, graph: Graph, pixels: Array) -> dict[str, Array]:
    executor = Executor(backend, make_plan(graph, backend.info, len(pixels)))
    executor.poison()
    found = executor.run({"pixels": pixels})
    executor.close()
    return found


def photos(height: int, width: int) -> Array:
    pipeline = ImagePipeline(height, width)
    return np.stack([pipeline.load(photo) for photo in PHOTOS])


@pytest.mark.parametrize(("height", "width"), [(100, 100), (61, 97)])
def test_kernels_host_and_pillow_agree_on_the_shipped_photos(backend: Backend, height: int, width: int) -> None:
    assert len(PHOTOS) == 120
    pixels = photos(height, width)
    graph = Graph(
        {"pixels": TensorType((None, height, width, 3), Domain.UINT8)},
        (
            Node("gray", ops.Grayscale(), ("pixels",), ("gray",)),
            Node("lbp", ops.LocalBinaryPattern(), ("gray",), ("lbp",)),
            Node("threshold", ops.Threshold(), ("gray", "t", "f"), ("threshold",)),
        ),
        ("gray", "lbp", "threshold"),
        {"t": Constant.of(np.array([129], np.int32)), "f": Constant.bits([False])},
    )
    found = run(backend, graph, pixels)
    gray = np.stack([np.array(Image.fromarray(image).convert("L")) for image in pixels])
    np.testing.assert_array_equal(found["gray"][..., 0], gray)
    np.testing.assert_array_equal(binarize.grayscale(pixels), gray)
    np.testing.assert_array_equal(packing.unpack(found["lbp"], 3), binarize.lbp(gray))
    bits = packing.unpack(found["threshold"], 1)
    np.testing.assert_array_equal(bits, binarize.threshold(gray[..., None], (-128,)))
    by_pillow = [np.array(Image.fromarray(image).point(lambda level: 255 * (level > 128))) for image in gray]
    np.testing.assert_array_equal(bits[..., 0], np.stack(by_pillow) > 0)


def network(rng: np.random.Generator, planes: int, height: int, width: int) -> onnx.ModelProto:
    """A convolution on planes, a sign of its odd sums, a dense layer of 5 classes."""

    def signs(*shape: int) -> Array:
        return rng.choice(np.array([-1, 1], np.float32), shape)

    constants = {
        "w": signs(16, planes, 3, 3),
        "b": np.full(16, 0.5, np.float32),
        "zero": np.zeros((), np.float32),
        "plus": np.ones((), np.float32),
        "minus": -np.ones((), np.float32),
        "fc": signs(16 * -(-height // 2) * -(-width // 2), 5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["sums"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GreaterOrEqual", ["sums", "zero"], ["above"]),
        helper.make_node("Where", ["above", "plus", "minus"], ["bits"]),
        helper.make_node("Flatten", ["bits"], ["flat"]),
        helper.make_node("MatMul", ["flat", "fc"], ["logits"]),
    ]
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", float32, ["N", planes, height, width])],
        [helper.make_tensor_value_info("logits", float32, ["N", 5])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def planes_of(name: str, pixels: Array) -> Array:
    """What each scheme is, in the words of its definition: float32 [N, planes, H, W]."""
    gray = binarize.grayscale(pixels)
    bits = {
        "threshold": lambda: binarize.threshold(pixels, T),
        "threshold-gray": lambda: binarize.threshold(gray[..., None], T[1:2]),
        "lbp": lambda: binarize.lbp(gray),
    }[name]()
    return np.ascontiguousarray(np.where(bits, np.float32(1), np.float32(-1)).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("name", SCHEMES)
def test_classification_equals_onnx_runtime_on_the_planes(backend: Backend, tmp_path: Path, name: str) -> None:
    height, width = 47, 35
    model = network(np.random.default_rng(len(name)), SCHEMES[name].planes, height, width).SerializeToString()
    (tmp_path / "net.onnx").write_bytes(model)
    options = Options(labels=list("abcde"), strict=True, input_binarization=SCHEMES[name])
    bundle.write(convert(tmp_path / "net.onnx", options)[0], tmp_path / "net.bnn")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    pixels = photos(height, width)[::6]
    planes = planes_of(name, pixels)
    (wanted,) = session.run(None, {"x": planes})
    with InferenceSession(tmp_path / "net.bnn", backend.info.backend) as ours:
        np.testing.assert_array_equal(ours.run(None, {"pixels": pixels})[0], wanted)
        np.testing.assert_array_equal(ours.run(None, {"x": planes})[0], wanted)
        found = ours.classify(PHOTOS[::6])
    assert [result.index for result in found] == wanted.argmax(axis=1).tolist()
    assert [result.label for result in found] == ["abcde"[i] for i in wanted.argmax(axis=1)]
    powers = np.exp(wanted.astype(np.float64) - wanted.max(axis=1, keepdims=True))
    np.testing.assert_allclose([r.scores for r in found], powers / powers.sum(axis=1, keepdims=True), rtol=1e-12)
    assert len(set(wanted.argmax(axis=1))) > 1
