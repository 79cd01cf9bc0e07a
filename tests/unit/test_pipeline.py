"""The image pipeline and the parallel loader."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bnnrt.errors import BnnrtError, BundleError, ImageError, InputError
from bnnrt.preprocess.images import FILTERS, ImageSource
from bnnrt.preprocess.parallel import MAX_WAITING, load_many
from bnnrt.preprocess.pipeline import ImagePipeline

ODD_IMAGES = Path(__file__).parent.parent / "data" / "odd_images"
HOPPER = ODD_IMAGES / "hopper.jpg"


def encoded(level: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (3, 2), level).save(stream, "PNG")
    return stream.getvalue()


# ---------------------------------------------------------------------------------------- one image


@pytest.mark.parametrize("filter", FILTERS)
def test_load_resizes_first_and_then_takes_the_channels(filter: str) -> None:
    with Image.open(HOPPER) as image:
        resized = image.resize((20, 33), Image.Resampling[filter.upper()])
    rgb = ImagePipeline(33, 20, filter=filter).load(HOPPER)
    assert rgb.dtype == np.uint8
    np.testing.assert_array_equal(rgb, np.array(resized))
    bgr = ImagePipeline(33, 20, filter=filter, color="bgr").load(HOPPER)
    assert bgr.flags.c_contiguous
    np.testing.assert_array_equal(bgr, np.array(resized)[..., ::-1])
    gray = ImagePipeline(33, 20, channels=1, filter=filter).load(HOPPER)
    assert gray.flags.c_contiguous
    np.testing.assert_array_equal(gray, np.array(resized.convert("L"))[..., None])


def test_load_raises_the_image_error() -> None:
    with pytest.raises(ImageError, match=r"broken\.png"):
        ImagePipeline(4, 4).load(ODD_IMAGES / "broken.png")


def test_too_little_memory_to_resize_is_an_image_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("bnnrt.preprocess.pipeline.resize", fail)
    with pytest.raises(ImageError, match=r"not enough memory .*hopper\.jpg"):
        ImagePipeline(4, 4).load(HOPPER)


# ---------------------------------------------------------------------------------------- JSON


def test_json_round_trip() -> None:
    for pipeline in (
        ImagePipeline(96, 128),
        ImagePipeline(1, 16384, channels=1, filter="lanczos"),
        ImagePipeline(32, 32, color="bgr"),
    ):
        document = json.loads(json.dumps(pipeline.to_json()))
        assert ImagePipeline.from_json(document) == pipeline
    assert ImagePipeline(96, 128).to_json() == {
        "height": 96,
        "width": 128,
        "channels": 3,
        "filter": "bilinear",
        "color": "rgb",
        "units": "pixel",
    }
    assert ImagePipeline.from_json({"height": 4, "width": 5}) == ImagePipeline(4, 5)


INVALID: list[dict[Any, Any]] = [
    {"height": 0},
    {"height": -1},
    {"height": 16385},
    {"height": 4.0},
    {"height": True},
    {"height": "4"},
    {"height": None},
    {"width": 0},
    {"width": [4]},
    {"channels": 2},
    {"channels": 4},
    {"channels": 3.0},
    {"channels": True},
    {"filter": "cubic"},
    {"filter": 2},
    {"filter": ["bilinear"]},
    {"color": "RGB"},
    {"color": "bgr", "channels": 1},
    {"units": "unit"},
    {"units": {}},
]


@pytest.mark.parametrize("change", INVALID, ids=str)
def test_invalid_fields(change: dict[Any, Any]) -> None:
    fields = ImagePipeline(4, 4).to_json() | change
    with pytest.raises(BundleError) as caught:
        ImagePipeline.from_json(fields)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        ImagePipeline(**fields)


@pytest.mark.parametrize(
    "document",
    [
        None,
        3,
        "x",
        [],
        [["height", 4]],
        {},
        {"height": 4},
        {"height": 4, "width": 4, "mean": 0},
        {"height": 4, "width": 4, 7: 1},
    ],
    ids=str,
)
def test_invalid_documents(document: Any) -> None:
    with pytest.raises(BundleError):
        ImagePipeline.from_json(document)


# ---------------------------------------------------------------------------------------- many images


class Watched(ImagePipeline):
    """A pipeline that calls ``before`` in the loading thread, before it loads."""

    before: Callable[[ImageSource], None]

    def load(self, source: ImageSource) -> NDArray[np.uint8]:
        type(self).before(source)
        return super().load(source)


def watched(before: Callable[[Any], None]) -> ImagePipeline:
    return type("Test", (Watched,), {"before": staticmethod(before)})(2, 3, channels=1)  # type: ignore[no-any-return]


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("bnnrt-images")]


@pytest.mark.parametrize("workers", [1, 2, 5, 1000])
def test_order_and_pixels(workers: int) -> None:
    files = [encoded(level) for level in range(100)]
    results = list(load_many(files, ImagePipeline(2, 3, channels=1), workers))
    assert [source for source, _ in results] == files
    for level, (_, pixels) in enumerate(results):
        assert isinstance(pixels, np.ndarray)
        np.testing.assert_array_equal(pixels, np.full((2, 3, 1), level))
    assert not loader_threads()


def test_real_files_load_as_they_do_one_by_one() -> None:
    paths = sorted(ODD_IMAGES.iterdir()) * 3
    pipeline = ImagePipeline(16, 16)
    failed = 0
    for path, result in load_many(paths, pipeline, 4):
        if isinstance(result, ImageError):
            failed += 1
            assert result.where == str(path)
            assert result.__cause__ is None
            with pytest.raises(ImageError, match=result.what.partition("(")[0]):
                pipeline.load(path)
        else:
            np.testing.assert_array_equal(result, pipeline.load(path))
    assert failed == 6 * 3


def test_order_holds_when_a_later_image_is_ready_first() -> None:
    files = [encoded(0), encoded(1)]
    second_began = threading.Event()

    def before(source: bytes) -> None:
        if source == files[1]:
            second_began.set()
        else:
            assert second_began.wait(10), "the second image did not begin while the first was loading"

    results = list(load_many(files, watched(before), 2))
    assert [int(np.max(pixels)) for _, pixels in results if isinstance(pixels, np.ndarray)] == [0, 1]


@pytest.mark.parametrize("workers", [1, 3, 64])
def test_queue_is_bounded(workers: int) -> None:
    taken = loaded = 0
    lock = threading.Lock()

    def sources() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(200):
            taken += 1
            yield file

    def before(_: bytes) -> None:
        nonlocal loaded
        with lock:
            loaded += 1

    file = encoded(7)
    ahead = min(2 * workers, MAX_WAITING)
    for consumed, _ in enumerate(load_many(sources(), watched(before), workers), start=1):
        with lock:
            assert loaded <= taken <= consumed + ahead - 1
        assert len(loader_threads()) <= min(workers, MAX_WAITING)
    assert loaded == taken == consumed == 200


def test_leaving_early_stops_the_threads() -> None:
    loaded: list[bytes] = []
    images = load_many((encoded(level) for level in range(200)), watched(loaded.append), 4)
    for _ in range(3):
        next(images)
    assert loader_threads()
    images.close()
    assert not loader_threads()
    assert len(loaded) <= 3 + 8


def test_failure_of_the_sources_reaches_the_consumer_and_stops_the_threads() -> None:
    def sources() -> Iterator[bytes]:
        yield encoded(1)
        raise OSError("the list of files is gone")

    with pytest.raises(OSError, match="is gone"):
        list(load_many(sources(), ImagePipeline(2, 2), 2))
    assert not loader_threads()


def test_a_mistake_in_the_pipeline_is_not_hidden() -> None:
    def before(_: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(load_many([encoded(1)], watched(before), 2))
    assert not loader_threads()


def test_no_sources_and_no_workers() -> None:
    assert list(load_many([], ImagePipeline(2, 2), 2)) == []
    with pytest.raises(BnnrtError, match="0 workers"):
        load_many([HOPPER], ImagePipeline(2, 2), 0)
