"""A graph as PyTorch runs it: what :mod:`bnnrt.reference` defines, in PyTorch's own operators and layouts.

Images are NCHW to PyTorch (in memory NCHW, or NHWC as ``channels_last``). Bits are +1 and -1 in the network's floating
type, and accumulators are in it too: float32 holds them exactly, float16 up to 2048. As a user of PyTorch would have
it, constant scales and shifts behind a layer are folded into its weights and bias, and a dense layer that reads a
flattened image has its weights in the order of that image's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.errors import InputError
from bnnrt.graph import Graph, Node
from bnnrt.ops import (
    ArgMax,
    Arithmetic,
    ArithmeticKind,
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
    Domain,
    Extreme,
    Gather,
    Grayscale,
    LocalBinaryPattern,
    LogSoftmax,
    MaxPool,
    Op,
    Pad,
    Picked,
    PRelu,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    SignOfZero,
    Softmax,
    Threshold,
    Ties,
    ToFloat,
    ToInt64,
    TopK,
    Transpose,
    Window,
)

__all__ = ["Step", "TorchNetwork"]

Array = npt.NDArray[Any]
Tensor = Any  # torch.Tensor; PyTorch is optional
Function = Callable[..., Tensor]

_AFFINE = (ArithmeticKind.ADD, ArithmeticKind.SUB, ArithmeticKind.MUL, ArithmeticKind.DIV)
_IMAGE = 4  # dimensions of a tensor that PyTorch holds as NCHW


@dataclass(frozen=True)
class Step:
    """One call: ``function`` of the tensors ``inputs`` gives the tensor ``output``."""

    name: str
    function: Function
    inputs: tuple[str, ...]
    output: str


class TorchNetwork:
    """A graph and its constants on a device.

    Args:
        torch: the package.
        device: PyTorch's name of the device, such as ``cuda:0``.
        dtype: ``torch.float32`` or ``torch.float16``.

    Raises InputError where an operator has no counterpart here.
    """

    def __init__(self, torch: Any, graph: Graph, device: str, dtype: Any, *, channels_last: bool) -> None:
        self._torch, self._graph = torch, graph
        self.device, self._dtype = torch.device(device), dtype
        self._channels_last = channels_last
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._consumers = graph.consumers()
        self._constants: dict[str, Tensor] = {}
        self._entries = {name: self._entry(name) for name in graph.inputs}
        self._plus, self._minus = self._vector(np.float32(1)), self._vector(np.float32(-1))
        self.steps = tuple(self._steps())
        self._dead = self._last_reads()

    def feed(self, name: str, array: Array) -> Array:
        """A feed of the graph as a user of PyTorch would hold it on the host: in the layout and type that it runs in.

        Pixels stay uint8.
        """
        transpose = self._entries[name]
        if transpose is not None and isinstance(transpose.op, Transpose):
            array = array.transpose(transpose.op.perm)
        if array.dtype != np.uint8:
            half = self._dtype == self._torch.float16
            with np.errstate(over="ignore"):  # to infinity, as on the device
                array = array.astype(np.float16 if half else np.float32)
        if array.ndim == _IMAGE and not self._channels_last:
            array = array.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(array)

    def view(self, tensor: Tensor) -> Tensor:
        """What :meth:`feed` gives, on the device, as :meth:`run` takes it: the same memory."""
        return tensor.permute(0, 3, 1, 2) if tensor.dim() == _IMAGE and self._channels_last else tensor

    def upload(self, array: Array) -> Tensor:
        """A tensor on the device, as :meth:`run` takes it, from what :meth:`feed` gives."""
        return self.view(self._torch.from_numpy(array).to(self.device))

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs in the graph's order, from its inputs in their order."""
        values = self._given(inputs)
        for step, dead in zip(self.steps, self._dead, strict=True):
            values[step.output] = step.function(*[values[name] for name in step.inputs])
            for name in dead:
                del values[name]
        return [values[name] for name in self._graph.outputs]

    def calls(self, inputs: Sequence[Tensor]) -> list[tuple[Step, list[Tensor], Tensor]]:
        """Each step with the tensors that it reads and the one that it gives."""
        values = self._given(inputs)
        calls = []
        for step in self.steps:
            operands = [values[name] for name in step.inputs]
            values[step.output] = step.function(*operands)
            calls.append((step, operands, values[step.output]))
        return calls

    def _given(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Constants and inputs by the names by which steps read them."""
        names = [name if transpose is None else transpose.outputs[0] for name, transpose in self._entries.items()]
        return {**self._constants, **dict(zip(names, inputs, strict=True))}

    def arrays(self, outputs: Sequence[Tensor]) -> dict[str, Array]:
        """Outputs by name, in the graph's own layout."""
        pairs = zip(self._graph.outputs, outputs, strict=True)
        return {name: self._nhwc(tensor).cpu().numpy() for name, tensor in pairs}

    # Which steps there are

    def _entry(self, name: str) -> Node | None:
        """The node that only transposes an input, as models do that take NCHW: the host gives the input so."""
        readers = self._consumers.get(name, [])
        alone = len(readers) == 1 and isinstance(readers[0].op, Transpose) and name not in self._graph.outputs
        return readers[0] if alone else None

    def _steps(self) -> list[Step]:
        steps: list[Step] = []
        folded = {transpose.outputs[0] for transpose in self._entries.values() if transpose is not None}
        for node in self._graph.nodes:
            if node.outputs[0] in folded:
                continue
            layer = _LAYERS.get(type(node.op))
            chain: list[Node] = []
            if layer is not None:
                chain = self._affine_chain(node.outputs[0])
                weights = self._graph.constants[node.inputs[1]].unpacked()
                if weights.dtype == np.bool_:
                    weights = np.where(weights, 1.0, -1.0)
                function = layer(self, node, weights.astype(np.float64), *self._scale_and_shift(chain, len(weights)))
                inputs = node.inputs[:1]
            elif self._affine(node, self._variable(node)):
                chain = [node, *self._affine_chain(node.outputs[0])]
                channels = self._graph.types[node.outputs[0]].channels
                function = self._scaled(node, *self._scale_and_shift(chain, channels))
                inputs = (self._variable(node),)
            else:
                function, inputs = self._function(node)
            folded.update(other.outputs[0] for other in chain)
            steps.append(Step(node.name, function, inputs, chain[-1].outputs[0] if chain else node.outputs[0]))
        return steps

    def _last_reads(self) -> list[list[str]]:
        """For each step the tensors that are not needed after it, so that their memory is used again."""
        needed = set(self._graph.outputs)
        dead: list[list[str]] = []
        for step in reversed(self.steps):
            dead.append([name for name in dict.fromkeys((*step.inputs, step.output)) if name not in needed])
            needed.update(step.inputs)
        return dead[::-1]

    def _function(self, node: Node) -> tuple[Function, tuple[str, ...]]:
        build = _FUNCTIONS.get(type(node.op))
        if build is None:
            raise InputError(f"{type(node.op).__name__} has no counterpart in PyTorch here", node.name)
        # What an operator does not read as parameters it reads as operands.
        inputs = tuple(name for i, name in enumerate(node.inputs) if i not in node.op.constant_inputs)
        for name in inputs:
            if name in self._graph.constants and name not in self._constants:
                self._constants[name] = self._operand(name)
        return build(self, node), inputs

    def _variable(self, node: Node) -> str:
        """The first input that is no constant."""
        return next(name for name in node.inputs if name not in self._graph.constants)

    def _affine(self, node: Node, x: str) -> bool:
        """Whether ``node`` is x times a constant plus a constant, a channel."""
        if isinstance(node.op, ToFloat):
            return self._graph.types[x].domain is Domain.INT32
        if not isinstance(node.op, Arithmetic) or node.op.kind not in _AFFINE or len(self._graph.types[x].shape) == 1:
            return False
        others = [name for name in node.inputs if name != x]
        if len(others) != 1 or others[0] not in self._graph.constants:
            return False
        constant = self._graph.constants[others[0]].unpacked()
        divides = node.op.kind is ArithmeticKind.DIV
        if divides and (node.inputs[1] == x or not constant.all()):
            return False
        return constant.ndim == 1 and bool(np.isfinite(constant).all())

    def _affine_chain(self, name: str) -> list[Node]:
        """The nodes that only scale and shift the tensor, which nothing else reads."""
        chain: list[Node] = []
        while name not in self._graph.outputs and len(readers := self._consumers.get(name, [])) == 1:
            if not self._affine(readers[0], name):
                break
            chain.append(readers[0])
            name = readers[0].outputs[0]
        return chain

    def _scale_and_shift(self, chain: Sequence[Node], channels: int) -> tuple[Array, Array | None]:
        """What a chain multiplies with and then adds, float64 [channels]; no shift where nothing is added."""
        scale, shift, shifted = np.ones(channels), np.zeros(channels), False
        for node in chain:
            if not isinstance(node.op, Arithmetic):
                continue
            constant_first = node.inputs[0] in self._graph.constants
            constant = self._graph.constants[node.inputs[0 if constant_first else 1]].unpacked().astype(np.float64)
            kind = node.op.kind
            if kind is ArithmeticKind.MUL:
                scale, shift = scale * constant, shift * constant
            elif kind is ArithmeticKind.DIV:
                scale, shift = scale / constant, shift / constant
            else:
                shifted = True
                if kind is ArithmeticKind.ADD:
                    shift = shift + constant
                elif constant_first:
                    scale, shift = -scale, constant - shift
                else:
                    shift = shift - constant
        return scale, shift if shifted else None

    # Tensors

    def _vector(self, values: npt.ArrayLike) -> Tensor:
        """Numbers in the network's type on its device."""
        array = np.asarray(values, dtype=np.float32)
        return self._torch.from_numpy(np.array(array)).to(self.device, self._dtype)

    def _per_channel(self, values: npt.ArrayLike, node: Node) -> Tensor:
        """A vector that is broadcast over the channels of the node's output."""
        vector = self._vector(values)
        return vector.reshape(-1, 1, 1) if len(self._graph.types[node.outputs[0]].shape) == _IMAGE else vector

    def _operand(self, name: str) -> Tensor:
        constant = self._graph.constants[name]
        data = constant.unpacked()
        if constant.type.domain is Domain.BIT:
            data = np.where(data, np.float32(1), np.float32(-1))
        if data.dtype == np.uint8:
            return self._image(self._torch.from_numpy(np.array(data)).to(self.device))
        return self._image(self._vector(data))

    def _image(self, tensor: Tensor) -> Tensor:
        """A tensor in the graph's layout as PyTorch has it; copies where the memory's order is another."""
        if tensor.dim() != _IMAGE:
            return tensor
        return tensor.permute(0, 3, 1, 2).contiguous(memory_format=self._format)

    def _nhwc(self, tensor: Tensor) -> Tensor:
        """A view of a tensor in the graph's layout."""
        return tensor.permute(0, 2, 3, 1) if tensor.dim() == _IMAGE else tensor

    def _pad(self, pads: tuple[int, int, int, int], value: float) -> Function:
        top, left, bottom, right = pads
        pad = self._torch.nn.functional.pad
        return lambda x: pad(x, (left, right, top, bottom), value=value)

    def _sign(self, condition: Tensor) -> Tensor:
        return self._torch.where(condition, self._plus, self._minus)

    # Layers: weights float64 [O, ...], and what their output is multiplied with and then shifted by

    def _conv(self, node: Node, weights: Array, scale: Array, shift: Array | None) -> Function:
        op = node.op
        assert isinstance(op, BinaryConv | BinaryWeightConv | Conv)
        kernel = self._image(self._vector(weights * scale[:, None, None, None]))
        bias = None if shift is None else self._vector(shift)
        value = op.pad_value if isinstance(op, BinaryConv) else 0
        window, groups, conv2d = op.window, op.groups, self._torch.nn.functional.conv2d
        padding = _symmetric(window.pads) if value == 0 else (0, 0) if not any(window.pads) else None
        pad = None if padding is not None else self._pad(window.pads, value)

        def run(x: Tensor) -> Tensor:
            x = x if pad is None else pad(x)
            return conv2d(x, kernel, bias, window.strides, padding or (0, 0), window.dilations, groups)

        return run

    def _dense(self, node: Node, weights: Array, scale: Array, shift: Array | None) -> Function:
        image = self._flattened(node.inputs[0])
        if image is not None:
            weights = weights.reshape(len(weights), *image).transpose(0, 3, 1, 2).reshape(len(weights), -1)
        matrix = self._vector(weights * scale[:, None])
        bias = None if shift is None else self._vector(shift)
        linear = self._torch.nn.functional.linear
        return lambda x: linear(x, matrix, bias)

    def _scaled(self, node: Node, scale: Array, shift: Array | None) -> Function:
        if shift is None and (scale == 1).all():
            return lambda x: x
        factor = self._per_channel(scale, node)
        if shift is None:
            return lambda x: x * factor
        addend = self._per_channel(shift, node)
        if (scale == 1).all():
            return lambda x: x + addend
        addcmul = self._torch.addcmul
        return lambda x: addcmul(addend, x, factor)

    # Everything else

    def _threshold(self, node: Node) -> Function:
        minimum, falling = (self._graph.constants[name].unpacked() for name in node.inputs[1:])
        # Compared in the type of x: accumulators are floating, pixels are not.
        limit = self._per_channel(minimum, node)
        integer = self._torch.from_numpy(np.array(minimum)).to(self.device).reshape(limit.shape)
        reached = np.where(falling.reshape(-1), np.float32(-1), np.float32(1))
        above, below, where = self._per_channel(reached, node), self._per_channel(-reached, node), self._torch.where
        # Pixels may have several thresholds a channel.
        times = len(minimum) // self._graph.types[node.inputs[0]].channels

        def run(x: Any) -> Any:
            seen = x if times == 1 else x.repeat(1, times, *[1] * (x.dim() - 2))
            return where(seen >= (limit if x.is_floating_point() else integer), above, below)

        return run

    def _grayscale(self, node: Node) -> Function:
        torch = self._torch

        def run(x: Tensor) -> Tensor:
            red, green, blue = x.to(torch.int32).split(1, dim=1)
            return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8)

        return run

    def _local_binary_pattern(self, node: Node) -> Function:
        pad, torch = self._pad((1, 1, 1, 1), 0), self._torch
        _, height, width, _ = self._graph.types[node.inputs[0]].with_batch(1)

        def run(x: Tensor) -> Tensor:
            around = pad(x)
            seen = [
                around[:, :, 1 + down : 1 + down + height, 1 + right : 1 + right + width]
                for down, right in ((-1, -1), (0, 1), (1, -1))
            ]
            return self._sign(torch.cat(seen, dim=1) > x).contiguous(memory_format=self._format)

        return run

    def _sign_of(self, node: Node) -> Function:
        assert isinstance(node.op, Sign)
        if node.op.zero is SignOfZero.GE:
            return lambda x: self._sign(x >= 0)
        return lambda x: self._sign(x > 0)

    def _max_pool(self, node: Node) -> Function:
        assert isinstance(node.op, BitPool | MaxPool)
        window, max_pool2d = node.op.window, self._torch.nn.functional.max_pool2d
        padding = _symmetric(window.pads)
        # PyTorch pads a window by half of it at most.
        if padding is None or any(2 * p > k for p, k in zip(padding, window.kernel, strict=True)):
            pad, padding = self._pad(window.pads, float("-inf")), (0, 0)
        else:
            pad = None

        def run(x: Tensor) -> Tensor:
            x = x if pad is None else pad(x)
            return max_pool2d(x, window.kernel, window.strides, padding, window.dilations)

        return run

    def _bit_pool(self, node: Node) -> Function:
        pool = self._max_pool(node)
        minimum = self._graph.constants[node.inputs[1]].unpacked().reshape(-1)
        if not minimum.any():
            return pool
        side = self._per_channel(np.where(minimum, -1.0, 1.0), node)
        return lambda x: pool(x * side) * side

    def _average_pool(self, node: Node) -> Function:
        op = node.op
        assert isinstance(op, AveragePool)
        window, functional = op.window, self._torch.nn.functional
        _, height, width, channels = self._graph.types[node.inputs[0]].with_batch(1)
        # The mean of all taps, times their number, over the number of those that count.
        correction = window.taps / _counted(window, op.counted_pads, height, width)
        factor = None if (correction == 1).all() else self._vector(correction)
        padding = _symmetric(window.pads)
        pad = None
        if (
            window.dilations != (1, 1)
            or padding is None
            or any(2 * p > k for p, k in zip(padding, window.kernel, strict=True))
        ):
            pad, padding = self._pad(window.pads, 0.0), (0, 0)
        ones = self._image(self._vector(np.full((channels, *window.kernel, 1), 1 / window.taps)))

        def run(x: Tensor) -> Tensor:
            x = x if pad is None else pad(x)
            if window.dilations == (1, 1):
                mean = functional.avg_pool2d(x, window.kernel, window.strides, padding)
            else:
                mean = functional.conv2d(x, ones, None, window.strides, 0, window.dilations, channels)
            return mean if factor is None else mean * factor

        return run

    def _prelu(self, node: Node) -> Function:
        slope, where = self._per_channel(self._graph.constants[node.inputs[1]].unpacked(), node), self._torch.where
        if len(self._graph.types[node.outputs[0]].shape) in (2, _IMAGE):
            prelu, weight = self._torch.nn.functional.prelu, slope.reshape(-1)
            return lambda x: prelu(x, weight)
        return lambda x: where(x < 0, slope * x, x)

    def _relu(self, node: Node) -> Function:
        relu: Function = self._torch.relu
        return relu

    def _sigmoid(self, node: Node) -> Function:
        sigmoid: Function = self._torch.sigmoid
        return sigmoid

    def _clip(self, node: Node) -> Function:
        assert isinstance(node.op, Clip)
        clamp, low, high = self._torch.clamp, node.op.minimum, node.op.maximum
        return lambda x: clamp(x, low, high)

    def _softmax(self, node: Node) -> Function:
        softmax, axis = self._torch.softmax, self._channel_axis(node)
        return lambda x: softmax(x, dim=axis)

    def _log_softmax(self, node: Node) -> Function:
        log_softmax, axis = self._torch.log_softmax, self._channel_axis(node)
        return lambda x: log_softmax(x, dim=axis)

    def _channel_axis(self, node: Node) -> int:
        return 1 if len(self._graph.types[node.outputs[0]].shape) == _IMAGE else -1

    def _padded(self, node: Node) -> Function:
        assert isinstance(node.op, Pad)
        return self._pad(node.op.pads, node.op.value)

    def _concat(self, node: Node) -> Function:
        cat, axis = self._torch.cat, self._channel_axis(node)
        return lambda *parts: cat(parts, dim=axis)

    def _to_float(self, node: Node) -> Function:
        return lambda x: x.to(self._dtype)

    def _to_int64(self, node: Node) -> Function:
        return lambda x: x.to(self._torch.int64)

    def _arg_max(self, node: Node) -> Function:
        assert isinstance(node.op, ArgMax)
        op, axis, integer = node.op, self._channel_axis(node), self._torch.int32
        find = self._torch.argmax if op.extreme is Extreme.GREATEST else self._torch.argmin
        if op.ties is Ties.FIRST:
            return lambda x: find(x, dim=axis, keepdim=True).to(integer)
        last = self._graph.types[node.inputs[0]].channels - 1
        return lambda x: (last - find(x.flip(axis), dim=axis, keepdim=True)).to(integer)

    def _top_k(self, node: Node) -> Function:
        op, axis = node.op, self._channel_axis(node)
        assert isinstance(op, TopK)
        sort, part = self._torch.sort, 0 if op.picked is Picked.VALUES else 1

        def run(x: Tensor) -> Tensor:
            # torch.topk gives equal elements in any order.
            found = sort(x, dim=axis, descending=op.extreme is Extreme.GREATEST, stable=True)[part]
            return found.narrow(axis, 0, op.k) if part == 0 else found.narrow(axis, 0, op.k).to(self._torch.int32)

        return run

    def _gather(self, node: Node) -> Function:
        assert isinstance(node.op, Gather)
        axis = node.op.axis
        if len(self._graph.types[node.outputs[0]].shape) == _IMAGE:
            axis = 1 if axis == _IMAGE - 1 else axis + 1
        index_select = self._torch.index_select
        indices = self._torch.from_numpy(np.array(self._graph.constants[node.inputs[1]].data)).to(self.device)
        return lambda x: index_select(x, axis, indices)

    def _arithmetic(self, node: Node) -> Function:
        assert isinstance(node.op, Arithmetic)
        kinds = {
            ArithmeticKind.ADD: self._torch.add,
            ArithmeticKind.SUB: self._torch.sub,
            ArithmeticKind.MUL: self._torch.mul,
            ArithmeticKind.DIV: self._torch.div,
            ArithmeticKind.MAX: self._torch.maximum,
            ArithmeticKind.MIN: self._torch.minimum,
        }
        function = kinds[node.op.kind]
        if len(self._graph.types[node.outputs[0]].shape) != _IMAGE:
            return lambda a, b: function(a, b)
        # A vector goes along the channels.
        return lambda a, b: function(*(t.reshape(-1, 1, 1) if t.dim() == 1 else t for t in (a, b)))

    def _transpose(self, node: Node) -> Function:
        assert isinstance(node.op, Transpose)
        perm = node.op.perm
        return lambda x: self._image(self._nhwc(x).permute(perm))

    def _reshape(self, node: Node) -> Function:
        assert isinstance(node.op, Reshape)
        shape = node.op.shape
        if self._flattened(node.outputs[0]) is not None:
            return lambda x: x.flatten(1)
        return lambda x: self._image(self._nhwc(x).reshape(len(x), *shape))

    def _flattened(self, name: str) -> tuple[int, ...] | None:
        """Height, width and channels of the image of which the tensor is made by flattening it as NCHW.

        So that nothing moves: only where the memory is NCHW, and all that read it are dense layers.
        """
        node = next((n for n in self._graph.nodes if name in n.outputs), None)
        if node is None or not isinstance(node.op, Reshape) or self._channels_last or name in self._graph.outputs:
            return None
        source = self._graph.types[node.inputs[0]].with_batch(1)
        readers = self._consumers.get(name, [])
        dense = all(isinstance(r.op, BinaryDense | BinaryWeightDense | Dense) for r in readers)
        return source[1:] if dense and len(source) == _IMAGE else None


