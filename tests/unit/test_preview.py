"""``bnnrt preview``: the picture is what the network sees; the pictures of docs/binarization.md are what it writes."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from bnnrt import bundle, cli, reference
from bnnrt.errors import InputError, OutputError
from bnnrt.preprocess import binarize
from bnnrt.preprocess.images import load_rgb, resize
from bnnrt.preprocess.pictures import save_png
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.session import load_bundle

Array = npt.NDArray[Any]
Run = Callable[..., tuple[int, str, str]]

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "binarization.md"
PHOTO = REPOSITORY / "examples" / "vehicle" / "photos" / "truck" / "truck646.jpg"
VEHICLE = REPOSITORY / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"
REAL_INPUT = REPOSITORY / "tests" / "fixtures" / "real_input_dynamo.onnx"
COLOURS = ("--binarization", "threshold", "--thresholds", "-100,-90.5,-120")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command, in this process: its exit status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnnrt", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def picture(run: Run, tmp_path: Path) -> Callable[..., Array]:
    """The picture that a command writes, without its enlargement."""

    def picture(*arguments: object) -> Array:
        status, out, err = run("preview", PHOTO, *arguments, "-o", tmp_path / "seen.png", "--json")
        assert (status, err) == (0, "")
        assert [path.name for path in tmp_path.iterdir() if path.suffix == ".png" or ".tmp" in path.name] == [
            "seen.png"
        ]
        said = json.loads(out)
        with Image.open(tmp_path / "seen.png") as image:
            assert image.format == "PNG"
            large = np.array(image)
        large = large if large.ndim == 3 else large[..., None]
        times = said["enlarged"]
        small = large[::times, ::times]
        np.testing.assert_array_equal(large, small.repeat(times, axis=0).repeat(times, axis=1))
        assert small.shape == (said["height"], said["width"], min(said["planes"], 3))
        assert not said["bits"] or said["planes"] > 3 or set(np.unique(small)) <= {0, 255}
        return small

    return picture


def black_and_white(bits: Array) -> Array:
    return np.where(bits, np.uint8(255), np.uint8(0))


def test_each_scheme_at_the_images_own_size(picture: Callable[..., Array]) -> None:
    rgb = load_rgb(PHOTO)
    gray = np.array(Image.fromarray(rgb).convert("L"))
    np.testing.assert_array_equal(picture(), rgb)
    np.testing.assert_array_equal(picture("--binarization", "none"), rgb)
    found = picture(*COLOURS)
    np.testing.assert_array_equal(found, black_and_white(rgb.astype(np.float64) > (100, 90.5, 120)))
    found = picture("--binarization", "threshold-gray", "--thresholds", "-99.5")
    np.testing.assert_array_equal(found[..., 0], black_and_white(gray > 99))
    found = picture("--binarization", "lbp")
    np.testing.assert_array_equal(found, black_and_white(binarize.lbp(gray)))


def test_the_size_is_that_of_a_network(picture: Callable[..., Array]) -> None:
    rgb = resize(load_rgb(PHOTO), 31, 57)
    np.testing.assert_array_equal(picture("--size", "31x57"), rgb)
    found = picture("--size", "31x57", "--binarization", "lbp")
    np.testing.assert_array_equal(found, black_and_white(binarize.lbp(binarize.grayscale(rgb))))
    assert picture("--size", "500x2").shape == (500, 2, 3)


def scheme_bundle(run: Run, folder: Path, planes: int, *options: str) -> Path:
    weights = numpy_helper.from_array(np.ones((planes * 20 * 30, 2), np.float32), "w")
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", planes, 20, 30])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "net", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    assert run("convert", folder / "m.onnx", "-o", folder / "m.bnn", *options)[0] == 0
    return folder / "m.bnn"


@pytest.mark.parametrize(
    ("planes", "options"),
    [
        (3, ("threshold", "--thresholds", "-100,-90.5,-120")),
        (1, ("threshold-gray", "--thresholds", "-99.5")),
        (3, ("lbp",)),
        (3, ("none",)),
        (1, ("none",)),
    ],
)
def test_a_bundle_brings_size_and_scheme(
    run: Run, picture: Callable[..., Array], tmp_path: Path, planes: int, options: tuple[str, ...]
) -> None:
    path = scheme_bundle(run, tmp_path, planes, "--input-binarization", *options)
    found = picture("--bundle", path)
    wanted = picture("--size", "20x30", "--binarization", *options)
    if options == ("none",) and planes == 1:
        wanted = binarize.grayscale(wanted)[..., None]
    np.testing.assert_array_equal(found, wanted)


def test_a_bundle_that_thresholds_pixels_itself(picture: Callable[..., Array]) -> None:
    found = picture("--bundle", VEHICLE)
    loaded = load_bundle(VEHICLE)
    assert loaded.pixels is not None
    assert loaded.pipeline is not None
    pixels = loaded.pipeline.load(PHOTO)[None]
    bits = reference.run(loaded.pixels, {"pixels": pixels}, everything=True)[loaded.pixels.nodes[0].outputs[0]]
    np.testing.assert_array_equal(found, black_and_white(bits[0] > 0))


def test_several_thresholds_a_colour_become_shades(picture: Callable[..., Array]) -> None:
    small = VEHICLE.with_name("vehicle_small.onnx")
    found = picture("--bundle", small)
    loaded = load_bundle(small)
    assert loaded.pixels is not None
    assert loaded.pipeline is not None
    pixels = loaded.pipeline.load(PHOTO)
    thresholds = loaded.pixels.constants[loaded.pixels.nodes[0].inputs[1]].unpacked()
    passed = sum((pixels >= level).astype(int) for level in thresholds.reshape(3, 3))
    wanted = np.array([0, 85, 170, 255], np.uint8)[passed]
    np.testing.assert_array_equal(found, wanted)


def test_a_bundle_that_takes_numbers_shows_its_pixels(picture: Callable[..., Array]) -> None:
    loaded = load_bundle(REAL_INPUT)
    assert loaded.pipeline is not None
    np.testing.assert_array_equal(picture("--bundle", REAL_INPUT), loaded.pipeline.load(PHOTO))


def test_planes_in_another_colour_order_are_shown_as_colours(picture: Callable[..., Array], tmp_path: Path) -> None:
    loaded = load_bundle(VEHICLE)
    assert loaded.pipeline is not None
    swapped = dataclasses.replace(loaded.pipeline, color="bgr")
    bundle.write(dataclasses.replace(loaded, pipeline=swapped), tmp_path / "bgr.bnn")
    found = picture("--bundle", tmp_path / "bgr.bnn")
    assert loaded.pixels is not None
    thresholds = loaded.pixels.constants[loaded.pixels.nodes[0].inputs[1]].unpacked()
    np.testing.assert_array_equal(found[..., ::-1], black_and_white(swapped.load(PHOTO) >= thresholds))


def test_the_text_says_what_the_picture_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "[seen].png"
    assert run("preview", PHOTO, "-o", path) == (0, f"{path}: 3 planes of 100x100 pixels, 4 times as large\n", "")
    gray = ("--binarization", "threshold-gray", "--thresholds", "-100", "--size", "400x500")
    assert run("preview", PHOTO, "-o", path, *gray) == (0, f"{path}: 1 plane of 400x500 bits\n", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--binarization", "threshold"), "threshold takes 3 thresholds, not 0"),
        (("--binarization", "lbp", "--thresholds", "-3"), "lbp takes no thresholds"),
        (("--binarization", "threshold-gray", "--thresholds", "inf"), "the threshold inf is no finite float32"),
        (("--thresholds", "-3"), "thresholds belong to a scheme"),
        (("--binarization", "otsu"), "'otsu' is not one of"),
        (("--size", "96"), "'96' is no size (--size): give height x width"),
        (("--size", "0x3"), "image height 0 is not valid"),
        (("--size", "3x99999"), "image width 99999 is not valid"),
        (("--bundle", VEHICLE, "--size", "9x9"), "a bundle has a size and a scheme of its own"),
        (("--bundle", VEHICLE, "--binarization", "none"), "a bundle has a size and a scheme of its own"),
        (("--bundle", PHOTO), "error: the file is not a safetensors file"),
        (("--bundle", REPOSITORY / "tests" / "golden" / "bundles" / "dense.bnn"), "does not take images (dense.onnx)"),
    ],
)
def test_what_does_not_fit_is_one_line(run: Run, tmp_path: Path, arguments: tuple[object, ...], problem: str) -> None:
    check_error(run("preview", PHOTO, *arguments, "-o", tmp_path / "seen.png"), problem)
    assert not list(tmp_path.iterdir())


def check_error(done: tuple[int, str, str], problem: str) -> None:
    status, out, err = done
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert problem in err


def test_an_image_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(PHOTO.read_bytes()[:300])
    for name, problem in (("broken.jpg", "broken.jpg"), ("none.jpg", "no such file")):
        check_error(run("preview", tmp_path / name, "-o", tmp_path / "seen.png"), problem)
        assert not (tmp_path / "seen.png").exists()


def test_outputs_that_are_not_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_error(run("preview", PHOTO, "-o", tmp_path / "seen.jpg"), "the picture is a PNG file")
    check_error(run("preview", PHOTO, "-o", tmp_path / "none" / "seen.png"), "create the folder first")
    source = tmp_path / "source.png"
    Image.open(PHOTO).save(source)
    before = source.read_bytes()
    check_error(run("preview", source, "-o", source), "the picture would overwrite source.png")
    older = tmp_path / "seen.png"
    older.write_text("older")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    check_error(run("preview", PHOTO, "-o", older), "cannot write the picture: No space left on device")
    assert older.read_text() == "older"
    assert source.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seen.png", "source.png"]


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((2, 2, 3), np.float32),
        np.zeros((2, 2), np.uint8),
        np.zeros((2, 2, 4), np.uint8),
        *(np.zeros(shape, np.uint8) for shape in ((0, 2, 3), (2, 0, 1), (2, 2, 0))),
    ],
)
def test_arrays_that_are_no_picture(pixels: Array, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no picture"):
        save_png(pixels, tmp_path / "seen.png")
    with pytest.raises(InputError, match="is no picture"):
        save_png(np.zeros((2, 2, 3), np.uint8), tmp_path / "seen.png", enlarge=0)
    with pytest.raises(OutputError, match="create the folder first"):
        save_png(np.zeros((2, 2, 3), np.uint8), tmp_path / "none" / "seen.png")
    assert not list(tmp_path.iterdir())


def test_the_pictures_of_the_page_are_what_its_commands_write(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    page = PAGE.read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^    bnnrt (preview .*)$", page, re.MULTILINE)]
    names = []
    for arguments in commands:
        committed = Path(arguments[-1])
        names.append(committed.name)
        assert f"]({committed.relative_to('docs')})" in page
        assert committed.stat().st_size < 60_000
        assert run(*arguments[:-1], tmp_path / committed.name)[0] == 0
        with Image.open(committed) as wanted, Image.open(tmp_path / committed.name) as found:
            assert (found.size, found.mode) == (wanted.size, wanted.mode)
            # Versions of the JPEG decoder may differ by a level, which is a bit here and there.
            assert (np.array(found) != np.array(wanted)).mean() < (0.01 if "none" not in committed.name else 1)
            assert np.abs(np.array(found, np.float64) - np.array(wanted, np.float64)).mean() < 3
    assert sorted(names) == sorted(path.name for path in (REPOSITORY / "docs" / "images").glob("seen-*.png"))
    assert len(names) == 4
    assert ImagePipeline(96, 96).filter == "bilinear"  # as the page says
