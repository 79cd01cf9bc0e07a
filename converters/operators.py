"""Which handler translates which ONNX operator.

Float operators become the same float32 operators, one by one and in the model's order; nothing is fused here. To add an
operator, write its handler beside its like and enter it in the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from bnnrt.converters.cleanup import qonnx, xnor
from bnnrt.converters.handlers import arithmetic, elementwise, layers, pad, picking, pooling, shaping
from bnnrt.converters.handlers.scope import Handler
from bnnrt.ops import ArithmeticKind, AveragePool, Extreme, LogSoftmax, MaxPool, Relu, Sigmoid, Softmax

__all__ = ["HANDLERS"]

HANDLERS: Mapping[str, Handler] = {
    "Abs": arithmetic.absolute,
    "Add": arithmetic.arithmetic(ArithmeticKind.ADD),
    "ArgMax": picking.arg_max(Extreme.GREATEST),
    "ArgMin": picking.arg_max(Extreme.LEAST),
    "AveragePool": pooling.average_pool,
    "BatchNormalization": elementwise.batch_normalization,
    "Cast": elementwise.cast,
    "Clip": elementwise.clip,
    "Concat": shaping.concat,
    "Conv": layers.conv,
    "DepthToSpace": shaping.depth_to_space,
    "Div": arithmetic.arithmetic(ArithmeticKind.DIV),
    "Dropout": elementwise.same,
    "Einsum": layers.einsum,
    "Expand": picking.expand,
    "Flatten": shaping.flatten,
    "Gather": picking.gather,
    "Gemm": layers.gemm,
    "GlobalAveragePool": pooling.global_pool(AveragePool),
    "GlobalMaxPool": pooling.global_pool(MaxPool),
    "HardSigmoid": elementwise.hard_sigmoid,
    "HardSwish": elementwise.hard_swish,
    "Identity": elementwise.same,
    "LeakyRelu": elementwise.leaky_relu,
    "LogSoftmax": elementwise.softmax(LogSoftmax()),
    "MatMul": layers.matmul,
    "Max": arithmetic.variadic(ArithmeticKind.MAX),
    "MaxPool": pooling.max_pool,
    "Mean": arithmetic.mean,
    "Min": arithmetic.variadic(ArithmeticKind.MIN),
    "Mul": arithmetic.arithmetic(ArithmeticKind.MUL),
    "Neg": arithmetic.negative,
    "PRelu": elementwise.prelu,
    "Pad": pad.pad,
    "Pow": arithmetic.power,
    "Reciprocal": arithmetic.reciprocal,
    "ReduceMax": pooling.reduced(MaxPool),
    "ReduceMean": pooling.reduced(AveragePool),
    "ReduceMin": pooling.reduced_min,
    "ReduceSum": pooling.summed,
    "Relu": elementwise.unary(Relu()),
    "Reshape": shaping.reshape,
    "Sigmoid": elementwise.unary(Sigmoid()),
    "Slice": picking.slices,
    "Softmax": elementwise.softmax(Softmax()),
    "SpaceToDepth": shaping.space_to_depth,
    "Split": picking.split,
    "Squeeze": shaping.squeeze,
    "Sub": arithmetic.arithmetic(ArithmeticKind.SUB),
    "Sum": arithmetic.variadic(ArithmeticKind.ADD),
    "Tile": picking.tile,
    "TopK": picking.top_k,
    "Transpose": shaping.transpose,
    "Unsqueeze": shaping.unsqueeze,
    "bnnrt.Sign": elementwise.sign,
    **dict.fromkeys(qonnx.QUALIFIED, qonnx.refuse),
    **dict.fromkeys(xnor.QUALIFIED, xnor.refuse),
}
