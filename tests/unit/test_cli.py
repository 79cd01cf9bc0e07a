"""The command line: what machines read, what is said in one line when something is wrong, and what is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bnnrt import Classification, ImageError, InferenceSession, backends, bundle, cli
from bnnrt.backends.base import DeviceKind
from bnnrt.backends.numpy_backend import NumpyBackend
from bnnrt.bundle import Bundle
from bnnrt.errors import BackendError
from bnnrt.session import load_bundle

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures"
MODEL = FIXTURES / "paper_dynamo.onnx"
PHOTOS = sorted((REPOSITORY / "examples" / "vehicle" / "photos").glob("*/*.jpg"))[::8]
LABELS = ["ant", "bee", "cow", "dog", "elk"]
COMMANDS = ["calibrate", "classify", "convert", "devices", "eval", "inspect", "preview", "verify"]


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


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


def started(*arguments: object, **changes: str) -> Done:
    """The command line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **changes},
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def assert_one_error(done: Done, *parts: str) -> None:
    assert done.status == 1
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err
    for part in parts:
        assert part in done.err


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with labels."""
    path = tmp_path_factory.mktemp("bundle") / "small.bnn"
    bundle.write(dataclasses.replace(load_bundle(MODEL), labels=tuple(LABELS)), path)
    return path


@pytest.fixture(scope="module")
def answers(labelled: Path) -> dict[Path, Classification]:
    with InferenceSession(labelled, "numpy") as session:
        return dict(zip(PHOTOS, session.classify(PHOTOS), strict=True))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.jpg"
    path.write_bytes(PHOTOS[0].read_bytes()[:300])
    return path


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert (done.status, done.err) == (0, "")
    assert f"Example: bnnrt {command}" in done.out


def test_help_lists_every_command(run: Run) -> None:
    for arguments in ([], ["--help"]):
        done = run(*arguments)
        assert (done.status, done.err) == (0, "")
        assert [name for name in COMMANDS if re.search(rf"^\W*{name} ", done.out, re.MULTILINE)] == COMMANDS


# Convert


def on_a_terminal(*arguments: object) -> str:
    """What a command writes to stderr if that is a terminal."""
    leader, follower = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "bnnrt", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(follower)
        written = b""
        with contextlib.suppress(OSError):  # the end, where a terminal has been closed on the other side
            while data := os.read(leader, 4096):
                written += data
        assert process.wait(120) == 0
    os.close(leader)
    return written.decode()


def test_progress_of_a_conversion_is_for_terminals_only(tmp_path: Path) -> None:
    output = tmp_path / "m.bnn"
    shown = on_a_terminal("convert", MODEL, "-o", output)
    for text in ("paper_dynamo.onnx: reading", "writing m.bnn", "%"):
        assert text in shown
    assert on_a_terminal("convert", MODEL, "-o", output, "--json") == ""
    done = started("-m", "bnnrt", "convert", MODEL, "-o", output)
    assert (done.status, done.err) == (0, "")
    assert "reading" not in done.out


def test_json_of_a_conversion_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    done = started("-m", "bnnrt", "convert", MODEL, "-o", tmp_path / "m.bnn", "--json")
    assert (done.status, done.err, len(done.lines)) == (0, "", 1)
    assert done.lines[0]["schema"] == "bnnrt-conversion-1"
    assert done.lines[0]["bytes"] == (tmp_path / "m.bnn").stat().st_size


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_bundle_without_its_report(tmp_path: Path, form: list[str]) -> None:
    """A command that fails leaves nothing behind, also where only its report cannot be written."""
    old = tmp_path / "old.bnn"
    assert started("-m", "bnnrt", "convert", MODEL, "-o", old).status == 0
    before = old.read_bytes()
    for output in (tmp_path / "new.bnn", old):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "bnnrt", "convert", FIXTURES / "paper_legacy.onnx", "-o", output, *form]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert done.returncode == 1
        assert done.stderr == "error: the output cannot be written: No space left on device\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.bnn"]
    assert old.read_bytes() == before


# The commands


def test_classify_prints_a_line_an_image(run: Run, labelled: Path, answers: dict[Path, Classification]) -> None:
    done = run("classify", labelled, *PHOTOS, "--backend", "numpy", "--json")
    assert (done.status, done.err) == (0, "")
    assert [list(line) for line in done.lines] == [["file", "label", "index", "score", "scores"]] * len(PHOTOS)
    for line, (photo, answer) in zip(done.lines, answers.items(), strict=True):
        assert line == {
            "file": os.fspath(photo),
            "label": answer.label,
            "index": answer.index,
            "score": answer.score,
            "scores": list(answer.scores),
        }


def test_classify_goes_on_after_a_broken_image(
    run: Run, labelled: Path, broken: Path, answers: dict[Path, Classification]
) -> None:
    done = run("classify", labelled, PHOTOS[0], broken, "none.jpg", PHOTOS[1], "--backend", "numpy", "--json")
    assert (done.status, done.err) == (1, "")
    first, second, third, fourth = done.lines
    assert (first["file"], first["label"]) == (os.fspath(PHOTOS[0]), answers[PHOTOS[0]].label)
    assert (fourth["file"], fourth["label"]) == (os.fspath(PHOTOS[1]), answers[PHOTOS[1]].label)
    assert list(second) == list(third) == ["file", "error"]
    assert second["file"] == os.fspath(broken)
    assert os.fspath(broken) in second["error"]
    assert third["file"] == "none.jpg"

    done = run("classify", labelled, PHOTOS[0], broken, PHOTOS[1], "--backend", "numpy")
    assert done.status == 1
    assert done.err == f"error: {second['error']}\n"
    assert PHOTOS[0].name in done.out
    assert PHOTOS[1].name in done.out
    assert broken.name not in done.out

    done = run("classify", labelled, broken, "--backend", "numpy")
    assert_one_error(done, os.fspath(broken))


def test_classify_prints_a_table(run: Run, labelled: Path, answers: dict[Path, Classification]) -> None:
    done = run("classify", labelled, *PHOTOS[:3], "--backend", "numpy")
    assert (done.status, done.err) == (0, "")
    for photo in PHOTOS[:3]:
        (row,) = [line for line in done.out.splitlines() if photo.name in line]
        assert answers[photo].label in row
        assert f"{answers[photo].score:.3f}" in row
    assert done.out.splitlines()[-1].startswith("numpy: ")


def test_classify_takes_a_model(run: Run, answers: dict[Path, Classification]) -> None:
    done = run("classify", MODEL, PHOTOS[0], "--backend", "numpy", "--json")
    assert done.status == 0
    assert [(line["label"], line["scores"]) for line in done.lines] == [
        (str(answers[PHOTOS[0]].index), list(answers[PHOTOS[0]].scores))
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_file_names_need_not_be_text(labelled: Path, tmp_path: Path, encoding: str) -> None:
    """JSON holds names that are no Unicode, whatever the terminal's encoding; a table shows what it can."""
    paths = []
    for name in (b"caf\xe9.jpg", "ü.jpg".encode()):
        path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
        with contextlib.suppress(OSError):  # a file system that takes only Unicode
            shutil.copy(PHOTOS[0], path)
            paths.append(path)
    arguments = ("-m", "bnnrt", "classify", labelled, *paths, "--backend", "numpy")
    done = started(*arguments, "--json", PYTHONIOENCODING=encoding)
    assert (done.status, done.err) == (0, "")
    assert [os.fsencode(line["file"]) for line in done.lines] == [os.fsencode(path) for path in paths]
    done = started(*arguments, PYTHONIOENCODING=encoding)
    assert (done.status, done.err) == (0, "")
    assert done.out.count(".jpg") == len(paths)


