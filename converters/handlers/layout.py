"""How the values of an ONNX graph, mostly NCHW, lie in the tensors of a graph, which are NHWC.

Layout is followed, not moved: a :class:`Value` says in which order a tensor holds the elements of an ONNX value, so
that Transpose, Reshape and Flatten cost nothing, constants are laid out to fit, and a dense layer after a Flatten has
its weights permuted. Data are moved, by a Transpose node, only where an operator needs another order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from bnnrt.converters.draft import Array, Draft
from bnnrt.errors import ConversionError
from bnnrt.ops import Reshape, Transpose

__all__ = ["Value", "as_image", "as_matrix", "groups", "in_onnx_order", "like", "moved", "reshaped", "transposed"]


@dataclass(frozen=True)
class Value:
    """An ONNX value [batch, *shape] in a graph tensor.

    ``dims`` are axes of at least 2 elements that make up ``shape`` in order (each of its axes is a product of some
    neighbours). The tensor holds them in the order ``perm``, outermost first: its elements are those of
    ``value.reshape(dims).transpose(perm)``, whatever shape the tensor gives them. The batch always comes first.
    """

    tensor: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    perm: tuple[int, ...]

    @classmethod
    def plain(cls, tensor: str, shape: tuple[int, ...]) -> Value:
        """A tensor in ONNX's own order."""
        dims = tuple(d for d in shape if d != 1)
        return cls(tensor, shape, dims, tuple(range(len(dims))))

    @classmethod
    def image(cls, tensor: str, shape: tuple[int, int, int]) -> Value:
        """An NHWC tensor that holds an ONNX value [batch, channels, height, width]."""
        value = cls.plain(tensor, shape)
        return replace(value, perm=_axes(value, (1, 2, 0)))

    def laid(self, array: Array) -> Array:
        """An array of ``shape`` as the tensor holds it, in one dimension."""
        return array.reshape(self.dims).transpose(self.perm).reshape(-1)


def groups(value: Value) -> list[tuple[int, ...]]:
    """For each axis of ``value.shape``, the indices of the dims that make it up."""
    found, start = [], 0
    for size in value.shape:
        end = start
        while prod(value.dims[start:end]) < size:
            end += 1
        found.append(tuple(range(start, end)))
        start = end
    return found


def _axes(value: Value, order: tuple[int, ...]) -> tuple[int, ...]:
    """The dims of the axes of ``value.shape``, taken in ``order``."""
    found = groups(value)
    return tuple(i for axis in order for i in found[axis])


def _refined(value: Value, sizes: tuple[int, ...]) -> Value | None:
    """The same value with dims split so that they also make up ``sizes``; None if they cannot."""
    boundaries = {prod(sizes[i:]) for i in range(len(sizes) + 1)}
    split: list[tuple[int, ...]] = []
    rest = prod(value.dims)
    for size in value.dims:
        after = rest // size
        cuts = [rest, *sorted((b for b in boundaries if after < b < rest), reverse=True), after]
        if any(high % low for high, low in pairwise(cuts)):
            return None
        split.append(tuple(high // low for high, low in pairwise(cuts)))
        rest = after
    starts = np.cumsum([0, *(len(parts) for parts in split)])
    perm = tuple(int(starts[p]) + i for p in value.perm for i in range(len(split[p])))
    return replace(value, dims=tuple(d for parts in split for d in parts), perm=perm)


def reshaped(draft: Draft, name: str, value: Value, shape: tuple[int, ...]) -> Value:
    """ONNX Reshape to [batch, *shape]."""
    fitting = _refined(value, shape)
    if fitting is None:
        fitting = _refined(in_onnx_order(draft, name, value), shape)
    if fitting is None:
        # In ONNX's own order any shape will do.
        return Value.plain(in_onnx_order(draft, name, value).tensor, shape)
    return replace(fitting, shape=shape)


def transposed(value: Value, order: tuple[int, ...]) -> Value:
    """ONNX Transpose of the axes of ``shape`` (batch not counted)."""
    axes = _axes(value, order)
    return Value(
        tensor=value.tensor,
        shape=tuple(value.shape[axis] for axis in order),
        dims=tuple(value.dims[i] for i in axes),
        perm=tuple(axes.index(p) for p in value.perm),
    )


def moved(draft: Draft, name: str, value: Value, perm: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """The value in a tensor [batch, *shape] that holds its dims in the order ``perm``."""
    tensor = value.tensor
    if perm != value.perm:
        if len(value.dims) > 5:
            raise ConversionError("data of more than 6 dimensions would have to be moved", name)
        tensor = _shaped(draft, name, tensor, tuple(value.dims[p] for p in value.perm))
        order = (0, *(1 + value.perm.index(p) for p in perm))
        tensor = draft.emit(f"{name}/layout", Transpose(order), tensor)
    return replace(value, tensor=_shaped(draft, name, tensor, shape), perm=perm)


def _shaped(draft: Draft, name: str, tensor: str, shape: tuple[int, ...]) -> str:
    if draft.types[tensor].shape[1:] == shape:
        return tensor
    return draft.emit(f"{name}/shape", Reshape(shape), tensor)


def as_image(draft: Draft, name: str, value: Value) -> Value:
    """An ONNX value [batch, channels, height, width] as an NHWC tensor."""
    channels, height, width = value.shape
    return moved(draft, name, value, _axes(value, (1, 2, 0)), (height, width, channels))


def as_matrix(draft: Draft, name: str, value: Value) -> Value:
    """The value as a tensor [batch, features], in whatever order it is."""
    return replace(value, tensor=_shaped(draft, name, value.tensor, (prod(value.shape),)))


def in_onnx_order(draft: Draft, name: str, value: Value) -> Value:
    """The value as a tensor of its own shape, in ONNX's order."""
    return moved(draft, name, value, tuple(range(len(value.dims))), value.shape)


def like(draft: Draft, name: str, value: Value, other: Value) -> tuple[Value, Value]:
    """Two values of one ONNX shape in tensors of one order and shape, that of ``value`` where possible."""
    first, second = _refined(value, other.dims), _refined(other, value.dims)
    if first is None or second is None or first.dims != second.dims:
        first, second = in_onnx_order(draft, name, value), in_onnx_order(draft, name, other)
    return first, moved(draft, name, second, first.perm, draft.types[first.tensor].shape[1:])  # type: ignore[arg-type]
