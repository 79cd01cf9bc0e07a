"""What is said of operators that have no handler: what could be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from bnnrt.converters.onnx_node import OnnxNode

__all__ = ["refuse"]

_BY_KIND: Mapping[str, tuple[str, ...]] = {
    "control flow is not supported: export the model with the branch that is taken, and loops unrolled": (
        "If",
        "Loop",
        "Scan",
    ),
    "sequences and optional values are not supported: export the model with plain tensors": (
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
        *("SequenceMap", "ConcatFromSequence", "SplitToSequence"),
        *("Optional", "OptionalGetElement", "OptionalHasElement"),
    ),
    "recurrent layers and attention are not supported: only feed-forward networks on images and vectors are": (
        *("LSTM", "GRU", "RNN", "Attention", "RotaryEmbedding"),
    ),
    "quantizers of several bits are not supported: train or export the network with +1 and -1, or with floats": (
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Round", "Floor", "Ceil"),
        *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "BitShift"),
        *("IntQuant", "FloatQuant", "Trunc", "MultiThreshold"),
    ),
    "end the model at the scores, before this node: classification takes the greatest itself": (
        *("ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "Hardmax"),
    ),
    "only comparisons that become +1 and -1 are supported: scale and shift its 0 and 1 to -1 and +1, or remove it": (
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "Where", "And", "Or", "Xor"),
    ),
    "random numbers are not supported: export the model in evaluation mode": (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
    ),
    "export the model with sizes that are known (--shape and --batch give them)": (
        *("Shape", "Size", "Expand", "Tile", "ConstantOfShape", "Range", "NonZero", "Compress"),
    ),
}
_BY_OPERATOR = {operator: text for text, operators in _BY_KIND.items() for operator in operators}


def refuse(node: OnnxNode) -> NoReturn:
    """Raises ConversionError for an operator that has no handler."""
    raise node.error("this operator is not supported", _fix(node.node.domain, node.node.op_type))


def _fix(domain: str, operator: str) -> str:
    if "fpgadataflow" in domain:
        return "FINN's operators for FPGAs are not supported: give the model that FINN started from"
    if operator in _BY_OPERATOR:
        return _BY_OPERATOR[operator]
    if domain:
        return "operators of other domains are not supported: export the model with those of ONNX"
    return "replace it in the model, or run it outside; docs/converter.md lists the operators that convert"
