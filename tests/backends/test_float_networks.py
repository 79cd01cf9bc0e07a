"""Full-precision networks: ONNX Runtime's results up to rounding, and the same bits on every backend and variant."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from bnnrt import InferenceSession, reference
from bnnrt.backends.base import Backend, DeviceKind, Language

Array = npt.NDArray[Any]

CLASSES = 7


class Network:
    """An ONNX model with random weights, a layer behind the other."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(7)
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x"

    def add(self, operator: str, *constants: Array, also: tuple[str, ...] = (), **attributes: Any) -> str:
        names = [f"c{len(self.constants) + i}" for i in range(len(constants))]
        self.constants += [
            numpy_helper.from_array(c.astype(np.float32), n) for c, n in zip(constants, names, strict=True)
        ]
        output = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *also, *names], [output], name=output, **attributes))
        self.last = output
        return output

    def weights(self, *shape: int) -> Array:
        return self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))

    def norm(self, channels: int) -> str:
        return self.add("BatchNormalization", *self.rng.uniform(0.5, 1.5, (4, channels)))

    def save(self, path: Path) -> Path:
        inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", *self.shape])]
        outputs = [helper.make_tensor_value_info(self.last, onnx.TensorProto.FLOAT, ["N", CLASSES])]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    def images(self, count: int) -> Array:
        return self.rng.normal(size=(count, *self.shape)).astype(np.float32)


def convolutional() -> Network:
    net = Network(3, 20, 18)
    net.add("Conv", net.weights(24, 3, 5, 5), net.rng.normal(size=24), pads=[2, 2, 2, 2])
    net.norm(24)
    net.add("Relu")
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    skipped = net.add("PRelu", net.rng.uniform(0.1, 0.5, (24, 1, 1)))
    net.add("Conv", net.weights(24, 24, 3, 3), pads=[1, 1, 1, 1])
    net.add("Add", also=(skipped,))
    net.add("Conv", net.weights(24, 1, 3, 3), group=24, pads=[1, 1, 1, 1])
    net.add("Clip", np.array(-1.0), np.array(6.0))
    net.add("Conv", net.weights(40, 24, 1, 1))
    net.add("AveragePool", kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1)
    net.add("LeakyRelu", alpha=0.1)
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.weights(CLASSES, 40), net.rng.normal(size=CLASSES), transB=1)
    net.add("Softmax")
    return net


def perceptron() -> Network:
    net = Network(5, 30)
    net.add("Flatten")
    net.add("Gemm", net.weights(150, 100), net.rng.normal(size=100))
    net.add("Sigmoid")
    net.add("Gemm", net.weights(100, 60), net.rng.normal(size=60))
    net.add("HardSwish")
    net.add("MatMul", net.weights(60, CLASSES))
    return net


NETWORKS = {"convolutional": convolutional, "perceptron": perceptron}
# The products of every other size are among the tests of operators.
VARIANTS = ("default", "paper", "matmul_tiled")


def of_onnx_runtime(path: Path, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": x})[0]
    return result


@pytest.mark.parametrize("name", NETWORKS)
def test_float_networks(backend: Backend, tmp_path: Path, name: str) -> None:
    network = NETWORKS[name]()
    path, x = network.save(tmp_path / "net.onnx"), network.images(9)
    wanted = of_onnx_runtime(path, x)
    for variants in VARIANTS if backend.info.language is not Language.NUMPY else ("default",):
        with InferenceSession(path, backend.info.backend, variants=variants) as session:
            graph = session.bundle.model
            exact = reference.run(graph, {"x": x})[graph.outputs[0]]
            np.testing.assert_allclose(exact, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
            (found,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(found, exact)


def test_a_cpu_multiplies_in_vectors(backend: Backend, tmp_path: Path) -> None:
    with InferenceSession(convolutional().save(tmp_path / "net.onnx"), backend.info.backend) as session:
        used = [step.variant for step in session.plan().steps]
    if (backend.info.language, backend.info.kind) == (Language.OPENCL, DeviceKind.CPU):
        assert used.count("matmul_lanes") == 4
        assert used.count("real_conv") == 1  # in groups
    else:
        assert "matmul_lanes" not in used


def test_the_score_of_a_network_that_ends_in_a_softmax_is_its_output(backend: Backend, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    scores = {}
    for ending in ("logits", "softmax"):
        net = Network(3, 4, 5)
        net.add("Flatten")
        net.add("Gemm", net.weights(60, CLASSES) / 50)
        if ending == "softmax":
            net.add("Softmax", axis=1)
        with InferenceSession(net.save(tmp_path / f"{ending}.onnx"), backend.info.backend) as session:
            (output,) = session.run(None, {"pixels": image[None]})
            (found,) = session.classify([png(image)])
        scores[ending] = found.scores
        if ending == "softmax":
            assert found.scores == tuple(float(s) for s in output[0])
            assert found.score == max(found.scores)
    np.testing.assert_allclose(scores["softmax"], scores["logits"], rtol=1e-5)


def png(pixels: Array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
