"""Comparison of two documents, and of the records of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bnnrt.bench.compare import Row, compare, speedups
from bnnrt.bench.document import FIGURES, Document, Figure, Peer, Result

Make = Callable[..., Document]


def scaled(figure: Figure | None, factor: float) -> Figure | None:
    return None if figure is None else Figure.of([s * factor for s in figure.samples])


def slower(result: Result, factor: float) -> Result:
    kernels = tuple(replace(k, us=None if k.us is None else k.us * factor) for k in result.kernels)
    changed: Result = replace(
        result, kernels=kernels, **{name: scaled(getattr(result, name), factor) for name in FIGURES}
    )
    return changed


def changes(row: Row) -> dict[str, tuple[float | None, bool | None]]:
    return {c.figure: (c.ratio, c.overlap) for c in row.figures}


def test_a_document_with_itself(make_document: Make) -> None:
    document = make_document(8)
    rows = compare(document, document)
    assert [row.a for row in rows] == [row.b for row in rows] == [*document.results, *document.peers]
    for row in rows:
        assert list(changes(row)) == list(FIGURES)
        for change in row.figures:
            measured = getattr(row.a, change.figure) is not None
            assert (change.ratio, change.overlap) == ((1.0, True) if measured else (None, None))
        assert all(k.ratio == 1 and k.a_us == k.b_us for k in row.kernels)
    assert [len(row.kernels) for row in rows] == [9] * 8 + [0] * len(document.peers)
    assert rows[0].key == ("vehicle.bnn", "cuda", "1", "default", "binary")
    assert rows[8].key == ("torch", "float.onnx", "fp32 NCHW eager", "1")


def test_ratios_and_noise(make_document: Make) -> None:
    document = make_document(2)
    for factor, overlap in ((2.0, False), (0.5, False), (1.01, True)):
        other = replace(document, results=tuple(slower(r, factor) for r in reversed(document.results)))
        rows = [row for row in compare(document, other) if isinstance(row.a, Result)]
        assert [row.a for row in rows] == list(document.results)
        for row in rows:
            for change in row.figures:
                assert change.ratio == pytest.approx(factor, rel=1e-3)
                assert change.overlap is overlap
            assert all(k.ratio == pytest.approx(factor) for k in row.kernels)


def test_what_is_only_in_one(make_document: Make) -> None:
    a, b = make_document(1), make_document(9)
    b = replace(b, results=b.results[::-1])
    rows = compare(a, b)
    results = [row for row in rows if isinstance(row.a or row.b, Result)]
    assert rows[: len(results)] == results
    assert [(row.a, row.b) for row in results] == [
        (a.results[0], b.results[-1]),
        *((None, r) for r in b.results[:-1]),
    ]
    for row in results[1:]:
        assert set(changes(row).values()) == {(None, None)}
        assert all(k.a_us is None and k.b_us is not None and k.ratio is None for k in row.kernels)
    reversed_rows = compare(b, a)
    assert {row.key for row in reversed_rows} == {row.key for row in rows}
    assert sum(row.b is None for row in reversed_rows) == sum(row.a is None for row in rows)


def test_kernels_match_by_layer_and_name(make_document: Make) -> None:
    document = make_document(1)
    (result,) = document.results
    conv = result.kernels[1]
    twice = replace(result, kernels=(conv, replace(conv, us=5.0)))
    other = replace(result, kernels=(replace(conv, us=1.0, variant="other"), replace(conv, name="fused", us=3.0)))
    row = compare(replace(document, results=(twice,)), replace(document, results=(other,)))[0]
    assert [(k.layer, k.name, k.a_us, k.b_us) for k in row.kernels] == [
        ("conv1", "binary_conv", conv.us, 1.0),
        ("conv1", "binary_conv", 5.0, None),
        ("conv1", "fused", None, 3.0),
    ]


def test_records_of_one_key_match_in_order(make_document: Make) -> None:
    document = make_document(1)
    (result,) = document.results
    twice = replace(document, results=(result, slower(result, 3)), peers=())
    assert [changes(row)["host_us"][0] for row in compare(twice, twice)] == [1.0, 1.0]


def test_a_time_of_0_has_no_ratio(make_document: Make) -> None:
    document = make_document(1)
    still = replace(document, results=tuple(slower(r, 0) for r in document.results))
    row = compare(still, document)[0]
    assert changes(row)["host_us"] == (None, False)
    assert all(k.ratio is None for k in row.kernels)


def test_speedups(make_document: Make) -> None:
    document = make_document(2)
    binary, baseline = document.results
    found = list(speedups(document))
    assert [(s.result, s.figure) for s in found] == [(binary, "replay_us"), (binary, "replay_us"), (binary, "host_us")]
    assert found[0].other == baseline
    assert binary.replay_us is not None
    assert baseline.replay_us is not None
    assert found[0].ratio == pytest.approx(baseline.replay_us.median / binary.replay_us.median)
    assert all(isinstance(s.other, Peer) and s.other.best for s in found[1:])
    assert [s.other.peer for s in found[1:] if isinstance(s.other, Peer)] == ["torch", "onnxruntime"]


def test_speedups_are_over_what_belongs_together(make_document: Make) -> None:
    document = make_document(2)
    binary, baseline = document.results
    other = replace(binary, bundle="float.bnn")
    several = replace(document, results=(binary, other, baseline))
    assert [s.result for s in speedups(several)] == [other] * 3
    assert not list(speedups(replace(document, results=(binary, replace(baseline, batch=2)), peers=())))
    wrong = tuple(replace(p, checked=False) for p in document.peers)
    assert [s.other for s in speedups(replace(document, peers=wrong))] == [baseline]
    cpu = next(r for r in make_document(5).results if r.backend == "opencl:cpu")
    assert {s.other.peer for s in speedups(make_document(5)) if s.result == cpu and isinstance(s.other, Peer)} == {
        "onnxruntime"
    }


def test_the_fastest_baseline_counts(make_document: Make) -> None:
    document = make_document(2)
    binary, baseline = document.results
    fast = replace(slower(baseline, 0.5), variants="paper")
    found = next(iter(speedups(replace(document, results=(baseline, binary, fast)))))
    assert found.other == fast
