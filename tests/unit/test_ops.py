"""Operators: what each one's shape inference accepts, gives and refuses."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnnrt.errors import GraphError
from bnnrt.ops import (
    MAX_ELEMENTS,
    OPS,
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
    Shape,
    Sigmoid,
    Sign,
    SignOfZero,
    Softmax,
    TensorType,
    Threshold,
    ToFloat,
    ToInt64,
    TopK,
    Transpose,
    Window,
)

WINDOW = Window((3, 3))
POOL = Window((2, 2), strides=(2, 2))
ADD = Arithmetic(ArithmeticKind.ADD)


def bit(*shape: int | None) -> TensorType:
    return TensorType(shape, Domain.BIT)


def uint8(*shape: int | None) -> TensorType:
    return TensorType(shape, Domain.UINT8)


def int32(*shape: int | None) -> TensorType:
    return TensorType(shape, Domain.INT32)


def float32(*shape: int | None) -> TensorType:
    return TensorType(shape, Domain.FLOAT32)


ACCEPTED: list[tuple[Op, list[TensorType], TensorType]] = [
    (BinaryConv(WINDOW), [bit(None, 5, 6, 40), bit(7, 3, 3, 40)], int32(None, 3, 4, 7)),
    (BinaryConv(WINDOW, groups=4), [bit(2, 3, 3, 8), bit(12, 3, 3, 2)], int32(2, 1, 1, 12)),
    (BinaryConv(WINDOW, pad_value=1), [bit(1, 3, 3, 1), bit(1, 3, 3, 1)], int32(1, 1, 1, 1)),
    (BinaryDense(), [bit(None, 33), bit(10, 33)], int32(None, 10)),
    (BinaryWeightConv(WINDOW, groups=3), [float32(None, 5, 5, 3), bit(6, 3, 3, 1)], float32(None, 3, 3, 6)),
    (BinaryWeightDense(), [float32(4, 5), bit(2, 5)], float32(4, 2)),
    (Conv(WINDOW), [float32(None, 3, 3, 3), float32(8, 3, 3, 3)], float32(None, 1, 1, 8)),
    (Dense(), [float32(None, 5), float32(2, 5)], float32(None, 2)),
    (Threshold(), [int32(None, 4, 4, 3), int32(3), bit(3)], bit(None, 4, 4, 3)),
    (Threshold(), [uint8(None, 4, 4, 3), int32(3), bit(3)], bit(None, 4, 4, 3)),
    (Threshold(), [int32(None, 9), int32(9), bit(9)], bit(None, 9)),
    (Threshold(), [uint8(None, 4, 4, 3), int32(9), bit(9)], bit(None, 4, 4, 9)),
    (Grayscale(), [uint8(None, 5, 4, 3)], uint8(None, 5, 4, 1)),
    (LocalBinaryPattern(), [uint8(2, 1, 1, 1)], bit(2, 1, 1, 3)),
    (Sign(SignOfZero.GT), [float32(None, 2, 3)], bit(None, 2, 3)),
    (BitPool(POOL), [bit(None, 5, 4, 3), bit(3)], bit(None, 2, 2, 3)),
    (MaxPool(POOL), [float32(None, 5, 4, 3)], float32(None, 2, 2, 3)),
    (MaxPool(POOL), [int32(None, 5, 4, 3)], int32(None, 2, 2, 3)),
    (AveragePool(POOL), [float32(None, 5, 4, 3)], float32(None, 2, 2, 3)),
    (AveragePool(Window((2, 2), pads=(1, 0, 1, 0)), (1, 0, 0, 0)), [float32(2, 2, 2, 3)], float32(2, 3, 1, 3)),
    (Relu(), [float32(None, 5, 4, 3)], float32(None, 5, 4, 3)),
    (PRelu(), [float32(None, 5, 4, 3), float32(3)], float32(None, 5, 4, 3)),
    (PRelu(), [float32(None, 7), float32(1)], float32(None, 7)),
    (Clip(0.0, 6.0), [float32(4, 3)], float32(4, 3)),
    (Concat(), [float32(None, 5, 4, 3), float32(None, 5, 4, 2)], float32(None, 5, 4, 5)),
    (Concat(), [float32(2, 1), float32(2, 3), float32(2, 1)], float32(2, 5)),
    (Sigmoid(), [float32(None, 3)], float32(None, 3)),
    (Softmax(), [float32(None, 2, 3)], float32(None, 2, 3)),
    (LogSoftmax(), [float32(None, 3)], float32(None, 3)),
    (Pad((1, 2, 3, 4)), [float32(None, 5, 5, 1)], float32(None, 9, 11, 1)),
    (ToFloat(), [bit(None, 3)], float32(None, 3)),
    (ToFloat(), [int32(None, 3)], float32(None, 3)),
    (ToFloat(), [uint8(None, 2, 2, 3)], float32(None, 2, 2, 3)),
    (ADD, [float32(None, 2, 3), float32(None, 2, 3)], float32(None, 2, 3)),
    (ADD, [float32(None, 2, 3), float32(3)], float32(None, 2, 3)),
    (ADD, [float32(3), float32(None, 2, 3)], float32(None, 2, 3)),
    (ADD, [float32(None, 2, 3), float32(1)], float32(None, 2, 3)),
    (ADD, [float32(None, 2, 3), float32(None, 1, 3)], float32(None, 2, 3)),
    (ADD, [float32(None, 2, 1), float32(None, 1, 3)], float32(None, 2, 3)),
    (ADD, [float32(None, 1), float32(None, 3)], float32(None, 3)),
    (Transpose((0, 2, 3, 1)), [float32(None, 3, 4, 5)], float32(None, 4, 5, 3)),
    (Transpose((0, 2, 1)), [int32(None, 3, 4)], int32(None, 4, 3)),
    (Gather(1), [float32(None, 3, 4), int32(5)], float32(None, 5, 4)),
    (Gather(2), [bit(None, 3, 4), int32(1)], bit(None, 3, 1)),
    (ArgMax(), [float32(None, 3, 4)], int32(None, 3, 1)),
    (TopK(4, Extreme.LEAST), [float32(None, 4)], float32(None, 4)),
    (TopK(2, picked=Picked.INDICES), [float32(None, 4)], int32(None, 2)),
    (ToInt64(), [int32(None, 4)], TensorType((None, 4), Domain.INT64)),
    (Reshape(()), [int32(None, 1)], int32(None)),
    (Reshape((20,)), [bit(None, 2, 2, 5)], bit(None, 20)),
    (Reshape((2, 2, 5)), [float32(7, 20)], float32(7, 2, 2, 5)),
]

REFUSED: list[tuple[Op, list[TensorType], str]] = [
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4)], "takes 2 inputs and has 1"),
    (BinaryConv(WINDOW), [float32(None, 5, 5, 4), bit(1, 3, 3, 4)], "input 0 is float32"),
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4), float32(1, 3, 3, 4)], "input 1 is float32"),
    (BinaryConv(WINDOW), [bit(None, 5, 20), bit(1, 3, 3, 4)], "takes [N, height, width, channels]"),
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4), bit(1, 3, 3, 5)], "do not fit"),
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4), bit(1, 3, 5, 4)], "do not fit"),
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4), bit(1, 36)], "groups do not divide"),
    (BinaryConv(WINDOW), [bit(None, 5, 5, 4), bit(None, 3, 3, 4)], "do not fit"),
    (BinaryConv(WINDOW, groups=3), [bit(None, 5, 5, 4), bit(3, 3, 3, 1)], "3 groups do not divide"),
    (BinaryConv(WINDOW, groups=2), [bit(None, 5, 5, 4), bit(3, 3, 3, 2)], "do not fit"),
    (BinaryConv(WINDOW, groups=0), [bit(None, 5, 5, 4), bit(3, 3, 3, 4)], "0 groups"),
    (BinaryConv(WINDOW, groups=-1), [bit(None, 5, 5, 4), bit(3, 3, 3, 4)], "-1 groups"),
    (BinaryConv(WINDOW), [bit(None, 2, 5, 4), bit(1, 3, 3, 4)], "does not fit a padded axis of 2"),
    (BinaryDense(), [bit(None, 4), bit(2, 5)], "do not fit"),
    (BinaryDense(), [bit(None, 2, 2), bit(2, 4)], "do not fit"),
    (BinaryDense(), [bit(None, 4), bit(None, 4)], "do not fit"),
    (BinaryDense(), [int32(None, 4), bit(2, 4)], "input 0 is int32"),
    (BinaryWeightConv(WINDOW), [bit(None, 5, 5, 4), bit(1, 3, 3, 4)], "input 0 is bit"),
    (BinaryWeightDense(), [float32(None, 4), float32(2, 4)], "input 1 is float32"),
    (Conv(WINDOW), [float32(None, 5, 5, 4), bit(1, 3, 3, 4)], "input 1 is bit"),
    (Dense(), [float32(None, 4), float32(2, 4), float32(2)], "takes 2 inputs and has 3"),
    (Threshold(), [float32(None, 4), int32(4), bit(4)], "not int32 or uint8"),
    (Threshold(), [int32(None, 4), int32(5), bit(4)], "does not fit the 4 channels"),
    (Threshold(), [int32(None, 4), int32(4), bit(1)], "does not fit the 4 channels"),
    (Threshold(), [int32(None, 4), int32(1, 4), bit(4)], "does not fit the 4 channels"),
    (Threshold(), [int32(None, 4), int32(8), bit(8)], "does not fit the 4 channels"),
    (Threshold(), [uint8(None, 4), int32(6), bit(6)], "does not fit the 4 channels"),
    (Threshold(), [uint8(None, 4), int32(8), bit(4)], "does not fit the 8 channels"),
    (Threshold(), [uint8(4), int32(4), bit(4)], "does not fit"),
    (Grayscale(), [float32(None, 5, 4, 3)], "not uint8"),
    (Grayscale(), [uint8(None, 5, 4, 1)], "takes [N, height, width, 3] and has uint8[N, 5, 4, 1]"),
    (Grayscale(), [uint8(None, 5, 3)], "takes [N, height, width, channels]"),
    (LocalBinaryPattern(), [int32(None, 5, 4, 1)], "not uint8"),
    (LocalBinaryPattern(), [uint8(None, 5, 4, 3)], "takes [N, height, width, 1] and has uint8[N, 5, 4, 3]"),
    (Sign(), [int32(None, 4)], "not float32"),
    (BitPool(POOL), [bit(None, 4, 4, 3), bit(4)], "does not fit the 3 channels"),
    (BitPool(POOL), [bit(None, 16, 3), bit(3)], "takes [N, height, width, channels]"),
    (BitPool(POOL), [bit(None, 1, 4, 3), bit(3)], "does not fit a padded axis"),
    (MaxPool(POOL), [bit(None, 4, 4, 3)], "not float32 or int32"),
    (MaxPool(POOL), [float32(None, 4)], "takes [N, height, width, channels]"),
    (AveragePool(POOL), [int32(None, 4, 4, 3)], "not float32"),
    (AveragePool(POOL), [float32(None, 4)], "takes [N, height, width, channels]"),
    (AveragePool(Window((1, 1), pads=(1, 0, 0, 0))), [float32(None, 4, 4, 3)], "sees nothing"),
    (Relu(), [int32(None, 4)], "not float32"),
    (PRelu(), [float32(None, 4), float32(3)], "do not fit the 4 channels"),
    (PRelu(), [float32(None, 4), float32(1, 4)], "do not fit the 4 channels"),
    (PRelu(), [float32(4), float32(4)], "do not fit"),
    (Clip(0.0, 1.0), [bit(None, 4)], "not float32"),
    (Concat(), [float32(None, 4)], "takes 2 or more inputs and has 1"),
    (Concat(), [float32(None, 4), bit(None, 4)], "input 1 is bit"),
    (Concat(), [float32(None, 2, 4), float32(None, 3, 4)], "do not fit"),
    (Concat(), [float32(None, 4), float32(1, 4)], "do not fit"),
    (Concat(), [float32(None, 4), float32(None, 4, 4)], "do not fit"),
    (Concat(), [float32(4), float32(4)], "do not fit"),
    (Sigmoid(), [float32(None, 4), float32(4)], "takes 1 inputs and has 2"),
    (Softmax(), [float32(4)], "Softmax takes [N, ..., channels]"),
    (LogSoftmax(), [float32(4)], "LogSoftmax takes [N, ..., channels]"),
    (Softmax(), [uint8(None, 4)], "not float32"),
    (Pad((0, 0, 0, 0)), [int32(None, 4, 4, 3)], "not float32"),
    (Pad((1 << 15, 0, 1 << 15, 0)), [float32(None, 1, 1 << 15, 1)], "out of range"),
    (ToFloat(), [float32(None, 4)], "not bit or int32 or uint8"),
    (ADD, [float32(None, 4), int32(4)], "input 1 is int32"),
    (ADD, [float32(None, 4), float32(3)], "do not fit"),
    (ADD, [float32(None, 2, 4), float32(2, 4)], "do not fit"),
    (ADD, [float32(None, 2, 4), float32(None, 4, 2)], "do not fit"),
    (ADD, [float32(None, 2, 4), float32(None, 3, 1)], "do not fit"),
    (ADD, [float32(1, 2), float32(None, 2)], "do not fit"),
    (Gather(0), [float32(None, 4), int32(1)], "does not fit"),
    (Gather(2), [float32(None, 4), int32(1)], "does not fit"),
    (Gather(1), [float32(None, 4), int32(1, 1)], "does not fit"),
    (Gather(1), [uint8(None, 4), int32(1)], "not float32 or int32 or bit"),
    (ArgMax(), [float32(4)], "takes [N, ..., channels]"),
    (ArgMax(), [int32(None, 4)], "not float32"),
    (TopK(0), [float32(None, 4)], "0 elements cannot be taken"),
    (TopK(5), [float32(None, 4)], "5 elements cannot be taken"),
    (TopK(1), [float32(4)], "1 elements cannot be taken"),
    (ToInt64(), [float32(None, 4)], "not int32"),
    (Reshape(()), [bit(None, 1)], "bits are packed"),
    (Transpose((1, 0)), [float32(None, 4)], "does not fit"),
    (Transpose((0, 1)), [float32(None, 4, 4)], "does not fit"),
    (Transpose((0, 1, 1)), [float32(None, 4, 4)], "does not fit"),
    (Transpose(()), [float32(None)], "does not fit"),
    (Transpose((0, 1)), [bit(None, 4)], "not float32 or int32"),
    (Reshape((5,)), [float32(None, 4)], "other elements"),
    (Reshape((-2, -2)), [float32(None, 4)], "out of range"),
    (Reshape((4, 0)), [float32(None, 4)], "out of range"),
    (Reshape((2, 2)), [uint8(None, 4)], "not float32 or int32 or bit"),
]


@pytest.mark.parametrize(("op", "inputs", "output"), ACCEPTED)
def test_infer(op: Op, inputs: list[TensorType], output: TensorType) -> None:
    assert op.infer(inputs) == (output,)


@pytest.mark.parametrize(("op", "inputs", "problem"), REFUSED)
def test_infer_refuses(op: Op, inputs: list[TensorType], problem: str) -> None:
    with pytest.raises(GraphError) as caught:
        op.infer(inputs)
    assert problem in str(caught.value)


@pytest.mark.parametrize("cases", [ACCEPTED, REFUSED])
def test_every_operator_is_among_the_cases(cases: list[tuple[Op, list[TensorType], object]]) -> None:
    assert {type(op) for op, *_ in cases} == set(OPS.values())


@pytest.mark.parametrize("op", OPS.values())
def test_operators_are_frozen_values(op: type[Op]) -> None:
    assert OPS[op.__name__] is op
    assert dataclasses.is_dataclass(op)
    assert op.__dataclass_params__.frozen
    assert op.__doc__


@pytest.mark.parametrize("shape", [(), (0,), (-1,), (None, 0), (3, None), (None, None), (1,) * 7, (MAX_ELEMENTS, 2)])
def test_a_type_refuses_shapes_out_of_range(shape: Shape) -> None:
    with pytest.raises(GraphError):
        TensorType(shape, Domain.BIT)


def test_a_negative_pair_of_sizes_is_no_shape() -> None:
    with pytest.raises(GraphError):
        float32(None, -2, -2)


def test_a_type_says_what_it_is() -> None:
    tensor_type = bit(None, 4, 33)
    assert str(tensor_type) == "bit[N, 4, 33]"
    assert tensor_type.channels == 33
    assert tensor_type.with_batch(2) == (2, 4, 33)
    assert bit(5, 4).with_batch(2) == (5, 4)
    assert bit(None).channels == 1


@pytest.mark.parametrize(
    "window",
    [
        {"kernel": (0, 1)},
        {"kernel": (1,)},
        {"kernel": (1, 1, 1)},
        {"kernel": (1, (1 << 15) + 1)},
        {"kernel": (1, 1), "strides": (0, 1)},
        {"kernel": (1, 1), "strides": (-1, 1)},
        {"kernel": (1, 1), "dilations": (1, 0)},
        {"kernel": (1, 1), "pads": (0, 0, 0, -1)},
        {"kernel": (1, 1), "pads": (0, 0)},
    ],
)
def test_a_window_refuses_what_is_out_of_range(window: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(GraphError, match="out of range"):
        Window(**window)  # type: ignore[arg-type]


def _positions(size: int, kernel: int, stride: int, before: int, after: int, dilation: int) -> int:
    """The places where every tap of a window falls on the padded axis, counted one by one."""
    padded = range(-before, size + after)
    starts = padded[::stride]
    return sum(all(start + tap * dilation in padded for tap in range(kernel)) for start in starts)


@given(
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    pads=st.tuples(*[st.integers(0, 4)] * 4),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_output_size_counts_the_places_of_the_window(
    sizes: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilations: tuple[int, int],
) -> None:
    window = Window(kernel, strides, pads, dilations)
    counted = tuple(
        _positions(sizes[axis], kernel[axis], strides[axis], pads[axis], pads[axis + 2], dilations[axis])
        for axis in (0, 1)
    )
    if 0 in counted:
        with pytest.raises(GraphError, match="does not fit"):
            window.output_size(*sizes)
    else:
        assert window.output_size(*sizes) == counted
    assert window.taps == kernel[0] * kernel[1]


@pytest.mark.parametrize("value", [-2, 2, 100])
def test_bits_are_padded_with_a_bit_or_0(value: int) -> None:
    with pytest.raises(GraphError, match="pads with"):
        BinaryConv(WINDOW, pad_value=value)


@pytest.mark.parametrize("pads", [(0, 0, 0), (0, 0, 0, -1), (0, 0, 0, (1 << 15) + 1)])
def test_pad_refuses_pads_out_of_range(pads: tuple[int, int, int, int]) -> None:
    with pytest.raises(GraphError, match="out of range"):
        Pad(pads)
