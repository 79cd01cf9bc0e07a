"""A document of `bnnrt bench` as one page of HTML that needs nothing else: tables, and plots as inline SVG."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from html import escape

from bnnrt.bench.compare import speedups
from bnnrt.bench.document import FIGURES, Document, Figure, Kernel, Limits, Peer, Result
from bnnrt.bench.plots import Plots, clean, digits, duration, quantity
from bnnrt.files import replace_file

__all__ = ["plots_available", "write_report"]

Record = Result | Peer
Cell = str  # HTML
_NOTHING: Cell = "&ndash;"

_TITLES = {
    "first_to_last_us": "first to last kernel",
    "kernels_sum_us": "sum of kernels",
    "events_sum_us": "sum of events",
    "event_floor_us": "event of an empty kernel",
    "replay_us": "replay",
    "single_replay_us": "a single replay",
    "host_us": "host",
}
_MEANINGS = (
    ("first to last kernel", "timer events around the launches of one run, its input on the device already"),
    ("sum of kernels", "each kernel in steady state, many copies in a row, added up"),
    ("sum of events", "a profiling event around each kernel, added up"),
    ("event of an empty kernel", "what such an event reads where nothing is done"),
    ("replay", "the whole network as a graph, the mean of many in a row"),
    ("host", "the host's clock: arrays in, scores out"),
)
# So many results have their tables open from the start.
_OPEN = 3
# More records or rows than this are folded.
_LONG = 24

_CSS = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 1rem clamp(.8rem, 3vw, 2.5rem) 4rem; max-width: 76rem; background: #fff; color: #1c2128;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: .6rem 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid #d8dee4; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 60rem; }
.soft { color: #59636e; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #e4e7eb; }
td { overflow-wrap: anywhere; min-width: 7rem; }
thead th { font-weight: 600; background: #f6f8fa; border-bottom: 1px solid #c4c9d0; vertical-align: bottom; }
th.n, td.n { text-align: right; min-width: 3.5rem; }
td.n { white-space: nowrap; overflow-wrap: normal; }
td small { display: block; color: #59636e; font-size: .78rem; }
tr.group td { background: #f6f8fa; font-weight: 600; }
tr.peer td { color: #424a53; background: #fcfcf7; }
tr.best td { font-weight: 600; }
tr.best td small { font-weight: 400; }
.badge { display: inline-block; padding: 0 .4em; border-radius: .6em; font-size: .75rem; font-weight: 600;
  background: #e4e7eb; color: #424a53; white-space: nowrap; }
.badge.good { background: #dcf3e3; color: #1a6334; }
.badge.bad { background: #fbe3e4; color: #a11322; }
.badge.star { background: #fff0c2; color: #7a5200; }
details { border: 1px solid #d8dee4; border-radius: 6px; margin: .6rem 0; padding: 0 .9rem; }
details[open] { padding-bottom: .6rem; }
summary { cursor: pointer; padding: .5rem 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; font-size: .9rem; }
dt { color: #59636e; } dd { margin: 0; overflow-wrap: anywhere; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
svg { display: block; width: 100%; min-width: 36rem; max-width: 54rem; height: auto; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
@media print { details { break-inside: avoid; } }
"""


def plots_available() -> bool:
    """Whether matplotlib is installed: ask before measuring for an hour."""
    return importlib.util.find_spec("matplotlib") is not None


def write_report(document: Document, path: str | os.PathLike[str]) -> None:
    """Write the page, or leave everything as it was.

    Raises InputError where matplotlib is not installed, OutputError where the file cannot be written.
    """
    replace_file(os.fspath(path), _page(document).encode(), "report")


