"""Runs a graph on a device, tensors inside it included, and compares every bit with the reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bnnrt import packing
from bnnrt.backends.base import Backend
from bnnrt.converters.draft import Array
from bnnrt.converters.verify.inputs import Batch
from bnnrt.converters.verify.result import BackendResult, Difference
from bnnrt.executor import Executor
from bnnrt.graph import Graph
from bnnrt.ops import Domain, TensorType
from bnnrt.plan import make_plan

__all__ = ["DeviceGraph"]


class DeviceGraph:
    """A graph on a device, twice: as a session runs it, and with every tensor that a kernel writes kept.

    Raises BackendError where the device cannot run it.
    """

    def __init__(self, backend: Backend, graph: Graph, name: str, first: int, batch: int) -> None:
        self._name, self._first = name, first
        plan = make_plan(graph, backend.info, batch)
        written = [step.nodes[-1].outputs[0] for step in plan.steps]
        # The last tensor of each step: with these as outputs, the same kernels are fused.
        kept = Graph(graph.inputs, graph.nodes, tuple(dict.fromkeys((*graph.outputs, *written))), graph.constants)
        self._as_it_runs = Executor(backend, plan)
        try:
            self._kept = Executor(backend, make_plan(kept, backend.info, batch))
        except BaseException:
            self._as_it_runs.close()
            raise
        self._written = [(at, node) for at, node in enumerate(graph.nodes, first) if node.outputs[0] in set(written)]
        self._graph = graph

    def compare(self, batch: Batch, wanted: Mapping[str, Array], result: BackendResult) -> None:
        """Note the first difference from ``wanted``, the reference's tensors, in ``result``."""
        found = self._kept.run(batch.feeds)
        for position, node in self._written:
            (tensor,) = node.outputs
            self._note(batch, tensor, node.name, position, found[tensor], wanted[tensor], result)
        last = self._first + len(self._graph.nodes)
        for tensor, stored in self._as_it_runs.run(batch.feeds).items():
            self._note(batch, tensor, "tensors that share memory", last, stored, wanted[tensor], result)

    def _note(
        self, batch: Batch, tensor: str, node: str, position: int, stored: Array, wanted: Array, result: BackendResult
    ) -> None:
        known = self._graph.types[tensor]
        differing = _differing(known, stored, wanted)[: len(batch.cases)]
        if not differing.any():
            return
        first = tuple(int(i) for i in np.argwhere(differing)[0])
        difference = Difference(
            graph=self._name,
            tensor=tensor,
            node=node,
            onnx=None,
            input=batch.cases[first[0]].name,
            index=first[1:],
            wanted=float(wanted[first]),
            found=float(_numbers(known, stored)[first]),
            elements=int(differing.sum()),
            position=position,
        )
        if difference.before(result.first_difference):
            result.first_difference = difference

    @property
    def tensors(self) -> int:
        """How many tensors are compared."""
        return len(self._written)

    def close(self) -> None:
        self._kept.close()
        self._as_it_runs.close()


def _numbers(known: TensorType, stored: Array) -> Array:
    """A tensor as the reference has it: bits as +1 and -1."""
    if known.domain is not Domain.BIT:
        return stored
    return np.where(packing.unpack(stored, known.channels), np.float32(1), np.float32(-1))


def _differing(known: TensorType, stored: Array, wanted: Array) -> Array:
    """Where a tensor differs from the reference in any bit; one NaN is like another.

    A bit set beyond the channels counts as a difference of the last channel.
    """
    if known.domain is Domain.BIT:
        differing: Array = packing.unpack(stored, known.channels) != (wanted > 0)
        tails = (packing.pack(packing.unpack(stored, known.channels)) != stored).any(axis=-1)
        differing[..., -1] |= tails
        return differing
    if known.domain is Domain.FLOAT32:
        same = (stored.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(stored) & np.isnan(wanted))
        different: Array = ~same
        return different
    others: Array = stored != wanted
    return others
