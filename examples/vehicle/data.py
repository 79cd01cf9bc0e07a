"""The photos: reading, splitting, and changing them at random.

DIR/<label>/<label><number>.jpg, split by number, because neighbours can show the same vehicle: 1-576 train, 577-640
validation (chooses epochs, recipes and models), 641-720 test (read once, at the end, through ONNX Runtime).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image

SIZE = 96  # of the images that networks take
SOURCE_SIZE = 100  # of the photos
SPLITS = {"train": range(1, 577), "validation": range(577, 641), "test": range(641, 721)}


def load_image(path, size=SIZE):
    """Load one photo as uint8 [3, size, size], resized as the runtime does it."""
    with Image.open(path) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized).transpose(2, 0, 1)


def load_split(root, split):
    """Return the labels, and the images, classes (int64 [N]) and paths of one block.

    Images are uint8 [N, 3, size, size], of the size that networks take; those to train on keep their own, because
    ``augment`` resizes them with the same step that shifts and zooms: one interpolation, as in use.
    """
    size = SOURCE_SIZE if split == "train" else SIZE
    root = Path(root)
    labels = sorted(folder.name for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    images, classes, paths = [], [], []
    for index, label in enumerate(labels):
        numbered = {}
        for path in (root / label).glob("*.jpg"):
            match = re.fullmatch(re.escape(label) + r"(\d+)", path.stem)
            if not match:
                raise SystemExit(f"error: not a photo's name ({path}): call it {label}<number>.jpg")
            numbered[int(match[1])] = path
        for number in sorted(numbered.keys() & set(SPLITS[split])):
            paths.append(numbered[number])
            images.append(load_image(numbered[number], size))
            classes.append(index)
    if not images:
        raise SystemExit(f"error: no images of the {split} block ({root}): give the folder with one folder a label")
    return labels, np.stack(images), np.array(classes), paths


# --- random changes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Augmentation:
    """How much each photo changes, each on its own; 0 leaves a change out."""

    shift: float = 0  # pixels, either way
    zoom: float = 0  # share of the size
    stretch: float = 0  # width against height, share
    turn: float = 0  # degrees
    brightness: float = 0  # gray levels
    contrast: float = 0  # share
    color: float = 0  # gray levels, each channel on its own
    noise: float = 0  # largest standard deviation of pixel noise, gray levels
    blur: float = 0  # probability of a Gaussian of sigma 0.5
    cutout: int = 0  # side of a square that becomes one colour, pixels
    mixup: float = 0  # probability that a second photo is mixed in


def _blurred(images):
    """Filter with a 3x3 Gaussian of sigma 0.5."""
    line = torch.exp(-2 * torch.arange(-1.0, 2.0, device=images.device) ** 2)
    kernel = (line[:, None] * line) / line.sum() ** 2
    return F.conv2d(
        F.pad(images, (1, 1, 1, 1), mode="replicate"), kernel.expand(images.shape[1], 1, 3, 3), groups=images.shape[1]
    )


def augment(images, how, generator=None):
    """Change a batch of float32 [N, 3, 100, 100] images in pixel units at random: [N, 3, 96, 96] in whole levels.

    Runs without waiting for the GPU, so that it can be part of a CUDA graph.
    """
    n, device = len(images), images.device

    def share(*shape):
        return torch.rand(n, *shape, device=device, generator=generator)

    def uniform(limit, *shape):
        return (share(*shape) * 2 - 1) * limit

    if how.blur:
        images = torch.where(share(1, 1, 1) < how.blur, _blurred(images), images)
    flip = (share() < 0.5).float() * 2 - 1
    zoom, stretch, angle = 1 + uniform(how.zoom), 1 + uniform(how.stretch), uniform(how.turn * torch.pi / 180)
    cos, sin = torch.cos(angle), torch.sin(angle)
    # Where each pixel comes from, both in -1 to 1 over the image: (x, y) = A (column, row) + shift.
    place = (torch.arange(SIZE, device=device) * 2 + 1) / SIZE - 1
    column, row = place.view(1, 1, SIZE), place.view(1, SIZE, 1)
    across, along = zoom * stretch * flip, zoom
    factors = (across * cos, -along * sin, across * sin, along * cos)
    a, b, c, d = (factor.view(n, 1, 1) for factor in factors)
    x, y = (uniform(how.shift * 2 / SIZE, 1, 1) for _ in range(2))
    grid = torch.stack([a * column + b * row + x, c * column + d * row + y], 3)
    images = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    if how.contrast:
        mean = images.mean((1, 2, 3), keepdim=True)
        images = (images - mean) * (1 + uniform(how.contrast, 1, 1, 1)) + mean
    if how.brightness or how.color:
        images = images + uniform(how.brightness, 1, 1, 1) + uniform(how.color, 3, 1, 1)
    if how.noise:
        images = images + torch.randn(images.shape, device=device, generator=generator) * share(1, 1, 1) * how.noise
    if how.cutout:
        place = torch.arange(SIZE, device=device)
        row, column = (share(1) * SIZE for _ in range(2))
        inside = (place - row).abs() < how.cutout / 2
        inside = inside[:, None, :, None] & ((place - column).abs() < how.cutout / 2)[:, None, None, :]
        images = torch.where(inside, share(3, 1, 1) * 255, images)
    return images.clamp(0, 255).round()


def mixed(images, probability, generator=None):
    """Mix the image before it in the batch into some images; return them and the share of the first, [N]."""
    n, device = len(images), images.device
    part = torch.rand(n, device=device, generator=generator) / 2  # of the second one
    share = 1 - part * (torch.rand(n, device=device, generator=generator) < probability)
    whole = share.view(n, 1, 1, 1)
    return (whole * images + (1 - whole) * images.roll(1, 0)).round(), share
