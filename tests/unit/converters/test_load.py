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


def moved(path, location=None, **entries):
    """The model at ``path`` with other entries for its external data."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        known = {entry.key: entry for entry in tensor.external_data}
        for key, value in {"location": location, **entries}.items():
            if value is not None:
                (known.get(key) or tensor.external_data.add(key=key)).value = str(value)
    path.write_bytes(model.SerializeToString())


def refused(path, *words):
    """Refused in one line that has these words."""
    with pytest.raises(ConversionError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.fix


def test_external_data_in_several_files_and_folders(tmp_path):
    net = Net(4)
    x = net.matmul(net.matmul("x", np.ones((4, 3))), np.full((3, 2), 2))
    path = tmp_path / "m.onnx"
    onnx.save(net.model(x), path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    (tmp_path / "a" / "b").mkdir(parents=True)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        (tmp_path / tensor.name).rename(tmp_path / "a" / "b" / tensor.name)
        next(e for e in tensor.external_data if e.key == "location").value = f"a/b/{tensor.name}"
    path.write_bytes(model.SerializeToString())
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in load(path).proto.graph.initializer]
    np.testing.assert_array_equal(arrays[0], np.ones((4, 3)))
    np.testing.assert_array_equal(arrays[1], np.full((3, 2), 2))


def test_a_link_inside_the_folder_is_followed(tmp_path):
    path = saved(tmp_path / "m.onnx")
    (tmp_path / "weights.bin").rename(tmp_path / "real.bin")
    (tmp_path / "weights.bin").symlink_to("real.bin")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(load(path).proto.graph.initializer[0]), np.ones((4, 2)))


def test_a_link_to_the_model_is_no_way_out_of_its_folder(tmp_path):
    (tmp_path / "store").mkdir()
    saved(tmp_path / "store" / "m.onnx")
    (tmp_path / "m.onnx").symlink_to("store/m.onnx")
    load(tmp_path / "m.onnx")


def test_an_absolute_path_is_refused_even_inside_the_folder(tmp_path):
    path = saved(tmp_path / "m.onnx")
    moved(path, tmp_path / "weights.bin")
    refused(path, "tensor c0", "absolute path")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"offset": 10**6}, "exceeds file size"),
        ({"offset": -4}, "non-negative"),
        ({"offset": "abc"}, "invalid literal"),
        ({"length": 10**4}, "exceeds available data"),
        ({"length": 8}, "malformed"),
        ({"length": 10**12}, "more than 2 GB"),
        ({"location": "a\0b"}, "cannot be read from"),
    ],
)
def test_external_data_of_wrong_extent_are_refused(tmp_path, entries, words):
    path = saved(tmp_path / "m.onnx")
    moved(path, **entries)
    refused(path, words)


def test_a_file_of_external_data_that_is_cut_off_is_refused(tmp_path):
    path = saved(tmp_path / "m.onnx")
    for size in (20, 0):
        os.truncate(tmp_path / "weights.bin", size)
        refused(path, "tensor c0", "external data cannot be read")


def test_a_folder_and_a_pipe_are_no_external_data(tmp_path):
    path = saved(tmp_path / "m.onnx")
    (tmp_path / "weights.bin").unlink()
    (tmp_path / "weights.bin").mkdir()
    refused(path, "tensor c0", "not a file")
    (tmp_path / "weights.bin").rmdir()
    os.mkfifo(tmp_path / "weights.bin")
    refused(path, "tensor c0", "not a file")


def test_external_data_that_names_no_file_are_refused(tmp_path):
    path = saved(tmp_path / "m.onnx")
    model = onnx.load(path, load_external_data=False)
    del model.graph.initializer[0].external_data[:]
    refused(written(tmp_path, model), "tensor c0", "no name")


def constant_node(location):
    """A model whose weights are the external attribute of a Constant node, and their bytes."""
    net = Net(4)
    tensor = onnx.numpy_helper.from_array(np.ones((4, 2), dtype=np.float32), "t")
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return net.model(net.op("MatMul", "x", net.op("Constant", value=tensor))), data


def test_external_data_of_constant_nodes_are_read_and_stay_inside_too(tmp_path):
    model, data = constant_node("k.bin")
    (tmp_path / "k.bin").write_bytes(data)
    loaded = load(written(tmp_path, model)).proto.graph.node[0].attribute[0].t
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded), np.ones((4, 2)))
    (tmp_path / "inner").mkdir()
    refused(written(tmp_path / "inner", constant_node("../k.bin")[0]), "tensor t", "outside the model's folder")


def test_files_that_protobuf_cannot_read_are_refused_unread(tmp_path):
    path = tmp_path / "m.onnx"
    path.touch()
    os.truncate(path, 1 << 31)  # of which the disk holds nothing
    refused(path, "more than 2 GB", "external data")


def damage_input(model):
    del model.graph.node[0].input[1]


def damage_attribute(model):
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("alpha", "text"))


def damage_size(model):
    model.graph.initializer[0].dims[0] = 5


def damage_type(model):
    model.graph.initializer[0].data_type = 81


@pytest.mark.parametrize("damage", [damage_input, damage_attribute, damage_size, damage_type])
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
