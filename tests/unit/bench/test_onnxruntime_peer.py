"""ONNX Runtime as a peer, on the exported models of the fixtures."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper

import bnnrt
from bnnrt.bench.onnxruntime_peer import measure
from bnnrt.errors import BackendError

MODEL = Path(__file__).parents[2] / "fixtures" / "greater_cast_dynamo.onnx"
Arrays = dict[str, npt.NDArray[Any]]


def fed(batch: int = 2) -> tuple[Arrays, Arrays]:
    """Feeds of the model, and what the numpy backend makes of them."""
    rng = np.random.default_rng(0)
    with bnnrt.InferenceSession(MODEL, "numpy") as session:
        feeds = {
            port.name: rng.integers(0, 256, [d if isinstance(d, int) else batch for d in port.shape]).astype(np.float32)
            for port in session.get_inputs()
        }
        names = [port.name for port in session.get_outputs()]
        return feeds, dict(zip(names, session.run(names, feeds), strict=True))


def test_one_and_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    feeds, expected = fed()
    peers, notes = measure(MODEL, feeds, expected, runs=15)
    assert notes == []
    assert [p.configuration for p in peers] == ["CPU, 1 thread", "CPU, 2 threads"]
    assert sum(p.best for p in peers) == 1
    for p in peers:
        assert (p.peer, p.model, p.device, p.checked) == ("onnxruntime", MODEL.name, "cpu", True)
        assert p.batch == len(next(iter(feeds.values())))
        assert p.host_us is not None
        assert len(p.host_us.samples) == 15
        assert p.host_us.median > 0
        assert p.first_to_last_us is p.replay_us is p.kernels_sum_us is None


def test_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    feeds, expected = fed()
    peers, _ = measure(MODEL, feeds, expected, runs=2)
    assert [(p.configuration, p.best) for p in peers] == [("CPU, 1 thread", True)]


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_cuda_whose_libraries_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    feeds, expected = fed()
    peers, notes = measure(MODEL, feeds, expected, runs=2)
    assert {p.device for p in peers} == {"cpu"}
    assert len(notes) == 1
    assert notes[0].startswith("onnxruntime CUDA, ")


def test_wrong_outputs_are_not_checked() -> None:
    feeds, expected = fed()
    wrong = {name: array[:, ::-1] for name, array in expected.items()}
    peers, notes = measure(MODEL, feeds, wrong, runs=2)
    assert peers
    assert not any(p.checked or p.best for p in peers)
    assert all("of their range from NumPy's" in note for note in notes)
    assert len(notes) == len(peers)


@pytest.mark.parametrize("content", [b"", b"no model"])
def test_what_it_refuses_is_a_note(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    feeds, expected = fed()
    peers, notes = measure(path, feeds, expected, runs=2)
    assert peers == []
    assert notes
    assert all("\n" not in note for note in notes)


def test_operators_of_its_own_are_a_note(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 2])
    node = helper.make_node("BipolarQuant", ["x"], ["y"], domain="qonnx.custom_op.general")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("qonnx.custom_op.general", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports), tmp_path / "m.onnx")
    feeds = {"x": np.zeros((1, 2), np.float32)}
    peers, notes = measure(tmp_path / "m.onnx", feeds, {"y": feeds["x"]}, runs=2)
    assert peers == []
    assert all("BipolarQuant" in note for note in notes)


def test_feeds_that_do_not_fit_are_a_note() -> None:
    feeds, expected = fed()
    peers, notes = measure(MODEL, {name: array[..., :-1] for name, array in feeds.items()}, expected, runs=2)
    assert peers == []
    assert notes


def test_without_onnx_runtime_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds, expected = fed()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendError, match=r"ONNX Runtime is not installed .*bnnrt\[convert\]"):
        measure(MODEL, feeds, expected)
