"""Train a binarized classifier on a folder of images, one folder a class, and write it as ONNX.

    python examples/own_images/train.py shapes/train -o shapes.onnx

The network is that of "Binarized Convolutional Neural Networks for Efficient Inference on GPUs": bits = (X + T > 0),
X in 0..255 and T learned, two 5x5 convolutions of 32 channels with pooling, three dense layers; weights and
activations are -1 and +1. Images are read as the runtime reads them. One in five is held out, and the epoch that is
best on those is kept. Needs bnnrt with its extras `convert` and `train`; docs/train-your-own.md shows all steps.
"""

import argparse
import hashlib
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812
from onnx import helper
from torch import nn

from bnnrt import BnnrtError
from bnnrt.preprocess.pipeline import ImagePipeline

CHANNELS = 32
DENSE = 100
BATCH = 64
RATE = 3e-3
SMOOTHING = 0.1  # of the labels
THRESHOLD_WINDOW = 64.0  # pixel levels round T in which it gets a gradient
MIN_IMAGES = 10  # of a class
OPSET = 18


def fail(message):
    sys.exit(f"error: {message}")


# --- images -----------------------------------------------------------------------------------------------------------


def read(folder, size):
    """Return labels, images (uint8 [N, 3, size, size]), classes (int64 [N]) and which are held out (bool [N])."""
    if not folder.is_dir():
        fail(f"not a folder ({folder}): give one with a folder of images for each class")
    labels = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(labels) < 2:
        fail(f"{len(labels)} classes ({folder}): give a folder of images for each of two classes or more")
    pipeline = ImagePipeline(size, size)
    images, classes, held_out = [], [], []
    for index, label in enumerate(labels):
        read_here = []
        for file in sorted((folder / label).iterdir()):
            if not file.is_file() or file.name.startswith("."):
                continue
            try:
                read_here.append(
                    (hashlib.sha256(file.name.encode(errors="surrogateescape")).digest(), pipeline.load(file))
                )
            except BnnrtError as e:
                print(f"left out: {e}", file=sys.stderr)
        if len(read_here) < MIN_IMAGES:
            fail(f"{len(read_here)} images of {label} ({folder / label}): give at least {MIN_IMAGES}")
        read_here.sort(key=lambda item: item[0])  # by the hash of the name: as good as shuffled, and always the same
        images += [pixels.transpose(2, 0, 1) for _, pixels in read_here]
        classes += [index] * len(read_here)
        held_out += [place < len(read_here) // 5 for place in range(len(read_here))]
    return labels, torch.from_numpy(np.stack(images)), torch.tensor(classes), torch.tensor(held_out)


def augment(images, flip):
    """Shift by up to 6 %, scale by up to 10 % and brighten by up to 24 levels, each image on its own."""
    n, device = len(images), images.device

    def uniform(limit):
        return (torch.rand(n, device=device) * 2 - 1) * limit

    affine = torch.zeros(n, 2, 3, device=device)
    affine[:, 0, 0] = affine[:, 1, 1] = 1 + uniform(0.1)
    if flip:
        affine[:, 0, 0] *= torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    affine[:, :, 2] = torch.stack([uniform(0.12), uniform(0.12)], 1)  # the image is 2 wide
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return images + uniform(24).view(n, 1, 1, 1)


# --- network ----------------------------------------------------------------------------------------------------------


class Sign(torch.autograd.Function):
    """+1 for x >= 0, else -1; the gradient passes where |x| <= window (straight-through estimator)."""

    @staticmethod
    def forward(ctx, x, window):
        ctx.save_for_backward(x)
        ctx.window = window
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= ctx.window) / ctx.window, None


class Binary(nn.Module):
    """A convolution or dense layer whose weights are the signs of ``latent``."""

    def __init__(self, *shape):
        super().__init__()
        inputs = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        self.latent = nn.Parameter(torch.empty(*shape).uniform_(-1, 1) * inputs**-0.5)

    def forward(self, x):
        weight = Sign.apply(self.latent, 1.0)
        if weight.ndim == 2:
            return x @ weight
        return F.conv2d(F.pad(x, (2, 2, 2, 2), value=-1.0), weight)


