"""Networks that add and join what they computed before: blocks as PyTorch exports them, and random ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import reference
from bnnrt.converters.convert import convert
from bnnrt.converters.verify.inputs import Case
from bnnrt.converters.verify.run import Wanted, verify

from .models import FIXTURES, Net, norm, signs

RESIDUAL = FIXTURES / "residual"
BINARY_LAYERS = {
    "bi_real_net": 2,
    "binary_dense_net": 3,
    "melius_net": 2,
    "quick_net": 2,
    "react_net": 5,
    "xnor_net": 2,
}
REAL_LAYERS = {"bi_real_net": 3, "binary_dense_net": 3, "melius_net": 3, "quick_net": 5, "react_net": 2, "xnor_net": 2}

models = pytest.mark.parametrize(
    "model", [f"{case}_{exporter}" for case in BINARY_LAYERS for exporter in ("dynamo", "legacy")]
)


@pytest.fixture
def unpacked(tmp_path):
    """Writes a model where the converter can read it."""

    def write(model: str) -> Path:
        path = tmp_path / f"{model}.onnx"
        path.write_bytes(gzip.decompress((RESIDUAL / f"{path.name}.gz").read_bytes()))
        return path

    return write


def golden(model):
    """Its images, and the logits that ONNX Runtime gave for them when the model was exported."""
    case, exporter = model.rsplit("_", 1)
    with np.load(RESIDUAL / f"{case}_golden.npz") as arrays:
        return arrays["x"], arrays["logits" if exporter == "dynamo" else "logits_legacy"]


def test_every_fixture_is_among_these():
    names = {f"{case}_{exporter}.onnx.gz" for case in BINARY_LAYERS for exporter in ("dynamo", "legacy")}
    assert {path.name for path in RESIDUAL.glob("*.onnx*")} == names


@models
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_are_equal_in_every_tensor(model, seed, unpacked):
    path = unpacked(model)
    cases = [Case("given", f"golden {i}", {"input": x}) for i, x in enumerate(golden(model)[0])]
    result = verify(convert(path)[0], "m.bnn", path, Wanted(("numpy", "opencl"), runs=4, seed=seed, given=cases))
    assert result.equal, result.as_json()
    assert result.source.same_graph
    assert result.inputs["given"] == 6
    onnx = result.onnxruntime
    assert onnx.tensors >= 20
    assert all(row.tensors > onnx.tensors for row in result.backends)
    # A layer on bits is not the only one that rounds, and is all that may stand between ONNX Runtime's numbers and a
    # sign: where a sign follows an addition, its bit has to be equal.
    assert 0 < onnx.rounded < onnx.elements / 2
    near = {name: sign.near for name, sign in onnx.signs.items() if sign.near}
    assert len(near) == (1 if model.startswith("xnor_net") else 0)
    assert sum(near.values()) < 1000
    assert onnx.images_with_flips == 0


@models
def test_every_block_runs_on_bits(model, unpacked):
    _, report = convert(unpacked(model))
    case = model.rsplit("_", 1)[0]
    kinds = [layer.kind for layer in report.layers]
    on_bits = kinds.count("binary") + kinds.count("ternary risk")
    assert (on_bits, kinds.count("float")) == (BINARY_LAYERS[case], REAL_LAYERS[case])
    assert len(kinds) == BINARY_LAYERS[case] + REAL_LAYERS[case]


@models
def test_golden_logits_from_pixels_and_from_the_model_s_own_input(model, unpacked):
    x, wanted = golden(model)
    bundle, _ = convert(unpacked(model))
    found = reference.run(bundle.model, {"input": x})["logits"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    pixels = x.transpose(0, 2, 3, 1).astype(np.uint8)
    np.testing.assert_array_equal(reference.run(bundle.pixels, {"pixels": pixels})["logits"], found)


# --- random networks --------------------------------------------------------------------------------------------------


def scaled(rng, net, x):
    """What people put on a branch before they add it."""
    kind = rng.integers(7)
    channels = net.channels[x]
    if kind == 0:
        y = net.op("Relu", x)
    elif kind == 1:
        y = net.op("PRelu", x, net.constant(rng.uniform(0, 1, (channels, 1, 1) if rng.integers(2) else (1, 1, 1))))
    elif kind == 2:
        y = net.op("Clip", x, net.constant(0.0), net.constant(6.0))
    elif kind == 3:
        y = net.op("Mul", x, net.constant(rng.normal(size=(channels, 1, 1))))
    elif kind == 4:
        y = net.op("LeakyRelu", x, alpha=0.1)
    elif kind == 5:
        y = net.op("Add", x, net.constant(rng.normal(size=(1, channels, 1, 1))))
    else:
        y = net.batch_norm(x, *norm(rng, channels))
    return net.like(y, x)


class Blocks(Net):
    """An ONNX model that knows channels, rows and columns of its values."""

    def __init__(self, rng, batch):
        self.rng = rng
        shape = [int(n) for n in (rng.integers(1, 4), rng.integers(5, 10), rng.integers(5, 10))]
        super().__init__(*shape, batch=batch)
        self.channels, self.sizes = {"x": shape[0]}, {"x": tuple(shape[1:])}

    def like(self, y, x, channels=None, sizes=None):
        self.channels[y], self.sizes[y] = channels or self.channels[x], sizes or self.sizes[x]
        return y

    def layer(self, x, out, kernel, stride=1, groups=1, bits=True):
        """A convolution that pads, on bits with weights +-1 or +-a, else with real weights."""
        shape = (out, self.channels[x] // groups, kernel, kernel)
        weights = signs(self.rng, *shape) if bits else self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        if bits and self.rng.integers(2):
            weights = weights * self.rng.uniform(0.01, 1, (out, 1, 1, 1))
        bias = self.rng.normal(size=out) if self.rng.integers(2) else None
        y = self.conv(x, weights, bias, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
        return self.like(y, x, out, tuple(-(-size // stride) for size in self.sizes[x]))

    def binary(self, x, out, stride):
        """A branch: perhaps BatchNorm, sign, a convolution, BatchNorm."""
        rng, channels = self.rng, self.channels[x]
        if rng.integers(2):
            x = self.like(self.batch_norm(x, *norm(rng, channels)), x)
        elif rng.integers(2):
            x = self.like(self.op("Add", x, self.constant(rng.normal(size=(1, channels, 1, 1)))), x)
        bits = self.like(self.sign(x), x)
        groups = 2 if channels % 2 == out % 2 == 0 and rng.integers(2) else 1
        y = self.layer(bits, out, int(rng.choice([1, 3])), stride, groups)
        return self.like(self.batch_norm(y, *norm(rng, out)), y)

    def shortcut(self, x, out, stride):
        """The input itself, or an average or maximum of it, or a 1x1 convolution."""
        if stride > 1 and self.rng.integers(2):
            pool = self.rng.choice(["AveragePool", "MaxPool"])
            sizes = tuple(-(-size // 2) for size in self.sizes[x])
            x = self.like(self.op(pool, x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), x, sizes=sizes)
            stride = 1
        if stride > 1 or out != self.channels[x]:
            x = self.layer(x, out, 1, stride, bits=False)
        return x

    def block(self, x):
        rng = self.rng
        channels = self.channels[x]
        kind = rng.integers(4)
        if kind == 0:  # dense
            new = self.binary(x, int(rng.integers(1, 40)), 1)
            return self.like(self.op("Concat", x, new, axis=1), x, channels + self.channels[new])
        stride = int(rng.choice([1, 1, 2]))
        if kind == 1 and stride == 1:  # one branch twice, as ReActNet doubles channels
            y = self.binary(x, channels, 1)
            parts = [self.like(self.op("Add", y, x), x) for _ in range(2)]
            return self.like(self.op("Concat", *parts, axis=1), x, 2 * channels)
        out = channels if rng.integers(2) else int(rng.integers(1, 40))
        y, skipped = self.binary(x, out, stride), self.shortcut(x, out, stride)
        if kind == 2:
            y = scaled(rng, self, y)
        pair = (y, skipped) if rng.integers(2) else (skipped, y)
        x = self.like(self.op("Add", *pair), y)
        return scaled(rng, self, x) if rng.integers(2) else x


def random_network(seed):
    rng = np.random.default_rng(seed)
    net = Blocks(rng, "N" if seed % 2 else 3)
    x = net.layer("x", int(rng.integers(2, 40)), 3, bits=False)
    for _ in range(int(rng.integers(1, 4))):
        x = net.block(x)
    count = net.channels[x]
    pooled = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.matmul(pooled, rng.normal(size=(count, 5))))


@given(st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_random_blocks_are_equal_in_every_tensor(tmp_path_factory, seed):
    path = tmp_path_factory.mktemp("random") / "model.onnx"
    path.write_bytes(random_network(seed).SerializeToString())
    bundle, report = convert(path)
    assert sum(layer.kind == "binary" for layer in report.layers) >= 1
    result = verify(bundle, "m.bnn", path, Wanted(("numpy",), runs=4, seed=seed))
    assert result.equal, result.as_json()
    assert all(output.bound < np.inf for output in result.onnxruntime.outputs.values())