@pytest.fixture
def folder(tmp_path: Path, answers: dict[Path, Classification]) -> Path:
    """Photos under labels, some of them wrong: the i-th photo is called right unless i is divisible by 3."""
    root = tmp_path / "photos"
    for index, (photo, answer) in enumerate(answers.items()):
        label = LABELS[(answer.index + (index % 3 == 0)) % 5]
        (root / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, root / label / photo.name)
    (root / "ant").mkdir(exist_ok=True)
    (root / "ant" / "notes.txt").write_text("no image")
    (root / ".thumbnails").mkdir()
    (root / "README").write_text("no folder")
    return root


def test_eval_counts(run: Run, labelled: Path, folder: Path, answers: dict[Path, Classification]) -> None:
    done = run("eval", labelled, folder, "--backend", "numpy", "--json")
    assert (done.status, done.err) == (0, "")
    (found,) = done.lines
    confusion = [[0] * 5 for _ in LABELS]
    for index, answer in enumerate(answers.values()):
        confusion[(answer.index + (index % 3 == 0)) % 5][answer.index] += 1
    right = sum(index % 3 != 0 for index in range(len(PHOTOS)))
    assert {"images", "correct", "top1", "per_class", "confusion", "failed"} <= set(found)
    assert found["confusion"] == confusion
    assert found["images"] == len(PHOTOS) == 15
    assert found["correct"] == right == 10
    assert found["top1"] == 10 / 15
    assert found["failed"] == []
    assert list(found["per_class"]) == LABELS
    for index, label in enumerate(LABELS):
        images, correct = sum(confusion[index]), confusion[index][index]
        assert found["per_class"][label] == {
            "images": images,
            "correct": correct,
            "top1": correct / images if images else None,
        }

    done = run("eval", labelled, folder, "--backend", "numpy")
    assert (done.status, done.err) == (0, "")
    assert "10 of 15 right, 66.67 %, on numpy" in done.out


