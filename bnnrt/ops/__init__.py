"""The operators of a graph: typed parameters and shape inference.

Activations are NHWC, [batch, height, width, channels], or [batch, features]; the batch is ``None`` where it is free.
Constants are ordinary inputs of a node. An operator is a frozen dataclass whose fields are numbers, tuples of integers,
members of an enumeration, or a :class:`Window`; :mod:`bnnrt.bundle` stores them by name, so renaming one changes the
format.
"""

from __future__ import annotations

from bnnrt.ops.base import Op
from bnnrt.ops.bits import Grayscale, LocalBinaryPattern, Sign, SignOfZero, Threshold, ToFloat
from bnnrt.ops.elementwise import Arithmetic, ArithmeticKind, Clip, LogSoftmax, PRelu, Relu, Sigmoid, Softmax
from bnnrt.ops.layers import BinaryConv, BinaryDense, BinaryWeightConv, BinaryWeightDense, Conv, Dense
from bnnrt.ops.pooling import AveragePool, BitPool, MaxPool
from bnnrt.ops.ranking import ArgMax, Extreme, Picked, Ties, ToInt64, TopK
from bnnrt.ops.shaping import Concat, Gather, Pad, Reshape, Transpose
from bnnrt.ops.types import MAX_ELEMENTS, Domain, Shape, TensorType, Window

__all__ = [
    "MAX_ELEMENTS",
    "OPS",
    "ArgMax",
    "Arithmetic",
    "ArithmeticKind",
    "AveragePool",
    "BinaryConv",
    "BinaryDense",
    "BinaryWeightConv",
    "BinaryWeightDense",
    "BitPool",
    "Clip",
    "Concat",
    "Conv",
    "Dense",
    "Domain",
    "Extreme",
    "Gather",
    "Grayscale",
    "LocalBinaryPattern",
    "LogSoftmax",
    "MaxPool",
    "Op",
    "PRelu",
    "Pad",
    "Picked",
    "Relu",
    "Reshape",
    "Shape",
    "Sigmoid",
    "Sign",
    "SignOfZero",
    "Softmax",
    "TensorType",
    "Threshold",
    "Ties",
    "ToFloat",
    "ToInt64",
    "TopK",
    "Transpose",
    "Window",
]

OPS: dict[str, type[Op]] = {
    op.__name__: op
    for op in (
        ArgMax,
        Arithmetic,
        AveragePool,
        BinaryConv,
        BinaryDense,
        BinaryWeightConv,
        BinaryWeightDense,
        BitPool,
        Clip,
        Concat,
        Conv,
        Dense,
        Gather,
        Grayscale,
        LocalBinaryPattern,
        LogSoftmax,
        MaxPool,
        PRelu,
        Pad,
        Relu,
        Reshape,
        Sigmoid,
        Sign,
        Softmax,
        Threshold,
        ToFloat,
        ToInt64,
        TopK,
        Transpose,
    )
}
