"""Train the vehicle classifier and export it to ONNX.

The network is the one of "Binarized Convolutional Neural Networks for Efficient Inference on GPUs": two 5x5
convolutions of 32 channels, each with a 2x2 max pooling, and three dense layers (18432 -> 100 -> 100 -> 6). Weights
and activations are -1 or +1 and the image is binarized with one learned threshold a colour channel:
bit = (X + T > 0), X in pixel units 0..255. BatchNorm stands between every layer and the next sign; the last layer has
a fixed scale of 1/16 instead, so that its logits are exact in float32.

Data: DIR/<label>/<label><number>.jpg, split by number, because neighbours can show the same vehicle: 1-576 train,
577-640 validation (the epoch with the best validation accuracy is kept), 641-720 test (read once, at the end, through
ONNX Runtime). The committed model was trained on "A Dataset Containing Tiny and Low Quality Images for Vehicle
Classification", Zenodo record 6634554, Creative Commons Attribution 4.0 International (photos/ATTRIBUTION.md).

Result: 93.5 % on validation and 89.6 % on test after one minute on an H200 (README.md), and an ONNX file (opset 18)
with input `input` [N, 3, 96, 96], float32 RGB in 0..255, output `logits` [N, 6], and the labels in the metadata
property `labels`; its +-1 weights are stored as int8.

Needs the `train` extra and onnxruntime:

    python train.py --data vehicles --output models/vehicle_threshold.onnx
"""

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F  # noqa: N812
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import nn
from torch.nn.utils import parametrize

SIZE = 96
SPLITS = {"train": range(1, 577), "validation": range(577, 641), "test": range(641, 721)}
LOGIT_SCALE = 1 / 16
THRESHOLD_WINDOW = 64.0  # pixel levels round the threshold in which it gets a gradient
OPSET = 18

# --- data -------------------------------------------------------------------------------------------------------------


def load_image(path):
    """Load one photo as uint8 [3, 96, 96], resized as the runtime does it."""
    with Image.open(path) as image:
        resized = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(resized).transpose(2, 0, 1)


def load_data(root):
    """Return the labels and, for each split, the images (uint8 [N, 3, 96, 96]) and classes (int64 [N])."""
    root = Path(root)
    labels = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    images = {split: [] for split in SPLITS}
    classes = {split: [] for split in SPLITS}
    for index, label in enumerate(labels):
        for path in sorted((root / label).glob("*.jpg")):
            match = re.fullmatch(re.escape(label) + r"(\d+)", path.stem)
            split = next((s for s, block in SPLITS.items() if match and int(match[1]) in block), None)
            if split is None:
                raise SystemExit(f"{path}: expected {label}<number>.jpg with a number from 1 to 720")
            images[split].append(load_image(path))
            classes[split].append(index)
    for split, found in images.items():
        if not found:
            raise SystemExit(f"{root}: no images in the {split} block")
    return labels, {split: (np.stack(images[split]), np.array(classes[split])) for split in SPLITS}


def augment(images, args):
    """Flip, shift, scale and brighten a batch of pixel images at random, each image on its own."""
    n, device = len(images), images.device

    def uniform(limit):
        return (torch.rand(n, device=device) * 2 - 1) * limit

    zoom = 1 + uniform(args.zoom)
    flip = torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    affine = torch.zeros(n, 2, 3, device=device)
    affine[:, 0, 0] = zoom * flip
    affine[:, 1, 1] = zoom
    affine[:, :, 2] = torch.stack([uniform(args.shift), uniform(args.shift)], 1) * (2 / SIZE)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return images + uniform(args.brightness).view(n, 1, 1, 1)


# --- network ----------------------------------------------------------------------------------------------------------


class Sign(torch.autograd.Function):
    """+1 for x >= 0, else -1; the gradient passes where |x| <= 1 (straight-through estimator)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class PixelSign(torch.autograd.Function):
    """+1 for x > 0, else -1, on pixel units; the gradient passes near the threshold."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= THRESHOLD_WINDOW) / THRESHOLD_WINDOW


