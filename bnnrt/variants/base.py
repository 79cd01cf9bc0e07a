"""What a kernel variant is: one way to run one operator, or a short chain of operators, on one kind of device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt import packing
from bnnrt.backends.base import Code, DeviceInfo, DeviceKind, Extent, Language
from bnnrt.backends.source import Define
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import BinaryConv, BitPool, Domain, Op, TensorType, Window

__all__ = [
    "C_LANGUAGES",
    "LaunchSpec",
    "Site",
    "StepCode",
    "Variant",
    "conv_node",
    "conv_op",
    "first_fit",
    "fits",
    "per_element",
    "pool_window",
    "stored_shape",
    "window_defines",
]

C_LANGUAGES = (Language.OPENCL, Language.CUDA)

# Work-items in a group of a kernel that needs no local memory: a multiple of every sub-group width there is.
_GROUP = 128
_GROUPS_A_CORE = 4
_GROUPS_A_MULTIPROCESSOR = 2
_LEAST_GROUP = 64  # the widest sub-group


def stored_shape(tensor_type: TensorType, batch: int) -> tuple[int, ...]:
    """How an activation lies on the device: bits as words along the last axis, everything else as it is."""
    shape = tensor_type.with_batch(batch)
    if tensor_type.domain is Domain.BIT:
        return (*shape[:-1], packing.words_for(shape[-1]))
    return shape


@dataclass(frozen=True, eq=False)
class Site:
    """The place in a network that a variant is asked to run: one node, or a chain of nodes to fuse."""

    graph: Graph
    nodes: tuple[Node, ...]
    batch: int
    device: DeviceInfo

    @property
    def node(self) -> Node:
        """The first node."""
        return self.nodes[0]

    @property
    def output(self) -> str:
        """The tensor that the last node writes."""
        return self.nodes[-1].outputs[0]

    def type(self, name: str) -> TensorType:
        return self.graph.types[name]

    def count(self, name: str) -> int:
        """Elements (of bits: words) of a tensor as it is stored."""
        return prod(stored_shape(self.type(name), self.batch))

    def constant(self, name: str) -> Constant:
        return self.graph.constants[name]


@dataclass(frozen=True)
class LaunchSpec:
    """One kernel launch. Arguments are names of tensors, constants or scratch, or int32 numbers."""

    entry: str
    code: Code
    args: tuple[str | int, ...]
    grid: Extent = (1, 1, 1)
    block: Extent = (1, 1, 1)
    local_bytes: int = 0


@dataclass(frozen=True)
class StepCode:
    """What a variant makes of a site: launches, constants packed for them, and scratch tensors between them.

    A step without launches whose output is the same memory as its input has ``alias`` set. ``notes`` say where a launch
    is smaller than the variant would have it, and why.
    """

    launches: tuple[LaunchSpec, ...]
    constants: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    scratch: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    alias: bool = False
    notes: tuple[str, ...] = ()


def _always(site: Site) -> str | None:
    return None


@dataclass(frozen=True)
class Variant:
    """A row of the table. ``supports`` gives None, or the reason why the variant cannot run a site.

    A ``staged`` variant copies what several threads read from main memory to local memory: it gains nothing where that
    is a part of main memory.
    """

    name: str
    ops: tuple[type[Op], ...]
    languages: tuple[Language, ...]
    build: Callable[[Site], StepCode]
    supports: Callable[[Site], str | None] = _always
    sets: frozenset[str] = frozenset({"default", "paper"})
    staged: bool = False


def _misfit(device: DeviceInfo, block: Extent, local_bytes: int) -> str | None:
    """Which limit of the device a group of this shape exceeds, or None."""
    for axis, (size, most) in enumerate(zip(block, device.max_group_shape, strict=True)):
        if size > most:
            return f"{size} work-items along axis {axis} are more than a group's {most}"
    if prod(block) > device.max_group_size:
        return f"{prod(block)} work-items are more than a group's {device.max_group_size}"
    if local_bytes > device.local_memory:
        return f"{local_bytes} bytes of local memory are more than a group's {device.local_memory}"
    return None


def fits(device: DeviceInfo, block: Extent, local_bytes: int = 0) -> bool:
    """Whether the device can run groups of this shape that use this much local memory."""
    return _misfit(device, block, local_bytes) is None


def first_fit(
    device: DeviceInfo, choices: Iterable[tuple[int, str, Extent, int]]
) -> tuple[int | None, tuple[str, ...]]:
    """The first of (number, what it is called, group, bytes of local memory) that the device can run.

    Returns the number, or None where nothing fits; and for each choice before it the reason why it does not.
    """
    reasons: list[str] = []
    for number, name, block, local_bytes in choices:
        reason = _misfit(device, block, local_bytes)
        if reason is None:
            return number, tuple(reasons)
        reasons.append(f"{name}: {reason}")
    return None, tuple(reasons)


def per_element(site: Site, entry: str, code: Code, args: tuple[str | int, ...], count: int) -> LaunchSpec:
    """A launch of one thread for each of ``count`` elements, which is also its last argument."""
    block = min(_GROUP, site.device.max_group_size, site.device.max_group_shape[0])
    if site.device.kind is DeviceKind.CPU:
        # A core runs a whole group, so there must be several groups a core even where there are few threads.
        block = max(1, min(block, count // (_GROUPS_A_CORE * site.device.compute_units)))
    else:
        # Few threads are better spread over all multiprocessors.
        while block > _LEAST_GROUP and count < _GROUPS_A_MULTIPROCESSOR * site.device.compute_units * block:
            block //= 2
    return LaunchSpec(entry, code, (*args, count), (-(-count // block), 1, 1), (block, 1, 1))


def conv_node(site: Site) -> Node:
    """The binary convolution of a chain."""
    return next(node for node in site.nodes if isinstance(node.op, BinaryConv))


def conv_op(site: Site) -> BinaryConv:
    op = conv_node(site).op
    assert isinstance(op, BinaryConv)
    return op


def pool_window(site: Site) -> Window:
    """The pooling at the end of a chain; one pixel where there is none."""
    op = site.nodes[-1].op
    return op.window if isinstance(op, BitPool) else Window((1, 1))


def window_defines(window: Window, x: TensorType, out: TensorType) -> dict[str, Define]:
    """The defines of kernels/common/window.h for NHWC tensors ``x`` and ``out``."""
    _, height, width, _ = x.with_batch(1)
    _, out_height, out_width, _ = out.with_batch(1)
    return {
        "HEIGHT": height,
        "WIDTH": width,
        "OUT_HEIGHT": out_height,
        "OUT_WIDTH": out_width,
        "KERNEL_H": window.kernel[0],
        "KERNEL_W": window.kernel[1],
        "STRIDE_H": window.strides[0],
        "STRIDE_W": window.strides[1],
        "PAD_TOP": window.pads[0],
        "PAD_LEFT": window.pads[1],
        "DILATION_H": window.dilations[0],
        "DILATION_W": window.dilations[1],
    }
