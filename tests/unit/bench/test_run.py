"""``bnnrt bench`` from end to end, on the numpy backend and PoCL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bnnrt.bench.document import Document, read_document
from bnnrt.bench.environment import environment
from bnnrt.bench.operations import operations
from bnnrt.cli import main
from bnnrt.session import load_bundle

MODEL = Path(__file__).resolve().parents[2] / "fixtures" / "paper_legacy.onnx"
SMALL = MODEL.with_name("asymmetric_legacy.onnx")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnnrt", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_results_of_two_backends_and_sets(bench: Run, tmp_path: Path) -> None:
    output, page = tmp_path / "bench.json", tmp_path / "bench.html"
    options = ("--backend", "opencl,numpy", "--batch", "1,2", "--runs", "3", "--variants", "default,direct")
    code, out, err = bench(SMALL, *options, "--output", output, "--report", page, "--peer", "onnxruntime")
    assert (code, err) == (0, "")
    document = read_document(output)
    found = [(r.backend, r.batch, r.variants, r.checked) for r in document.results]
    assert sorted(found) == sorted(
        (b, n, v, True) for b in ("opencl", "numpy") for n in (1, 2) for v in ("default", "direct")
    )
    assert {p.batch for p in document.peers} == {1, 2}
    assert all(p.checked for p in document.peers)
    assert "conv" in out
    assert "<svg" in page.read_text()
    assert json.loads(output.read_text())["schema"] == "bnnrt-bench/1"
    # The same file is shown again, and compared with itself.
    assert bench(output)[0] == 0
    code, out, err = bench("--compare", output, output)
    assert code == 0
    assert "1.00" in out


def test_a_baseline_runs_on_the_same_backend(bench: Run, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    model = MODEL.with_name("real_input_legacy.onnx")
    code, _, err = bench(MODEL, "--baseline", model, "--backend", "numpy", "--runs", "2", "--output", output)
    assert (code, err) == (0, "")
    assert [(r.bundle, r.role) for r in read_document(output).results] == [
        (MODEL.name, "binary"),
        (model.name, "baseline"),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "nothing to measure"),
        ((MODEL, "--batch", "0"), "0 is no list of batch sizes"),
        ((MODEL, "--batch", "many"), "many is no list of batch sizes"),
        ((MODEL, "--backend", "vulkan"), "unknown backend vulkan"),
        ((MODEL, "--variants", "fastest"), "unknown variant fastest"),
        ((MODEL, "--peer", "mxnet", "--backend", "numpy"), "unknown peer mxnet"),
        (("no.bnn",), "no.bnn"),
        (("--compare", MODEL, MODEL), "no JSON"),
    ],
)
def test_refusals(bench: Run, arguments: tuple[str | Path, ...], complaint: str) -> None:
    code, out, err = bench(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert complaint in err


def test_what_cannot_be_measured_does_not_take_the_rest(bench: Run, tmp_path: Path) -> None:
    """A batch that kernels cannot index; the other one is measured."""
    output = tmp_path / "bench.json"
    code, _, err = bench(
        MODEL, "--backend", "opencl", "--batch", "1,2000000000", "--runs", "2", "--output", output
    )  # fmt: skip
    assert code == 1
    assert err.startswith("error: ")
    document: Document = read_document(output)
    assert [r.batch for r in document.results] == [1]
    assert len(document.notes) >= 1


def test_the_environment_names_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment([], ["bnnrt", "bench"])
    assert found.command == "bnnrt bench"
    assert found.versions["numpy"] == np.__version__
    monkeypatch.setenv("BNNRT_COMMIT", "0123abc")
    assert environment([]).commit == "0123abc"


def test_operations_of_the_paper_network() -> None:
    """Two a multiplication and addition: 5x5 on 3 channels at 96x96, 5x5 on 32 at 48x48, and the dense layers."""
    graph = load_bundle(MODEL).pixels or load_bundle(MODEL).model
    binary, floats = operations(graph, graph.nodes, 2)
    shapes = [graph.types[n.outputs[0]].with_batch(2) for n in graph.nodes if type(n.op).__name__.startswith("Binary")]
    kernels = [graph.types[n.inputs[1]].with_batch(1) for n in graph.nodes if type(n.op).__name__.startswith("Binary")]
    assert binary == sum(2 * int(np.prod(s)) * int(np.prod(k[1:])) for s, k in zip(shapes, kernels, strict=True))
    assert 0 < floats < binary
