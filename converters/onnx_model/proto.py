"""What an ONNX file holds, as protobuf gives it: its versions, nodes, tensors and inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from bnnrt.errors import ConversionError

__all__ = ["first_line", "inputs", "nodes", "tensors", "versions"]


def versions(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """The version of each domain. Raises ConversionError if one is imported twice, in two versions."""
    found: dict[str, int] = {}
    for entry in imports:
        if found.setdefault(entry.domain, entry.version) != entry.version:
            pair = f"{found[entry.domain]} and {entry.version}"
            raise ConversionError(
                f"versions {pair} of the operators {entry.domain or 'of ONNX'} are imported", where, "keep one of them"
            )
    return found


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model, also those of functions and of the branches and loops in nodes."""
    for owner in (proto.graph, *proto.functions):
        yield from _nodes(owner.node)


def _nodes(found: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in found:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and those in attributes, wherever they stand."""
    yield from proto.graph.initializer
    for node in nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.initializer


def inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What has to be fed: the inputs without those that are initializers too."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in constants]


def first_line(error: Exception) -> str:
    """What a library's exception says, in one line."""
    return str(error).strip().split("\n")[0]
