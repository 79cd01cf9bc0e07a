"""The networks, in torch: the paper's, its twin in full precision, and smaller ones.

A binary network's weights and activations are -1 or +1. Layers are convolution, max pooling, BatchNorm, sign; then
dense, BatchNorm, sign. The max pooling between convolution and BatchNorm keeps exporters from fusing those two. The
last layer has a fixed scale, a power of two, so that its logits are exact in float32.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from data import SIZE
from torch import nn

THRESHOLD_WINDOW = 64.0  # pixel levels round a threshold in which it gets a gradient
OFFSET, SCALE = -128.0, 2.0**-7  # of pixels that a first layer takes as numbers: (X - 128) / 128
PARTS = ("conv weights", "conv activations", "dense weights", "dense activations")
INPUTS = ("none", "threshold", "threshold-gray", "lbp")


@dataclass(frozen=True)
class Conv:
    """One convolution: output channels, side of the kernel, side of the max pooling behind it (1: none), stride."""

    channels: int
    kernel: int
    pool: int = 2
    stride: int = 1


@dataclass(frozen=True)
class Architecture:
    """Convolutions, then widths of the dense layers between them and the last one."""

    convs: tuple[Conv, ...]
    dense: tuple[int, ...]
    levels: int = 1  # thresholds a colour channel


PAPER = Architecture((Conv(32, 5), Conv(32, 5)), (100, 100))
ARCHITECTURES = {
    "paper": PAPER,
    "small": Architecture((Conv(32, 5, 1, 2), Conv(64, 3), Conv(128, 3), Conv(128, 3)), (64,), levels=3),
}

# --- sign -------------------------------------------------------------------------------------------------------------


def plus_minus(condition, dtype):
    """+1 where the condition holds, else -1."""
    return condition.to(dtype) * 2 - 1


class Sign(torch.autograd.Function):
    """+1 for x >= 0, else -1, in ``dtype``; subclasses say which gradient takes the place of its own, 0."""

    @staticmethod
    def forward(ctx, x, dtype):
        ctx.save_for_backward(x)
        return plus_minus(x >= 0, dtype)


class Identity(Sign):
    """The gradient passes everywhere (the paper's)."""

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.saved_tensors[0].dtype), None


class Clip(Sign):
    """The gradient passes where |x| < 1."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(grad.to(x.dtype), x, -1.0, 1.0), None


class Polynomial(Sign):
    """The gradient is that of a piecewise polynomial: 2 - 2|x| where |x| < 1 (Bi-Real Net)."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.to(x.dtype) * (2 - 2 * x.abs()).clamp_min(0), None


class PixelSign(torch.autograd.Function):
    """+1 for x > 0, else -1, on pixel units; the gradient passes near the threshold."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return plus_minus(x > 0, x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(grad, x, -THRESHOLD_WINDOW, THRESHOLD_WINDOW) / THRESHOLD_WINDOW


ESTIMATORS = {"identity": Identity, "clip": Clip, "polynomial": Polynomial}

# --- input ------------------------------------------------------------------------------------------------------------


def gray(pixels):
    """Pillow's gray level of RGB images in whole levels, [N, 3, H, W] -> [N, 1, H, W] (docs/binarization.md)."""
    red, green, blue = pixels.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16)[:, None].to(pixels.dtype)


def local_binary_patterns(pixels):
    """Planes of -1, +1: is the neighbour at the top left, right, bottom left brighter (docs/binarization.md)?"""
    center = gray(pixels)
    around = F.pad(center, (1, 1, 1, 1), value=-1.0)  # what lies outside is never brighter
    height, width = center.shape[2:]
    neighbours = [around[:, :, y : y + height, x : x + width] for y, x in ((0, 0), (1, 2), (2, 0))]
    return plus_minus(torch.cat(neighbours, 1) > center, pixels.dtype)


