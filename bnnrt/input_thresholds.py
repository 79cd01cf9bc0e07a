"""The thresholds T of a network's input, where a bundle keeps them, and the same bundle with others.

The pixel graph holds T as integers: bit = (pixel >= level) xor falling, a ``Threshold`` on 8-bit pixels. The graph of
the model's own input holds it in float32, as a number that is added in front of a sign, unless the model takes planes
of bits. Both are changed together, so that they stay one function: what the second graph does is compared with the
first at all 256 pixel levels, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import reference
from bnnrt.bundle import Bundle, PixelBinding
from bnnrt.errors import InputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    Clip,
    Concat,
    Domain,
    LocalBinaryPattern,
    MaxPool,
    Op,
    PRelu,
    Relu,
    Sign,
    SignOfZero,
    Threshold,
    ToFloat,
    Transpose,
)
from bnnrt.preprocess.pipeline import ImagePipeline

__all__ = ["InputThresholds"]

Array = npt.NDArray[Any]

_LEVELS = np.arange(256)
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_CONVERT_AGAIN = "convert the model again"


class InputThresholds:
    """The input thresholds of a bundle: one level for each plane of bits, in the order of :attr:`names`.

    A level is the first of the 256 pixel values at which the bit changes, 1 to 255; at others the plane is constant.

    Raises InputError where the network takes no images or thresholds none, and where the graph of the model's own
    input does not hold the same thresholds in a form that can be changed.
    """

    def __init__(self, bundle: Bundle) -> None:
        source = bundle.provenance.source
        if bundle.pixels is None or bundle.pipeline is None:
            raise InputError("the network does not take images", source, "give a network that thresholds pixels")
        self._bundle = bundle
        self._pixels = bundle.pixels
        self._nodes = [
            node
            for node in self._pixels.nodes
            if isinstance(node.op, Threshold) and self._pixels.types[node.inputs[0]].domain is Domain.UINT8
        ]
        if not self._nodes:
            patterns = any(isinstance(node.op, LocalBinaryPattern) for node in self._pixels.nodes)
            what = "local binary patterns have" if patterns else "the network's input has"
            raise InputError(
                f"{what} no thresholds", source, "give a network whose input is thresholded (docs/binarization.md)"
            )
        self.names = tuple(name for node in self._nodes for name in self._plane_names(node))
        self.levels = tuple(int(level) for node in self._nodes for level in self._constant(node, 1))
        """The levels that the bundle has."""
        binding = bundle.binding
        if binding is None:
            raise InputError("the bundle does not say how pixels become the model's input", source, _CONVERT_AGAIN)
        self._heads: list[Node] = []
        if not binding.binarized:
            self._values = _bound(binding)
            images = _images(bundle.model, self._values, bundle.pipeline)
            self._heads = [self._head(node, images) for node in self._nodes]

    def _constant(self, node: Node, index: int) -> Array:
        return self._pixels.constants[node.inputs[index]].unpacked().reshape(-1)

    def _plane_names(self, node: Node) -> list[str]:
        """What people call the planes of a threshold."""
        assert self._bundle.pipeline is not None  # __init__
        source, count = self._pixels.types[node.inputs[0]].channels, self._pixels.types[node.outputs[0]].channels
        if source == 3:
            names = ["blue", "green", "red"] if self._bundle.pipeline.color == "bgr" else ["red", "green", "blue"]
        else:
            names = ["gray"] if source == 1 else [f"channel {i}" for i in range(source)]
        if count > source:  # several thresholds a channel: plane i is of channel i mod C
            names = [f"{names[i % source]} {i // source + 1}" for i in range(count)]
        return names if len(self._nodes) == 1 else [f"{node.name}: {name}" for name in names]

    def _head(self, node: Node, images: Mapping[str, _Image]) -> Node:
        """The node of the model's graph that makes the same bits as ``node`` does of pixels."""
        model = self._bundle.model
        found = [n for n in model.nodes if n.name == node.name and isinstance(n.op, Sign | Threshold)]
        wanted = _levels_to_bits(self._constant(node, 1), self._constant(node, 2))
        if len(found) != 1 or not _same(_bits(model, found[0], images, wanted.shape[1]), wanted):
            raise InputError(
                "the graph of the model's own input does not hold this threshold",
                f"{self._bundle.provenance.source}, node {node.name}",
                _CONVERT_AGAIN,
            )
        return found[0]

    def _split(self, levels: Sequence[int]) -> list[Array]:
        """The levels of each node."""
        counts = [self._constant(node, 1).size for node in self._nodes]
        return np.split(np.asarray(levels, dtype=np.int32), np.cumsum(counts)[:-1])

    def pixel_graph(self, levels: Sequence[int]) -> Graph:
        """The network from pixels, with other levels."""
        graph = self._pixels
        for node, part in zip(self._nodes, self._split(levels), strict=True):
            graph = _with_constant(graph, node.outputs[0], 1, part)
        return graph

    def bundle(self, levels: Sequence[int]) -> Bundle:
        """The bundle with other levels, in both of its graphs. Everything else in it is as it was.

        Raises InputError where the model's own arithmetic does not tell the levels apart.
        """
        model, pipeline = self._bundle.model, self._bundle.pipeline
        assert pipeline is not None  # __init__
        for head, node, part in zip(self._heads, self._nodes, self._split(levels), strict=bool(self._heads)):
            changed = part != self._constant(node, 1)
            if not changed.any():
                continue
            model = _moved(model, head, _images(model, self._values, pipeline), part, changed)
            (moved,) = (n for n in model.nodes if n.outputs == head.outputs)
            bits = _bits(model, moved, _images(model, self._values, pipeline), len(part))
            if not _same(bits, _levels_to_bits(part, self._constant(node, 2))):
                raise InputError(
                    "in float32 the model does not tell neighbouring pixel values apart",
                    f"{self._bundle.provenance.source}, node {node.name}",
                    "leave its thresholds as they are",
                )
        return replace(self._bundle, model=model, pixels=self.pixel_graph(levels))


