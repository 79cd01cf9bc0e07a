"""Small ONNX models for these tests, and their comparison with ONNX Runtime."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from bnnrt import reference
from bnnrt.bundle import Bundle
from bnnrt.converters.convert import Options, convert
from bnnrt.converters.report import Report
from bnnrt.graph import Graph

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Net:
    """An ONNX model written node by node; every method returns the name of a value."""

    def __init__(self, *shape, batch="N", dtype=onnx.TensorProto.FLOAT, opset=17):
        self.nodes, self.initializers, self.opset = [], [], opset
        sizes = [size if isinstance(size, str) else int(size) for size in shape]
        self.inputs = [helper.make_tensor_value_info("x", dtype, [batch, *sizes])]
        self.domains = []

    def constant(self, values, dtype=np.float32):
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def op(self, operator, *inputs, domain="", outputs=1, **attributes):
        name = f"{operator.lower()}{len(self.nodes)}"
        names = [f"{name}_out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=name, domain=domain, **attributes))
        return names[0]

    def conv(self, x, weights, bias=None, **attributes):
        extra = () if bias is None else (self.constant(bias),)
        return self.op("Conv", x, self.constant(weights), *extra, **attributes)

    def matmul(self, x, weights):
        return self.op("MatMul", x, self.constant(weights))

    def batch_norm(self, x, gamma, beta, mean, variance, epsilon=1e-5):
        parameters = [self.constant(p) for p in (gamma, beta, mean, variance)]
        return self.op("BatchNormalization", x, *parameters, epsilon=epsilon)

    def sign(self, x):
        """+1 at 0, which ONNX Runtime gives too."""
        condition = self.op("GreaterOrEqual", x, self.constant(0.0))
        return self.op("Where", condition, self.constant(1.0), self.constant(-1.0))

    def model(self, *outputs, metadata=None):
        infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.initializers)
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, 1) for d in self.domains)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        helper.set_model_props(model, metadata or {})
        return model


def signs(rng, *shape):
    """Random float32 +1 and -1."""
    return np.where(rng.random(shape) < 0.5, np.float32(-1), np.float32(1))


def norm(rng, channels):
    """gamma (of both signs, and 0), beta, mean, variance of a BatchNorm whose thresholds lie among small integers."""
    gamma = rng.normal(size=channels) * rng.integers(0, 8, channels).clip(0, 1)
    return gamma, rng.normal(size=channels), rng.normal(size=channels) * 4, rng.uniform(0.1, 20, channels)


def converted(model, options=None) -> tuple[Bundle, Report]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return convert(path, options or Options())


def expected(model, *arrays):
    """What ONNX Runtime computes without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})


def check(model, *arrays) -> Bundle:
    """Convert, and compare every output with ONNX Runtime in every element."""
    bundle, _ = converted(model)
    feeds = dict(zip(bundle.model.inputs, arrays, strict=True))
    found = reference.run(bundle.model, feeds)
    assert list(found) == [output.name for output in model.graph.output]
    for got, want in zip(found.values(), expected(model, *arrays), strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    return bundle


def kinds(graph: Graph) -> list[str]:
    """The operators of a graph, in order."""
    return [type(node.op).__name__ for node in graph.nodes]


def computing(graph: Graph) -> list[str]:
    """The operators of a graph that do not just move data, in order."""
    return [kind for kind in kinds(graph) if kind not in ("Transpose", "Reshape")]
