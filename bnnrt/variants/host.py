"""Variants of the numpy backend: a Python function an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends import numpy_kernels
from bnnrt.backends.base import HostFunction, Language
from bnnrt.ops import (
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
    Domain,
    Gather,
    Grayscale,
    LocalBinaryPattern,
    LogSoftmax,
    MaxPool,
    Op,
    Pad,
    PRelu,
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
from bnnrt.variants.base import LaunchSpec, Site, StepCode, Variant

__all__ = ["HOST_VARIANTS"]


def _launch(site: Site, function: Callable[..., None], *args: str) -> StepCode:
    return StepCode((LaunchSpec(site.node.name, HostFunction(function), (*args, site.output)),))


def _plain(function: Callable[..., None]) -> Callable[[Site], StepCode]:
    """``function(op, *inputs, out)``"""

    def build(site: Site) -> StepCode:
        return _launch(site, partial(function, site.node.op), *site.node.inputs)

    return build


def _packed(function: Callable[..., None]) -> Callable[[Site], StepCode]:
    """``function(op, channels of the packed input, *inputs, out)``"""

    def build(site: Site) -> StepCode:
        channels = site.type(site.node.inputs[0]).channels
        return _launch(site, partial(function, site.node.op, channels), *site.node.inputs)

    return build


def _plus_minus(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.where(bits, np.float32(1), np.float32(-1))


def _real_conv(site: Site) -> StepCode:
    op = site.node.op
    assert isinstance(op, Conv | BinaryWeightConv)
    x, weights = site.node.inputs
    function = partial(numpy_kernels.real_conv, Conv(op.window, op.groups), site.type(x).channels)
    return _real(site, function, x, weights)


def _real_dense(site: Site) -> StepCode:
    return _real(site, numpy_kernels.real_dense, *site.node.inputs)


def _real(site: Site, function: Callable[..., None], x: str, weights: str) -> StepCode:
    """A layer on real numbers; +-1 weights are unpacked to float32 once."""
    values = site.constant(weights).unpacked()
    if values.dtype == np.bool_:
        values = _plus_minus(values)
    name = f"{site.output}:weights"
    launch = LaunchSpec(site.node.name, HostFunction(function), (x, name, site.output))
    return StepCode((launch,), {name: values})


def _gather(site: Site) -> StepCode:
    op, x = site.node.op, site.type(site.node.inputs[0])
    assert isinstance(op, Gather)
    if x.domain is Domain.BIT and op.axis == len(x.shape) - 1:
        return _launch(site, partial(numpy_kernels.gather_bits, x.channels), *site.node.inputs)
    return _launch(site, partial(numpy_kernels.gather, op), *site.node.inputs)


def _row(op: type[Op], build: Callable[[Site], StepCode]) -> Variant:
    return Variant("numpy", (op,), (Language.NUMPY,), build)


HOST_VARIANTS: tuple[Variant, ...] = (
    _row(ArgMax, _plain(numpy_kernels.arg_max)),
    _row(Arithmetic, _plain(numpy_kernels.arithmetic)),
    _row(AveragePool, _plain(numpy_kernels.average_pool)),
    _row(BinaryConv, _packed(numpy_kernels.binary_conv)),
    _row(BinaryDense, _packed(numpy_kernels.binary_dense)),
    _row(BinaryWeightConv, _real_conv),
    _row(BinaryWeightDense, _real_dense),
    _row(BitPool, _plain(numpy_kernels.bit_pool)),
    _row(Clip, _plain(numpy_kernels.clip)),
    _row(Concat, _plain(numpy_kernels.concat)),
    _row(Conv, _real_conv),
    _row(Dense, _real_dense),
    _row(Gather, _gather),
    _row(Grayscale, _plain(numpy_kernels.grayscale)),
    _row(LocalBinaryPattern, _plain(numpy_kernels.local_binary_pattern)),
    _row(LogSoftmax, _plain(numpy_kernels.log_softmax)),
    _row(MaxPool, _plain(numpy_kernels.max_pool)),
    _row(PRelu, _plain(numpy_kernels.prelu)),
    _row(Pad, _plain(numpy_kernels.pad)),
    _row(Relu, _plain(numpy_kernels.relu)),
    _row(Reshape, _packed(numpy_kernels.reshape)),
    _row(Sigmoid, _plain(numpy_kernels.sigmoid)),
    _row(Sign, _plain(numpy_kernels.sign)),
    _row(Softmax, _plain(numpy_kernels.softmax)),
    _row(Threshold, _plain(numpy_kernels.threshold)),
    _row(ToFloat, _packed(numpy_kernels.to_float)),
    _row(ToInt64, _plain(numpy_kernels.to_int64)),
    _row(TopK, _plain(numpy_kernels.top_k)),
    _row(Transpose, _plain(numpy_kernels.transpose)),
)
