"""The shipped vehicle models answer what their model cards say, on every backend and in ONNX Runtime."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from bnnrt import InferenceSession, bundle
from bnnrt.backends.base import Backend
from bnnrt.converters.convert import Options, convert
from bnnrt.preprocess.pipeline import ImagePipeline
from bnnrt.preprocess.schemes import InputBinarization, Scheme

Array = npt.NDArray[Any]

REPOSITORY = Path(__file__).parents[2]
VEHICLE = REPOSITORY / "examples" / "vehicle"
RESULTS: dict[str, dict[str, Any]] = json.loads((VEHICLE / "models" / "results.json").read_text(encoding="utf-8"))
PHOTOS = sorted((VEHICLE / "photos").glob("*/*.jpg"))
ALL_PHOTOS = REPOSITORY.parent / "shared" / "data" / "vehicles"


def scheme(model: str) -> InputBinarization | None:
    told = RESULTS[model]["convert"]
    if not told:
        return None
    return InputBinarization(Scheme(told["input_binarization"]), tuple(told.get("thresholds", ())))


@pytest.fixture(scope="module", params=RESULTS)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def converted(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = Options(strict=True, input_binarization=scheme(model))
    file = tmp_path_factory.mktemp("bundle") / "vehicle.bnn"
    bundle.write(convert(VEHICLE / "models" / model, options)[0], file)
    return file


def confusion(labels: list[str], photos: list[Path], found: list[int]) -> list[list[int]]:
    matrix = np.zeros((len(labels), len(labels)), int)
    np.add.at(matrix, ([labels.index(photo.parent.name) for photo in photos], found), 1)
    listed: list[list[int]] = matrix.tolist()
    return listed


def expected(model: str, photos: list[Path]) -> list[str]:
    """The stored answers."""
    wrong = dict(entry.split() for entry in RESULTS[model]["wrong"])
    return [wrong.get(photo.name, photo.parent.name) for photo in photos]


def answers(converted: Path, backend: Backend, photos: list[Path]) -> list[int]:
    with InferenceSession(converted, backend.info.backend) as session:
        return [result.index for result in session.classify(photos)]


def onnx_runtime_answers(model: str, photos: list[Path]) -> list[int]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    file = VEHICLE / "models" / model
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    pipeline, binarization = ImagePipeline(96, 96), scheme(model)
    found = []
    for photo in photos:
        pixels = pipeline.load(photo)
        image = pixels if binarization is None else np.where(binarization.bits(pixels), 1, -1)
        feed = image.astype(np.float32).transpose(2, 0, 1)[None]
        found.append(int(session.run(None, {"input": feed})[0].argmax()))
    return found


def test_every_model_has_its_results() -> None:
    assert sorted(RESULTS) == sorted(file.name for file in (VEHICLE / "models").glob("*.onnx"))
    for result in RESULTS.values():
        matrix = np.array(result["test_confusion"])
        assert matrix.sum(1).tolist() == [80] * 6
        assert result["test_accuracy"] == pytest.approx(matrix.trace() / 480, abs=1e-4)


def test_photos(model: str, converted: Path, backend: Backend) -> None:
    result = RESULTS[model]
    assert confusion(result["labels"], PHOTOS, answers(converted, backend, PHOTOS)) == result["photos_confusion"]


def test_photos_in_onnx_runtime(model: str) -> None:
    result = RESULTS[model]
    found = onnx_runtime_answers(model, PHOTOS)
    assert confusion(result["labels"], PHOTOS, found) == result["photos_confusion"]
    assert [result["labels"][i] for i in found] == expected(model, PHOTOS)


@pytest.mark.skipif(not ALL_PHOTOS.is_dir(), reason="needs the optional folder ../shared of models and photos")
def test_the_whole_test_block(model: str, converted: Path, backend: Backend) -> None:
    result = RESULTS[model]
    first, last = result["test_block"]
    photos = [p for p in sorted(ALL_PHOTOS.glob("*/*.jpg")) if first <= int(re.sub(r"\D", "", p.stem)) <= last]
    assert len(photos) == 480
    if backend.info.backend == "numpy":
        photos = photos[::4]  # it takes a while
    found = [result["labels"][i] for i in answers(converted, backend, photos)]
    assert found == expected(model, photos)


def test_results_agree_with_themselves() -> None:
    """The confusion matrix is what the list of wrong answers says."""
    for result in RESULTS.values():
        matrix = np.diag([80] * 6)
        for entry in result["wrong"]:
            photo, answer = entry.split()
            truth = result["labels"].index(re.sub(r"\d+\.jpg$", "", photo))
            matrix[truth, truth] -= 1
            matrix[truth, result["labels"].index(answer)] += 1
        assert matrix.tolist() == result["test_confusion"]
