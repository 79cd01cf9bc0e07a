"""Compares a graph with ONNX Runtime, tensor by tensor.

Each section, from tensors that hold ONNX values to the next that do, is fed ONNX Runtime's own numbers. So a bit that
flips in one section does not blur the next, and roundings do not pile up along a chain of residual additions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bnnrt.converters.draft import Array
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.verify.bounds import Bounds, alone, bounds
from bnnrt.converters.verify.inputs import Batch
from bnnrt.converters.verify.layer_bounds import layers_of
from bnnrt.converters.verify.onnxruntime import OnnxRuntime
from bnnrt.converters.verify.result import Difference, OnnxResult, OutputResult, SignResult
from bnnrt.converters.verify.trace import Carried, Trace
from bnnrt.graph import Graph, Node
from bnnrt.ops import Domain, Sign, Threshold

__all__ = ["Sections", "open_sign_values"]

Bits = npt.NDArray[np.bool_]
Feeds = Mapping[str, Array]


def open_sign_values(trace: Trace, carried: Mapping[str, Carried]) -> dict[str, str]:
    """The ONNX value and the node of every ONNX Sign, which gives 0 at 0."""
    return {
        carried[node.outputs[0]].name: node.name
        for node in trace.imported.graph.nodes
        if isinstance(node.op, Sign) and node.name in trace.imported.open_signs and node.outputs[0] in carried
    }


@dataclass(frozen=True, eq=False)
class _Truth:
    """ONNX Runtime's numbers for a batch: by ONNX name, and laid as tensors of the imported graph, [images, elements];
    with the bounds of each section and from end to end, and where its signs met 0."""

    found: Mapping[str, Array]
    laid: Mapping[str, Array]
    sections: Bounds
    whole: Bounds
    zeros: Mapping[str, Array]


class Sections:
    """A graph of a bundle beside ONNX Runtime.

    Args:
        first: the position of its first tensor in the order of all graphs.
        graph: the bundle's; ``matched`` says that its tensors are those of ``trace``.
        feeds_of: what ONNX Runtime is fed where the graph is fed something.
        apart: how far apart the two sides' constants are, as in :func:`bounds`.
    """

    def __init__(
        self,
        name: str,
        first: int,
        graph: Graph,
        trace: Trace,
        carried: Mapping[str, Carried],
        matched: bool,
        runtime: OnnxRuntime,
        feeds_of: Callable[[Feeds], Feeds],
        apart: Mapping[str, float],
        result: OnnxResult,
    ) -> None:
        self._name, self._first, self._graph, self._trace, self._carried = name, first, graph, trace, carried
        self._runtime, self._feeds_of, self._apart, self._result = runtime, feeds_of, apart, result
        self._origins = {
            tensor: origin
            for tensor, origin in trace.origins.items()
            if matched and origin in carried and tensor in graph.types and tensor not in graph.inputs
        }
        self._bits = [t for t in self._origins if graph.types[t].domain is Domain.BIT]
        reals = [t for t in self._origins if graph.types[t].domain is Domain.FLOAT32]
        self._fed = [*self._bits, *reals]
        self._layers = layers_of(trace.imported.graph, carried)
        self._open = open_sign_values(trace, carried)
        self._signs = {node.outputs[0]: node.name for node in trace.imported.graph.nodes if isinstance(node.op, Sign)}
        self._onnx = {name: carried[tensor].name for tensor, name in self._signs.items() if tensor in carried}
        result.tensors += len(self._origins)
        for sign in self._onnx:
            self._sign(sign)

    def compare(self, batch: Batch, ours: Mapping[str, Array]) -> None:
        """Compare one batch; ``ours``: every tensor of the graph by the reference."""
        truth = self._truth(batch)
        images = len(batch.cases)
        wanted = {tensor: truth.laid[self._origins[tensor]] for tensor in self._fed}
        flipped = self._flipped({tensor: wanted[tensor] for tensor in self._bits}, ours, images)
        sections = self._in_sections(batch, wanted, ours)
        self._count(truth, images)
        self._result.images += images
        if self._origins:
            for position, node in enumerate(self._graph.nodes, self._first):
                if node.outputs[0] in self._origins:
                    self._compare(batch, node, position, sections[node.outputs[0]], truth)
                self._count_ties(node, sections, images)
        else:
            flipped = self._uncertain(truth, images)
        self._result.images_with_flips += int(flipped.sum())
        self._compare_outputs(batch, flipped, ours, truth)

    def _truth(self, batch: Batch) -> _Truth:
        found, zeros = self._runtime.run(self._feeds_of(batch.feeds))
        known = {t: c.laid(found[c.name]) for t, c in self._carried.items()}
        graph = self._trace.imported.graph
        bits, fed = ({self._origins[tensor] for tensor in tensors} for tensors in (self._bits, self._fed))
        whole = bounds(graph, batch.feeds, known, bits, self._apart, self._layers)
        sections = bounds(graph, batch.feeds, known, fed, self._apart, self._layers, whole)
        return _Truth(found, known, sections, whole, zeros)

    def _flipped(self, bits: Mapping[str, Array], ours: Mapping[str, Array], images: int) -> Bits:
        """Images for which a bit differs, from end to end."""
        result = np.zeros(images, dtype=np.bool_)
        for tensor, wanted in bits.items():
            result |= (ours[tensor].reshape(wanted.shape) != wanted).any(axis=1)[:images]
        return result

    def _in_sections(self, batch: Batch, wanted: Mapping[str, Array], ours: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor, where each section starts from ONNX Runtime's numbers.

        What a node makes of the same bits as from end to end is the same too: it is taken from there (``ours``).
        """
        images = len(next(iter(batch.feeds.values())))
        read: dict[str, Array] = dict(batch.feeds)
        for tensor, numbers in wanted.items():
            known = self._graph.types[tensor]
            if known.domain is Domain.BIT:
                numbers = np.where(numbers > 0, np.float32(1), np.float32(-1))
            read[tensor] = numbers.reshape(known.with_batch(images))
        same = {*self._graph.constants, *batch.feeds, *(t for t in wanted if _same_bits(read[t], ours[t]))}
        made: dict[str, Array] = dict(batch.feeds)
        for node in self._graph.nodes:
            (tensor,) = node.outputs
            known_already = same.issuperset(node.inputs)
            made[tensor] = ours[tensor] if known_already else alone(self._graph, node, read)
            if tensor not in wanted:
                read[tensor] = made[tensor]
                same.update({tensor} if known_already else ())
        return made

    def _compare(self, batch: Batch, node: Node, position: int, ours: Array, truth: _Truth) -> None:
        """One tensor against ONNX Runtime's."""
        (tensor,) = node.outputs
        origin, images = self._origins[tensor], len(batch.cases)
        wanted = truth.laid[origin][:images]
        found = ours.reshape(len(ours), -1)[:images]
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        near = truth.sections.near.get(origin)
        if near is not None:
            allowed = near.reshape(len(near), -1)[:images]
        else:
            # A bound of infinity, where nothing is known, allows any number.
            error = truth.sections.computed[origin].reshape(len(ours), -1)[:images]
            with np.errstate(invalid="ignore"):
                allowed = (np.abs(found.astype(np.float64) - wanted) <= error) | np.isinf(error)
        self._result.elements += same.size
        sign = self._signs.get(origin)
        if sign is not None and near is not None:
            self._count_sign(sign, same, allowed)
        elif self._graph.types[tensor].domain is not Domain.BIT:
            self._result.rounded += int((~same & allowed).sum())
        wrong = ~same & ~allowed
        if wrong.any():
            carried = self._carried[origin]
            self._note(batch, node.name, tensor, carried, position, wrong, wanted, found)

    def _note(
        self,
        batch: Batch,
        node: str,
        tensor: str,
        carried: Carried,
        position: int,
        wrong: Bits,
        wanted: Array,
        found: Array,
    ) -> None:
        image, element = (int(i) for i in np.argwhere(wrong)[0])
        difference = Difference(
            graph=self._name,
            tensor=tensor,
            node=node,
            onnx=carried.name,
            input=batch.cases[image].name,
            index=carried.index(element),
            wanted=float(wanted[image, element]),
            found=float(found[image, element]),
            elements=int(wrong.sum()),
            position=position,
        )
        if difference.before(self._result.first_difference):
            self._result.first_difference = difference

    def _sign(self, node: str) -> SignResult:
        return self._result.signs.setdefault(node, SignResult(node, self._onnx[node]))

    def _count_sign(self, node: str, same: Bits, near: Bits) -> None:
        sign = self._sign(node)
        sign.elements += same.size
        sign.near += int(near.sum())
        sign.flipped += int((~same & near).sum())

    def _count_ties(self, node: Node, tensors: Mapping[str, Array], images: int) -> None:
        """Numbers exactly at the threshold of a sign."""
        if node.name not in self._onnx or not isinstance(node.op, (Sign, Threshold)):
            return
        x = tensors[node.inputs[0]][:images]
        # One row a threshold: pixels may have several a channel.
        levels: Array = np.zeros((1, 1), dtype=np.float32)
        if isinstance(node.op, Threshold):
            levels = self._graph.constants[node.inputs[1]].data.reshape(-1, x.shape[-1])
        self._sign(node.name).ties += int((x[..., None, :] == levels).sum())

    def _count(self, truth: _Truth, images: int) -> None:
        """Zeros at ONNX signs."""
        met = np.zeros(images, dtype=np.bool_)
        for onnx, at in truth.zeros.items():
            if onnx in self._open:
                flat = at.reshape(len(at), -1)[:images]
                self._sign(self._open[onnx]).zeros += int(flat.sum())
                met |= flat.any(axis=1)
        self._result.images_with_zeros += int(met.sum())

    def _uncertain(self, truth: _Truth, images: int) -> Bits:
        """Images for which a bit may differ: all that is known where the tensors of the graph are not."""
        result = np.zeros(images, dtype=np.bool_)
        for near in truth.whole.near.values():
            result |= np.asarray(near.reshape(len(near), -1).any(axis=1))[:images]
        return result

    def _compare_outputs(self, batch: Batch, left_out: Bits, ours: Mapping[str, Array], truth: _Truth) -> None:
        """Outputs from end to end, for images for which no bit flipped."""
        images = len(batch.cases)
        for name in self._graph.outputs:
            result = self._result.outputs.setdefault(name, OutputResult(name))
            result.images += int((~left_out).sum())
            result.left_out += int(left_out.sum())
            shape = (len(ours[name]), -1)
            found, wanted = ours[name].reshape(shape)[:images], truth.found[name].reshape(shape)[:images]
            error = truth.whole.computed[name].reshape(shape)[:images]
            compared = np.broadcast_to(~left_out[:, None], found.shape)
            differing = compared & ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
            if compared.any():
                result.bound = max(result.bound, float(error[compared].max()))
            if not differing.any():
                continue
            with np.errstate(invalid="ignore"):
                apart = np.abs(found.astype(np.float64) - wanted)
            result.largest_difference = max(result.largest_difference, float(np.nanmax(apart[differing])))
            wrong = differing & ~(apart <= error)
            result.differing += int(differing.sum())
            if wrong.any():
                carried = Carried(name, Value.plain(name, ours[name].shape[1:]))
                last = self._first + len(self._graph.nodes)
                self._note(batch, "output", name, carried, last, wrong, wanted, found)


def _same_bits(one: Array, other: Array) -> bool:
    """Of two float32 arrays of one shape."""
    return np.array_equal(one.view(np.uint32), other.view(np.uint32))
