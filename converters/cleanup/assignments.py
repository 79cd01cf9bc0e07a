"""Assignment to parts of a tensor, ``y[:, :4] = z``, which exporters write by indices, written with Concat and Gather.

PyTorch's exporters write it in three ways: ScatterND of the tensor with the axis in front, ScatterElements for a single
index, and ScatterND at every index of a grid, of which the images of the batch are the first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import constant_of, is_standard, static_shape, unsqueezed
from bnnrt.converters.onnx_model.uniform import filled_with, same_shape, source_of, uniform_beside
from bnnrt.converters.onnx_model.writer import Replacement, add_constant, replace

__all__ = ["lower_assignments"]

Columns = Sequence[tuple[int, Array]]


@dataclass(frozen=True, eq=False)
class _Assignment:
    """``result`` is ``x`` but for what is assigned: at ``columns``, positions along axes other than the batch.

    ``updates``: a tensor with these positions alone, or one number for all.
    """

    x: ir.Value
    columns: Columns
    updates: ir.Value | Array
    results: tuple[ir.Node, ...]


def lower_assignments(model: ir.Model) -> None:
    """Replace, in place, assignments to constant positions along axes other than the batch.

    ``model`` has to have its shapes inferred.
    """
    for node in list(model.graph):
        if node.attributes.get("reduction") is not None and node.attributes["reduction"].as_string() != "none":
            continue
        found = None
        if is_standard(node, "ScatterElements"):
            found = _single(node)
        elif is_standard(node, "ScatterND"):
            found = _transposed(node) or _grid(node)
        if found is None or found.x.dtype != ir.DataType.FLOAT or not _fits(found):
            continue
        for result in found.results:
            new = _Writer(model.graph, result)
            replace(result, new.assigned(found.x, found.columns, found.updates))
            model.graph.remove(result, safe=True)


def _fits(found: _Assignment) -> bool:
    """Whether the positions are there, and each is assigned once."""
    shape = static_shape(found.x) or ()
    for axis, positions in found.columns:
        size = shape[axis] if 0 < axis < len(shape) else None
        if size is None or len(positions) == 0 or not ((positions >= -size) & (positions < size)).all():
            return False
        if len(np.unique(positions % size)) < len(positions):
            return False
    return None not in shape[1:]


def _single(node: ir.Node) -> _Assignment | None:
    """ScatterElements at one index along an axis, over all of the others."""
    x, index, updates = node.inputs
    if x is None or index is None or updates is None or x.shape is None or updates.shape is None:
        return None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    axis = axis + len(x.shape) if axis < 0 else axis
    number = uniform_beside(index, updates)
    whole, part = list(x.shape), list(updates.shape)
    if number is None or not 0 < axis < len(whole) or len(part) != len(whole) or part[axis] != 1:
        return None
    if [*whole[:axis], *whole[axis + 1 :]] != [*part[:axis], *part[axis + 1 :]]:
        return None
    return _Assignment(x, [(axis, number.reshape(1))], _written(updates), (node,))


def _transposed(node: ir.Node) -> _Assignment | None:
    """ScatterND along the first axis of a Transpose, which another Transpose undoes."""
    moved, rows, updates = node.inputs
    positions, output = constant_of(rows), node.outputs[0]
    first, x = _transpose_of(moved)
    readers = [reader for reader, _ in output.uses()]
    if x is None or first is None or updates is None or positions is None or output.is_graph_output() or not readers:
        return None
    back = tuple(int(i) for i in np.argsort(first))
    if positions.ndim != 2 or positions.shape[1] != 1 or any(_transpose_of(r.outputs[0])[0] != back for r in readers):
        return None
    written = _written(updates)
    if isinstance(written, ir.Value):
        perm, source = _transpose_of(updates)
        if perm != first or source is None:
            return None
        written = source
    return _Assignment(x, [(first[0], positions.reshape(-1))], written, tuple(dict.fromkeys(readers)))


def _transpose_of(value: ir.Value | None) -> tuple[tuple[int, ...] | None, ir.Value | None]:
    node = None if value is None else value.producer()
    if node is None or not is_standard(node, "Transpose") or "perm" not in node.attributes:
        return None, None
    return tuple(node.attributes["perm"].as_ints()), node.inputs[0]


def _grid(node: ir.Node) -> _Assignment | None:
    """ScatterND at the grid of all images and of some positions along the axes behind the batch."""
    x, indices, updates = node.inputs
    if x is None or x.shape is None or updates is None:
        return None
    vectors = _constant_grid(x, constant_of(indices)) or _computed_grid(x, indices)
    if vectors is None or len(x.shape) <= len(vectors):
        return None
    columns = [(axis, vector) for axis, vector in enumerate(vectors, 1)]
    written = _written(updates)
    if isinstance(written, ir.Value):
        reshape = written.producer()
        if reshape is not None and is_standard(reshape, "Reshape") and reshape.inputs[0] is not None:
            written = reshape.inputs[0]
        # The grid is as large as what is written into it: so none of its positions is repeated.
        shape, sizes = static_shape(written), [*map(len, vectors), *(static_shape(x) or ())[len(vectors) + 1 :]]
        if not shape or written.shape is None or written.shape[0] != x.shape[0] or None in shape[1:] or None in sizes:
            return None
        if prod(size or 0 for size in shape[1:]) != prod(size or 0 for size in sizes):
            return None
    return _Assignment(x, columns, written, (node,))


def _constant_grid(x: ir.Value, indices: Array | None) -> list[Array] | None:
    """The positions along each axis behind the batch, where that is fixed."""
    if indices is None or indices.ndim < 3 or indices.ndim != indices.shape[-1] + 1 or indices.size == 0:
        return None
    axes = range(indices.shape[-1])
    vectors = [np.moveaxis(indices[..., axis], axis, 0).reshape(indices.shape[axis], -1)[:, 0] for axis in axes]
    whole = np.stack(np.meshgrid(*vectors, indexing="ij"), axis=-1)
    images = (static_shape(x) or (None,))[0]
    if not (whole == indices).all() or images != len(vectors[0]) or (vectors[0] != np.arange(images)).any():
        return None
    return vectors[1:]


def _computed_grid(x: ir.Value, indices: ir.Value | None) -> list[Array] | None:
    """The same where all images of a free batch are counted: one coordinate for each axis, which Expand repeats."""
    joined = None if indices is None else indices.producer()
    if joined is None or not is_standard(joined, "Concat"):
        return None
    rank = len(joined.inputs)
    if rank < 2 or joined.attributes["axis"].as_int() not in (-1, rank):
        return None
    vectors = []
    for axis, part in enumerate(joined.inputs):
        coordinate = _expanded(unsqueezed(part, rank))
        if axis == 0:
            if not _counts_images(coordinate, x, rank):
                return None
            continue
        array = constant_of(coordinate)
        lone = array is not None and array.size == 1
        if array is None or not (lone or array.shape == (array.size, *[1] * (rank - 1 - axis))):
            return None
        vectors.append(array.reshape(-1))
    return vectors


def _expanded(value: ir.Value | None) -> ir.Value | None:
    node = None if value is None else value.producer()
    return node.inputs[0] if node is not None and is_standard(node, "Expand") else None


def _counts_images(value: ir.Value | None, x: ir.Value, rank: int) -> bool:
    """Whether ``value`` is 0, 1, 2 ... for the images of ``x``, with ``rank`` - 1 axes behind."""
    reshape = None if value is None else value.producer()
    if reshape is None or not is_standard(reshape, "Reshape") or reshape.inputs[0] is None:
        return False
    target, count = constant_of(reshape.inputs[1]), reshape.inputs[0].producer()
    if target is None or target.tolist() != [-1, *[1] * (rank - 1)] or count is None or not is_standard(count, "Range"):
        return False
    start, end, step = count.inputs
    size = None if end is None else end.producer()
    while size is not None and is_standard(size, "Cast", "Squeeze") and size.inputs[0] is not None:
        size = size.inputs[0].producer()
    if size is None or not is_standard(size, "Gather") or size.inputs[0] is None:
        return False
    shape, picked = size.inputs[0].producer(), constant_of(size.inputs[1])
    if shape is None or not is_standard(shape, "Shape") or shape.attributes or picked is None or picked.any():
        return False
    of, given = shape.inputs[0], (constant_of(start), constant_of(step))
    counted = all(number is not None and number == wanted for number, wanted in zip(given, (0, 1), strict=True))
    return counted and picked.size == 1 and (of is x or same_shape(of, x))


def _written(updates: ir.Value) -> ir.Value | Array:
    """What is assigned: the one number that is all there is in it, or ``updates`` itself."""
    source = source_of(updates)
    filling = None if source is None else source.producer()
    if filling is not None and is_standard(filling, "ConstantOfShape"):
        return filled_with(filling)
    array = constant_of(source)
    return array.reshape(()) if array is not None and array.size == 1 else updates


class _Writer:
    """Writes assignments in front of a node."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self._graph, self._new, self._name = graph, Replacement(graph, node, "assignment"), node.outputs[0].name
        self._count = 0

    def assigned(self, x: ir.Value, columns: Columns, updates: ir.Value | Array) -> ir.Value:
        """``x`` with ``updates`` at ``columns``."""
        (axis, given), *others = columns
        shape = list(x.shape or ())
        size = shape[axis]
        assert isinstance(size, int)
        positions = given % size
        part = updates
        if others:
            inner = self._node("Gather", shape, axis, len(positions), x, self._integers(positions))
            part = self.assigned(inner, others, updates)
        elif isinstance(part, ir.Value):
            part = self._shaped(part, [*shape[:axis], len(positions), *shape[axis + 1 :]])
        if len(positions) == size and isinstance(part, ir.Value):
            order = np.argsort(positions)
            return self._node("Gather", shape, axis, size, part, self._integers(order))
        if isinstance(part, ir.Value):
            joined = self._node("Concat", shape, axis, size + len(positions), x, part)
        else:
            pads = np.zeros((2, len(shape)), dtype=np.int64)
            pads[1, axis] = len(positions)
            number = add_constant(self._graph, self._part("number"), part.astype(np.float32))
            joined = self._node("Pad", shape, axis, size + len(positions), x, self._integers(pads.reshape(-1)), number)
        picked = np.arange(size)
        picked[positions] = size + np.arange(len(positions))
        return self._node("Gather", shape, axis, size, joined, self._integers(picked))

    def _shaped(self, value: ir.Value, shape: list[int | ir.SymbolicDim]) -> ir.Value:
        if value.shape is not None and list(value.shape) == shape:
            return value
        sizes = [-1, *(size for size in shape[1:] if isinstance(size, int))]
        return self._node("Reshape", shape, None, 0, value, self._integers(np.array(sizes)))

    def _part(self, what: str) -> str:
        self._count += 1
        return f"{self._name}/{what}{self._count}"

    def _integers(self, numbers: Array) -> ir.Value:
        return add_constant(self._graph, self._part("integers"), numbers.astype(np.int64))

    def _node(
        self, operator: str, shape: Sequence[int | ir.SymbolicDim], axis: int | None, size: int, *inputs: ir.Value
    ) -> ir.Value:
        """A node whose output is float32, of ``shape`` but for ``size`` elements along ``axis``."""
        self._count += 1
        attributes = {"axis": axis} if axis is not None and operator != "Pad" else None
        output = self._new.add(operator, *inputs, part=f"{operator.lower()}{self._count}", attributes=attributes)
        dims = list(shape)
        if axis is not None:
            dims[axis] = size
        output.type, output.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(dims)
        return output