def test_eval_lists_broken_images(run: Run, labelled: Path, folder: Path, broken: Path) -> None:
    inside = folder / "ant" / "a_broken.JPG"
    broken.rename(inside)
    done = run("eval", labelled, folder, "--backend", "numpy", "--json")
    assert (done.status, done.err) == (1, "")
    (found,) = done.lines
    assert (found["images"], found["correct"]) == (15, 10)
    ((failure),) = found["failed"]
    assert list(failure) == ["file", "error"]
    assert failure["file"] == os.fspath(inside)
    assert os.fspath(inside) in failure["error"]

    done = run("eval", labelled, folder, "--backend", "numpy")
    assert done.status == 1
    assert done.err == f"error: {failure['error']}\n"
    assert "10 of 15 right" in done.out


def test_eval_of_nothing_but_broken_images(run: Run, labelled: Path, tmp_path: Path) -> None:
    (tmp_path / "photos" / "bee").mkdir(parents=True)
    (tmp_path / "photos" / "bee" / "a.png").write_bytes(b"no image")
    done = run("eval", labelled, tmp_path / "photos", "--backend", "numpy", "--json")
    assert (done.status, done.err) == (1, "")
    (found,) = done.lines
    assert (found["images"], found["correct"], found["top1"], len(found["failed"])) == (0, 0, None, 1)
    done = run("eval", labelled, tmp_path / "photos", "--backend", "numpy")
    assert done.status == 1
    assert len(done.err.splitlines()) == 1


def test_inspect(run: Run, labelled: Path) -> None:
    done = run("inspect", labelled, "--json")
    assert (done.status, done.err) == (0, "")
    (found,) = done.lines
    loaded = load_bundle(labelled)
    assert loaded.pixels is not None
    assert loaded.pipeline is not None
    assert found["inputs"] == [{"name": "input", "shape": ["N", 3, 12, 12], "dtype": "float32"}]
    assert found["outputs"] == [{"name": "logits", "shape": ["N", 5], "dtype": "float32"}]
    assert found["pipeline"] == loaded.pipeline.to_json()
    assert found["labels"] == LABELS
    assert found["provenance"] == dataclasses.asdict(loaded.provenance)
    assert [(row["node"], row["operator"]) for row in found["layers"]] == [
        (node.name, type(node.op).__name__) for node in loaded.pixels.nodes
    ]
    assert "plan" not in found

    done = run("inspect", labelled)
    assert (done.status, done.err) == (0, "")
    for text in ("input: float32 [N, 3, 12, 12]", "logits: float32 [N, 5]", ", ".join(LABELS), "BinaryConv", "5x5"):
        assert text in done.out


