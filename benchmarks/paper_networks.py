"""The networks of the paper's experiment from 8-bit pixels, with random weights: only their speed matters.

"Binarized Convolutional Neural Networks for Efficient Inference on GPUs": two convolutions 5x5 of 32 channels, each
with pooling 2x2, then dense layers of 100, 100 and 6; float, and binarized with each way to binarize the input.
"""

from __future__ import annotations

import numpy as np

from bnnrt import ops
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window

__all__ = ["SCHEMES", "paper_network"]

SCHEMES = ("float", "none", "thresholding RGB", "thresholding gray", "LBP")
"""Full precision; binarized with a first layer on real input; binarized with binarized input."""

_CONV = Window((5, 5), pads=(2, 2, 2, 2))
_POOL = Window((2, 2), strides=(2, 2))
_SIZE, _CHANNELS, _FEATURES, _CLASSES = 96, 32, 100, 6


class _Builder:
    """A chain of nodes with random constants."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.last = "pixels"

    def add(self, op: ops.Op, *constants: Constant) -> None:
        number = len(self.nodes)
        names = [f"c{number}_{index}" for index in range(len(constants))]
        self.constants.update(zip(names, constants, strict=True))
        self.nodes.append(Node(f"{type(op).__name__}{number}", op, (self.last, *names), (f"t{number}",)))
        self.last = f"t{number}"

    def bits(self, *shape: int) -> Constant:
        return Constant.bits(self._rng.random(shape) < 0.5)

    def floats(self, *shape: int) -> Constant:
        return Constant.of(self._rng.normal(0, 0.05, shape).astype(np.float32))

    def integers(self, low: int, high: int, *shape: int) -> Constant:
        return Constant.of(self._rng.integers(low, high, shape).astype(np.int32))


def paper_network(scheme: str, seed: int = 0) -> Graph:
    """The network of one row of the paper's table, from uint8 pixels [N, 96, 96, 3] to float32 [N, 6]."""
    made = _Builder(seed)
    if scheme == "float":
        _full_precision(made)
    else:
        _binarized(made, scheme)
    pixels = TensorType((None, _SIZE, _SIZE, 3), Domain.UINT8)
    return Graph({"pixels": pixels}, tuple(made.nodes), (made.last,), made.constants)


def _full_precision(made: _Builder) -> None:
    made.add(ops.ToFloat())
    for channels in (3, _CHANNELS):
        made.add(ops.Conv(_CONV), made.floats(_CHANNELS, 5, 5, channels))
        made.add(ops.Arithmetic(ops.ArithmeticKind.ADD), made.floats(_CHANNELS))
        made.add(ops.Relu())
        made.add(ops.MaxPool(_POOL))
    made.add(ops.Reshape((_CHANNELS * (_SIZE // 4) ** 2,)))
    for inputs, outputs in ((_CHANNELS * (_SIZE // 4) ** 2, _FEATURES), (_FEATURES, _FEATURES), (_FEATURES, _CLASSES)):
        made.add(ops.Dense(), made.floats(outputs, inputs))
        made.add(ops.Arithmetic(ops.ArithmeticKind.ADD), made.floats(outputs))
        if outputs != _CLASSES:
            made.add(ops.Relu())


def _binarized(made: _Builder, scheme: str) -> None:
    if scheme == "none":
        made.add(ops.ToFloat())
        made.add(ops.BinaryWeightConv(_CONV), made.bits(_CHANNELS, 5, 5, 3))
        made.add(ops.Arithmetic(ops.ArithmeticKind.ADD), made.floats(_CHANNELS))
        made.add(ops.Sign())
        channels = 0
    elif scheme == "LBP":
        made.add(ops.Grayscale())
        made.add(ops.LocalBinaryPattern())
        channels = 3
    else:
        channels = 3
        if scheme == "thresholding gray":
            made.add(ops.Grayscale())
            channels = 1
        made.add(ops.Threshold(), made.integers(1, 255, channels), made.bits(channels))
    for inputs in (channels, _CHANNELS):
        if inputs:
            made.add(ops.BinaryConv(_CONV, pad_value=-1), made.bits(_CHANNELS, 5, 5, inputs))
            made.add(ops.Threshold(), made.integers(-9, 9, _CHANNELS), made.bits(_CHANNELS))
        made.add(ops.BitPool(_POOL), made.bits(_CHANNELS))
    made.add(ops.Reshape((_CHANNELS * (_SIZE // 4) ** 2,)))
    for inputs in (_CHANNELS * (_SIZE // 4) ** 2, _FEATURES):
        made.add(ops.BinaryDense(), made.bits(_FEATURES, inputs))
        made.add(ops.Threshold(), made.integers(-9, 9, _FEATURES), made.bits(_FEATURES))
    made.add(ops.BinaryDense(), made.bits(_CLASSES, _FEATURES))
    made.add(ops.ToFloat())
    made.add(ops.Arithmetic(ops.ArithmeticKind.MUL), made.floats(1))