class Binarize(nn.Module):
    """Parametrization that turns the latent float weights of a layer into -1 and +1."""

    def forward(self, weight):
        return Sign.apply(weight)


class Dense(nn.Module):
    """A dense layer without bias, exported as MatMul: nn.Linear becomes Gemm, which exporters fuse BatchNorm into."""

    def __init__(self, inputs, outputs):
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))

    def forward(self, x):
        return x @ self.weight


def binary(layer):
    return parametrize.register_parametrization(layer, "weight", Binarize())


class VehicleNet(nn.Module):
    """The paper's network; the max pooling between convolution and BatchNorm keeps exporters from fusing those two."""

    def __init__(self, classes, threshold):
        super().__init__()
        self.threshold = nn.Parameter(threshold.view(3, 1, 1))  # T, in pixel units
        self.convs = nn.ModuleList([binary(nn.Conv2d(c, 32, 5, bias=False)) for c in (3, 32)])
        self.conv_norms = nn.ModuleList([nn.BatchNorm2d(32) for _ in range(2)])
        self.denses = nn.ModuleList([binary(Dense(n, 100)) for n in (32 * (SIZE // 4) ** 2, 100)])
        self.dense_norms = nn.ModuleList([nn.BatchNorm1d(100) for _ in range(2)])
        self.last = binary(Dense(100, classes))

    def forward(self, pixels):
        x = PixelSign.apply(pixels + self.threshold)
        for conv, norm in zip(self.convs, self.conv_norms, strict=True):
            x = F.pad(x, (2, 2, 2, 2), value=-1.0)
            x = Sign.apply(norm(F.max_pool2d(conv(x), 2)))
        x = x.flatten(1)
        for dense, norm in zip(self.denses, self.dense_norms, strict=True):
            x = Sign.apply(norm(dense(x)))
        return self.last(x) * LOGIT_SCALE

    def binary_layers(self):
        return [*self.convs, *self.denses, self.last]


# --- training ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def predict(model, images, batch=256):
    model.eval()
    return torch.cat([model(part.float()) for part in images.split(batch)])


def train(data, labels, args, log=print):
    """Train a network; return it with the state of its best epoch, and that epoch's validation accuracy and loss."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True  # exact on -1, +1 and their sums
    tensors = {split: tuple(torch.from_numpy(a).to(device) for a in data[split]) for split in ("train", "validation")}
    images, classes = tensors["train"]
    held_images, held_classes = tensors["validation"]

    mean = data["train"][0].mean((0, 2, 3), dtype=np.float64)
    model = VehicleNet(len(labels), torch.tensor(-mean, dtype=torch.float32)).to(device)
    latent = [layer.parametrizations.weight.original for layer in model.binary_layers()]
    others = [p for name, p in model.named_parameters() if name != "threshold"]
    rates = [args.lr, args.lr * THRESHOLD_WINDOW]
    optimizer = torch.optim.Adam(
        [{"params": others, "lr": rates[0]}, {"params": [model.threshold], "lr": rates[1]}],
    )
    steps = -(-len(images) // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=args.epochs * steps)

    best, best_state, start = (-1.0, 0.0), {}, time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        for chosen in torch.randperm(len(images), device=device).split(args.batch_size):
            logits = model(augment(images[chosen].float(), args))
            loss = F.cross_entropy(logits, classes[chosen], label_smoothing=args.smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for weight in latent:
                    weight.clamp_(-1, 1)
        logits = predict(model, held_images)
        accuracy = (logits.argmax(1) == held_classes).float().mean().item()
        held_loss = F.cross_entropy(logits, held_classes).item()
        if (accuracy, -held_loss) > best:
            best = (accuracy, -held_loss)
            best_state = {name: value.clone() for name, value in model.state_dict().items()}
        if epoch % 10 == 0 or epoch == args.epochs:
            log(
                f"epoch {epoch:3}  training loss {loss.item():.3f}  validation loss {held_loss:.3f}  "
                f"accuracy {accuracy:.2%}  best {best[0]:.2%}  {time.perf_counter() - start:.0f} s"
            )
    model.load_state_dict(best_state)
    return model, best[0], -best[1]


# --- export -----------------------------------------------------------------------------------------------------------


def store_weights_as_int8(proto):
    """Replace each +-1 weight of an ONNX model by an int8 initializer and a Cast to float32."""
    casts = []
    for tensor in proto.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim >= 2 and (np.abs(value) == 1).all():
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(value.astype(np.int8), name + "_int8"))
            casts.append(helper.make_node("Cast", [name + "_int8"], [name], f"cast_{name}", to=TensorProto.FLOAT))
    nodes = [*casts, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def strip_traces(proto):
    """Remove what the exporter notes about the Python source: stack traces and shapes of intermediate tensors."""
    del proto.graph.value_info[:]
    for item in (proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output):
        item.ClearField("doc_string")
        item.ClearField("metadata_props")


def export(model, labels, path):
    """Write the trained network as ONNX."""
    model = model.cpu().eval()
    for layer in model.binary_layers():
        if parametrize.is_parametrized(layer):
            parametrize.remove_parametrizations(layer, "weight")  # leaves the +-1 weights in place of the latent ones
    example = torch.zeros(2, 3, SIZE, SIZE)
    program = torch.onnx.export(
        model, (example,), dynamo=True, opset_version=OPSET, input_names=["input"], output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("N")},), verbose=False,
    )  # fmt: skip
    proto = program.model_proto
    strip_traces(proto)
    store_weights_as_int8(proto)
    helper.set_model_props(proto, {"labels": json.dumps(labels)})
    onnx.checker.check_model(proto, full_check=True)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())


# --- evaluation -------------------------------------------------------------------------------------------------------


def run_onnx(path, images, batch=64):
    """Return the logits that ONNX Runtime computes without graph optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    parts = [images[i : i + batch].astype(np.float32) for i in range(0, len(images), batch)]
    return np.concatenate([session.run(["logits"], {"input": part})[0] for part in parts])


def confusion_table(labels, expected, found):
    """Return the confusion matrix as a Markdown table."""
    matrix = np.zeros((len(labels), len(labels)), int)
    np.add.at(matrix, (expected, found), 1)
    rows = ["| true \\ predicted | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels)]
    rows += [f"| {label} | " + " | ".join(map(str, row)) + " |" for label, row in zip(labels, matrix, strict=True)]
    return "\n".join(rows)


def report(model, labels, data, path):
    """Evaluate the written file on the held-out blocks and compare it with PyTorch."""
    for split in ("validation", "test"):
        images, classes = data[split]
        logits = run_onnx(path, images)
        found = logits.argmax(1)
        print(f"\n{split}: {(found == classes).mean():.2%} of {len(classes)} images with ONNX Runtime")
        print(confusion_table(labels, classes, found))
        difference = np.abs(predict(model, torch.from_numpy(images)).numpy() - logits).max(1)
        print(f"images whose logits differ between PyTorch and ONNX Runtime: {(difference > 0).sum()}")


def main():
    parser = argparse.ArgumentParser(description="Train the vehicle classifier and export it to ONNX.")
    parser.add_argument("--data", required=True, help="folder with one folder of photos a label")
    parser.add_argument("--output", required=True, help="ONNX file to write")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3, help="peak of the one-cycle schedule")
    parser.add_argument("--smoothing", type=float, default=0.1, help="label smoothing")
    parser.add_argument("--shift", type=float, default=6, help="largest random shift, in pixels")
    parser.add_argument("--zoom", type=float, default=0.1, help="largest random change of scale")
    parser.add_argument("--brightness", type=float, default=16, help="largest random change, in pixel levels")
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"

    labels, data = load_data(args.data)
    print(", ".join(f"{split}: {len(classes)} images" for split, (_, classes) in data.items()))
    model, accuracy, loss = train(data, labels, args)
    print(f"kept the epoch with validation accuracy {accuracy:.2%}, loss {loss:.3f}")
    print("input thresholds T:", ", ".join(f"{t:.2f}" for t in model.threshold.flatten().tolist()))
    export(model, labels, args.output)
    report(model, labels, data, args.output)


if __name__ == "__main__":
    main()
