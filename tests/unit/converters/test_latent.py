"""--binarize-weights: latent weights become signs where the user asks for it, and everything says so."""

import numpy as np
import pytest

from bnnrt import reference
from bnnrt.converters.convert import Options
from bnnrt.converters.verify.run import Wanted, verify
from bnnrt.errors import InputError
from bnnrt.preprocess.schemes import InputBinarization, Scheme

from .models import Net, converted, expected, kinds, signs

RNG = np.random.default_rng(41)
BINARIZE = Options(binarize_weights=True)


def network(*weights):
    """A convolution on real input, one on bits, one on bits padded with -1, a dense layer on bits: of these weights."""
    first, second, third, last = weights
    net = Net(3, 8, 8)
    x = net.sign(net.conv("x", first))
    x = net.sign(net.conv(x, second))
    x = net.op("Pad", x, net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), net.constant(-1))
    x = net.conv(x, third)
    return net.model(net.matmul(net.op("Flatten", net.sign(x)), last))


SHAPES = ((5, 3, 3, 3), (7, 5, 3, 3), (6, 7, 3, 3), (96, 4))


def signed(weights):
    return np.where(weights >= 0, 1, -1)


def test_weights_on_bits_become_signs_and_those_on_real_input_stay():
    weights = [RNG.integers(-4, 5, shape) * np.float32(0.5) for shape in SHAPES]  # with zeros, which become +1
    bundle, report = converted(network(*weights), BINARIZE)
    assert [row.kind for row in report.layers] == ["float", "binary", "binary", "binary"]
    assert [row.binarized for row in report.layers] == [False, True, True, True]
    assert [note.node for note in report.notes] == [row.name for row in report.layers[1:]]
    assert "Conv" in kinds(bundle.model)
    x = RNG.integers(-3, 4, (2, 3, 8, 8)).astype(np.float32)
    (found,) = reference.run(bundle.model, {"x": x}).values()
    of_signs = network(weights[0], *map(signed, weights[1:]))
    np.testing.assert_array_equal(found, expected(of_signs, x)[0])


def test_layers_that_are_binary_already_keep_their_scale():
    weights = [signs(RNG, *shape) * 0.25 for shape in SHAPES]
    plain, report = converted(network(*weights), BINARIZE)
    assert not report.notes
    x = RNG.integers(-3, 4, (2, 3, 8, 8)).astype(np.float32)
    (found,) = reference.run(plain.model, {"x": x}).values()
    np.testing.assert_array_equal(found, expected(network(*weights), x)[0])
    assert "--binarize-weights" not in plain.provenance.converter


def test_weights_that_are_not_finite_stay():
    weights = [RNG.normal(size=shape) for shape in SHAPES]
    weights[1][0, 0, 0, 0] = np.nan
    _, report = converted(network(*weights), BINARIZE)
    assert [row.kind for row in report.layers] == ["float", "float", "binary", "binary"]


def test_without_the_option_nothing_is_changed():
    weights = [RNG.normal(size=shape) for shape in SHAPES]
    bundle, report = converted(network(*weights))
    assert [row.kind for row in report.layers] == ["float"] * 4
    assert not report.notes
    assert "--binarize-weights" not in bundle.provenance.converter


def test_the_bundle_says_so_and_verify_does_not_compare_it(tmp_path):
    model = network(*(RNG.normal(size=shape) for shape in SHAPES))
    bundle, report = converted(model, BINARIZE)
    assert bundle.provenance.converter.endswith(" --binarize-weights")
    assert all("another function" in note.what for note in report.notes)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="another function than the model"):
        verify(bundle, "m.bnn", tmp_path / "m.onnx", Wanted(["numpy"]))


def test_layers_on_0_and_1_are_among_them():
    """Bits that stand for other numbers than +-1, and bits that were joined."""
    net = Net(8)
    steps = [net.op("Cast", net.op("Greater", "x", net.constant(c)), to=1) for c in (-1.0, 0.0, 1.0)]
    weights = RNG.normal(size=(24, 4))
    model = net.model(net.matmul(net.op("Concat", *steps, axis=1), weights))
    (warning,) = converted(model)[1].warnings
    assert warning.kind == "latent weights"
    bundle, report = converted(model, BINARIZE)
    assert [(row.kind, row.binarized) for row in report.layers] == [("binary", True)]
    x = RNG.integers(-3, 4, (5, 8)).astype(np.float32)
    (found,) = reference.run(bundle.model, {"x": x}).values()
    zeros_and_ones = np.concatenate([x > c for c in (-1, 0, 1)], axis=1).astype(np.float32)
    np.testing.assert_array_equal(found, zeros_and_ones @ signed(weights.astype(np.float32)))


def test_strict_takes_what_was_asked_for():
    converted(network(*(RNG.normal(size=shape) for shape in SHAPES)), Options(binarize_weights=True, strict=True))


def test_both_graphs_get_the_same_weights():
    """Where pixels become bits, the first layer reads bits in one graph and real numbers in the other."""
    net = Net(3, 8, 8)
    x = net.sign(net.conv("x", RNG.normal(size=(5, 3, 3, 3))))
    model = net.model(net.matmul(net.op("Flatten", x), RNG.normal(size=(180, 4))))
    scheme = InputBinarization(Scheme.THRESHOLD, (-100.0, -90.0, -80.0))
    bundle, report = converted(model, Options(binarize_weights=True, input_binarization=scheme))
    assert [row.binarized for row in report.layers] == [True, True]
    pixels = RNG.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    planes = np.where(pixels + np.array(scheme.thresholds) > 0, 1, -1).transpose(0, 3, 1, 2).astype(np.float32)
    (of_pixels,) = reference.run(bundle.pixels, {"pixels": pixels}).values()
    (of_planes,) = reference.run(bundle.model, {"x": planes}).values()
    np.testing.assert_array_equal(of_pixels, of_planes)