def _levels_to_bits(levels: Array, falling: Array) -> Array:
    """The bits of the 256 pixel values, bool [256, C]."""
    bits: Array = (_LEVELS[:, None] >= levels) != falling.astype(np.bool_)
    return bits


def _same(bits: Array | None, wanted: Array) -> bool:
    return bits is not None and np.array_equal(bits, wanted)


def _bound(binding: PixelBinding) -> Array:
    """What the 256 pixel values are as the model's own input, float32 [256, 1]."""
    values: Array = _LEVELS.astype(np.float32)[:, None]
    with np.errstate(all="ignore"):
        if binding.scale is not None:
            values = values * np.float32(binding.scale)
        if binding.offset is not None:
            values = values + np.float32(binding.offset)
    return values


@dataclass(frozen=True, eq=False)
class _Image:
    """A float32 tensor whose elements depend on one pixel channel each.

    ``values`` is what they are at the 256 pixel values, float32 [256, C], or [256, 1] where all channels are alike.
    ``last`` says that the channels are its last axis, as in NHWC, and not its second one.
    """

    values: Array
    last: bool


def _images(graph: Graph, values: Array, pipeline: ImagePipeline) -> dict[str, _Image]:
    """The tensors between the input, which is ``values``, and whatever mixes its elements."""
    if len(graph.inputs) != 1:
        return {}
    ((name, kind),) = graph.inputs.items()
    size = (pipeline.height, pipeline.width)
    first, last = (kind.shape[1:] == shape for shape in ((pipeline.channels, *size), (*size, pipeline.channels)))
    if first == last and pipeline.channels > 1:
        return {}
    found = {name: _Image(values, last)}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            image = _image(graph, node, found)
            if image is not None:
                found[node.outputs[0]] = image
    return found


def _image(graph: Graph, node: Node, found: Mapping[str, _Image]) -> _Image | None:
    """What a node makes of tensors of :func:`_images`; None where that is none."""
    images = [found[name] for name in node.inputs if name in found]
    constants = [graph.constants[name].data for name in node.inputs if name in graph.constants]
    if not images or len(images) + len(constants) < len(node.inputs) or len({image.last for image in images}) > 1:
        return None
    image = images[0]
    if isinstance(node.op, Transpose):
        to_last = node.op.perm == _TO_LAST
        known = to_last or node.op.perm == _TO_FIRST
        return _Image(image.values, to_last) if known and image.last is not to_last else None
    if isinstance(node.op, MaxPool | ToFloat):
        return image
    if isinstance(node.op, Concat):  # along the last axis
        parts = [np.broadcast_to(found[n].values, (256, graph.types[n].channels)) for n in node.inputs if n in found]
        return _Image(np.concatenate(parts, axis=1), True) if image.last and not constants else None
    # A vector belongs to the last axis.
    if not isinstance(node.op, Arithmetic | Clip | PRelu | Relu) or not (
        image.last or all(constant.shape == (1,) for constant in constants)
    ):
        return None
    operands = [found[name].values if name in found else graph.constants[name].data for name in node.inputs]
    return _Image(reference.pointwise(node.op, *operands), image.last)