@pytest.mark.parametrize("backend", ["numpy", "opencl"])
def test_inspect_shows_the_plan(run: Run, labelled: Path, backend: str) -> None:
    done = run("inspect", labelled, "--plan", "--batch", 3, "--backend", backend, "--json")
    assert (done.status, done.err) == (0, "")
    found = done.lines[0]["plan"]
    with InferenceSession(labelled, backend) as session:
        plan = session.plan(3)
        assert (found["backend"], found["device"]) == (session.device.backend, session.device.name)
    assert (found["batch"], found["arena_bytes"]) == (3, list(plan.arena))
    assert found["constant_bytes"] == sum(constant.nbytes for constant in plan.constants.values())
    for row, step in zip(found["steps"], plan.steps, strict=True):
        assert row["nodes"] == [node.name for node in step.nodes]
        assert row["variant"] == step.variant
        assert row["passed_over"] == [{"variant": name, "why": why} for name, why in step.passed_over]
        assert row["launches"] == [
            {
                "kernel": launch.entry,
                "grid": list(launch.grid),
                "block": list(launch.block),
                "local_bytes": launch.local_bytes,
                "bytes": plan.bytes_moved(launch),
            }
            for launch in step.launches
        ]
    done = run("inspect", labelled, "--plan", "--batch", 3, "--backend", backend)
    assert (done.status, done.err) == (0, "")
    assert "batch 3" in done.out
    arena = f"arena {sum(plan.arena)} in {len(plan.arena)} slots"
    assert f"device memory {plan.device_bytes} bytes: {arena}, constants " in done.out


def test_inspect_plans_a_fixed_batch(run: Run, tmp_path: Path) -> None:
    loaded = load_bundle(MODEL)
    assert loaded.pixels is not None

    def fixed(graph: Any) -> Any:
        inputs = {n: dataclasses.replace(t, shape=(4, *t.shape[1:])) for n, t in graph.inputs.items()}
        return dataclasses.replace(graph, inputs=inputs)

    def ports(given: Any) -> Any:
        return tuple(dataclasses.replace(port, shape=(4, *port.shape[1:])) for port in given)

    both = {"model": fixed(loaded.model), "pixels": fixed(loaded.pixels)}
    path = tmp_path / "fixed.bnn"
    bundle.write(dataclasses.replace(loaded, **both, inputs=ports(loaded.inputs), outputs=ports(loaded.outputs)), path)
    done = run("inspect", path, "--plan", "--backend", "numpy", "--json")
    assert done.lines[0]["plan"]["batch"] == 4


def test_devices(run: Run) -> None:
    done = run("devices", "--json")
    assert (done.status, done.err) == (0, "")
    (found,) = done.lines
    present = backends.devices()
    assert [row["backend"] for row in found] == [info.backend for info in present]
    for row, info in zip(found, present, strict=True):
        wanted = {key: getattr(value, "value", value) for key, value in dataclasses.asdict(info).items()}
        wanted["max_group_shape"] = list(info.max_group_shape)
        assert row == {**wanted, "auto": info is present[0]}
    assert found[-1]["kind"] in {kind.value for kind in DeviceKind}

    done = run("devices")
    assert (done.status, done.err) == (0, "")
    for info in present:
        assert info.backend in done.out


