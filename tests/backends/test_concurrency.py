"""Sessions in threads and processes: the right answer every time, 2,000 runs each."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnnrt
from bnnrt.backends.base import Backend

RUNS = 2000
FIXTURE = Path(__file__).parents[1] / "fixtures" / "paper_dynamo.onnx"
SIZE = (12, 12, 3)

# What a process of its own runs: many answers of one session, against the numpy backend's.
CHILD = """
import sys
import numpy as np
import bnnrt

def answers(backend, runs):
    session = bnnrt.InferenceSession(sys.argv[1], backend)
    pixels = np.random.default_rng(0).integers(0, 256, (runs, 1, 12, 12, 3), dtype=np.uint8)
    return np.concatenate([session.run(None, {"pixels": x})[0] for x in pixels])
"""


def pixels(seed: int, batch: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (batch, *SIZE), dtype=np.uint8)


def expected(feeds: list[npt.NDArray[np.uint8]]) -> list[npt.NDArray[Any]]:
    with bnnrt.InferenceSession(FIXTURE, "numpy") as session:
        return [session.run(None, {"pixels": x})[0] for x in feeds]


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, str(FIXTURE), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_one_session_in_eight_threads(backend: Backend) -> None:
    feeds = [pixels(seed, 1 + seed % 3) for seed in range(40)]
    answers = expected(feeds)
    with bnnrt.InferenceSession(FIXTURE, backend.info.backend) as session, ThreadPoolExecutor(8) as pool:

        def run(index: int) -> bool:
            result = session.run(None, {"pixels": feeds[index % 40]})[0]
            return np.array_equal(result, answers[index % 40])

        assert all(pool.map(run, range(RUNS)))


def test_several_sessions_each_in_a_thread(backend: Backend) -> None:
    feeds = [pixels(seed, 2) for seed in range(8)]
    answers = expected(feeds)

    def work(index: int) -> bool:
        with bnnrt.InferenceSession(FIXTURE, backend.info.backend) as session:
            runs = (session.run(None, {"pixels": feeds[index]})[0] for _ in range(RUNS // 8))
            return all(np.array_equal(result, answers[index]) for result in runs)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_timed_and_plain_runs_in_turn(backend: Backend) -> None:
    x = pixels(1, 2)
    (answer,) = expected([x])
    with bnnrt.InferenceSession(FIXTURE, backend.info.backend) as session:
        for index in range(RUNS // 10):
            run = session.run_timed(None, {"pixels": x})[0] if index % 3 else session.run(None, {"pixels": x})
            assert np.array_equal(run[0], answer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_after_import(backend: Backend) -> None:
    code = f"""
import os
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        right = np.array_equal(answers(sys.argv[2], {RUNS // 2}), answers("numpy", {RUNS // 2}))
        os._exit(0 if right else 1)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
    process = python(code, backend.info.backend)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def test_processes_fill_the_cache_at_once(backend: Backend, tmp_path: Path) -> None:
    code = f'sys.exit(not np.array_equal(answers(sys.argv[2], {RUNS // 2}), answers("numpy", {RUNS // 2})))'
    processes = [python(code, backend.info.backend, BNNRT_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    stored = list((tmp_path / "programs").glob("*.bin")) if backend.info.backend != "numpy" else []
    assert bool(stored) == (backend.info.backend != "numpy")
    assert not list(tmp_path.rglob("*.tmp"))
