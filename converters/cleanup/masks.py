"""``x[mask] = number``, which exporters write as ScatterND at the places that NonZero finds, written with Where."""

from __future__ import annotations

import onnx_ir as ir

from bnnrt.converters.onnx_model.node import constant_of, is_standard
from bnnrt.converters.onnx_model.uniform import same_shape, source_of

__all__ = ["lower_masks"]


def lower_masks(model: ir.Model) -> None:
    """Put, in place, ``Where(mask, number, x)`` for ``ScatterND(x, Transpose(NonZero(mask)), updates)``.

    That is the same if all updates are one number and the mask has the shape of x: ScatterND takes as many updates as
    there are places, so how many there are needs no look.
    """
    for node in list(model.graph):
        if not is_standard(node, "ScatterND") or any(name != "reduction" for name in node.attributes):
            continue
        x, places, updates = node.inputs
        mask, number = _mask(places), _number(updates)
        reduced = "reduction" in node.attributes and node.attributes["reduction"].as_string() != "none"
        if x is None or mask is None or number is None or reduced or not same_shape(mask, x):
            continue
        new = ir.node("Where", [mask, number, x], name=node.name)
        new.outputs[0].type, new.outputs[0].shape = x.type, x.shape
        old = node.outputs[0]
        new.outputs[0].name, old.name = old.name, f"{old.name}/scattered"
        model.graph.insert_before(node, new)
        ir.convenience.replace_all_uses_with(old, new.outputs[0], replace_graph_outputs=True)
        model.graph.remove(node, safe=True)


def _mask(places: ir.Value | None) -> ir.Value | None:
    """The mask whose true places, one a row, ``places`` holds."""
    rows = None if places is None else places.producer()
    if rows is None or not is_standard(rows, "Transpose"):
        return None
    perm = rows.attributes.get("perm")
    found = None if rows.inputs[0] is None else rows.inputs[0].producer()
    if found is None or not is_standard(found, "NonZero") or (perm is not None and tuple(perm.as_ints()) != (1, 0)):
        return None
    return found.inputs[0]


def _number(updates: ir.Value | None) -> ir.Value | None:
    """The constant of one number that is all there is in ``updates``."""
    source = source_of(updates)
    array = constant_of(source)
    return source if array is not None and array.size == 1 and array.ndim <= 1 else None
