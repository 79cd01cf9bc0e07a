"""The sliding windows of ONNX Conv, MaxPool and AveragePool: explicit pads from auto_pad and ceil_mode."""

from __future__ import annotations

import numpy as np

from bnnrt.converters.onnx_node import OnnxNode
from bnnrt.errors import GraphError
from bnnrt.ops import Window

__all__ = ["sees_only_padding", "window_of"]


def window_of(node: OnnxNode, size: tuple[int, int], kernel: tuple[int, int], *, ceil: bool = True) -> Window:
    """The window of ``node`` over an image of ``size`` (rows, columns), all padding explicit.

    With ``ceil``, that of ceil_mode too.

    Raises ConversionError for an auto_pad that ONNX does not know and for windows that fit nowhere.
    """
    strides = node.pair("strides", (1, 1))
    dilations = node.pair("dilations", (1, 1))
    span = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    mode = node.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = list(node.integers("pads") or (0, 0, 0, 0))
        if len(pads) != 4 or min(pads) < 0:
            raise node.error(f"pads {pads} are not supported", "only padding of two axes, not cropping, is supported")
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
