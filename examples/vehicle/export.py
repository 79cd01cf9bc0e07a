"""Write a trained network as ONNX, and run that file with ONNX Runtime."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from data import SIZE
from network import gray, local_binary_patterns, plus_minus
from onnx import TensorProto, helper, numpy_helper
from torch import nn

OPSET = 18


class Body(nn.Module):
    """A network without its input scheme, for schemes that the converter puts in front."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, planes):
        return self.model.body(planes)


def takes_planes(model):
    """Whether the file takes planes of -1 and +1: ONNX has no operators for gray levels and patterns of an image."""
    return model.input.scheme in ("threshold-gray", "lbp")


def with_signs(model):
    """A copy whose weights are the -1 and +1 themselves."""
    model = copy.deepcopy(model).cpu().float().eval()
    for weight in model.weights():
        if weight.binary:
            weight.latent.data = plus_minus(weight.latent.data >= 0, torch.float32)
            weight.binary = False
    return model


def store_weights_as_int8(proto):
    """Replace each +-1 weight of an ONNX model by an int8 initializer and a Cast to float32."""
    casts = []
    for tensor in proto.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim >= 2 and (np.abs(value) == 1).all():
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(value.astype(np.int8), name + "_int8"))
            casts.append(helper.make_node("Cast", [name + "_int8"], [name], f"cast_{name}", to=TensorProto.FLOAT))
    nodes = [*casts, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def strip_traces(proto):
    """Remove what the exporter notes about the Python source: stack traces and shapes of intermediate tensors."""
    del proto.graph.value_info[:]
    for item in (proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output):
        item.ClearField("doc_string")
        item.ClearField("metadata_props")


def export(model, labels, path):
    """Write a network as ONNX: ``input`` [N, 3, 96, 96], RGB in 0..255, or the planes of its scheme; ``logits``."""
    model = with_signs(model)
    planes = takes_planes(model)
    example = torch.zeros(2, model.input.planes if planes else 3, SIZE, SIZE)
    program = torch.onnx.export(
        Body(model) if planes else model, (example,), dynamo=True, opset_version=OPSET, input_names=["input"],
        output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("N")},), verbose=False,
    )  # fmt: skip
    proto = program.model_proto
    strip_traces(proto)
    store_weights_as_int8(proto)
    helper.set_model_props(proto, {"labels": json.dumps(labels)})
    onnx.checker.check_model(proto, full_check=True)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())


def file_input(model, images):
    """What the file takes, float32, from uint8 images [N, 3, 96, 96]."""
    pixels = torch.from_numpy(images).float()
    if not takes_planes(model):
        return pixels.numpy()
    if model.input.scheme == "lbp":
        return local_binary_patterns(pixels).numpy()
    return plus_minus(gray(pixels) + model.input.levels().detach() > 0, torch.float32).numpy()


def run_onnx(path, inputs, batch=64):
    """Return the logits that ONNX Runtime computes without graph optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    parts = [inputs[i : i + batch] for i in range(0, len(inputs), batch)]
    return np.concatenate([session.run(["logits"], {"input": part})[0] for part in parts])
