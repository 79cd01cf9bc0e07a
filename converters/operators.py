"""Which handler translates which ONNX operator.

Float operators become the same float32 operators, one by one and in the model's order; nothing is fused here. To add an
operator, write its handler beside its like and enter it in the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from bnnrt.converters import elementwise, layers, qonnx, shaping, xnor
from bnnrt.converters.scope import Handler
from bnnrt.ops import ArithmeticKind, Relu, Sigmoid

__all__ = ["HANDLERS"]

HANDLERS: Mapping[str, Handler] = {
    "Add": elementwise.arithmetic(ArithmeticKind.ADD),
    "AveragePool": layers.average_pool,
    "BatchNormalization": elementwise.batch_normalization,
    "Cast": elementwise.cast,
    "Clip": elementwise.clip,
    "Concat": shaping.concat,
    "Conv": layers.conv,
    "Div": elementwise.arithmetic(ArithmeticKind.DIV),
    "Dropout": elementwise.same,
    "Flatten": shaping.flatten,
    "Gemm": layers.gemm,
    "GlobalAveragePool": layers.global_average_pool,
    "GlobalMaxPool": layers.global_max_pool,
    "HardSigmoid": elementwise.hard_sigmoid,
    "HardSwish": elementwise.hard_swish,
    "Identity": elementwise.same,
    "LeakyRelu": elementwise.leaky_relu,
    "MatMul": layers.matmul,
    "MaxPool": layers.max_pool,
    "Mul": elementwise.arithmetic(ArithmeticKind.MUL),
    "Neg": elementwise.negative,
    "PRelu": elementwise.prelu,
    "Pad": layers.pad,
    "ReduceMean": layers.reduce_mean,
    "Relu": elementwise.unary(Relu()),
    "Reshape": shaping.reshape,
    "Sigmoid": elementwise.unary(Sigmoid()),
    "Softmax": elementwise.softmax,
    "Squeeze": shaping.squeeze,
    "Sub": elementwise.arithmetic(ArithmeticKind.SUB),
    "Transpose": shaping.transpose,
    "Unsqueeze": shaping.unsqueeze,
    "bnnrt.Sign": elementwise.sign,
    **dict.fromkeys(qonnx.QUALIFIED, qonnx.refuse),
    **dict.fromkeys(xnor.QUALIFIED, xnor.refuse),
}
