import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import bnnrt.bundle
from bnnrt.converters.command import load_graphs, register
from bnnrt.errors import ConversionError, InputError, OutputError

from .models import FIXTURES, Net, signs

MODEL = str(FIXTURES / "paper_legacy.onnx")


def invoke(*arguments):
    app = typer.Typer()
    register(app)
    # With a second command, typer keeps the first one's name.
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["convert", *map(str, arguments)], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_table_a_row_a_layer(tmp_path):
    result = invoke(MODEL, "-o", tmp_path / "m.bnn")
    assert result.exit_code == 0
    for text in ("/conv1/Conv", "/dense2/MatMul", "binary", "total", "bytes"):
        assert text in result.stdout
    assert bnnrt.bundle.read(tmp_path / "m.bnn").labels is None


def test_json_is_one_document(tmp_path):
    result = invoke(MODEL, "-o", tmp_path / "m.bnn", "--json")
    data = json.loads(result.stdout)
    assert data["bundle"] == str(tmp_path / "m.bnn")
    assert data["bytes"] == (tmp_path / "m.bnn").stat().st_size
    assert len(data["layers"]) == 4
    assert data["schema"] == "bnnrt-conversion-1"


def test_help_shows_an_example():
    result = invoke("--help")
    assert result.exit_code == 0
    assert "bnnrt convert vehicle.onnx -o vehicle.bnn" in result.stdout


@pytest.mark.parametrize("text", ["a\nb\nc\nd\ne\n", '["a", "b", "c", "d", "e"]'])
def test_labels_from_a_file(tmp_path, text):
    (tmp_path / "labels").write_text(text)
    invoke(MODEL, "-o", tmp_path / "m.bnn", "--labels", tmp_path / "labels")
    assert bnnrt.bundle.read(tmp_path / "m.bnn").labels == tuple("abcde")


def test_labels_that_cannot_be_read(tmp_path):
    with pytest.raises(ConversionError, match="cannot read the labels"):
        invoke(MODEL, "-o", tmp_path / "m.bnn", "--labels", tmp_path / "none")
    (tmp_path / "labels").write_bytes(b"\xff\xfe")
    with pytest.raises(ConversionError, match="not UTF-8"):
        invoke(MODEL, "-o", tmp_path / "m.bnn", "--labels", tmp_path / "labels")
    assert not (tmp_path / "m.bnn").exists()


def test_warnings_are_printed_and_strict_refuses(tmp_path):
    net = Net(8)
    path = tmp_path / "m.onnx"
    y = net.matmul(net.op("Sign", "x"), signs(np.random.default_rng(0), 8, 3))
    path.write_bytes(net.model(y).SerializeToString())
    assert "warning: sign0: ONNX Sign gives 0" in invoke(path, "-o", tmp_path / "m.bnn").stdout
    with pytest.raises(ConversionError, match="node sign0"):
        invoke(path, "-o", tmp_path / "strict.bnn", "--strict")
    assert not (tmp_path / "strict.bnn").exists()


def test_pixel_scale_and_offset(tmp_path):
    invoke(MODEL, "-o", tmp_path / "a.bnn")
    invoke(MODEL, "-o", tmp_path / "b.bnn", "--pixel-scale", "2", "--pixel-offset", "-1")
    thresholds = [
        graph.constants[graph.nodes[0].inputs[1]].data
        for graph in (bnnrt.bundle.read(tmp_path / name).pixels for name in ("a.bnn", "b.bnn"))
    ]
    assert (thresholds[0] != thresholds[1]).any()


def saved(tmp_path, model):
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def test_sizes_are_given_by_option(tmp_path):
    net = Net(3, "H", "W")
    path = saved(tmp_path, net.model(net.conv("x", signs(np.random.default_rng(0), 4, 3, 3, 3))))
    with pytest.raises(ConversionError, match="--shape x=N,3,SIZE,SIZE"):
        invoke(path, "-o", tmp_path / "m.bnn")
    for options in (["--shape", "x=N,3,8,9"], ["--shape", "H=8", "--shape", "W=9"]):
        invoke(path, "-o", tmp_path / "m.bnn", *options)
        assert bnnrt.bundle.read(tmp_path / "m.bnn").inputs[0].shape == ("N", 3, 8, 9)
        invoke(path, "-o", tmp_path / "m.bnn", *options, "--batch", "2")
        assert bnnrt.bundle.read(tmp_path / "m.bnn").inputs[0].shape == (2, 3, 8, 9)
    with pytest.raises(InputError, match="NAME=SIZES"):
        invoke(path, "-o", tmp_path / "m.bnn", "--shape", "8,9")


def test_binarize_weights_is_said_and_noted(tmp_path):
    net = Net(8)
    rng = np.random.default_rng(0)
    x = net.matmul(net.sign("x"), rng.normal(size=(8, 5)))
    path = saved(tmp_path, net.model(net.matmul(net.sign(x), rng.normal(size=(5, 3)))))
    plain = invoke(path, "-o", tmp_path / "m.bnn")
    assert "warning: matmul2: its input is bits but its weights are not +-a" in plain.stdout
    result = invoke(path, "-o", tmp_path / "m.bnn", "--binarize-weights")
    assert "note: matmul2: its weights are the signs of those in the file" in result.stdout
    assert "warning" not in result.stdout
    assert bnnrt.bundle.read(tmp_path / "m.bnn").provenance.converter.endswith("--binarize-weights")
    data = json.loads(invoke(path, "-o", tmp_path / "m.bnn", "--binarize-weights", "--json").stdout)
    assert [note["node"] for note in data["notes"]] == ["matmul2", "matmul5"]


def test_long_names_do_not_blow_up_the_table(tmp_path):
    net = Net(8)
    y = net.matmul("x", signs(np.random.default_rng(0), 8, 3))
    net.nodes[-1].name = "first" + "x" * 5000 + "last"
    path = saved(tmp_path, net.model(y))
    output = invoke(path, "-o", tmp_path / "m.bnn").stdout
    assert "first" in output
    assert "last" in output
    assert len(output) < 3000
    data = json.loads(invoke(path, "-o", tmp_path / "m.bnn", "--json").stdout)
    assert len(data["layers"][0]["name"]) == 5009


def test_markup_in_names_is_text(tmp_path):
    net = Net(8)
    y = net.matmul(net.op("Sign", "x"), signs(np.random.default_rng(0), 8, 3))
    for node, name in zip(net.nodes, ("[red]sign[/]", "[link=http://a]dense"), strict=True):
        node.name = name
    output = invoke(saved(tmp_path, net.model(y)), "-o", tmp_path / "m.bnn").stdout
    assert "warning: [red]sign[/]: ONNX Sign" in output
    assert "[link=http://a]dense" in output


def test_the_model_is_never_overwritten(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes((FIXTURES / "paper_legacy.onnx").read_bytes())
    (tmp_path / "link.bnn").symlink_to(path)
    for output in (path, tmp_path / "link.bnn"):
        with pytest.raises(OutputError, match="overwrite the model"):
            invoke(path, "-o", output)
    assert path.read_bytes() == (FIXTURES / "paper_legacy.onnx").read_bytes()


def test_refusals_leave_no_file(tmp_path):
    net = Net(8)
    (tmp_path / "m.onnx").write_bytes(net.model(net.op("Erf", "x")).SerializeToString())
    with pytest.raises(ConversionError, match="Erf"):
        invoke(tmp_path / "m.onnx", "-o", tmp_path / "m.bnn")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_session_can_open_the_model_itself():
    assert load_graphs(MODEL).outputs[0].name == "logits"