def test_convert(run: Run, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(LABELS) + "\n")
    for options, wanted in ([], None), (["--labels", labels], tuple(LABELS)):
        path = tmp_path / "out.bnn"
        done = run("convert", MODEL, "-o", path, *options)
        assert (done.status, done.err) == (0, "")
        made = bundle.read(path)
        assert made.labels == wanted
        assert made.provenance.source == MODEL.name
        assert_same(made, load_bundle(MODEL))
        assert f"{path.stat().st_size:,}" in done.out
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["labels.txt", "out.bnn"]
        path.unlink()


def assert_same(made: Bundle, wanted: Bundle) -> None:
    for ours, theirs in ((made.model, wanted.model), (made.pixels, wanted.pixels)):
        assert ours is not None
        assert theirs is not None
        assert (ours.inputs, ours.nodes, ours.outputs) == (theirs.inputs, theirs.nodes, theirs.outputs)
        assert set(ours.constants) == set(theirs.constants)
        for name, constant in ours.constants.items():
            np.testing.assert_array_equal(constant.data, theirs.constants[name].data)


def test_convert_reports_to_machines(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.bnn"
    done = run("convert", MODEL, "--output", path, "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["bundle"], found["bytes"]) == (os.fspath(path), path.stat().st_size)
    assert found["warnings"] == []
    assert [(layer["operator"], layer["kind"]) for layer in found["layers"]] == [
        *[("Conv", "binary")] * 2,
        *[("MatMul", "binary")] * 2,
    ]
    parameters = [33 * 3 * 25, 32 * 33 * 9, 288 * 40, 40 * 5]
    assert [layer["parameters"] for layer in found["layers"]] == parameters
    assert [layer["bytes_before"] for layer in found["layers"]] == [4 * count for count in parameters]
    assert found["totals"]["parameters"] == sum(parameters)
    for layer in found["layers"]:
        assert layer["bytes_after"] <= layer["bytes_before"] / 20


def test_strict_conversion_refuses_what_it_warns_of(run: Run, tmp_path: Path) -> None:
    model, path = FIXTURES / "sign_function_dynamo.onnx", tmp_path / "out.bnn"
    done = run("convert", model, "-o", path, "--json")
    (warning, *_) = json.loads(done.out)["warnings"]
    assert done.status == 0
    path.unlink()
    done = run("convert", model, "-o", path, "--strict")
    assert_one_error(done, warning["node"], "--strict")
    assert list(tmp_path.iterdir()) == []


def test_module_and_script_are_the_same() -> None:
    script = Path(sys.executable).parent / "bnnrt"
    if not script.exists():
        pytest.skip("the package is not installed in the running Python's folder")
    for arguments in (["--version"], ["devices", "--frobnicate"]):
        by_script = subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60, check=False)
        by_module = started("-m", "bnnrt", *arguments)
        assert Done(by_script.returncode, by_script.stdout, by_script.stderr) == by_module
        if arguments == ["--version"]:
            assert re.fullmatch(r"bnnrt \d+\.\d+\.\d+\S*\n", by_module.out)


# Errors, each in one line


def one_operator(path: Path, operator: str, node: str) -> Path:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name=node)], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_unknown_operator(run: Run, tmp_path: Path) -> None:
    model, out = one_operator(tmp_path / "m.onnx", "Softplus", "the_node"), tmp_path / "out.bnn"
    commands = [["convert", model, "-o", out], ["inspect", model], ["classify", model, PHOTOS[0]]]
    for command in commands:
        assert_one_error(run(*command), "Softplus", "the_node")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


