"""Whole models: those committed as fixtures, and larger ones where they are at hand."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import bnnrt.bundle
from bnnrt import reference
from bnnrt.converters.convert import Options, convert, parse_labels
from bnnrt.errors import ConversionError

from .models import FIXTURES, Net, converted, kinds, signs

MODELS = sorted(FIXTURES.glob("*.onnx"))
SHARED = Path(__file__).parents[4] / "shared"


def close(got, want, name):
    # PyTorch's newer exporter fuses BatchNorm into the last layer of these, whose weights are then +-a: ONNX Runtime
    # sums rounded products there, and bnnrt multiplies an exact sum.
    if name == "real_input_dynamo":
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("path", MODELS, ids=[path.stem for path in MODELS])
def test_exported_networks(path):
    name, exporter = path.stem.rsplit("_", 1)
    golden = np.load(FIXTURES / f"{name}_golden.npz")
    want = golden["logits" if exporter == "dynamo" else "logits_legacy"]
    bundle, report = convert(path)
    close(reference.run(bundle.model, {"input": golden["x"]})["logits"], want, path.stem)
    pixels = golden["x"].transpose(0, 2, 3, 1).astype(np.uint8)
    close(reference.run(bundle.pixels, {"pixels": pixels})["logits"], want, path.stem)
    assert not any(row.kind == "float" for row in report.layers)


def test_the_paper_network_is_bits_from_end_to_end():
    bundle, _ = convert(FIXTURES / "paper_dynamo.onnx")
    assert kinds(bundle.pixels) == [
        *["Threshold", "BinaryConv", "Threshold", "BitPool", "BinaryConv", "Threshold", "BitPool", "Reshape"],
        *["BinaryDense", "Threshold", "BinaryDense", "ToFloat", "Arithmetic"],
    ]


def test_a_bundle_survives_its_file(tmp_path):
    bundle, _ = convert(FIXTURES / "paper_legacy.onnx")
    bnnrt.bundle.write(bundle, tmp_path / "m.bnn")
    again = bnnrt.bundle.read(tmp_path / "m.bnn")
    x = np.load(FIXTURES / "paper_golden.npz")["x"]
    np.testing.assert_array_equal(
        reference.run(again.model, {"input": x})["logits"], reference.run(bundle.model, {"input": x})["logits"]
    )
    assert again.inputs == bundle.inputs
    assert again.provenance.source == "paper_legacy.onnx"


def test_conversion_gives_the_same_bytes_each_time(tmp_path):
    for name in ("a", "b"):
        bnnrt.bundle.write(convert(FIXTURES / "paper_legacy.onnx")[0], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_ports_are_the_models_own():
    net = Net(3, 4, 4, batch=1)
    bundle, _ = converted(net.model(net.op("Flatten", "x")))
    (port,) = bundle.inputs
    assert (port.name, port.shape, port.dtype) == ("x", (1, 3, 4, 4), "float32")
    net = Net(3, 4, 4)
    bundle, _ = converted(net.model(net.op("Flatten", "x")))
    assert bundle.inputs[0].shape == ("N", 3, 4, 4)
    assert bundle.outputs[0].shape[1:] == (48,)


def labelled(metadata=None):
    net = Net(8)
    return net.model(net.matmul(net.sign("x"), signs(np.random.default_rng(0), 8, 3)), metadata=metadata)


def test_labels_come_from_the_option_then_the_model():
    model = labelled({"labels": '["a", "b", "ä"]'})
    assert converted(model)[0].labels == ("a", "b", "ä")
    assert converted(model, Options(labels=["x", "y", "z"]))[0].labels == ("x", "y", "z")
    assert converted(labelled())[0].labels is None


@pytest.mark.parametrize("text", ['["a", "b"]', "[1, 2, 3]", "[", '["a", "b", "c", "d"]', ""])
def test_labels_that_do_not_fit_are_refused(text):
    with pytest.raises(ConversionError, match="label"):
        converted(labelled({"labels": text}))


def test_labels_a_line():
    assert parse_labels("a\n b c \n\nd", "file") == ("a", "b c", "d")


def shared_cases(rejected):
    manifest = SHARED / "acceptance" / "models.json"
    names = ("cnv_w1a1_cifar10", "lfc_w1a1_mnist", "larq_c_mixed_groups_dense")
    if not manifest.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="../shared is not here"))]
    cases = json.loads(manifest.read_text())
    return [pytest.param(case, id=n) for n, case in cases.items() if ("reject" in case if rejected else n in names)]


def unpacked(case, folder):
    packed = SHARED / "acceptance" / case["model"]
    path = folder / packed.stem
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def images(case, golden):
    x = golden[case["x"]][:40]
    if case["input"] == "cnv":
        fixed = np.minimum(np.floor((x.astype(np.float64) / 255 * 2 - 1) * 128 + 0.5), 127) / 128
        return fixed.astype(np.float32).transpose(0, 3, 1, 2)
    if case["input"] == "larq":
        return x.astype(np.float32) / np.float32(127.5) - np.float32(1)
    return np.where(x.reshape(len(x), 784) > 127, 1, -1).astype(np.float32)


@pytest.mark.parametrize("case", shared_cases(rejected=False))
def test_trained_networks(case, tmp_path):
    golden = np.load(SHARED / "acceptance" / case["golden"])
    bundle, _ = convert(unpacked(case, tmp_path))
    want = golden[case["want"]][:40]
    (got,) = reference.run(bundle.model, {bundle.inputs[0].name: images(case, golden)}).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=0 if case.get("exact") else case["atol"])
    bnnrt.bundle.write(bundle, tmp_path / "m.bnn")
    assert (tmp_path / "m.bnn").stat().st_size <= case.get("max_bundle_bytes", 1 << 20)


@pytest.mark.parametrize("case", shared_cases(rejected=True))
def test_networks_that_are_not_binary_are_refused(case, tmp_path):
    with pytest.raises(ConversionError) as caught:
        convert(unpacked(case, tmp_path))
    text = f"error: {caught.value}"
    assert all(part in text for part in case["reject"])
    assert "\n" not in text
