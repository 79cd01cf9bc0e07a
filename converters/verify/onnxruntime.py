"""ONNX Runtime without optimizations, with the values inside the network, and with signs that have a bit at 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper, numpy_helper
from onnx_ir.passes import common

from bnnrt.converters.draft import Array
from bnnrt.converters.onnx_model.node import STANDARD_DOMAINS
from bnnrt.converters.onnx_model.proto import first_line
from bnnrt.errors import InputError

__all__ = ["OnnxRuntime", "inlined", "version", "visible_values"]

SERIOUS = 4  # its log: nothing below "fatal"; what matters comes as an exception


def version() -> str:
    return str(onnxruntime.__version__)


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions in place, as the converter sees it, so that what is inside them has a name."""
    if not proto.functions:
        return proto
    model = ir.from_proto(proto)
    common.InlinePass()(model)
    return ir.to_proto(model)


def visible_values(proto: onnx.ModelProto) -> set[str]:
    """Names of the values that nodes compute."""
    return {name for node in proto.graph.node for name in node.output if name}


class OnnxRuntime:
    """A model in ONNX Runtime.

    Args:
        wanted: names of values to return beside the outputs.
        open_signs: names of values that ONNX Sign computes: 0 at 0.

    Raises InputError if ONNX Runtime does not take the model.
    """

    def __init__(self, proto: onnx.ModelProto, wanted: Collection[str], open_signs: Collection[str]) -> None:
        self._wanted = list(wanted)
        self._open = [name for name in open_signs if name in wanted]
        self._proto = proto
        self._session = self._open_session(proto)
        self._with_bits: onnxruntime.InferenceSession | None = None

    def _open_session(self, proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        present = {output.name for output in copy.graph.output}
        for name in self._wanted:
            if name not in present:
                copy.graph.output.add().name = name
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = SERIOUS
        try:
            return onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as e:  # it has a dozen types of its own, of no common base
            raise refusal(proto, e) from None

    def run(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """All values by name, with +1 where an ONNX Sign meets 0; and for those signs, where that was in the model as
        it is (bool)."""
        found = self._run(self._session, feeds)
        zeros = {name: found[name] == 0 for name in self._open}
        if any(at.any() for at in zeros.values()):
            if self._with_bits is None:
                self._with_bits = self._open_session(with_bits(self._proto, self._open))
            found = self._run(self._with_bits, feeds)
        return found, zeros

    def _run(self, session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in session.get_outputs()]
        try:
            results = session.run(names, dict(feeds))
        except Exception as e:
            raise InputError(f"ONNX Runtime fails: {first_line(e)}", "model") from None
        return dict(zip(names, results, strict=True))


def refusal(proto: onnx.ModelProto, error: Exception) -> InputError:
    """Why ONNX Runtime does not take a model, in one line."""
    functions = {(f.domain, f.name) for f in proto.functions}
    own = sorted(
        {
            f"{node.domain}.{node.op_type}"
            for node in proto.graph.node
            if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in functions
        }
    )
    if own:
        return InputError(
            f"ONNX Runtime cannot run this model: it uses {', '.join(own)}, which is not ONNX's",
            fix="verify needs a model of standard operators",
        )
    return InputError(f"ONNX Runtime cannot run this model: {first_line(error)}", fix="check the model")


def with_bits(proto: onnx.ModelProto, signs: Sequence[str]) -> onnx.ModelProto:
    """The model with +1 in the place of every 0 in these values: sign(value + 0.5), exact for -1, 0 and 1."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    half = "bnnrt/half"
    copy.graph.initializer.append(numpy_helper.from_array(np.array(0.5, dtype=np.float32), half))
    nodes = []
    for node in proto.graph.node:
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        nodes.append(changed)
        for index, name in enumerate(node.output):
            if name in signs:
                changed.output[index] = f"{name}/onnx"
                nodes.append(helper.make_node("Add", [f"{name}/onnx", half], [f"{name}/shifted"]))
                nodes.append(helper.make_node("Sign", [f"{name}/shifted"], [name]))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy
