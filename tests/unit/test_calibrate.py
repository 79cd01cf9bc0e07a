"""``bnnrt calibrate``: what it finds, that both graphs of its bundle stay one function, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bnnrt import InferenceSession, bundle, cli, reference
from bnnrt.bundle import Bundle, PixelBinding
from bnnrt.calibration import chosen_for_tuning, search
from bnnrt.converters.convert import Options, convert
from bnnrt.errors import InputError
from bnnrt.graph import Constant
from bnnrt.input_thresholds import InputThresholds
from bnnrt.ops import Sign, Threshold
from bnnrt.preprocess.schemes import InputBinarization, Scheme
from bnnrt.session import load_bundle

Array = npt.NDArray[Any]

EXAMPLE = Path(__file__).parents[2] / "examples" / "vehicle"
VEHICLE = EXAMPLE / "models" / "vehicle_threshold.onnx"
PHOTOS = EXAMPLE / "photos"
REAL_INPUT = Path(__file__).parents[1] / "fixtures" / "real_input_dynamo.onnx"
SIZE = 6


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line, in this process."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["bnnrt", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Done(0 if ended.value.code is None else int(ended.value.code), out, err)

    return run


# Networks of one thresholded image and two classes: is more than half of its bits set?


def network(path: Path, channels: int, nodes: Sequence[tuple[str, list[Any], dict[str, Any]]], **extra: Any) -> Path:
    """An ONNX file: float32 ``x`` [N, channels, 6, 6] -> ``nodes`` -> sums of all bits, negative and positive.

    A node is an operator, the constants after its first input, and its attributes; each reads the one before.
    ``extra`` holds: ``last``, more nodes behind; ``side``, the number of a node whose output the logits get, too.
    """
    initializers, made = [], []

    def add(operator: str, constants: list[Any], attributes: dict[str, Any], tensor: str) -> str:
        names = [f"c{len(initializers) + i}" for i in range(len(constants))]
        initializers.extend(
            numpy_helper.from_array(np.asarray(c, np.asarray(c).dtype if np.asarray(c).dtype != float else "f4"), n)
            for c, n in zip(constants, names, strict=True)
        )
        made.append(helper.make_node(operator, [tensor, *names], [f"t{len(made)}"], f"node{len(made)}", **attributes))
        return f"t{len(made) - 1}"

    tensor = "x"
    tensors = [tensor := add(*node, tensor) for node in nodes]
    shape = onnx.shape_inference.infer_shapes(
        helper.make_model(helper.make_graph(made, "g", [info("x", ["N", channels, SIZE, SIZE])], [], initializers))
    )
    found = next(v for v in shape.graph.value_info if v.name == tensor)
    count = int(np.prod([d.dim_value for d in found.type.tensor_type.shape.dim][1:]))
    tensor = add("Flatten", [], {}, tensor)
    tensor = add("MatMul", [np.stack([-np.ones(count), np.ones(count)], axis=1)], {}, tensor)
    tensor = add("Mul", [0.125], {}, tensor)
    if "side" in extra:
        side = add("ReduceMean", [], {"axes": [2, 3], "keepdims": 0}, tensors[extra["side"]])
        side = add("MatMul", [np.eye(channels, 2)], {}, side)
        made.append(helper.make_node("Add", [tensor, side], ["sum"], "side"))
        tensor = "sum"
    made[-1].output[0] = "y"
    graph = helper.make_graph(made, "g", [info("x", ["N", channels, SIZE, SIZE])], [info("y", ["N", 2])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, {"labels": '["dark", "light"]'})
    onnx.save(model, path)
    return path


def info(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def column(*values: float) -> Array:
    return np.array(values, np.float32)[:, None, None]


Nodes = list[tuple[str, list[Any], dict[str, Any]]]
SIGN: Nodes = [("Sign", [], {})]


def adding(*numbers: float) -> Nodes:
    return [("Add", [column(*numbers)], {})]


NORM = [np.array(values, np.float32) for values in ((1, -2, 0.1), (0.1, 0.2, 0.03), (0.5, 0.4, 0.6), (0.1, 0.2, 0.3))]
POOL = ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]})
UNIT = Options(pixel_scale=1 / 255)
HEADS: dict[str, tuple[int, Nodes, Options]] = {
    "add": (3, [*adding(-90.5, -100.25, -130), *SIGN], Options()),
    "one number for all": (3, [*adding(-100.5), *SIGN], Options()),
    "gray": (1, [*adding(-100.5), *SIGN], Options()),
    "sub": (3, [("Sub", [column(90.5, 100.5, 130.5)], {}), *SIGN], Options()),
    "scaled": (3, [*adding(-0.4, -0.5, -0.6), *SIGN], UNIT),
    "scaled, flat": (3, [*adding(-0.4), *SIGN], UNIT),
    "nothing added": (1, SIGN, Options(pixel_scale=1 / 127.5, pixel_offset=-1.0)),
    "falling": (3, [("Mul", [column(-1, 0.5, -2)], {}), *adding(90.5, -50.25, 261), *SIGN], Options()),
    "normed": (
        3,
        [("Div", [np.float32(255)], {}), ("BatchNormalization", [*NORM], {"epsilon": 1e-3}), *SIGN],
        Options(),
    ),
    "pooled": (3, [*adding(-90.5, -100.5, -130.5), POOL, *SIGN], Options()),
    "pooled, falling": (3, [("Neg", [], {}), *adding(90.5, 100.5, 130.5), POOL, *SIGN], Options()),
    "clipped": (3, [*adding(-90.5, -100.5, -130.5), ("Clip", [np.float32(-50), np.float32(60)], {}), *SIGN], Options()),
    "flattened": (3, [("Flatten", [], {}), ("Add", [np.float32(-100.5)], {}), *SIGN], Options()),
    "constant plane": (3, [*adding(-90.5, 3, -400), *SIGN], Options()),
}
PLANES = [
    (3, Options(input_binarization=InputBinarization(Scheme.THRESHOLD, (-90.5, -100.0, -130.5)))),
    (1, Options(input_binarization=InputBinarization(Scheme.THRESHOLD_GRAY, (-90.5,)))),
]


def as_input(pixels: Array, binding: PixelBinding | None) -> Array:
    """Pixels as the model's own input, by the book."""
    x = pixels.astype(np.float32).transpose(0, 3, 1, 2)
    assert binding is not None
    x = x if binding.scale is None else x * np.float32(binding.scale)
    return x if binding.offset is None else x + np.float32(binding.offset)


def outputs(made: Bundle, pixels: Array) -> tuple[Array, Array]:
    """Of both graphs."""
    assert made.pixels is not None
    (of_model,) = reference.run(made.model, {"x": as_input(pixels, made.binding)}).values()
    (of_pixels,) = reference.run(made.pixels, {"pixels": pixels}).values()
    return of_model, of_pixels


# Both graphs


@pytest.mark.parametrize("head", HEADS)
def test_both_graphs_stay_one_function(head: str, tmp_path: Path) -> None:
    channels, nodes, options = HEADS[head]
    made, _ = convert(network(tmp_path / "m.onnx", channels, nodes), options)
    thresholds = InputThresholds(made)
    assert len(thresholds.levels) == channels
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (4, SIZE, SIZE, channels), dtype=np.uint8)
    for levels in [[1] * channels, [255] * channels, *random.integers(1, 256, (6, channels)).tolist()]:
        changed = thresholds.bundle(levels)
        assert InputThresholds(changed).levels == tuple(levels)  # which also compares the graphs at all 256 values
        # One value below each level and the level itself, where a bit changes.
        pixels[0, 0, 0], pixels[0, 0, 1] = np.array(levels) - 1, levels
        of_model, of_pixels = outputs(changed, pixels)
        np.testing.assert_array_equal(of_model, of_pixels)
        bundle.write(changed, tmp_path / "c.bnn")
        assert InputThresholds(bundle.read(tmp_path / "c.bnn")).levels == tuple(levels)
    # Back again, and as before.
    back = InputThresholds(changed).bundle(thresholds.levels) if min(thresholds.levels) > 0 else changed
    np.testing.assert_array_equal(*outputs(back, pixels))


@pytest.mark.parametrize("head", HEADS)
def test_the_same_levels_are_the_same_bundle(head: str, tmp_path: Path) -> None:
    channels, nodes, options = HEADS[head]
    made, _ = convert(network(tmp_path / "m.onnx", channels, nodes), options)
    thresholds = InputThresholds(made)
    for name, written in (("a", made), ("b", thresholds.bundle(thresholds.levels))):
        bundle.write(written, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_plane_that_stays_keeps_its_number(tmp_path: Path) -> None:
    channels, nodes, options = HEADS["add"]
    made, _ = convert(network(tmp_path / "m.onnx", channels, nodes), options)
    changed = InputThresholds(made).bundle((91, 40, 130))
    (added,) = [c.data for c in changed.model.constants.values() if c.data.shape == (3,) and c.data.dtype == np.float32]
    assert added.tolist() == [-90.5, 0.5 - 40, -130]


def test_a_sum_that_others_read_stays(tmp_path: Path) -> None:
    nodes = [*adding(-90.5, -100.5, -130.5), *SIGN]
    made, _ = convert(network(tmp_path / "m.onnx", 3, nodes, side=0))
    changed = InputThresholds(made).bundle((30, 40, 50))
    pixels = np.random.default_rng(1).integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    np.testing.assert_array_equal(*outputs(changed, pixels))
    assert len(changed.model.nodes) == len(made.model.nodes) + 1


@pytest.mark.parametrize(("planes", "options"), PLANES)
def test_planes_of_bits_are_no_business_of_the_model(planes: int, options: Options, tmp_path: Path) -> None:
    made, _ = convert(network(tmp_path / "m.onnx", planes, SIGN), options)
    thresholds = InputThresholds(made)
    assert thresholds.names == (("gray",) if planes == 1 else ("red", "green", "blue"))
    levels = tuple(level - 50 for level in thresholds.levels)
    changed = thresholds.bundle(levels)
    assert changed.model is made.model
    assert changed.pixels is not None
    assert options.input_binarization is not None
    rgb = np.random.default_rng(2).integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    bits = InputBinarization(options.input_binarization.scheme, tuple(0.5 - level for level in levels)).bits(rgb)
    fed = np.where(bits, np.float32(1), np.float32(-1)).transpose(0, 3, 1, 2)
    (of_model,) = reference.run(changed.model, {"x": fed}).values()
    (of_pixels,) = reference.run(changed.pixels, {"pixels": rgb}).values()
    np.testing.assert_array_equal(of_model, of_pixels)


def test_a_model_of_8_bit_input(tmp_path: Path) -> None:
    """Its own graph thresholds pixels, too, but without moving them: one level for each column."""
    path = network(
        tmp_path / "m.onnx",
        1,
        [("Cast", [], {"to": TensorProto.FLOAT}), ("Add", [column(-90.5)], {}), ("Sign", [], {})],
    )
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    onnx.save(model, path)
    made, _ = convert(path)
    changed = InputThresholds(made).bundle((33,))
    pixels = np.random.default_rng(2).integers(0, 256, (3, SIZE, SIZE, 1), dtype=np.uint8)
    assert changed.pixels is not None
    (of_model,) = reference.run(changed.model, {"x": pixels.transpose(0, 3, 1, 2)}).values()
    (of_pixels,) = reference.run(changed.pixels, {"pixels": pixels}).values()
    np.testing.assert_array_equal(of_model, of_pixels)


def spoiled(made: Bundle, by: int) -> Bundle:
    thresholds = InputThresholds(made)
    return thresholds.bundle([level + by for level in thresholds.levels])


def poisoned(made: Bundle) -> list[tuple[Bundle, str]]:
    """Bundles whose graphs do not belong together, or do not say how."""
    assert made.pixels is not None
    name = next(node.inputs[1] for node in made.pixels.nodes if isinstance(node.op, Threshold))
    other = {**made.pixels.constants, name: Constant.of(np.array([91, 102, 130], np.int32))}
    renamed = [replace(n, name="other") if isinstance(n.op, Sign) else n for n in made.model.nodes]
    twice = [replace(n, name="node1") for n in made.model.nodes]
    return [
        (replace(made, binding=None), "does not say how pixels become the model's input"),
        (replace(made, binding=PixelBinding(scale=1 / 255)), "does not hold this threshold"),
        (replace(made, binding=PixelBinding(offset=-1.0)), "does not hold this threshold"),
        (replace(made, pixels=made.pixels.rebuilt(made.pixels.nodes, other)), "does not hold this threshold"),
        (replace(made, model=made.model.rebuilt(renamed)), "does not hold this threshold"),
        (replace(made, model=made.model.rebuilt(twice)), "does not hold this threshold"),
    ]


def test_graphs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    channels, nodes, options = HEADS["add"]
    made, _ = convert(network(tmp_path / "m.onnx", channels, nodes), options)
    assert InputThresholds(made).levels == (91, 101, 130)
    for bad, problem in poisoned(made)[:-1]:
        with pytest.raises(InputError, match=problem):
            InputThresholds(bad)


def test_several_thresholds_a_channel(tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx", 3, [*adding(-40, -50, -60), *SIGN])
    model = onnx.load(path)
    numbers = next(t for t in model.graph.initializer if t.dims == [3, 1, 1])
    numbers.CopyFrom(numpy_helper.from_array(column(-40.5, -50.5, -60.5, -140.5, -150.5, -160.5), numbers.name))
    weights = next(t for t in model.graph.initializer if t.dims == [3 * SIZE * SIZE, 2])
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights).repeat(2, axis=0), weights.name))
    model.graph.node.insert(0, helper.make_node("Concat", ["x", "x"], ["xx"], "twice", axis=1))
    model.graph.node[1].input[0] = "xx"
    onnx.save(model, path)
    made, _ = convert(path)
    assert made.pixels is not None
    thresholds = InputThresholds(made)
    assert thresholds.names == ("red 1", "green 1", "blue 1", "red 2", "green 2", "blue 2")
    assert thresholds.levels == (41, 51, 61, 141, 151, 161)
    changed = thresholds.bundle((10, 20, 30, 200, 210, 161))
    pixels = np.random.default_rng(3).integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
    np.testing.assert_array_equal(*outputs(changed, pixels))


def test_levels_that_float32_does_not_tell_apart_are_refused(tmp_path: Path) -> None:
    """Between 2^27 and 2^28 float32 has every sixteenth number."""
    nodes = [("Add", [column(1.5e8)], {}), ("Add", [column(-1.5e8 - 96)], {}), ("Sign", [], {})]
    made, _ = convert(network(tmp_path / "m.onnx", 1, nodes))
    thresholds = InputThresholds(made)
    with pytest.raises(InputError, match="does not tell neighbouring pixel values apart"):
        thresholds.bundle((thresholds.levels[0] + 3,))


# Split and search


def test_seventy_percent_of_each_class() -> None:
    classes = [0] * 10 + [1] * 20 + [2] * 11 + [3] * 37
    names = [f"{c}/{i}.png" for i, c in enumerate(classes)]
    chosen = chosen_for_tuning(names, classes, 0)
    assert [sum(x for x, c in zip(chosen, classes, strict=True) if c == k) for k in range(4)] == [7, 14, 8, 26]
    assert chosen_for_tuning(names, classes, 0) == chosen
    assert chosen_for_tuning(names, classes, 1) != chosen
    assert chosen_for_tuning(names[::-1], classes[::-1], 0) == chosen[::-1]
    # A class is divided as it is whatever else there is.
    assert chosen_for_tuning(names[:10], classes[:10], 0) == chosen[:10]
    # Names that are no text, as file systems have them.
    assert sum(chosen_for_tuning([os.fsdecode(b"\xff%d" % i) for i in range(10)], [0] * 10, 0)) == 7


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_the_search_ends_where_no_move_is_better(data: st.DataObject) -> None:
    planes = data.draw(st.sampled_from([1, 3]))
    level = st.integers(1, 255)
    target, start = (tuple(data.draw(st.lists(level, min_size=planes, max_size=planes))) for _ in range(2))
    asked: list[tuple[int, ...]] = []

    def loss(levels: tuple[int, ...], limit: float) -> float:
        asked.append(levels)
        value = float(sum((a - b) ** 2 for a, b in zip(levels, target, strict=True)))
        return value if value <= limit else inf

    found, count = search(loss, start)
    assert found == target
    assert len(asked) == len(set(asked)) == count < 200
    assert all(1 <= level <= 255 for levels in asked for level in levels)


def test_of_equal_losses_the_smaller_change_counts() -> None:
    assert search(lambda levels, limit: 1.0, (100, 120, 140))[0] == (100, 120, 140)
    # A plateau from 150 on: the first that the search meets is 164, and 150 is nearer.
    assert search(lambda levels, limit: float(levels[0] < 150), (100,))[0] == (150,)
    # And a region without a slope around the start.
    assert search(lambda levels, limit: 1.0 if levels[0] > 70 else abs(levels[0] - 40) / 100, (230,))[0] == (40,)


def test_a_level_out_of_range_comes_back_only_if_that_is_better() -> None:
    assert search(lambda levels, limit: 0.0, (400,))[0] == (400,)
    assert search(lambda levels, limit: abs(levels[0] - 30.0), (400,))[0] == (30,)
    assert search(lambda levels, limit: abs(levels[0] - 30.0), (-5,))[0] == (30,)


def test_a_loss_that_is_no_number_is_never_better() -> None:
    assert search(lambda levels, limit: inf, (7,))[0] == (7,)


# The vehicle classifier, with thresholds that are off by 40


@pytest.fixture(scope="module")
def vehicle() -> Bundle:
    return load_bundle(VEHICLE)


@pytest.fixture(scope="module")
def off(vehicle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("off") / "off.bnn"
    bundle.write(spoiled(vehicle, 60), path)
    return path


def right(path: Path) -> int:
    photos = sorted(PHOTOS.glob("*/*.jpg"))
    with InferenceSession(path, "opencl") as session:
        return sum(r.label == p.parent.name for p, r in zip(photos, session.classify(photos), strict=True))


def test_thresholds_that_are_off_are_found_again(run: Run, off: Path, vehicle: Bundle, tmp_path: Path) -> None:
    before = off.read_bytes()
    done = run("calibrate", off, PHOTOS, "-o", tmp_path / "tuned.bnn", "--backend", "opencl", "--json")
    assert (done.status, done.err) == (0, "")
    assert off.read_bytes() == before
    said, tuned = done.json, bundle.read(tmp_path / "tuned.bnn")
    assert said["bundle"] == str(tmp_path / "tuned.bnn")
    assert (said["missing"], said["failed"], said["seed"]) == ([], [], 0)
    assert (said["tuning"]["images"], said["held_out"]["images"]) == (84, 36)
    # What was lost is found again.
    whole = {"off": right(off), "tuned": right(tmp_path / "tuned.bnn")}
    for when, name in (("before", "off"), ("after", "tuned")):
        assert said["tuning"][when]["correct"] + said["held_out"][when]["correct"] == whole[name]
    trained = right(VEHICLE)
    assert whole["off"] < trained - 10
    assert whole["tuned"] >= trained
    assert said["held_out"]["after"]["correct"] > said["held_out"]["before"]["correct"]
    assert said["tuning"]["after"]["loss"] < said["tuning"]["before"]["loss"] / 2
    levels = tuple(plane["after"] for plane in said["thresholds"])
    assert InputThresholds(tuned).levels == levels
    assert tuple(plane["before"] for plane in said["thresholds"]) == InputThresholds(bundle.read(off)).levels
    # The weights, and all else, are the trained ones.
    for graph, other in ((tuned.model, vehicle.model), (tuned.pixels, vehicle.pixels)):
        assert graph is not None
        assert other is not None
        assert graph.constants.keys() == other.constants.keys()
        changed = [n for n, c in graph.constants.items() if c.data.tobytes() != other.constants[n].data.tobytes()]
        assert changed == [
            next(n.inputs[1] for n in graph.nodes if n.inputs[-1] in changed or n.inputs[1:2] == tuple(changed))
        ]
    assert (tuned.labels, tuned.pipeline, tuned.inputs) == (vehicle.labels, vehicle.pipeline, vehicle.inputs)
    # Both signatures on photos.
    assert tuned.pipeline is not None
    pixels = np.stack([tuned.pipeline.load(p) for p in sorted(PHOTOS.glob("*/*.jpg"))[::20]])
    with InferenceSession(tmp_path / "tuned.bnn", "opencl") as session:
        (of_model,) = session.run(None, {"input": pixels.astype(np.float32).transpose(0, 3, 1, 2)})
        (of_pixels,) = session.run(None, {"pixels": pixels})
    np.testing.assert_array_equal(of_model, of_pixels)
    # Where it comes from.
    origin = tuned.provenance
    assert replace(origin, calibration=None) == vehicle.provenance
    assert origin.calibration is not None
    assert origin.calibration.bundle_sha256 == hashlib.sha256(before).hexdigest()
    assert (origin.calibration.images, origin.calibration.held_out) == (84, 36)
    assert list(origin.calibration.held_out_right) == [said["held_out"][w]["correct"] for w in ("before", "after")]
    assert list(origin.calibration.images_right) == [said["tuning"][w]["correct"] for w in ("before", "after")]
    shown = run("inspect", tmp_path / "tuned.bnn")
    assert "tuned    on 84 images; right of 36 others" in shown.out
    # The same again is the same file, by another name and over an older bundle.
    shutil.copy(off, tmp_path / "again.bnn")
    assert run("calibrate", off, PHOTOS, "-o", tmp_path / "again.bnn", "--backend", "opencl").status == 0
    assert (tmp_path / "again.bnn").read_bytes() == (tmp_path / "tuned.bnn").read_bytes()
    # It is not the model's function any more.
    refused = run("verify", tmp_path / "tuned.bnn", VEHICLE, "--backend", "numpy", "--runs", 0)
    assert refused.status == 1
    assert "has been calibrated" in refused.err


# Two classes that a level tells apart


def photos(folder: Path, counts: dict[str, int], levels: dict[str, tuple[int, int]]) -> Path:
    random = np.random.default_rng(5)
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for i in range(count):
            value = random.integers(*levels[label], (SIZE, SIZE, 3), dtype=np.uint8)
            Image.fromarray(value).save(folder / label / f"{i:02}.png")
    return folder


LEVELS = {"dark": (0, 60), "light": (50, 110)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A network that takes everything below 200 for dark."""
    path = tmp_path / "small.bnn"
    nodes = [*adding(-200), *SIGN]
    bundle.write(convert(network(tmp_path / "small.onnx", 3, nodes))[0], path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photos(tmp_path / "photos", {"dark": 12, "light": 10}, LEVELS)


def calibrate(run: Run, *arguments: object) -> Done:
    return run("calibrate", *arguments, "--backend", "numpy")


def test_a_new_bundle_beside_the_old_one(run: Run, small: Path, folder: Path) -> None:
    done = calibrate(run, small, folder)
    assert (done.status, done.err) == (0, "")
    written = small.with_name("small-calibrated.bnn")
    assert f"{written}: calibrated" in done.out
    assert "right of 15 to tune on │   8, 53.33 % │ 15, 100.00 %" in done.out.replace("│ 8,", "│   8,")
    with InferenceSession(written, "numpy") as session:
        for label in LEVELS:
            assert {r.label for r in session.classify(sorted((folder / label).iterdir()))} == {label}


def test_the_model_itself_can_be_given(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    assert calibrate(run, small, folder, "-o", tmp_path / "a.bnn").status == 0
    assert calibrate(run, small.with_suffix(".onnx"), folder, "-o", tmp_path / "b.bnn").status == 0
    a, b = (bundle.read(tmp_path / f"{name}.bnn") for name in "ab")
    assert InputThresholds(a).levels == InputThresholds(b).levels
    assert b.provenance.calibration is not None
    assert b.provenance.calibration.bundle_sha256 == b.provenance.source_sha256


def test_all_backends_find_the_same(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    for name in ("numpy", "opencl"):
        assert run("calibrate", small, folder, "-o", tmp_path / name, "--backend", name).status == 0
    assert (tmp_path / "numpy").read_bytes() == (tmp_path / "opencl").read_bytes()


def test_thresholds_that_are_best_already_stay(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    assert calibrate(run, small, folder, "-o", tmp_path / "a.bnn").status == 0
    done = calibrate(run, tmp_path / "a.bnn", folder, "-o", tmp_path / "b.bnn")
    assert done.status == 0
    assert "the thresholds are as they were" in done.out
    a, b = (InputThresholds(bundle.read(tmp_path / f"{name}.bnn")) for name in "ab")
    assert a.levels == b.levels


def test_a_bundle_that_would_be_worse_is_not_written(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    """Images for tuning whose labels are exchanged: what is best for them is worst for the others."""
    good = tmp_path / "good.bnn"
    assert calibrate(run, small, folder, "-o", good).status == 0
    files = sorted(folder.glob("*/*.png"))
    labels = list(LEVELS)
    names = [f.relative_to(folder).as_posix() for f in files]
    chosen = chosen_for_tuning(names, [labels.index(f.parent.name) for f in files], 0)
    for file, tuning in zip(files, chosen, strict=True):
        if tuning:  # all of them light, whatever they are called
            Image.new("RGB", (SIZE, SIZE), (200,) * 3 if file.parent.name == "dark" else (205,) * 3).save(file)
    target = tmp_path / "worse.bnn"
    for arguments in ([], ["--json"]):
        done = calibrate(run, good, folder, "-o", target, *arguments)
        assert done.status == 1
        assert done.err.startswith("error: accuracy on the images held out would fall from 100.00 % to ")
        assert done.err.count("\n") == 1
        assert not target.exists()
    said = done.json
    assert said["bundle"] is None
    assert said["held_out"]["after"]["correct"] < said["held_out"]["before"]["correct"]
    assert said["tuning"]["after"]["loss"] < said["tuning"]["before"]["loss"]
    shutil.copy(good, target)
    assert calibrate(run, good, folder, "-o", target).status == 1
    assert target.read_bytes() == good.read_bytes()


def test_images_that_cannot_be_read_are_left_out(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "dark" / "00a.png").write_bytes(b"no image")
    (folder / "light" / "notes.txt").write_text("no image either, and not taken for one")
    done = calibrate(run, small, folder, "-o", tmp_path / "a.bnn", "--json")
    assert (done.status, done.err) == (1, "")
    said = done.json
    assert [f["file"] for f in said["failed"]] == [str(folder / "dark" / "00a.png")]
    assert (said["tuning"]["images"], said["held_out"]["images"]) == (8 + 7, 4 + 3)
    assert said["tuning"]["after"]["correct"] == 15
    done = calibrate(run, small, folder, "-o", tmp_path / "b.bnn")
    assert done.status == 1
    assert "00a.png" in done.err
    assert (tmp_path / "a.bnn").read_bytes() == (tmp_path / "b.bnn").read_bytes()


def test_a_class_without_images_is_told(run: Run, tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx", 3, [*adding(-200), *SIGN])
    model = onnx.load(path)
    weights = next(t for t in model.graph.initializer if t.dims == [3 * SIZE * SIZE, 2])
    old = numpy_helper.to_array(weights)
    weights.CopyFrom(numpy_helper.from_array(np.concatenate([old, old[:, :1]], axis=1), weights.name))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    helper.set_model_props(model, {"labels": '["dark", "light", "odd"]'})
    onnx.save(model, path)
    folder = photos(tmp_path / "photos", {"dark": 12, "light": 10}, LEVELS)
    done = calibrate(run, path, folder, "-o", tmp_path / "a.bnn")
    assert done.status == 0
    assert "warning: there are no images of odd" in done.out
    assert calibrate(run, path, folder, "-o", tmp_path / "a.bnn", "--json").json["missing"] == ["odd"]


# Refusals: one line, and nothing written


def assert_refused(done: Done, *parts: str) -> None:
    assert done.status == 1
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    for part in parts:
        assert part in done.err


def test_bundles_without_thresholds(run: Run, folder: Path, tmp_path: Path) -> None:
    assert_refused(calibrate(run, REAL_INPUT, folder, "-o", tmp_path / "o.bnn"), "has no thresholds")
    made, _ = convert(network(tmp_path / "m.onnx", 3, SIGN), Options(input_binarization=InputBinarization(Scheme.LBP)))
    bundle.write(made, tmp_path / "lbp.bnn")
    done = calibrate(run, tmp_path / "lbp.bnn", folder, "-o", tmp_path / "o.bnn")
    assert_refused(done, "local binary patterns have no thresholds")
    assert not (tmp_path / "o.bnn").exists()


def test_outputs_that_are_no_scores(run: Run, folder: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx", 3, [*adding(-40), *SIGN])
    model = onnx.load(path)
    weights = next(t for t in model.graph.initializer if t.dims == [3 * SIZE * SIZE, 2])
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights).repeat(2, axis=1), weights.name))
    model.graph.node[-1].output[0] = "flat"
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 2, 2]), "shape"))
    model.graph.node.append(helper.make_node("Reshape", ["flat", "shape"], ["y"]))
    model.graph.output[0].CopyFrom(info("y", ["N", 2, 2]))
    onnx.save(model, path)
    done = calibrate(run, path, folder, "-o", tmp_path / "o.bnn")
    assert_refused(done, "the first output is no score of each class")
    assert not (tmp_path / "o.bnn").exists()


def test_a_network_that_ends_in_its_class(run: Run, folder: Path, tmp_path: Path) -> None:
    scores = network(tmp_path / "scores.onnx", 3, [*adding(-200), *SIGN])
    model = onnx.load(scores)
    model.graph.node[-1].output[0] = "scores"
    model.graph.node.append(helper.make_node("ArgMax", ["scores"], ["y"], axis=1, keepdims=0))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, ["N"]))
    onnx.save(model, tmp_path / "class.onnx")
    found = []
    for path in (scores, tmp_path / "class.onnx"):
        done = calibrate(run, path, folder, "-o", path.with_suffix(".bnn"), "--json")
        assert (done.status, done.err) == (0, "")
        found.append({**json.loads(done.out), "bundle": None})
    assert found[0] == found[1]
    with InferenceSession(tmp_path / "class.bnn", "numpy") as session:
        assert session.bundle.outputs[0].dtype == "int64"
        assert {r.label for r in session.classify(sorted((folder / "light").iterdir()))} == {"light"}
    model.graph.node[-1].op_type = "ArgMin"
    del model.metadata_props[:]  # what it gives is no label
    onnx.save(model, tmp_path / "least.onnx")
    done = calibrate(run, tmp_path / "least.onnx", folder, "-o", tmp_path / "o.bnn")
    assert_refused(done, "the first output is no score of each class")


def test_folders(run: Run, small: Path, tmp_path: Path) -> None:
    def refused(counts: dict[str, int], *parts: str) -> Path:
        made = photos(tmp_path / str(len(list(tmp_path.iterdir()))), counts, LEVELS | {"odd": (0, 255)})
        assert_refused(calibrate(run, small, made, "-o", tmp_path / "o.bnn"), *parts)
        return made

    refused({"dark": 12}, "all images are of class dark")
    refused({"dark": 12, "light": 0}, "all images are of class dark")
    refused({"dark": 12, "light": 9}, "only 9 images of class light", "at least 10")
    refused({"dark": 1, "light": 20}, "only one image of class dark")
    refused({"dark": 12, "light": 10, "odd": 10}, "the folder is no label of the network: dark, light")
    refused({}, "cannot be read")
    flat = photos(tmp_path / "flat", {"dark": 12}, LEVELS) / "dark"
    assert_refused(calibrate(run, small, flat, "-o", tmp_path / "o.bnn"), "there are no images")
    broken = photos(tmp_path / "broken", {"dark": 10, "light": 10}, LEVELS)
    for file in broken.glob("*/*.png"):
        file.write_bytes(b"no image")
    done = calibrate(run, small, broken, "-o", tmp_path / "o.bnn")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith("error: no image can be read")
    assert done.err.count("\n") == 21
    assert not (tmp_path / "o.bnn").exists()


def test_outputs(run: Run, small: Path, folder: Path, tmp_path: Path) -> None:
    before = small.read_bytes()
    assert_refused(calibrate(run, small, folder, "-o", small), "would overwrite the one that it is made from")
    os.link(small, tmp_path / "link.bnn")
    assert_refused(calibrate(run, small, folder, "-o", tmp_path / "link.bnn"), "would overwrite")
    assert small.read_bytes() == before
    photo = sorted(folder.glob("*/*.png"))[0]
    before = photo.read_bytes()
    assert_refused(calibrate(run, small, folder, "-o", photo), "a file that is no bundle would be overwritten")
    assert photo.read_bytes() == before
    done = calibrate(run, small, folder, "-o", tmp_path / "none" / "o.bnn")
    assert_refused(done, "cannot write the bundle", "create the folder first")
    assert_refused(calibrate(run, small, folder, "--seed", "-1"), "seed")
    assert_refused(run("calibrate", small, folder, "--backend", "vulkan"), "unknown backend vulkan")
    assert not list(tmp_path.rglob("*.tmp"))
    assert not small.with_name("small-calibrated.bnn").exists()
