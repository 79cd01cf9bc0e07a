"""Sizes that a model leaves free, given by the user: ``--shape`` and ``--batch``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from bnnrt.converters.onnx_model.proto import inputs
from bnnrt.errors import ConversionError, InputError

__all__ = ["Shapes", "fix_sizes", "parse_shapes"]

Shapes = Mapping[str, tuple[int | str, ...]]
"""By input name, a size for each dimension, a word where it stays free; by the name of a free dimension, its size."""

LARGEST = (1 << 31) - 1


def parse_shapes(texts: list[str]) -> Shapes:
    """``NAME=1,3,224,224`` or ``NAME=224`` each. Raises InputError for other texts."""
    found: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not equals or not name:
            raise InputError("a shape is not NAME=SIZES", text, "give such as --shape input=N,3,224,224")
        if name in found:
            raise InputError("its shape is given twice", name, "give it once")
        found[name] = tuple(_size(size.strip(), text) for size in sizes.split(","))
    return found


def _size(text: str, where: str) -> int | str:
    if text.isdecimal() and text.isascii():
        if not 1 <= int(text) <= LARGEST:
            raise InputError(f"a size is {text}", where, f"give 1 to {LARGEST}")
        return int(text)
    if not text.isidentifier():
        raise InputError(f"a size is '{text}'", where, "give a number, or a name where it stays free")
    return text


def fix_sizes(proto: onnx.ModelProto, batch: int | None, shapes: Shapes) -> None:
    """Write the sizes that are given into ``proto`` where it leaves them free, in place.

    A batch that the model fixes stays as it is: whoever asks for another gets it in the end, since every operator that
    converts treats each image on its own.

    Raises ConversionError where a name is unknown or a size contradicts the model.
    """
    fed = {value.name: value for value in inputs(proto)}
    for dim in _dims(proto):
        if dim.HasField("dim_value") and dim.dim_value < 0:  # some exporters write -1 for a free size
            dim.ClearField("dim_value")
    named: dict[str, int] = {}
    for name, sizes in shapes.items():
        if name in fed:
            _fix_input(fed[name], sizes, named)
        elif len(sizes) == 1 and any(dim.dim_param == name for dim in _dims(proto)):
            if isinstance(sizes[0], int):
                _agree(named, name, sizes[0])
        else:
            known = ", ".join([*fed, *sorted({dim.dim_param for dim in _dims(proto) if dim.dim_param})])
            raise ConversionError(f"there is no input and no free size {name}", fix=f"choose among {known}")
    if batch is not None:
        for value in fed.values():
            _fix_batch(value, batch, named, given=value.name in shapes)
    for dim in _dims(proto):
        if dim.dim_param in named:
            dim.dim_value = named[dim.dim_param]
    for name, value in fed.items():
        if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in value.type.tensor_type.shape.dim):
            raise ConversionError("a size is 0", f"input {name}", "export the model with the sizes of its input")


def _dims(proto: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        yield from value.type.tensor_type.shape.dim


def _fix_input(value: onnx.ValueInfoProto, sizes: tuple[int | str, ...], named: dict[str, int]) -> None:
    where, shape = f"input {value.name}", value.type.tensor_type.shape
    if not value.type.tensor_type.HasField("shape"):
        for _ in sizes:
            shape.dim.add()
    if len(sizes) != len(shape.dim):
        raise ConversionError(
            f"{len(sizes)} sizes are given for {len(shape.dim)} dimensions", where, "give one for each of them"
        )
    for index, (dim, size) in enumerate(zip(shape.dim, sizes, strict=True)):
        fixed = dim.dim_value if dim.HasField("dim_value") else None
        if isinstance(size, str):
            continue
        if fixed is not None and fixed != size:
            fix = "use --batch for another batch" if index == 0 else "give that one"
            raise ConversionError(f"the size {size} is given where the model has {fixed}", where, fix)
        if dim.dim_param:
            _agree(named, dim.dim_param, size)
        elif fixed is None:
            dim.dim_value = size


def _fix_batch(value: onnx.ValueInfoProto, batch: int, named: dict[str, int], *, given: bool) -> None:
    dims = value.type.tensor_type.shape.dim
    if not dims:
        return
    if dims[0].dim_param:
        _agree(named, dims[0].dim_param, batch)
    elif not dims[0].HasField("dim_value") or dims[0].dim_value == 0:
        dims[0].dim_value = batch
    elif given and dims[0].dim_value != batch:
        _disagree(f"batch of {value.name}", dims[0].dim_value, batch)


def _agree(named: dict[str, int], name: str, size: int) -> None:
    if named.setdefault(name, size) != size:
        _disagree(name, named[name], size)


def _disagree(name: str, one: int, other: int) -> None:
    raise ConversionError(f"the size {name} would be {one} and {other}", fix="give one number for it")
