"""The full-precision network of the vehicle network's shape, as ONNX, with random weights: only its speed matters."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def float_vehicle_network(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions 5x5 of 32 channels, ReLU and pooling after each, dense 100, 100 and 6; input [N, 3, 96, 96]."""
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []

    def layer(op: str, x: str, shape: tuple[int, ...], outputs: int, **attributes: object) -> str:
        name = f"{op.lower()}{len(nodes)}"
        weights[f"{name}.weight"] = rng.normal(0, 0.05, shape).astype(np.float32)
        weights[f"{name}.bias"] = rng.normal(0, 0.05, outputs).astype(np.float32)
        nodes.append(helper.make_node(op, [x, f"{name}.weight", f"{name}.bias"], [name], **attributes))
        return name

    def follow(op: str, x: str, **attributes: object) -> str:
        name = f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, [x], [name], **attributes))
        return name

    x = "input"
    for channels in (3, 32):
        x = follow("Relu", layer("Conv", x, (32, channels, 5, 5), 32, pads=[2, 2, 2, 2]))
        x = follow("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = follow("Flatten", x)
    for inputs in (18432, 100):
        x = follow("Relu", layer("Gemm", x, (inputs, 100), 100))
    x = layer("Gemm", x, (100, 6), 6)
    graph = helper.make_graph(
        nodes,
        "float_vehicle_network",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, 96, 96])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["N", 6])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
