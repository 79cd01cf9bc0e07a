"""Which handler translates which ONNX operator.

Float operators become the same float32 operators, one by one and in the model's order; nothing is fused here. To add an
operator, write its handler beside its like and enter it in the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from bnnrt.converters import elementwise, layers, shaping
from bnnrt.converters.scope import Handler
from bnnrt.ops import ArithmeticKind

__all__ = ["HANDLERS"]

HANDLERS: Mapping[str, Handler] = {
    "Add": elementwise.arithmetic(ArithmeticKind.ADD),
    "BatchNormalization": elementwise.batch_normalization,
    "Cast": elementwise.cast,
    "Conv": layers.conv,
    "Div": elementwise.arithmetic(ArithmeticKind.DIV),
    "Dropout": elementwise.same,
    "Flatten": shaping.flatten,
    "Gemm": layers.gemm,
    "Identity": elementwise.same,
    "MatMul": layers.matmul,
    "MaxPool": layers.max_pool,
    "Mul": elementwise.arithmetic(ArithmeticKind.MUL),
    "Pad": layers.pad,
    "Reshape": shaping.reshape,
    "Squeeze": shaping.squeeze,
    "Sub": elementwise.arithmetic(ArithmeticKind.SUB),
    "Transpose": shaping.transpose,
    "Unsqueeze": shaping.unsqueeze,
    "bnnrt.Sign": elementwise.sign,
}