def _page(document: Document) -> str:
    plots = Plots(document)
    parts = [
        _header(document),
        _section("What was measured where", _environment(document)),
        _section("What the devices can do", _limits(document)),
        _section("Figures", _overview(document)),
        _section("Time an image, by batch size", _plot(plots.times(), "Time an image by batch size")),
        _section("Speed-up", _speedups(document), _plot(plots.speedups(), "Speed-up by batch size")),
        _section("Where the time goes", *_layers(document, plots)),
        _section("Roofline", *_rooflines(document, plots)),
        _section("How much the samples differ", _plot(plots.distributions(), "Distribution of the samples")),
        _section("Each result", *_results(document)),
        _section("Notes", _list(document.notes)),
    ]
    title = f"bnnrt bench: {', '.join(dict.fromkeys(_text(r.bundle) for r in document.results)) or 'no results'}"
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_CSS}</style></head>\n<body>\n"
    )
    return head + "\n".join(filter(None, parts)) + "\n</body></html>\n"


# Pieces of HTML


def _text(text: str) -> Cell:
    return escape(clean(text, 300))


def _section(title: str, *parts: str) -> str:
    content = "\n".join(filter(None, parts))
    return f"<section><h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _plot(svg: str, title: str) -> str:
    return f'<div class="scroll" role="img" aria-label="{escape(title)}">{svg}</div>' if svg else ""


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(clean(item, 1000))}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _details(summary: Cell, content: str, *, opened: bool) -> str:
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{content}</details>"


def _badge(text: str, kind: str = "") -> Cell:
    return f'<span class="badge {kind}">{_text(text)}</span>'


def _checked(record: Record) -> Cell:
    return _badge("checked", "good") if record.checked else _badge("not checked", "bad")


def _table(header: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], numbers: int) -> str:
    """Rows are a class and cells; the columns from ``numbers`` on stand to the right."""

    def cells(tag: str, values: Sequence[Cell]) -> str:
        if len(values) == 1 < len(header):
            return f'<{tag} colspan="{len(header)}">{values[0]}</{tag}>'
        return "".join(
            f'<{tag} class="n">{v}</{tag}>' if i >= numbers else f"<{tag}>{v}</{tag}>" for i, v in enumerate(values)
        )

    body = "".join(f'<tr class="{kind}">{cells("td", values)}</tr>\n' for kind, values in rows)
    if not body:
        return ""
    head = cells("th", [escape(h) for h in header])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs) + "</dl>"


def _time(us: float | None) -> Cell:
    return _NOTHING if us is None else escape(duration(us))


def _rate(value: float | None, unit: str) -> Cell:
    return _NOTHING if value is None else escape(quantity(value, unit))


def _fraction(value: float | None) -> Cell:
    return _NOTHING if value is None else f"{100 * value:.1f} %"


def _figure(figure: Figure | None) -> Cell:
    if figure is None:
        return _NOTHING
    return f"{_time(figure.median)}<small>{_time(figure.p10)} &ndash; {_time(figure.p90)}</small>"


def _size(nbytes: int) -> Cell:
    return escape(quantity(nbytes, "B"))


# Sections


def _header(document: Document) -> str:
    bundles = dict.fromkeys(_text(r.bundle) for r in document.results)
    names = dict.fromkeys(_text(d.name) for d in document.environment.devices.values())
    what = f"{len(document.results)} results, {len(document.peers)} of peers"
    return (
        f"<h1>{', '.join(bundles) or 'No results'}</h1>\n"
        f'<p class="soft">bnnrt bench, {_text(document.environment.time)}: {what}'
        f"{', on ' + ', '.join(names) if names else ''}</p>"
    )


def _environment(document: Document) -> str:
    environment = document.environment
    host = environment.host
    devices = []
    for key, device in environment.devices.items():
        clocks = ", ".join(f"{_text(name)} {mhz:g} MHz" for name, mhz in (device.clocks_mhz or {}).items())
        devices.append(
            (
                "",
                [
                    f"<code>{_text(key)}</code>",
                    *map(_text, (device.name, device.platform, device.driver)),
                    clocks or _NOTHING,
                ],
            )
        )
    return _definitions(
        [
            ("Command", f"<code>{escape(clean(environment.command, 2000))}</code>"),
            ("Commit", f"<code>{_text(environment.commit)}</code>" if environment.commit else "not known"),
            ("Host", f"{_text(host.cpu)}, {host.cores} cores, {_text(host.os)}, Python {_text(host.python)}"),
            ("Packages", ", ".join(f"{_text(name)} {_text(v)}" for name, v in environment.versions.items())),
        ]
    ) + _table(("device", "name", "platform", "driver", "clocks"), devices, 5)


