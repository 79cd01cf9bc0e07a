"""Constants that a model computes of others: how far ONNX Runtime's are from those that the converter has folded.

A scale such as mean(|w|) is a sum, which rounds in whatever order it is added. Both sides' numbers are at hand, so
how far apart they are is not derived, but that it is by rounding is assumed, up to :data:`LARGEST_SHARE`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnx_ir as ir

from bnnrt.converters.draft import Array
from bnnrt.converters.importer import Imported
from bnnrt.converters.onnx_model.node import constant_of
from bnnrt.converters.verify.onnxruntime import OnnxRuntime

__all__ = ["distances"]

LARGEST_SHARE = 2.0**-12
"""Constants that differ by more are taken for a mistake, and what is computed with them for exact."""


def distances(proto: onnx.ModelProto, model: ir.Model, imported: Imported) -> dict[str, float]:
    """How far apart constants of the imported graph and ONNX Runtime's are, as a share of their size, if they are.

    Infinity where that is not known: where a constant is no element of what the model computes but made of it, as of
    the parameters of a BatchNormalization.

    Args:
        model: ``proto``, cleaned up.
    """
    ours: dict[str, Array] = {}
    for name in {name for names in imported.constants.values() for name in names}:
        array = constant_of(model.graph.initializers.get(name))
        if array is not None and array.dtype == np.float32:
            ours[name] = array
    part = _constant_part(proto, ours)
    if part is None:
        return {}
    theirs, _ = OnnxRuntime(part, (), ()).run({})
    shares = {name: _share(ours[name], array) for name, array in theirs.items()}
    shares = {name: share for name, share in shares.items() if share <= LARGEST_SHARE}
    found: dict[str, float] = {}
    for constant, names in imported.constants.items():
        data = imported.graph.constants[constant].data if constant in imported.graph.constants else None
        if data is None or not any(shares.get(name) for name in names):
            continue
        of = [shares.get(name, 0.0) for name in names if name in ours and np.isin(data, ours[name]).all()]
        if share := max(of, default=np.inf):
            found[constant] = share
    return found


def _share(ours: Array, theirs: Array) -> float:
    if ours.shape != theirs.shape:
        return np.inf
    size = np.abs(ours.astype(np.float64))
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        share = np.where(same, 0.0, np.abs(ours - theirs.astype(np.float64)) / size)
    return float(np.nan_to_num(share, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _constant_part(proto: onnx.ModelProto, wanted: Collection[str]) -> onnx.ModelProto | None:
    """The nodes that compute those of the ``wanted`` values that depend on constants alone; None if there are none."""
    known = {tensor.name for tensor in proto.graph.initializer}
    computing: list[onnx.NodeProto] = []
    waiting, before = list(proto.graph.node), -1
    while len(computing) > before:  # nodes may stand in any order
        before = len(computing)
        for node in waiting:
            if all(name in known for name in node.input if name) and not any(_has_graph(a) for a in node.attribute):
                known.update(node.output)
                computing.append(node)
        waiting = [node for node in waiting if not known.issuperset(node.output)]
    given = {name for node in computing if node.op_type == "Constant" for name in node.output}
    outputs = {name for node in computing for name in node.output} & set(wanted) - given
    needed, kept = set(outputs), []
    for node in reversed(computing):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    if not outputs:
        return None
    part = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    part.graph.name = "constants"
    part.graph.node.extend(kept[::-1])
    part.graph.initializer.extend(tensor for tensor in proto.graph.initializer if tensor.name in needed)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(outputs))
    return part


def _has_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.HasField("g") or len(attribute.graphs) > 0
