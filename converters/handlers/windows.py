"""The sliding windows of ONNX Conv, MaxPool and AveragePool: explicit pads from auto_pad and ceil_mode."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.handlers import layout
from bnnrt.converters.handlers.layout import Value
from bnnrt.converters.handlers.scope import Scope
from bnnrt.converters.onnx_model.node import OnnxNode
from bnnrt.errors import GraphError
from bnnrt.ops import Window

__all__ = ["of_image", "sees_only_padding", "spatial_image", "window_of"]


def spatial_image(scope: Scope, node: OnnxNode) -> tuple[Value, int]:
    """Input 0, [N, channels, (rows,) columns], as an NHWC tensor; and its number of spatial axes.

    What has no rows becomes an image of one row.
    """
    value = scope.value(node, 0)
    spatial = len(value.shape) - 1
    if spatial == 1:
        channels, columns = value.shape
        value = layout.reshaped(scope.draft, node.name, value, (channels, 1, columns))
    elif spatial != 2:
        raise node.error(
            f"a tensor of {spatial + 2} dimensions", "only 1-D and 2-D, [N, channels, (rows,) columns], are supported"
        )
    return layout.as_image(scope.draft, node.name, value), spatial


def of_image(scope: Scope, node: OnnxNode, tensor: str, shape: tuple[int, int, int], spatial: int) -> Value:
    """What an operator has made of :func:`spatial_image`, with its number of spatial axes again."""
    value = Value.image(tensor, shape)
    return value if spatial == 2 else layout.reshaped(scope.draft, node.name, value, (shape[0], shape[2]))


def window_of(
    node: OnnxNode, size: tuple[int, int], kernel: tuple[int, int], *, axes: int, ceil: bool = True
) -> Window:
    """The window of ``node`` over an image of ``size`` (rows, columns), all padding explicit.

    With ``ceil``, that of ceil_mode too. Where ``axes`` is 1, the node knows of columns alone.

    Raises ConversionError for an auto_pad that ONNX does not know and for windows that fit nowhere.
    """
    strides = node.pair("strides", (1, 1), axes)
    dilations = node.pair("dilations", (1, 1), axes)
    span = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    mode = node.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = list(node.integers("pads") or (0, 0) * axes)
        if len(pads) != 2 * axes or min(pads) < 0:
            raise node.error(f"pads {pads} are not supported", "give two numbers a spatial axis, none below 0")
        if axes == 1:
            pads = [0, pads[0], 0, pads[1]]
    elif mode == "VALID":
        pads = [0, 0, 0, 0]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        if dilations != (1, 1):
            # ONNX Runtime refuses it for Conv, and for MaxPool pads as if there were no dilation.
            raise node.error(f"auto_pad {mode} with dilations is ambiguous", "write explicit pads")
        pads = _same(node, size, span, strides, lower=mode == "SAME_LOWER")
    else:
        raise node.error(f"auto_pad {mode} is unknown")
    if ceil and node.integer("ceil_mode", 0):
        for axis in (0, 1):
            pads[axis + 2] += _ceiling(size[axis], span[axis], strides[axis], pads[axis], pads[axis + 2])
    try:
        window = Window(kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations)
        window.output_size(*size)
    except GraphError as e:
        raise node.error(e.what) from None
    return window


def sees_only_padding(window: Window, size: tuple[int, int]) -> bool:
    """Whether the window stands somewhere where no tap is inside the image: no maximum is defined there."""
    for axis, outputs in enumerate(window.output_size(*size)):
        first = np.arange(outputs) * window.strides[axis] - window.pads[axis]
        taps = first[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        if not ((taps >= 0) & (taps < size[axis])).any(axis=1).all():
            return True
    return False


def _same(
    node: OnnxNode, size: tuple[int, int], span: list[int], strides: tuple[int, int], *, lower: bool
) -> list[int]:
    pads = [0, 0, 0, 0]
    for axis in (0, 1):
        outputs = -(-size[axis] // strides[axis])
        total = (outputs - 1) * strides[axis] + span[axis] - size[axis]
        if total < 0:
            # Strides that leave out rows: ONNX Runtime crops for Conv and refuses MaxPool, others start at the edge.
            raise node.error("auto_pad with strides that leave out rows is ambiguous", "write explicit pads")
        less, more = total // 2, total - total // 2
        pads[axis], pads[axis + 2] = (more, less) if lower else (less, more)
    return pads


def _ceiling(size: int, span: int, stride: int, before: int, after: int) -> int:
    """Padding to add at the end so that rounding down counts the windows that ceil_mode counts.

    A window that would start in the end padding is not counted, as in ONNX Runtime.
    """
    outputs = -(-(size + before + after - span) // stride) + 1
    if (outputs - 1) * stride >= size + before:
        outputs -= 1
    return max(0, (outputs - 1) * stride + span - (size + before + after))
