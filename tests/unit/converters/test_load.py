import hashlib
import os

import numpy as np
import onnx
import pytest

from bnnrt.converters.load import load
from bnnrt.errors import ConversionError

from .models import Net


def written(tmp_path, model):
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def saved(path, location="weights.bin"):
    net = Net(4)
    model = net.model(net.matmul("x", np.ones((4, 2))))
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=0)
    return path


def test_source_has_the_hash_of_the_file(tmp_path):
    net = Net(4)
    data = net.model(net.op("Identity", "x"), metadata={"labels": '["a"]'}).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    source = load(str(tmp_path / "m.onnx"))
    assert source.sha256 == hashlib.sha256(data).hexdigest()
    assert source.metadata == {"labels": '["a"]'}


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, b"not a model\n", b"\x08\x08"])
def test_other_files_are_refused(tmp_path, data):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ConversionError, match=r"m\.onnx") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(ConversionError, match="cannot read the model"):
            load(path)


def test_external_data_beside_the_model_is_read(tmp_path):
    source = load(saved(tmp_path / "m.onnx"))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(source.proto.graph.initializer[0]), np.ones((4, 2)))


def test_external_data_that_is_missing_is_refused(tmp_path):
    path = saved(tmp_path / "m.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ConversionError, match="external data"):
        load(path)


@pytest.mark.parametrize("location", ["../weights.bin", "inner/../../weights.bin", "{absolute}"])
def test_external_data_outside_the_folder_is_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder / "m.onnx")
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    model = onnx.load(path, load_external_data=False)
    entry = next(e for e in model.graph.initializer[0].external_data if e.key == "location")
    entry.value = location.format(absolute=tmp_path / "weights.bin")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ConversionError, match="outside the model's folder"):
        load(path)


def test_external_data_through_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder / "m.onnx")
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    os.symlink(tmp_path / "weights.bin", folder / "weights.bin")
    with pytest.raises(ConversionError, match="outside the model's folder"):
        load(path)


def damage_input(model):
    del model.graph.node[0].input[1]


def damage_attribute(model):
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("alpha", "text"))


def damage_size(model):
    model.graph.initializer[0].dims[0] = 5


@pytest.mark.parametrize("damage", [damage_input, damage_attribute, damage_size])
def test_malformed_nodes_and_tensors_are_refused_by_name(tmp_path, damage):
    net = Net(4)
    model = net.model(net.op("Gemm", "x", net.constant(np.ones((4, 2)))))
    load(written(tmp_path, model))
    damage(model)
    with pytest.raises(ConversionError, match=r"malformed.*(node gemm0|tensor c0)") as caught:
        load(written(tmp_path, model))
    assert "\n" not in str(caught.value)


def test_models_that_name_no_version_are_refused(tmp_path):
    net = Net(4)
    model = net.model(net.op("Identity", "x"))
    del model.opset_import[:]
    with pytest.raises(ConversionError, match="version none of the ONNX operators"):
        load(written(tmp_path, model))