def _bits(graph: Graph, node: Node, images: Mapping[str, _Image], planes: int) -> Array | None:
    """The bits that a sign or threshold makes at the 256 pixel values, bool [256, planes].

    None where it sees other numbers, or has levels of its own for each column and not for each plane.
    """
    image = images.get(node.inputs[0])
    if image is None or image.values.shape[1] not in (1, planes):
        return None
    if isinstance(node.op, Threshold):  # where the model's own input has 8 bits
        levels, falling = (graph.constants[name].unpacked().reshape(-1) for name in node.inputs[1:])
        if not image.last:
            if planes > 1 or len({*zip(levels.tolist(), falling.tolist(), strict=True)}) > 1:
                return None
            levels, falling = levels[:1], falling[:1]
        bits = (image.values >= levels) != falling.astype(np.bool_)
    else:
        assert isinstance(node.op, Sign)
        bits = image.values >= 0 if node.op.zero is SignOfZero.GE else image.values > 0
    return np.broadcast_to(bits, (len(bits), planes))


def _addition(graph: Graph, tensor: str, images: Mapping[str, _Image]) -> tuple[Node, int] | None:
    """The addition of a constant, input ``int`` of ``Node``, that ``tensor`` is, and nobody else wants to see."""
    producers, readers = graph.producers(), graph.consumers()
    while len(readers[tensor]) == 1 and tensor not in graph.outputs and tensor in producers:
        node = producers[tensor]
        if isinstance(node.op, Transpose):
            tensor = node.inputs[0]
            continue
        for index, name in enumerate(node.inputs):
            if node.op == Arithmetic(ArithmeticKind.ADD) and name in graph.constants and tensor in images:
                return node, index
        return None
    return None


def _moved(graph: Graph, head: Node, images: Mapping[str, _Image], levels: Array, changed: Array) -> Graph:
    """``graph`` with a sign or threshold that changes at other levels, in the planes that are ``changed``.

    In front of a sign, the number that is added becomes one that puts 0 midway between two pixel values. Where nothing
    is added, or another node wants the old sum, or there is one number for all planes, an addition is put in.
    """
    if isinstance(head.op, Threshold):
        columns = graph.types[head.outputs[0]].channels
        return _with_constant(graph, head.outputs[0], 1, levels if len(levels) == columns else levels.repeat(columns))
    tensor, old = head.inputs[0], np.zeros(1, dtype=np.float32)
    adding = _addition(graph, tensor, images)
    if adding is not None:
        node, index = adding
        new = _numbers(images[node.inputs[1 - index]], levels, changed, graph.constants[node.inputs[index]].data)
        last = images[node.outputs[0]].last
        if last or len(set(new.tolist())) == 1:
            return _with_constant(graph, node.outputs[0], index, new if last else new[:1])
    new = _numbers(images[tensor], levels, changed, old)
    last = images[tensor].last
    whole = last or len(set(new.tolist())) == 1
    ops: list[Op] = (
        [Arithmetic(ArithmeticKind.ADD)]
        if whole
        else [Transpose(_TO_LAST), Arithmetic(ArithmeticKind.ADD), Transpose(_TO_FIRST)]
    )
    constant = _unused(graph, f"{tensor}/added")
    nodes = []
    for number, op in enumerate(ops):
        name = _unused(graph, f"{tensor}/{number}")
        nodes.append(Node(head.name, op, (tensor, constant) if isinstance(op, Arithmetic) else (tensor,), (name,)))
        tensor = name
    place = graph.nodes.index(head)
    nodes = [*graph.nodes[:place], *nodes, replace(head, inputs=(tensor,)), *graph.nodes[place + 1 :]]
    return graph.rebuilt(nodes, {**graph.constants, constant: Constant.of(new if last or not whole else new[:1])})


def _numbers(image: _Image, levels: Array, changed: Array, old: Array) -> Array:
    """What to add to an image so that 0 lies between each level and the pixel value below it, float32 [C]."""
    planes = np.arange(len(levels))
    x = np.broadcast_to(image.values, (len(image.values), len(levels))).astype(np.float64)
    first = np.where(changed, levels, 1)  # a constant plane has a level beyond the values
    middle = (x[first - 1, planes] + x[first, planes]) / 2
    return np.where(changed, -middle, np.broadcast_to(old, levels.shape)).astype(np.float32)


def _with_constant(graph: Graph, output: str, index: int, values: Array) -> Graph:
    """``graph`` with other values in the constant that is input ``index`` of the node that writes ``output``."""
    (place,) = (i for i, node in enumerate(graph.nodes) if output in node.outputs)
    node = graph.nodes[place]
    name = node.inputs[index]
    if len(graph.consumers()[name]) > 1 or node.inputs.count(name) > 1:  # others keep theirs
        name = _unused(graph, name)
    inputs = (*node.inputs[:index], name, *node.inputs[index + 1 :])
    nodes = (*graph.nodes[:place], replace(node, inputs=inputs), *graph.nodes[place + 1 :])
    return graph.rebuilt(nodes, {**graph.constants, name: Constant.of(values)})


def _unused(graph: Graph, name: str) -> str:
    while name in graph.types:
        name += "'"
    return name
