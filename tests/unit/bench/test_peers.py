"""What peers share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bnnrt.bench.document import Document, Figure, Peer
from bnnrt.bench.peers import deviation, first_line, host_times, mark_best

A = np.array([0.0, 1.0, 2.0, 10.0], dtype=np.float32)
INF = float("inf")


def test_host_times_warm_up_first() -> None:
    calls: list[int] = []
    figure = host_times(lambda: calls.append(1), runs=7, warmup=3)
    assert len(calls) == 10
    assert len(figure.samples) == 7
    assert all(sample >= 0 for sample in figure.samples)


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        (A, A, 0.0),
        (A + 0.5, A, 0.05),
        (A[::-1], A, 1.0),
        (A[:3], A, INF),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0),
        (np.array([np.nan, 1.0]), np.array([1.0, 1.0]), INF),
        (np.array([1.0, 1.0]), np.array([np.inf, 1.0]), INF),
        (np.array([-np.inf, 1.0]), np.array([np.inf, 1.0]), INF),
        (np.array([3.0, 3.3]), np.array([3.0, 3.0]), 0.1),  # no range
        (np.array([0.25]), np.array([0.0]), 0.25),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.array([3], np.int32), np.array([4], np.int32), 0.25),
    ],
)
def test_deviation(found: np.ndarray, expected: np.ndarray, apart: float) -> None:
    assert deviation({"y": found, "more": found}, {"y": expected}) == pytest.approx(apart)


def test_a_missing_output_deviates() -> None:
    assert deviation({"y": A}, {"y": A, "z": A}) == INF


def test_the_worst_output_counts() -> None:
    assert deviation({"y": A, "z": A + 1}, {"y": A, "z": A}) == pytest.approx(0.1)


def peer(configuration: str, first: float | None, host: float, checked: bool = True, batch: int = 1) -> Peer:
    return Peer(
        peer="torch",
        model="m",
        device="cuda:0",
        batch=batch,
        configuration=configuration,
        first_to_last_us=None if first is None else Figure.of([first]),
        kernels_sum_us=None,
        events_sum_us=None,
        event_floor_us=None,
        replay_us=None,
        host_us=Figure.of([host]),
        checked=checked,
        best=True,
    )


def test_the_best_is_the_fastest_with_right_outputs() -> None:
    peers = [peer("a", 20, 50), peer("b", 10, 60), peer("c", 5, 5, checked=False), peer("d", 9, 70, batch=2)]
    assert [p.best for p in mark_best(peers)] == [False, True, False, True]
    hosts = [replace(p, device="cpu", first_to_last_us=None) for p in peers]
    assert [p.best for p in mark_best([*peers, *hosts])] == [False, True, False, True, True, False, False, True]
    assert mark_best([]) == []


def test_first_line() -> None:
    assert first_line(RuntimeError("\n  out of\tmemory  \nTried to\n")) == "out of memory"
    assert first_line(RuntimeError()) == "RuntimeError"
    assert len(first_line(RuntimeError("x" * 5000))) < 250


def test_documents_of_the_tests_mark_one_peer_a_group(make_document: object) -> None:
    assert callable(make_document)
    document: Document = make_document(8)
    assert list(document.peers) == mark_best(document.peers)
