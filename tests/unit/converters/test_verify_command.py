"""``bnnrt verify``: what it prints, its exit status, and its one-line errors."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from bnnrt import bundle as bundles
from bnnrt.bundle import Bundle
from bnnrt.converters.convert import Options, convert
from bnnrt.converters.verify.command import register
from bnnrt.errors import BackendError, BundleError, ConversionError, ImageError, InputError
from bnnrt.graph import Constant, Graph
from bnnrt.ops import BinaryConv

from .models import FIXTURES, Net, signs

MODEL = FIXTURES / "paper_legacy.onnx"
RNG = np.random.default_rng(32)


def invoke(*arguments):
    app = typer.Typer()
    register(app)
    # With a second command, typer keeps the first one's name.
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["verify", *map(str, arguments)], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "paper.bnn"
    bundles.write(convert(MODEL)[0], path)
    return path


@pytest.fixture(scope="module")
def tampered(bundle):
    """The same with one bit of a weight flipped."""
    good = bundles.read(bundle)
    node = next(node for node in good.model.nodes if isinstance(node.op, BinaryConv))
    constants = dict(good.model.constants)
    data = constants[node.inputs[1]].data.copy()
    data[0, 0] ^= 1
    constants[node.inputs[1]] = Constant(constants[node.inputs[1]].type, data)
    graph = Graph(good.model.inputs, good.model.nodes, good.model.outputs, constants)
    path = bundle.with_name("tampered.bnn")
    bad = Bundle(graph, good.pixels, good.inputs, good.outputs, good.pipeline, good.labels, good.provenance)
    bundles.write(bad, path)
    return path


def test_tables_for_people(bundle):
    result = invoke(bundle, MODEL, "--backend", "numpy", "--backend", "opencl", "--runs", 4)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[-1] == "equal"
    assert "21 inputs (8 random, 7 extreme, 6 tie), seed 0" in lines[0]
    for text in ("numpy: ", "opencl:", "ONNX Runtime 1.", "/Where_3", "output logits: 21 images compared"):
        assert text in result.stdout
    assert "note:" not in result.stdout


def test_a_difference_is_named_and_the_status_is_1(tampered):
    result = invoke(tampered, MODEL, "--backend", "numpy", "--runs", 4)
    assert result.exit_code == 1
    *_, difference, last = result.stdout.splitlines()
    assert last == "not equal"
    assert difference.startswith("the reference differs from ONNX Runtime: ")
    assert ", for " in difference
    assert "note: model: the constant" in result.stdout


JSON = {
    "equal": bool,
    "bundle": str,
    "model": str,
    "seed": int,
    "inputs": dict,
    "source": {"same_file": bool, "same_graph": bool, "notes": list},
    "backends": [
        {
            "backend": str,
            "device": str,
            "tensors": int,
            "refused": type(None),
            "first_difference": object,
            "equal": bool,
        }
    ],
    "onnxruntime": {
        "version": str,
        "tensors": int,
        "elements": int,
        "rounded": int,
        "images": int,
        "images_with_zeros": int,
        "images_with_flips": int,
        "first_difference": object,
        "signs": [
            {"node": str, "onnx": str, "elements": int, "zeros": int, "near": int, "flipped": int, "ties": int},
        ],
        "outputs": [
            {
                "name": str,
                "images": int,
                "left_out": int,
                "differing": int,
                "largest_difference": float,
                "bound": float,
            }
        ],
        "equal": bool,
    },
}
DIFFERENCE = {
    "graph": str,
    "tensor": str,
    "node": str,
    "onnx": str,
    "input": str,
    "index": list,
    "wanted": float,
    "found": float,
    "elements": int,
    "position": int,
}


def assert_is(value, schema):
    if isinstance(schema, dict):
        assert list(value) == list(schema)
        for key, inner in schema.items():
            assert_is(value[key], inner)
    elif isinstance(schema, list):
        assert value
        for item in value:
            assert_is(item, schema[0])
    else:
        assert isinstance(value, schema)


def test_json_is_one_document(bundle, tampered):
    result = invoke(bundle, MODEL, "--backend", "numpy", "--runs", 2, "--seed", 9, "--json")
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    document = json.loads(result.stdout)
    assert_is(document, JSON)
    assert (document["equal"], document["seed"], document["model"]) == (True, 9, str(MODEL))
    assert document["inputs"] == {"random": 4, "extreme": 7, "tie": 6}
    result = invoke(tampered, MODEL, "--backend", "numpy", "--runs", 2, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert_is(document, JSON)
    assert_is(document["onnxruntime"]["first_difference"], DIFFERENCE)
    assert (document["equal"], document["backends"][0]["equal"]) == (False, True)


def test_every_device_without_being_asked(bundle):
    result = invoke(bundle, MODEL, "--runs", 1, "--json")
    names = [row["backend"] for row in json.loads(result.stdout)["backends"]]
    assert "numpy" in names
    assert any(name.startswith("opencl") for name in names)


def test_given_inputs_and_images(bundle, tmp_path):
    sizes = bundles.read(bundle).model.inputs["input"].shape[1:]
    np.savez(tmp_path / "own.npz", input=RNG.integers(0, 256, (3, *sizes)).astype(np.float32), other=np.zeros(2))
    pixels = RNG.integers(0, 256, (2, *sizes[1:], sizes[0])).astype(np.uint8)
    np.savez(tmp_path / "pixels.npz", pixels=pixels)
    (tmp_path / "photos" / "deep").mkdir(parents=True)
    for name in ("photos/a.png", "photos/deep/b.png", "c.png"):
        Image.fromarray(pixels[0]).save(tmp_path / name)
    options = ["--input", tmp_path / "own.npz", "--input", tmp_path / "pixels.npz"]
    options += ["--images", tmp_path / "photos", "--images", tmp_path / "c.png"]
    result = invoke(bundle, MODEL, "--backend", "numpy", "--runs", 0, *options, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["equal"]) == (0, True)
    assert (document["inputs"]["given"], document["inputs"]["image"]) == (5, 3)
    assert "random" not in document["inputs"]


def test_files_that_are_missing_or_no_bundle_or_model(bundle, tmp_path):
    with pytest.raises(BundleError, match=r"cannot read the bundle: No such file"):
        invoke(tmp_path / "none.bnn", MODEL)
    with pytest.raises(BundleError):
        invoke(__file__, MODEL)
    with pytest.raises(ConversionError, match="cannot read the model: No such file"):
        invoke(bundle, tmp_path / "none.onnx")
    with pytest.raises(ConversionError, match="not an ONNX file"):
        invoke(bundle, __file__)
    with pytest.raises(BackendError, match="unknown backend vulkan"):
        invoke(bundle, MODEL, "--backend", "vulkan")


def test_the_model_of_another_bundle(bundle, tmp_path):
    net = Net(8)
    path = tmp_path / "m.onnx"
    path.write_bytes(net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))).SerializeToString())
    with pytest.raises(InputError, match=r"the bundle's inputs are input, the model's x \(m.onnx\): give the model"):
        invoke(bundle, path)


def test_inputs_that_cannot_be_read_or_do_not_fit(bundle, tmp_path):
    path = tmp_path / "x.npz"

    def refused(match):
        with pytest.raises(InputError, match=match) as caught:
            invoke(bundle, MODEL, "--input", path)
        assert str(path) in str(caught.value)

    refused("cannot read the inputs: No such file")
    path.write_bytes(b"PK\x03\x04 and then nothing")
    refused("not an .npz file")
    path.write_bytes(b"")
    refused("not an .npz file")
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.write_bytes(path.with_suffix(".npy").read_bytes())
    refused("not an .npz file")
    np.savez(path, input=np.array([{}], dtype=object))
    refused("not an .npz file of numbers")
    np.savez(path, x=np.zeros(3))
    refused("there is no array input, only x")
    np.savez(path, input=np.zeros((2, 3, 5, 5), dtype=np.float32))
    refused(r"input is float32 \[2, 3, 5, 5\] .*give float32 \[N, 3, ")
    np.savez(path, input=np.float32(1))
    refused(r"input is float32 \[\]")


def test_images_that_cannot_be_read_or_do_not_fit(bundle, tmp_path):
    with pytest.raises(ImageError, match=r"none\.png"):
        invoke(bundle, MODEL, "--images", tmp_path / "none.png")
    with pytest.raises(InputError, match="there are no images"):
        invoke(bundle, MODEL, "--images", tmp_path)
    net = Net(8)
    path = tmp_path / "m.onnx"
    path.write_bytes(net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))).SerializeToString())
    with pytest.raises(InputError, match="does not take images"):
        invoke(path, path, "--images", tmp_path)


def test_without_onnx_runtime(bundle, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("bnnrt.converters.verify.") and name != "bnnrt.converters.verify.command":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"^ONNX Runtime is not installed: run `pip install bnnrt\[verify\]`$"):
        invoke(bundle, MODEL)


@pytest.mark.parametrize("batch", [None, 3])
def test_sizes_are_given_as_to_convert(tmp_path, batch):
    net = Net(3, "H", "W")
    path = tmp_path / "m.onnx"
    path.write_bytes(net.model(net.conv(net.sign("x"), signs(RNG, 4, 3, 3, 3))).SerializeToString())
    bundles.write(convert(path, Options(batch=batch, shapes={"x": ("N", 3, 6, 7)}))[0], tmp_path / "m.bnn")
    given = ["--shape", "H=6", "--shape", "W=7", *(["--batch", batch] if batch else [])]
    result = invoke(tmp_path / "m.bnn", path, "--backend", "numpy", "--runs", 4, *given)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "equal"
    with pytest.raises(ConversionError, match="--shape x="):
        invoke(tmp_path / "m.bnn", path, "--backend", "numpy")


def test_a_batch_that_the_model_fixes_is_kept_for_onnx_runtime(tmp_path):
    net = Net(8, batch=5)
    path = tmp_path / "m.onnx"
    path.write_bytes(net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))).SerializeToString())
    bundles.write(convert(path, Options(batch=2))[0], tmp_path / "m.bnn")
    result = invoke(tmp_path / "m.bnn", path, "--backend", "numpy", "--batch", 2)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "equal")
