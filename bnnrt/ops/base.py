"""What all operators have in common, and the checks that several of them make of their inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from bnnrt.errors import GraphError
from bnnrt.ops.types import Domain, TensorType

__all__ = ["BIT", "FLOAT32", "INT32", "UINT8", "Op", "expect", "image", "per_channel"]

BIT, INT32, FLOAT32, UINT8 = (Domain.BIT,), (Domain.INT32,), (Domain.FLOAT32,), (Domain.UINT8,)


class Op(ABC):
    """Base of all operators."""

    constant_inputs: ClassVar[tuple[int, ...]] = ()
    """Inputs that have to be constants, since backends pack them beforehand."""

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises GraphError where the inputs do not fit."""

    def check_constants(  # noqa: B027 (most operators take any)
        self, inputs: Sequence[TensorType], constants: Sequence[npt.NDArray[Any] | None]
    ) -> None:
        """Check the elements of the constant inputs, None for others. Raises GraphError where one is out of range."""


def expect(op: Op, inputs: Sequence[TensorType], *allowed: tuple[Domain, ...]) -> None:
    """Check the number of inputs and the domain of each."""
    name = type(op).__name__
    if len(inputs) != len(allowed):
        raise GraphError(f"{name} takes {len(allowed)} inputs and has {len(inputs)}")
    for i, (given, domains) in enumerate(zip(inputs, allowed, strict=True)):
        if given.domain not in domains:
            wanted = " or ".join(d.value for d in domains)
            raise GraphError(f"{name}: input {i} is {given}, not {wanted}")


def image(op: Op, x: TensorType) -> tuple[int | None, int, int, int]:
    """The NHWC shape of ``x``."""
    if len(x.shape) == 4:
        n, h, w, c = x.shape
        if h is not None and w is not None and c is not None:
            return n, h, w, c
    raise GraphError(f"{type(op).__name__} takes [N, height, width, channels] and has {x}")


def per_channel(op: Op, x: TensorType, constant: TensorType) -> None:
    if len(x.shape) < 2 or constant.shape != (x.channels,):
        raise GraphError(f"{type(op).__name__}: {constant} does not fit the {x.channels} channels of {x}")