class Network(nn.Module):
    def __init__(self, classes, size, threshold):
        super().__init__()
        self.threshold = nn.Parameter(threshold.view(3, 1, 1))  # T, in pixel units
        self.convs = nn.ModuleList([Binary(CHANNELS, c, 5, 5) for c in (3, CHANNELS)])
        self.denses = nn.ModuleList([Binary(n, DENSE) for n in (CHANNELS * (size // 4) ** 2, DENSE)])
        # The pooling between convolution and BatchNorm keeps the exporter from fusing the two.
        self.conv_norms = nn.ModuleList([nn.BatchNorm2d(CHANNELS) for _ in self.convs])
        self.dense_norms = nn.ModuleList([nn.BatchNorm1d(DENSE) for _ in self.denses])
        self.last = Binary(DENSE, classes)

    def forward(self, pixels):
        x = Sign.apply(pixels + self.threshold, THRESHOLD_WINDOW)
        for conv, norm in zip(self.convs, self.conv_norms, strict=True):
            x = Sign.apply(norm(F.max_pool2d(conv(x), 2)), 1.0)
        x = x.flatten(1)
        for dense, norm in zip(self.denses, self.dense_norms, strict=True):
            x = Sign.apply(norm(dense(x)), 1.0)
        return self.last(x) / 16  # a power of two: the logits are exact

    def latent_weights(self):
        return [layer.latent for layer in self.modules() if isinstance(layer, Binary)]


# --- training ---------------------------------------------------------------------------------------------------------


def train(images, classes, held_out, epochs, flip, device):
    """Return the network of the epoch that is best on the images held out."""
    held_images, held_classes = images[held_out].to(device), classes[held_out].to(device)
    images, classes = images[~held_out].to(device), classes[~held_out].to(device)
    mean = images.float().mean((0, 2, 3))
    network = Network(int(classes.max()) + 1, images.shape[2], -mean).to(device)
    others = [p for name, p in network.named_parameters() if name != "threshold"]
    rates = [RATE, RATE * THRESHOLD_WINDOW]
    optimizer = torch.optim.Adam([{"params": others}, {"params": [network.threshold]}], RATE)
    batches = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=epochs * batches)
    best, state = (-1.0, 0.0), {}
    for epoch in range(1, epochs + 1):
        network.train()
        for chosen in torch.randperm(len(images), device=device).tensor_split(batches):
            loss = F.cross_entropy(
                network(augment(images[chosen].float(), flip)), classes[chosen], label_smoothing=SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for weight in network.latent_weights():
                    weight.clamp_(-1, 1)
        network.eval()
        with torch.no_grad():
            logits = torch.cat([network(part.float()) for part in held_images.split(BATCH)])
        right = int((logits.argmax(1) == held_classes).sum())
        score = (right, -F.cross_entropy(logits, held_classes).item())
        if score > best:
            best, state = score, {name: value.clone() for name, value in network.state_dict().items()}
        if epoch % 10 == 0 or epoch == epochs:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of {len(held_classes)} held out right", flush=True)
    network.load_state_dict(state)
    print(f"kept the best epoch: {best[0]} of {len(held_classes)} held out right ({best[0] / len(held_classes):.2%})")
    return network


def export(network, labels, size, path):
    """Write the network as ONNX, with its labels."""
    network = network.cpu().eval()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which is not needed
    warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
    program = torch.onnx.export(
        network, (torch.zeros(2, 3, size, size),), dynamo=True, opset_version=OPSET, verbose=False,
        input_names=["input"], output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("N")},),
    )  # fmt: skip
    model = program.model_proto
    helper.set_model_props(model, {"labels": json.dumps(labels)})
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description="Train a binarized classifier on a folder of images.")
    parser.add_argument("folder", type=Path, help="has a folder of images for each class, called as the class")
    parser.add_argument("-o", "--output", type=Path, required=True, help="ONNX file to write")
    parser.add_argument("--size", type=int, default=96, help="side to which images are resized, a multiple of 4")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--flip", action="store_true", help="mirrored images belong to the same class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda, cuda:1 …")
    args = parser.parse_args()
    if args.size < 8 or args.size % 4 or args.epochs < 1:
        fail("--size has to be a multiple of 4, at least 8, and --epochs at least 1")
    if args.output.is_dir() or not args.output.absolute().parent.is_dir():
        fail(f"no file can be written there ({args.output}): give a file in a folder that exists")
    try:
        torch.zeros(1, device=args.device)
    except (AssertionError, RuntimeError) as e:
        fail(f"there is no such device ({args.device}): {str(e).splitlines()[0]}")
    torch.manual_seed(args.seed)
    labels, images, classes, held_out = read(args.folder, args.size)
    print(f"{', '.join(labels)}: {int((~held_out).sum())} images to train on, {int(held_out.sum())} held out")
    network = train(images, classes, held_out, args.epochs, args.flip, args.device)
    export(network, labels, args.size, args.output)
    print(f"{args.output}: {args.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