def _limits(document: Document) -> str:
    def row(device: str, limits: Limits) -> list[Cell]:
        empty = limits.empty_kernel_us
        return [
            f"<code>{_text(device)}</code>",
            _rate(limits.copy_bytes_per_s, "B/s"),
            _rate(limits.popcounts_per_s, "/s"),
            _rate(limits.binary_ops_per_s, "op/s"),
            _rate(limits.tensor_core_binary_ops_per_s, "op/s"),
            _time(empty.event),
            _time(empty.steady),
        ]

    header = (
        "device",
        "memory copy",
        "popcounts of a word",
        "binary operations",
        "on tensor cores",
        "empty kernel, event",
        "in steady state",
    )
    return _table(header, (("", row(*item)) for item in document.limits.items()), 1)


def _overview(document: Document) -> str:
    """A row a record, by batch size: first the results, then the peers."""
    records: tuple[Record, ...] = (*document.results, *document.peers)
    shown = [name for name in FIGURES if any(getattr(r, name) for r in records)]
    header = ("network", "runs on", "role", *(_TITLES[name] for name in shown))
    groups = {
        batch: [_overview_row(document, r, shown) for r in records if r.batch == batch]
        for batch in sorted({r.batch for r in records})
    }
    if not groups:
        return "<p>There are no results.</p>"
    named = {_TITLES[name] for name in shown}
    meanings = "; ".join(f"<b>{name}</b>: {meaning}" for name, meaning in _MEANINGS if name in named)
    text = (
        f'<p class="soft">Medians, and below them the range from the tenth to the ninetieth percentile. {meanings}. '
        "Checked: outputs were compared with those of the numpy backend, and of results bit for bit.</p>"
    )
    if len(records) <= _LONG:
        rows = [row for batch, own in groups.items() for row in (("group", [f"batch {batch}"]), *own)]
        return text + _table(header, rows, 3)
    first = min(groups)
    return text + "".join(
        _details(f"Batch {batch}", _table(header, own, 3), opened=batch == first) for batch, own in groups.items()
    )


def _overview_row(document: Document, record: Record, shown: Sequence[str]) -> tuple[str, list[Cell]]:
    device = _text(_device_name(document, record))
    figures = [_figure(getattr(record, name)) for name in shown]
    if isinstance(record, Result):
        what = f"{_text(record.bundle)}<small>{_text(record.variants)}</small>"
        role = f"{_text(record.role)}<br>{_checked(record)}"
        return "", [what, f"{_text(record.backend)}<small>{device}</small>", role, *figures]
    what = f"{_text(record.model)}<small>{_text(record.configuration)}</small>"
    role = f"peer {_badge('best', 'star') if record.best else ''}<br>{_checked(record)}"
    return "peer best" if record.best else "peer", [
        what,
        f"{_text(record.peer)}<small>{device}</small>",
        role,
        *figures,
    ]


def _device_name(document: Document, record: Record) -> str:
    device = document.environment.devices.get(record.device)
    return device.name if device else record.device


