"""What is said of operators that have no handler: why, and what could be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from bnnrt.converters.onnx_model.node import COMPARISONS, STANDARD_DOMAINS, OnnxNode, constant_of

__all__ = ["refuse"]

_BY_REASON: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("control flow is not supported", "export the model with its conditions and loops decided"): ("If", "Loop", "Scan"),
    ("sequences and optional values are not supported", "export the model with tensors alone"): (
        *("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt"),
        *("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap"),
        "SplitToSequence",
    ),
    ("layers of several bits are not supported", "quantize to one bit, or export the model in float32"): (
        *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
        *("QuantizeLinear", "Ceil", "Floor", "Round", "Mod", "BitShift", "FloatQuant", "Trunc"),
    ),
    ("only means, sums and extremes over axes are supported", "write it with ReduceSum, ReduceMax, Abs and Mul"): (
        *("GlobalLpPool", "LpPool", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSumSquare"),
    ),
    ("recurrent layers are not supported", "only networks without memory are"): ("GRU", "LSTM", "RNN"),
    ("it normalizes by what it measures in each image", "train with BatchNormalization, which becomes constants"): (
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization", "LRN"),
        *("MeanVarianceNormalization", "RMSNormalization"),
    ),
    (
        "it has no form with the same bits everywhere",
        "use Relu, PRelu, Clip, HardSigmoid, HardSwish or Sigmoid",
    ): (
        *("Celu", "Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Selu", "Shrink", "Softplus", "Softsign", "Swish"),
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Sqrt"),
        *("Hardmax", "ReduceLogSum", "ReduceLogSumExp", "ThresholdedRelu"),
    ),
    (
        "it has no form with the same bits everywhere",
        "leave it out in front of a sign, which it changes only for numbers below 2**-142 in size; use Clip elsewhere",
    ): ("Tanh",),
    (
        "a comparison or sign that does not become two numbers, such as -1 and +1, is not supported",
        "see docs/converter.md for the forms of sign that are known",
    ): (
        *("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Where"),
        *("Sign", "Xor", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    ),
    ("the places or sizes that it works with depend on the data", "use Slice, Split or Gather with constants"): (
        *("Compress", "GatherElements", "GatherND", "NonMaxSuppression", "NonZero", "OneHot"),
        *("RoiAlign", "MaxRoiPool", "MaxUnpool", "GridSample", "Unique", "EyeLike"),
        *("ConstantOfShape", "CumSum", "ReverseSequence", "Trilu"),
    ),
    (
        "only assignment to constant places along axes other than the batch is supported",
        "join the parts with torch.cat, or choose with torch.where",
    ): ("Range", "Scatter", "ScatterElements", "ScatterND"),
    ("images are not resized within a network", "resize them before, or use AveragePool or Tile"): (
        "Resize",
        "Upsample",
    ),
    ("transposed convolutions are not supported", "only classifiers are, not networks that make images"): (
        *("ConvTranspose", "Col2Im", "DeformConv"),
    ),
    ("only products with a constant matrix are supported", "write it as MatMul, Gemm or Conv"): (
        *("Attention", "Det"),
    ),
    ("it is random", "export the model in evaluation mode"): (
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    ),
}
_ORDERS = COMPARISONS.keys() - {"Equal"}
_UNKNOWN = "this operator is not supported"
_BY_OPERATOR = {operator: reason for reason, operators in _BY_REASON.items() for operator in operators}


def refuse(node: OnnxNode) -> NoReturn:
    """Raises ConversionError for an operator that has no handler."""
    raise node.error(*_reason(node))


def _reason(node: OnnxNode) -> tuple[str, str]:
    """Why, and what could be done."""
    domain = node.node.domain
    if "fpgadataflow" in domain:
        return "FINN's operators for FPGAs are not supported", "give the model that FINN started from"
    if node.node.op_type in _ORDERS and all(constant_of(value) is None for value in node.node.inputs):
        what = "a comparison of two tensors that depend on the data, and of which no sign is made, is not supported"
        return what, "make -1 and +1 of it, and with >= and <= compare the difference with 0, as (x - x.mean(...)) >= 0"
    if node.node.op_type in _BY_OPERATOR:
        return _BY_OPERATOR[node.node.op_type]
    if domain not in STANDARD_DOMAINS:
        return _UNKNOWN, "export the model with ONNX's operators: those of other domains are not supported"
    return _UNKNOWN, "replace it in the model, or run it outside; see docs/converter.md"
