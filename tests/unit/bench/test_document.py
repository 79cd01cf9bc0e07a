"""The file that `bnnrt bench` writes: what is read is what was written, and what does not fit is one line."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnnrt.bench.document import FIGURES, SCHEMA, Document, Figure, Peer, Result, read_document, write_document
from bnnrt.errors import InputError, OutputError

Make = Callable[..., Document]


def test_a_figure_has_quantiles_mean_and_every_sample() -> None:
    figure = Figure.of([3.0, 1.0, 2.0, 10.12345])
    assert figure.samples == (3.0, 1.0, 2.0, 10.123)
    assert figure.median == 2.5
    assert figure.mean == pytest.approx(16.12345 / 4)
    assert figure.p10 == pytest.approx(1.3)
    assert figure.p90 == pytest.approx(7.986415)


def test_a_figure_of_one_sample() -> None:
    figure = Figure.of(np.array([7.5], dtype=np.float32))
    assert (figure.median, figure.p10, figure.p90, figure.mean, figure.samples) == (7.5, 7.5, 7.5, 7.5, (7.5,))
    assert type(figure.samples[0]) is float


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_a_figure_of_nothing_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="finite samples"):
        Figure.of(samples)


def test_figures_are_fields_of_results_and_peers() -> None:
    for record in (Result, Peer):
        assert [name for name in record.__annotations__ if name in FIGURES] == list(FIGURES)


@pytest.mark.parametrize("results", [0, 1, 12])
def test_what_is_read_is_what_was_written(make_document: Make, tmp_path: Path, results: int) -> None:
    document = make_document(results)
    write_document(document, tmp_path / "bench.json")
    assert read_document(tmp_path / "bench.json") == document
    assert next(iter(json.loads((tmp_path / "bench.json").read_text()))) == "schema"


def test_names_that_are_no_unicode(make_document: Make, tmp_path: Path) -> None:
    document = make_document(1, bundle=b"\xff\xfe.bnn".decode(errors="surrogateescape"))
    write_document(document, tmp_path / "bench.json")
    assert read_document(tmp_path / "bench.json") == document


def test_unknown_fields_are_ignored_and_defaults_may_be_absent(make_document: Make) -> None:
    document = make_document(1)
    data = document.as_json()
    data["schema"] = f"{SCHEMA}.3"
    data["later"] = {"anything": 1}
    data["results"][0]["later"] = None
    del data["notes"]
    del data["peers"]
    parsed = Document.parse(data)
    assert parsed.results == document.results
    assert parsed.notes == parsed.peers == ()


def _without(*path: str | int) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        del data[path[-1]]

    return change


def _with(value: object, *path: str | int) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("schema"), "not a file that bnnrt bench wrote"),
        (_with("bnnrt-soak-1", "schema"), "not a file that bnnrt bench wrote"),
        (_with("bnnrt-bench/2", "schema"), "bench results of version 2"),
        (_with("bnnrt-bench", "schema"), "bench results of version "),
        (_with("bnnrt-bench/10", "schema"), "bench results of version 10"),
        (_with(1, "schema"), "not a file that bnnrt bench wrote"),
        (_without("results"), "results is missing"),
        (_without("results", 1, "host_us"), r"results\[1\].host_us is missing"),
        (_without("results", 0, "kernels", 2, "grid"), r"results\[0\].kernels\[2\].grid is missing"),
        (_with("1", "results", 0, "batch"), r"results\[0\].batch is no integer"),
        (_with(True, "results", 0, "batch"), r"results\[0\].batch is no integer"),
        (_with(1.5, "results", 0, "batch"), r"results\[0\].batch is no integer"),
        (_with(1, "results", 0, "checked"), r"results\[0\].checked is no boolean"),
        (_with(None, "results", 0, "bundle"), r"results\[0\].bundle is no text"),
        (_with([], "results", 0, "host_us"), r"results\[0\].host_us is no object"),
        (_with(float("nan"), "results", 0, "host_us", "mean"), r"host_us.mean is no finite number"),
        (_with(10**400, "results", 0, "host_us", "mean"), r"host_us.mean is no finite number"),
        (_with([1, "2"], "results", 0, "host_us", "samples"), r"host_us.samples\[1\] is no finite number"),
        (_with({}, "results"), "results is no list"),
        (_with([], "limits"), "limits is no object"),
        (_with(3, "environment"), "environment is no object"),
    ],
)
def test_what_does_not_fit_is_one_line(
    make_document: Make, tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    data = make_document(2).as_json()
    data = json.loads(json.dumps(data))
    change(data)
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as caught:
        read_document(path)
    assert caught.value.where == str(path)
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"3", b"null"])
def test_files_of_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bench.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"JSON|bnnrt bench"):
        read_document(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_document(tmp_path / "missing.json")
    with pytest.raises(InputError, match="directory"):
        read_document(tmp_path)


def test_a_failed_write_leaves_nothing(make_document: Make, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="bench results"):
        write_document(make_document(1), tmp_path / "missing" / "bench.json")
    assert not list(tmp_path.iterdir())