def test_damaged_bundle(run: Run, labelled: Path, tmp_path: Path) -> None:
    data = labelled.read_bytes()
    path = tmp_path / "damaged.bnn"
    for damaged in (
        b"",
        data[:4],
        data[: len(data) // 2],
        data[:-1],
        data + b"\0",
        data[:-1] + bytes([data[-1] ^ 1]),
        data.replace(b"ant", b"aunt", 1),
        data.replace(b"ant", b"fly", 1),
        b"\xff" * 100,
        MODEL.read_bytes(),
    ):
        assert damaged != data
        path.write_bytes(damaged)
        for command in (["classify", path, PHOTOS[0]], ["inspect", path], ["eval", path, tmp_path]):
            assert_one_error(run(*command), os.fspath(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["damaged.bnn"]


def test_missing_files(run: Run, labelled: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert_one_error(run("classify", f"{none}.bnn", PHOTOS[0]), f"{none}.bnn")
    assert_one_error(run("classify", f"{none}.onnx", PHOTOS[0]), f"{none}.onnx")
    assert_one_error(run("classify", tmp_path, PHOTOS[0]), os.fspath(tmp_path))
    assert_one_error(run("inspect", none), os.fspath(none))
    assert_one_error(run("eval", labelled, none, "--backend", "numpy"), os.fspath(none))
    assert_one_error(run("eval", labelled, labelled, "--backend", "numpy"), os.fspath(labelled))
    assert_one_error(run("convert", f"{none}.onnx", "-o", tmp_path / "o.bnn"), f"{none}.onnx")
    assert_one_error(run("convert", MODEL, "-o", tmp_path / "o.bnn", "--labels", none), os.fspath(none))
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_no_labels(run: Run, labelled: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "wasp").mkdir()
    done = run("eval", labelled, folder, "--backend", "numpy", "--json")
    assert_one_error(done, os.fspath(folder / "wasp"), "label", *LABELS)
    (tmp_path / "empty" / "ant").mkdir(parents=True)
    assert_one_error(run("eval", labelled, tmp_path / "empty", "--backend", "numpy"), "no images")


def test_networks_that_take_no_images(run: Run, tmp_path: Path) -> None:
    model = one_operator(tmp_path / "m.onnx", "Identity", "n")
    (tmp_path / "photos" / "0").mkdir(parents=True)
    shutil.copy(PHOTOS[0], tmp_path / "photos" / "0")
    for command in (["classify", model, PHOTOS[0]], ["eval", model, tmp_path / "photos"]):
        assert_one_error(run(*command, "--backend", "numpy"), "does not take images")


def test_wrong_labels(run: Run, tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    for content in (b"one\ntwo\n", b"", b'["a", "b", "c", "d", 5]', b'["a"', b"\xff\xfe"):
        labels.write_bytes(content)
        assert_one_error(run("convert", MODEL, "-o", tmp_path / "o.bnn", "--labels", labels))
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


@pytest.mark.parametrize(
    ("backend", "part"),
    [
        ("vulkan", "unknown backend vulkan"),
        ("", "unknown backend"),
        ("opencl:", "unknown backend opencl:"),
        ("opencl:9.9", "there is no such device (opencl:9.9)"),
        ("numpy:1", "unknown backend numpy:1"),
    ],
)
def test_unknown_backends_and_devices(run: Run, labelled: Path, tmp_path: Path, backend: str, part: str) -> None:
    for command in (["classify", labelled, PHOTOS[0]], ["eval", labelled, tmp_path], ["inspect", labelled, "--plan"]):
        assert_one_error(run(*command, "--backend", backend), part)


def test_no_opencl_platform(labelled: Path, tmp_path: Path) -> None:
    nowhere = {"OCL_ICD_VENDORS": str(tmp_path / "nowhere"), "OCL_ICD_FILENAMES": ""}
    arguments = ("-m", "bnnrt", "classify", labelled, PHOTOS[0], "--backend", "opencl")
    assert_one_error(started(*arguments, **nowhere), "no OpenCL platform is present (opencl): install")


def test_no_opencl_platform_but_numpy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    def none() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    found = [row["backend"] for row in run("devices", "--json").lines[0]]
    assert found[-1] == "numpy"
    assert not any(name.startswith("opencl") for name in found)


def test_a_device_that_fails_midway(run: Run, labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise BackendError("the device failed", "numpy", "see the driver's log")

    monkeypatch.setattr(NumpyBackend, "download", failing)
    done = run("classify", labelled, PHOTOS[0], "--backend", "numpy", "--json")
    assert_one_error(done, "the device failed (numpy): see the driver's log")


def test_unreadable_images(run: Run, labelled: Path, broken: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no image")
    for image in (broken, text, tmp_path, tmp_path / "none.jpg"):
        done = run("classify", labelled, image, "--backend", "numpy")
        assert_one_error(done, os.fspath(image))


def test_unwritable_output(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    model = tmp_path / "model.onnx"
    shutil.copy(MODEL, model)
    for out in (tmp_path / "none" / "o.bnn", tmp_path, file / "o.bnn", model, Path("/dev/full")):
        assert_one_error(run("convert", model, "-o", out), os.fspath(out))
    assert file.read_text() == "kept"
    assert model.read_bytes() == MODEL.read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "model.onnx"]


def test_a_full_disk_leaves_the_old_bundle(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "out.bnn"
    run("convert", MODEL, "-o", out)
    old = out.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    assert_one_error(run("convert", MODEL, "-o", out), "No space left on device", os.fspath(out))
    assert out.read_bytes() == old
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["frobnicate"], ["No such command", "frobnicate", "`bnnrt --help`"]),
        (["--frobnicate"], ["No such option", "--frobnicate"]),
        (["classify"], ["Missing argument", "BUNDLE", "`bnnrt classify --help`"]),
        (["classify", "a.bnn"], ["Missing argument", "IMAGE"]),
        (["classify", "a.bnn", "b.jpg", "--frobnicate"], ["No such option", "--frobnicate", "`bnnrt classify --help`"]),
        (["classify", "a.bnn", "b.jpg", "--backend"], ["--backend", "requires an argument"]),
        (["eval", "a.bnn"], ["Missing argument", "DIR"]),
        (["eval", "a.bnn", "b", "c"], ["unexpected extra argument"]),
        (["inspect", "a.bnn", "--batch", "0"], ["--batch"]),
        (["inspect", "a.bnn", "--batch", "many"], ["--batch"]),
        (["devices", "x"], ["unexpected extra argument"]),
        (["convert"], ["Missing argument", "MODEL.onnx", "`bnnrt convert --help`"]),
        (["convert", "a.onnx"], ["Missing option", "--output"]),
        (["convert", "a.onnx", "-o", "b.bnn", "--frobnicate"], ["No such option", "--frobnicate"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_wrong_command_lines(run: Run, arguments: list[str], parts: list[str]) -> None:
    assert_one_error(run(*arguments), *parts)


def test_batch_too_large_to_plan(run: Run, labelled: Path) -> None:
    done = run("inspect", labelled, "--plan", "--batch", 10**9, "--backend", "numpy")
    assert_one_error(done, "too large", "smaller batch")


def test_interruption(run: Run, labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Iterator[tuple[Path, ImageError]]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(InferenceSession, "classify_each", interrupted)
    done = run("classify", labelled, PHOTOS[0], "--backend", "numpy")
    assert (done.status, done.out) == (130, "")
    assert done.err in ("", "error: interrupted\n")


def test_mistakes_of_our_own_are_not_hidden(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(InferenceSession, "classify_each", wrong)
    monkeypatch.setattr(sys, "argv", ["bnnrt", "classify", str(labelled), str(PHOTOS[0]), "--backend", "numpy"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


# Pipes, and what is loaded


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_goes_away(arguments: list[str]) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "bnnrt", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()  # long before the command prints
    with command.stderr as stderr:
        assert stderr.read() == ""
    assert command.wait(60) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--json"]], ids=" ".join)
def test_output_that_cannot_be_written(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bnnrt", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert_one_error(Done(done.returncode, "", done.stderr), "No space left on device")


TOP_LEVEL = """
import sys
from bnnrt.cli import main
sys.argv = ["bnnrt", *sys.argv[1:]]
try:
    main()
except SystemExit as e:
    assert not e.code, e.code
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_classify_loads_no_more_than_a_board_has(labelled: Path) -> None:
    done = started("-c", TOP_LEVEL, "classify", labelled, PHOTOS[0], "--backend", "numpy", "--json")
    assert done.status == 0, done.err
    loaded = set(done.out.splitlines()[-1].split())
    assert {"numpy", "safetensors", "PIL", "bnnrt"} <= loaded
    heavy = {"onnx", "onnx_ir", "onnxruntime", "onnxscript", "onnxslim", "torch", "tensorflow", "matplotlib", "scipy"}
    assert loaded & heavy == set()


WITHOUT_CONVERTER = """
import sys
for name in ("onnx", "onnx_ir", "onnxscript"):
    sys.modules[name] = None
from bnnrt.cli import main
sys.argv = ["bnnrt", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_a_board_without_the_converter(tmp_path: Path, command: str) -> None:
    options = ["-o", tmp_path / "out.bnn"] if command == "convert" else []
    done = started("-c", WITHOUT_CONVERTER, command, MODEL, *options)
    assert_one_error(done, "pip install bnnrt[convert]")
    assert list(tmp_path.iterdir()) == []


def test_markup_in_names_is_text(tmp_path: Path) -> None:
    """Names of files, labels and nodes may look like rich's markup."""
    labels = ["[/a]", "[red]b", "c", "d", "e", "f"]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    model = Path(__file__).parents[2] / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"
    bundle = tmp_path / "marked.bnn"
    convert = started("-m", "bnnrt", "convert", model, "-o", bundle, "--labels", tmp_path / "labels.json")
    assert convert.status == 0
    photo = tmp_path / "[bold]x[" / "[b].jpg"
    photo.parent.mkdir()
    shutil.copy(PHOTOS[0], photo)
    done = started("-m", "bnnrt", "classify", bundle, photo, "--backend", "numpy")
    assert (done.status, done.err) == (0, "")
    assert "[bold]x[/[b].jpg" in done.out
    assert any(label in done.out for label in labels)
    done = started("-m", "bnnrt", "inspect", bundle)
    assert done.status == 0
    assert "[/a], [red]b" in done.out


def test_convert_overwrites_no_other_file(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\ufeffa\nb\nc\nd\ne\nf\n", encoding="utf-8")
    before = labels.read_bytes()
    model = Path(__file__).parents[2] / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"
    arguments = ("-m", "bnnrt", "convert", model, "--labels", labels)
    assert_one_error(started(*arguments, "-o", labels), "no bundle would be overwritten", "labels.txt")
    assert labels.read_bytes() == before
    for name, number in (("scale", "nan"), ("scale", "0"), ("scale", "1e39"), ("offset", "inf")):
        done = started(*arguments, "-o", tmp_path / "n.bnn", f"--pixel-{name}", number)
        assert_one_error(done, f"--pixel-{name}", "out of range")
    bundle = tmp_path / "out.bnn"
    for _ in range(2):  # a bundle may be written again
        assert started(*arguments, "-o", bundle).status == 0
    assert load_bundle(bundle).labels == ("a", "b", "c", "d", "e", "f")


def test_folders_of_labels_that_are_not_unique(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\na\nc\nd\ne\n")
    (tmp_path / "photos" / "a").mkdir(parents=True)
    model = Path(__file__).parents[2] / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx"
    bundle = tmp_path / "twice.bnn"
    assert started("-m", "bnnrt", "convert", model, "-o", bundle, "--labels", tmp_path / "labels.txt").status == 0
    done = started("-m", "bnnrt", "eval", bundle, tmp_path / "photos", "--backend", "numpy")
    assert_one_error(done, "several classes are called a")


def test_scores_that_are_no_numbers_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    cli.output.print_json({"score": float("nan"), "scores": (1.5, float("inf")), "n": 3})
    assert json.loads(capsys.readouterr().out) == {"score": None, "scores": [1.5, None], "n": 3}