class Input(nn.Module):
    """From pixels, float32 [N, 3, 96, 96] in whole levels, to what the first layer takes."""

    def __init__(self, scheme, start):
        super().__init__()
        self.scheme = scheme
        if scheme in ("threshold", "threshold-gray"):
            self.threshold = nn.Parameter(torch.as_tensor(start).view(-1, 1, 1) / THRESHOLD_WINDOW)

    @property
    def planes(self):
        return len(self.threshold) if hasattr(self, "threshold") else 3

    @property
    def pad(self):
        return 0.0 if self.scheme == "none" else -1.0

    def levels(self):
        """T, in pixel units."""
        return self.threshold * THRESHOLD_WINDOW

    def forward(self, pixels):
        if self.scheme == "none":
            return (pixels + OFFSET) * SCALE
        if self.scheme == "lbp":
            return local_binary_patterns(pixels)
        if self.scheme == "threshold-gray":
            pixels = gray(pixels)
        if self.planes > pixels.shape[1]:
            pixels = torch.cat([pixels] * (self.planes // pixels.shape[1]), 1)
        return PixelSign.apply(pixels + self.levels())


# --- layers -----------------------------------------------------------------------------------------------------------


class Weight(nn.Module):
    """Latent weights, and the estimator that makes them -1 and +1."""

    def __init__(self, shape, fan_in, binary):
        super().__init__()
        bound = (3 / fan_in) ** 0.5 if not binary else fan_in**-0.5
        self.latent = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.binary = binary

    def forward(self, dtype):
        return Clip.apply(self.latent, dtype) if self.binary else self.latent.to(dtype)


class Greatest(torch.autograd.Function):
    """Maximum of four parts of the channels; each that is equal to it gets the gradient."""

    @staticmethod
    def forward(ctx, x):
        a, b, c, d = x.chunk(4, 1)
        greatest = torch.maximum(torch.maximum(a, b), torch.maximum(c, d))
        ctx.save_for_backward(x, greatest)
        return greatest

    @staticmethod
    def backward(ctx, grad):
        x, greatest = ctx.saved_tensors
        parts = x.unflatten(1, (4, -1))
        return ((parts == greatest[:, None]) * grad[:, None]).flatten(1, 2)


def pooled_conv(x, weight):
    """Convolution and 2x2 max pooling, as ``F.max_pool2d(F.conv2d(x, weight), 2)``, faster to train.

    One convolution of stride 2 gives the four numbers that a pool compares as channels of their own; it is one of
    stride 1 over an image whose channels are the pixels of 2x2 squares.
    """
    shifted = [F.pad(weight, (right, 1 - right, down, 1 - down)) for down in (0, 1) for right in (0, 1)]
    return Greatest.apply(F.conv2d(F.pixel_unshuffle(x, 2), F.pixel_unshuffle(torch.cat(shifted), 2)))


class ConvLayer(nn.Module):
    """Convolution without bias over a padded image, then max pooling."""

    def __init__(self, inputs, conv, pad, binary):
        super().__init__()
        self.weight = Weight((conv.channels, inputs, conv.kernel, conv.kernel), inputs * conv.kernel**2, binary)
        self.pool, self.stride, self.pad, self.border = conv.pool, conv.stride, pad, conv.kernel // 2

    def forward(self, x, dtype):
        x = F.pad(x.to(dtype), (self.border,) * 4, value=self.pad)
        weight = self.weight(dtype)
        if dtype == torch.bfloat16 and x.shape[1] % 8:
            # Tensor cores take channels by the eight: the rest is 0.
            missing = (0, 0, 0, 0, 0, -x.shape[1] % 8)
            x, weight = F.pad(x, missing), F.pad(weight, missing)
        if dtype == torch.bfloat16:
            x = x.contiguous(memory_format=torch.channels_last)
        if self.training and self.pool == 2 and self.stride == 1:
            return pooled_conv(x, weight)
        x = F.conv2d(x, weight, stride=self.stride)
        return F.max_pool2d(x, self.pool) if self.pool > 1 else x


class DenseLayer(nn.Module):
    """A dense layer without bias, exported as MatMul: nn.Linear becomes Gemm, which exporters fuse BatchNorm into."""

    def __init__(self, inputs, outputs, binary):
        super().__init__()
        self.weight = Weight((inputs, outputs), inputs, binary)

    def forward(self, x, dtype):
        return x.to(dtype) @ self.weight(dtype)


class Network(nn.Module):
    """A network of an architecture on one input scheme; ``binary=False`` is its twin in full precision, with ReLU.

    ``real`` names what a binary network keeps in full precision, of ``PARTS``.
    """

    def __init__(self, architecture, scheme, start, classes, *, binary=True, estimator="clip", momentum=0.1, real=()):
        super().__init__()
        signs = {part: binary and part not in real for part in PARTS}
        self.conv_signs, self.dense_signs = signs["conv activations"], signs["dense activations"]
        self.estimator = ESTIMATORS[estimator]
        self.dtype = torch.float32  # of activations, while training; bfloat16 holds -1, +1 and their short sums
        self.input = Input(scheme, start)
        channels, side, pad = self.input.planes, SIZE, self.input.pad
        self.convs, self.conv_norms = nn.ModuleList(), nn.ModuleList()
        for conv in architecture.convs:
            self.convs.append(ConvLayer(channels, conv, pad, signs["conv weights"]))
            self.conv_norms.append(nn.BatchNorm2d(conv.channels, momentum=momentum))
            channels, pad = conv.channels, -1.0 if self.conv_signs else 0.0
            side = (side - 1) // conv.stride + 1
            side //= conv.pool
        widths = (channels * side * side, *architecture.dense)
        self.denses = nn.ModuleList(
            DenseLayer(*pair, signs["dense weights"]) for pair in zip(widths, architecture.dense, strict=False)
        )
        self.dense_norms = nn.ModuleList(nn.BatchNorm1d(width, momentum=momentum) for width in architecture.dense)
        self.last = DenseLayer(widths[-1], classes, signs["dense weights"])
        # 1/16 for 100 inputs: near the standard deviation of a sum of that many
        self.scale = 2.0 ** -((widths[-1] - 1).bit_length() // 2 + 1) if binary else 1.0

    def activation(self, x, signs):
        return self.estimator.apply(x, x.dtype) if signs else F.relu(x)

    def forward(self, pixels):
        return self.body(self.input(pixels))

    def body(self, x):
        for conv, norm in zip(self.convs, self.conv_norms, strict=True):
            x = self.activation(norm(conv(x, self.dtype)), self.conv_signs)
        x = x.flatten(1)
        for dense, norm in zip(self.denses, self.dense_norms, strict=True):
            x = self.activation(norm(dense(x, self.dtype)), self.dense_signs)
        return self.last(x, self.dtype).float() * self.scale

    def weights(self):
        return [layer.weight for layer in (*self.convs, *self.denses, self.last)]


# --- teacher ----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, all of half the size."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 2, 2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))
        nn.init.zeros_(self.norms[1].weight)

    def forward(self, x):
        first, second, short = self.norms
        y = second(self.second(F.relu(first(self.first(x)))))
        return F.relu(y + short(self.short(x)))


class Teacher(nn.Module):
    """A residual network in full precision, which only teaches."""

    def __init__(self, classes, widths=(32, 64, 128, 192, 256)):
        super().__init__()
        self.dtype = torch.float32
        self.input = Input("none", 0)
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 5, 2, 2, bias=False), nn.BatchNorm2d(widths[0]))
        self.blocks = nn.ModuleList(Block(a, b) for a, b in itertools.pairwise(widths))
        self.last = nn.Linear(widths[-1], classes)

    def forward(self, pixels):
        x = self.input(pixels).contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            x = F.relu(self.stem(x))
            for block in self.blocks:
                x = block(x)
            return self.last(x.mean((2, 3))).float()

    def weights(self):
        return []


class Told(nn.Module):
    """A trained teacher with each BatchNorm in the convolution before it, in bfloat16: what students learn from."""

    def __init__(self, teacher):
        super().__init__()
        self.input = teacher.input
        self.stem = self._folded(*teacher.stem)
        self.blocks = nn.ModuleList(
            nn.ModuleList(map(self._folded, (b.first, b.second, b.short), b.norms)) for b in teacher.blocks
        )
        self.last = teacher.last

    @staticmethod
    @torch.no_grad()
    def _folded(conv, norm):
        folded = nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
        missing = -folded.weight.shape[1] % 8  # tensor cores take channels by the eight
        folded.weight = nn.Parameter(F.pad(folded.weight, (0, 0, 0, 0, 0, missing)), requires_grad=False)
        return folded.bfloat16().to(memory_format=torch.channels_last)

    def forward(self, pixels):
        x = self.input(pixels).bfloat16()
        x = F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % 8)).contiguous(memory_format=torch.channels_last)
        x = F.relu_(self.stem(x))
        for first, second, short in self.blocks:
            x = F.relu_(second(F.relu_(first(x))).add_(short(x)))
        return self.last(x.float().mean((2, 3)))