def _symmetric(pads: tuple[int, int, int, int]) -> tuple[int, int] | None:
    """Rows and columns that are added on both sides, or None where the sides differ."""
    return pads[:2] if pads[:2] == pads[2:] else None


def _counted(window: Window, counted_pads: tuple[int, int, int, int], height: int, width: int) -> Array:
    """For each output, the taps within the image and ``counted_pads`` around it: float64 [OH, OW]."""
    axes = []
    for axis, (size, count) in enumerate(zip((height, width), window.output_size(height, width), strict=True)):
        first = np.arange(count)[:, None] * window.strides[axis] - window.pads[axis]
        taps = first + np.arange(window.kernel[axis]) * window.dilations[axis]
        inside = (taps >= -counted_pads[axis]) & (taps < size + counted_pads[axis + 2])
        axes.append(inside.sum(axis=1).astype(np.float64))
    rows, columns = axes
    return np.outer(rows, columns)


_LAYERS: dict[type[Op], Callable[..., Function]] = {
    BinaryConv: TorchNetwork._conv,
    BinaryDense: TorchNetwork._dense,
    BinaryWeightConv: TorchNetwork._conv,
    BinaryWeightDense: TorchNetwork._dense,
    Conv: TorchNetwork._conv,
    Dense: TorchNetwork._dense,
}
_FUNCTIONS: dict[type[Op], Callable[[TorchNetwork, Node], Function]] = {
    ArgMax: TorchNetwork._arg_max,
    Arithmetic: TorchNetwork._arithmetic,
    AveragePool: TorchNetwork._average_pool,
    BitPool: TorchNetwork._bit_pool,
    Clip: TorchNetwork._clip,
    Concat: TorchNetwork._concat,
    Gather: TorchNetwork._gather,
    Grayscale: TorchNetwork._grayscale,
    LocalBinaryPattern: TorchNetwork._local_binary_pattern,
    LogSoftmax: TorchNetwork._log_softmax,
    MaxPool: TorchNetwork._max_pool,
    PRelu: TorchNetwork._prelu,
    Pad: TorchNetwork._padded,
    Relu: TorchNetwork._relu,
    Reshape: TorchNetwork._reshape,
    Sigmoid: TorchNetwork._sigmoid,
    Sign: TorchNetwork._sign_of,
    Softmax: TorchNetwork._softmax,
    Threshold: TorchNetwork._threshold,
    ToFloat: TorchNetwork._to_float,
    ToInt64: TorchNetwork._to_int64,
    TopK: TorchNetwork._top_k,
    Transpose: TorchNetwork._transpose,
}