def _speedups(document: Document) -> str:
    found = sorted(speedups(document), key=lambda s: s.result.batch)
    rows = []
    for s in found:
        if isinstance(s.other, Peer):
            other = f"{_text(s.other.peer)}, {_text(s.other.configuration)}<small>{_text(s.other.device)}</small>"
        else:
            other = f"baseline {_text(s.other.bundle)}<small>{_text(s.other.backend)}</small>"
        own, theirs = getattr(s.result, s.figure), getattr(s.other, s.figure)
        rows.append(
            (
                "",
                [
                    f"{_text(s.result.bundle)}<small>{_text(s.result.variants)}</small>",
                    _text(s.result.backend),
                    other,
                    _TITLES[s.figure],
                    str(s.result.batch),
                    _time(own.median),
                    _time(theirs.median),
                    f"<b>{digits(s.ratio)}</b> times",
                ],
            )
        )
    table = _table(("network", "backend", "faster than", "by", "batch", "own", "other", "speed-up"), rows, 4)
    if len(rows) > _LONG:
        return _details(f"All {len(rows)} speed-ups", table, opened=False)
    return table


def _layers(document: Document, plots: Plots) -> list[str]:
    batches = sorted({r.batch for r in document.results})
    parts = []
    for batch in batches:
        svg = plots.layers([r for r in document.results if r.batch == batch])
        plot = _plot(svg, f"Time by layer, batch {batch}")
        if svg and len(batches) > 1:
            plot = _details(f"Batch {batch}", plot, opened=batch in (batches[0], batches[-1]))
        parts.append(plot)
    return parts


def _rooflines(document: Document, plots: Plots) -> list[str]:
    parts = []
    for device in document.limits:
        if svg := plots.roofline(device):
            name = document.environment.devices[device].name if device in document.environment.devices else ""
            parts.append(
                f"<h3><code>{_text(device)}</code> {_text(name)}</h3>{_plot(svg, 'Roofline of ' + clean(device))}"
            )
    if parts:
        text = (
            "A bit multiply-add counts as 2 operations; bytes are what a kernel has to read and write once. "
            "Points have names at the largest batch size."
        )
        parts.insert(0, f'<p class="soft">{text}</p>')
    return parts


def _results(document: Document) -> list[str]:
    opened = len(document.results) <= _OPEN
    parts = []
    for r in document.results:
        title = (
            f"<b>{_text(r.bundle)}</b> on {_text(r.backend)}, batch {r.batch}, variants {_text(r.variants)} "
            f"{_badge(r.role)} {_checked(r)}"
        )
        memory = f'<p class="soft">{_size(r.arena_bytes)} for tensors, {_size(r.constants_bytes)} for constants.</p>'
        parts.append(_details(title, memory + _figures(r) + _kernels(r.kernels), opened=opened))
    return parts


def _figures(result: Result) -> str:
    rows = []
    for name, title in _TITLES.items():
        figure: Figure | None = getattr(result, name)
        cells = [_NOTHING] * 5
        if figure is not None:
            values = (figure.median, figure.p10, figure.p90, figure.mean)
            cells = [*(_time(v) for v in values), str(len(figure.samples))]
        rows.append(("", [title, *cells]))
    return _table(("figure", "median", "p10", "p90", "mean", "samples"), rows, 1)


def _kernels(kernels: Sequence[Kernel]) -> str:
    def rate(count: int, us: float | None, unit: str) -> Cell:
        return _rate(count / us * 1e6, unit) if us and count else _NOTHING

    def extent(sizes: tuple[int, ...] | None) -> Cell:
        return " &times; ".join(map(str, sizes)) if sizes else _NOTHING

    rows = [
        (
            "",
            [
                _text(k.layer),
                f"{_text(k.name)}<small>{_text(k.variant)}</small>",
                _time(k.us),
                _fraction(k.share),
                _time(k.event_us),
                extent(k.grid),
                extent(k.block),
                _size(k.local_bytes),
                rate(k.binary_operations, k.us, "op/s"),
                rate(k.float_operations, k.us, "flop/s"),
                rate(k.bytes, k.us, "B/s"),
                _fraction(k.fraction_of_counting),
                _fraction(k.fraction_of_copy),
            ],
        )
        for k in kernels
    ]
    header = (
        "layer",
        "kernel",
        "time",
        "share",
        "event",
        "grid",
        "block",
        "local",
        "binary",
        "float",
        "memory",
        "of counting",
        "of copy",
    )
    return _table(header, rows, 2)
