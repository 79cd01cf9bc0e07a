"""The page of results: complete, self-contained, and no text of a file becomes markup."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bnnrt.bench.document import FIGURES, Document
from bnnrt.bench.plots import clean, digits, duration, quantity
from bnnrt.bench.report import write_report
from bnnrt.errors import InputError, OutputError

Make = Callable[..., Document]
VOID = {"meta", "br", "path", "use", "rect", "line", "circle"}


class Page(HTMLParser):
    """Texts, headings, and a check that tags fit each other and load nothing."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.texts: list[str] = []
        self.headings: list[str] = []
        self.tags: list[str] = []
        self.feed(source)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name not in ("src", "srcset", "onload", "onerror")
            if name in ("href", "xlink:href"):
                assert value is not None
                assert value.startswith("#")
            if name == "style" and value:
                assert "http" not in value
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] == "h2":
            self.headings.append(data)
        if "style" not in self.stack:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def page(document: Document, folder: Path) -> Page:
    path = folder / "report.html"
    write_report(document, path)
    source = path.read_text(encoding="utf-8")
    assert "@import" not in source
    assert "url(http" not in source
    return Page(source)


ALL = [
    "What was measured where",
    "What the devices can do",
    "Figures",
    "Time an image, by batch size",
    "Speed-up",
    "Where the time goes",
    "Roofline",
    "How much the samples differ",
    "Each result",
    "Notes",
]


@pytest.mark.parametrize("results", [1, 10, 60])
def test_the_page_has_everything(make_document: Make, tmp_path: Path, results: int) -> None:
    document = make_document(results)
    found = page(document, tmp_path)
    assert found.headings == ALL
    batches = {r.batch for r in document.results}
    measured = [device for device in document.limits if any(r.device == device for r in document.results)]
    # Times, speed-ups, samples; layers by batch; a roofline for each device that has limits.
    assert found.tags.count("svg") == 3 + len(batches) + len(measured)
    for result in document.results:
        for name in FIGURES:
            if figure := getattr(result, name):
                assert duration(figure.median) in found.text
        assert all(kernel.layer in found.text for kernel in result.kernels)
    for peer in document.peers:
        assert peer.configuration in found.text
    assert found.texts.count("best") == sum(p.best for p in document.peers)
    assert document.notes[0] in found.text
    assert document.environment.command in found.text


def test_a_page_of_nothing(make_document: Make, tmp_path: Path) -> None:
    found = page(make_document(0, notes=()), tmp_path)
    assert found.headings == ["What was measured where", "Figures"]
    assert "There are no results." in found.text


def test_results_without_any_figure(make_document: Make, tmp_path: Path) -> None:
    document = make_document(3)
    bare = tuple(
        replace(
            r,
            kernels=tuple(
                replace(k, us=None, event_us=None, share=None, grid=None, block=None, fraction_of_copy=None)
                for k in r.kernels
            ),
            single_replay_us=None,
            **dict.fromkeys(FIGURES),
        )
        for r in document.results
    )
    found = page(replace(document, results=bare, peers=(), limits={}), tmp_path)
    assert found.tags.count("svg") == 0
    assert found.headings == [ALL[0], "Figures", "Each result", "Notes"]


def test_figures_of_one_sample_or_of_0(make_document: Make, tmp_path: Path) -> None:
    document = make_document(2)
    figure = replace(document.results[0].host_us, median=0.0, p10=0.0, p90=0.0, mean=0.0, samples=(0.0,))  # type: ignore[type-var]
    found = page(replace(document, results=tuple(replace(r, host_us=figure) for r in document.results)), tmp_path)
    assert found.headings == ALL


ODD = "<script>alert(1)</script> <b>$x_{1$ & &amp; \"quoted\" 'too' \x00\x1b[31m\ud800 ]]> <!-- --> 卷积"


def test_texts_are_no_markup(make_document: Make, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    document = make_document(3, bundle=ODD, prefix=f"_{ODD}", layers=24, notes=(ODD,))
    odd = replace(
        document,
        results=tuple(
            replace(r, backend=ODD, variants=ODD, role=ODD if i else r.role) for i, r in enumerate(document.results)
        ),
        peers=tuple(replace(p, peer=ODD, model=ODD, configuration=ODD) for p in document.peers),
        environment=replace(
            document.environment,
            time=ODD,
            commit=ODD,
            command=ODD,
            versions={ODD: ODD},
            host=replace(document.environment.host, cpu=ODD, os=ODD),
        ),
    )
    found = page(odd, tmp_path)
    assert found.headings == ALL
    assert not {"script", "b>"} & set(found.tags)
    assert found.text.count("<script>alert(1)</script>") > 50
    assert not [c for c in found.text if not c.isprintable() and c not in "\n "]
    assert not recwarn.list


def test_long_names_differ_by_their_ends(make_document: Make, tmp_path: Path) -> None:
    found = page(make_document(2, prefix="/features/block/" * 8, layers=9), tmp_path)
    legend = [text for text in found.texts if "…" in text]
    assert {text[-5:] for text in legend} >= {"conv1", "conv2", "pool1"}


def test_the_page_is_the_same_each_time(make_document: Make, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        page(make_document(2), tmp_path)
        contents.append((tmp_path / "report.html").read_bytes())
    assert contents[0] == contents[1]


def test_without_matplotlib_it_is_one_line(
    make_document: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"matplotlib is not installed .*: run `pip install bnnrt\[report\]`"):
        write_report(make_document(1), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing(make_document: Make, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the report"):
        write_report(make_document(1), tmp_path / "missing" / "report.html")
    assert not list(tmp_path.iterdir())


def test_numbers() -> None:
    assert [duration(us) for us in (0, 0.544, 5.2, 12.34, 999.4, 1234, 56_780, 2_345_678)] == [
        "0 µs",
        "0.544 µs",
        "5.20 µs",
        "12.3 µs",
        "999 µs",
        "1.23 ms",
        "56.8 ms",
        "2.35 s",
    ]
    assert [quantity(v, "B/s") for v in (12, 4.1e12, 1.02e16, 999)] == ["12.0 B/s", "4.10 TB/s", "10.2 PB/s", "999 B/s"]
    assert [digits(v) for v in (0, 0.00525, 0.103, 1.0, 9.999, 99.96, 1234.5)] == [
        "0",
        "0.00525",
        "0.103",
        "1.00",
        "10.0",
        "100",
        "1234",
    ]


def test_clean() -> None:
    assert clean("a\x00b\nc\ud800") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"
    assert clean("x" * 300 + "y") == "x" * 40 + "…" + "x" * 78 + "y"
