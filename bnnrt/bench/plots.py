"""Plots of a document of `bnnrt bench`, each an SVG element for a page. matplotlib draws them.

Texts are cleaned of what XML does not hold; they stay texts in the SVG.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bnnrt.bench.compare import speedups
from bnnrt.bench.document import Document, Figure, Kernel, Limits, Peer, Result
from bnnrt.errors import InputError

__all__ = ["Plots", "clean", "digits", "duration", "quantity"]

Axes = Any  # matplotlib is optional

_WIDTH = 8.6  # inches
_LEGEND_LETTERS = 105  # that fit side by side
_COLOURS = (
    "#3366aa",
    "#dd7722",
    "#339966",
    "#bb3344",
    "#8866bb",
    "#11a0b0",
    "#aa7733",
    "#cc6699",
    "#7f9f3f",
    "#445577",
    "#b59b00",
    "#55bbee",
)
_REST = "#c4c9d0"
_MARKERS = "os^Dv<>PX*"
_FIGURE_NAMES = {"host_us": "host, array to array", "first_to_last_us": "first to last kernel", "replay_us": "replay"}
_STYLE = {
    "axes.edgecolor": "#8a929c",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9,
    "grid.color": "#e4e7eb",
    "lines.linewidth": 1.4,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bnnrt",
    "text.parse_math": False,
}


def clean(text: str, longest: int = 120) -> str:
    """A text from a file, without characters that a page cannot hold, and not longer than is bearable."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return _short(shown, longest)


def duration(us: float) -> str:
    """A time in the unit that suits it, to three digits."""
    for limit, unit, scale in ((1e3, "µs", 1.0), (1e6, "ms", 1e3)):
        if abs(us) < limit:
            return f"{digits(us / scale)} {unit}"
    return f"{digits(us / 1e6)} s"


def quantity(value: float, unit: str) -> str:
    """A number with a decimal prefix, to three digits."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def digits(value: float) -> str:
    """A number to three digits."""
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}" if size >= 0.995 else f"{value:.3g}"


def _tick(shown: Callable[[float], str]) -> Callable[[float, object], str]:
    """Labels of an axis: as values are shown, without zeros at the end of fractions."""
    return lambda value, _: re.sub(r"(\.\d*?)0+(?!\d)", lambda m: m[1].rstrip("."), shown(value))


class Plots:
    """The plots of one document. Raises InputError where matplotlib is not installed."""

    def __init__(self, document: Document) -> None:
        try:
            import matplotlib
            from matplotlib.backends.backend_svg import FigureCanvasSVG
            from matplotlib.figure import Figure as Canvas
        except ImportError:
            raise InputError(
                "matplotlib is not installed", "the page of results", "run `pip install bnnrt[report]`"
            ) from None
        self._matplotlib, self._canvas_type, self._figure_type = matplotlib, FigureCanvasSVG, Canvas
        self._document = document
        self._binary = [r for r in document.results if r.role != "baseline"]
        records: tuple[Result | Peer, ...] = (*document.results, *document.peers)
        names = list(dict.fromkeys(series_name(document, r) for r in records))
        self._series = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
        totals: dict[str, float] = {}
        for result in document.results:
            whole = sum(k.us or 0 for k in result.kernels) or 1.0
            for kernel in result.kernels:
                layer = clean(kernel.layer)
                totals[layer] = totals.get(layer, 0.0) + (kernel.us or 0) / whole
        largest = set(sorted(totals, key=lambda layer: -totals[layer])[: len(_COLOURS)])
        self._layers = dict(zip((layer for layer in totals if layer in largest), _COLOURS, strict=False))

    def layers(self, results: Sequence[Result]) -> str:
        """A bar a result: the share of each layer in the sum of its kernels, and the sum."""
        timed = [r for r in results if any(k.us for k in r.kernels)]
        if not timed:
            return ""
        with self._drawing(0.34 * len(timed) + 1.0) as (figure, svg):
            axes = figure.subplots()
            for row, result in enumerate(timed):
                whole, left, rest = sum(k.us or 0 for k in result.kernels), 0.0, 0.0
                shares: dict[str, float] = {}
                for kernel in result.kernels:
                    layer = clean(kernel.layer)
                    share = 100 * (kernel.us or 0) / whole
                    if layer in self._layers:
                        shares[layer] = shares.get(layer, 0) + share
                    else:
                        rest += share
                for layer, share in (*shares.items(), ("", rest)):
                    colour = self._layers.get(layer, _REST)
                    axes.barh(row, share, left=left, height=0.7, color=colour, edgecolor="white", linewidth=0.6)
                    if share >= 7:
                        axes.text(
                            left + share / 2, row, f"{share:.0f} %", ha="center", va="center", color="white", size=7.5
                        )
                    left += share
                axes.text(101, row, duration(whole), va="center")
            axes.set_yticks(range(len(timed)), [_short(series_name(self._document, r)) for r in timed])
            axes.invert_yaxis()
            axes.set_xlim(0, 100)
            axes.set_xlabel("share of the sum of kernels, % (sum at the right)")
            axes.grid(axis="y", visible=False)
            patches = [self._patch(colour, _short(layer, 24)) for layer, colour in self._layers.items()]
            if any(clean(k.layer) not in self._layers for r in timed for k in r.kernels):
                patches.append(self._patch(_REST, "all other layers"))
            _legend(figure, {patch.get_label(): patch for patch in patches})
        return svg()

    def _patch(self, colour: str, label: str) -> Any:
        from matplotlib.patches import Patch

        return Patch(color=colour, label=_literal(label))

    def times(self) -> str:
        """Time an image by batch size, a panel a figure; of peers the best configuration."""
        records: list[Result | Peer] = [*self._document.results, *(p for p in self._document.peers if p.best)]
        panels = [name for name in ("replay_us", "first_to_last_us", "host_us") if _has(records, name)]
        series = {
            name: [(r, figure.median / max(1, r.batch)) for r in records if (figure := getattr(r, name)) is not None]
            for name in panels
        }
        return self._by_batch(
            [(f"{_FIGURE_NAMES[name]}, µs an image", series[name]) for name in panels], duration, reference=None
        )

    def speedups(self) -> str:
        """Speed-up over the baseline and over each peer by batch size, a panel each."""
        panels: dict[str, list[tuple[Result | Peer, float]]] = {}
        for s in speedups(self._document):
            other = (
                "the full-precision baseline" if isinstance(s.other, Result) else f"{s.other.peer}, {s.other.device}"
            )
            panels.setdefault(f"times faster than {clean(other, 60)}", []).append((s.result, s.ratio))
        return self._by_batch(list(panels.items()), digits, reference=1.0)

    def _by_batch(
        self,
        panels: Sequence[tuple[str, Sequence[tuple[Result | Peer, float]]]],
        shown: Callable[[float], str],
        reference: float | None,
    ) -> str:
        """Values by batch size: lines, or bars where there is one size only."""
        panels = [(title, [(r, v) for r, v in values if v > 0]) for title, values in panels]
        panels = [(title, values) for title, values in panels if values]
        if not panels:
            return ""
        lines = len({r.batch for _, values in panels for r, _ in values}) > 1
        rows = [1.0 if lines else max(1, len(values)) for _, values in panels]
        height = 3.0 * len(panels) if lines else 0.3 * sum(rows) + 0.9 * len(panels)
        with self._drawing(height) as (figure, svg):
            grid = figure.subplots(
                len(panels), 1, squeeze=False, height_ratios=[r + (0 if lines else 1.5) for r in rows]
            )
            for (title, values), axes in zip(panels, grid[:, 0], strict=True):
                (self._lines if lines else self._bars)(axes, values, shown)
                axes.set_title(_literal(title))
                if reference is not None:
                    (axes.axhline if lines else axes.axvline)(reference, color="#444c56", linewidth=0.8, linestyle="--")
            if lines:
                handles: dict[str, Any] = {}
                for axes in grid[:, 0]:
                    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                        handles.setdefault(label, handle)
                _legend(figure, handles)
        return svg()

    def _lines(self, axes: Axes, values: Sequence[tuple[Result | Peer, float]], shown: Callable[[float], str]) -> None:
        series: dict[str, list[tuple[int, float]]] = {}
        peers = {series_name(self._document, r) for r, _ in values if isinstance(r, Peer)}
        for record, value in values:
            series.setdefault(series_name(self._document, record), []).append((record.batch, value))
        for name, points in series.items():
            x, y = zip(*sorted(points), strict=True)
            line = "--" if name in peers else "-"
            style = {"color": self._series[name], "marker": self._marker(name), "markersize": 4, "linestyle": line}
            axes.plot(x, y, label=_literal(_short(name)), **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        batches = sorted({r.batch for r, _ in values})
        axes.set_xticks(batches, [str(b) for b in batches])
        axes.set_xlabel("batch")
        self._log_ticks(axes.yaxis, shown)

    def _bars(self, axes: Axes, values: Sequence[tuple[Result | Peer, float]], shown: Callable[[float], str]) -> None:
        names = [series_name(self._document, r) for r, _ in values]
        sizes = [v for _, v in values]
        axes.barh(range(len(values)), sizes, height=0.7, color=[self._series[name] for name in names])
        wide = max(sizes) > 30 * min(sizes)
        axes.set_xscale("log" if wide else "linear")
        if wide:
            axes.set_xlim(min(sizes) / 3, max(sizes) * 6)
        else:
            axes.set_xlim(0, max(sizes) * 1.3)
        for row, (record, value) in enumerate(values):
            text = f"{shown(value)} ({clean(record.configuration, 40)})" if isinstance(record, Peer) else shown(value)
            axes.annotate(_literal(text), (value, row), (4, 0), textcoords="offset points", va="center", size=8)
        axes.set_yticks(range(len(values)), [_literal(_short(name)) for name in names])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(_tick(shown))
        if wide:
            self._log_ticks(axes.xaxis, shown)

    def _log_ticks(self, axis: Any, shown: Callable[[float], str]) -> None:
        from matplotlib.ticker import LogLocator, NullFormatter

        low, high = axis.get_view_interval()
        decades = np.log10(high / low) if low > 0 else 9
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if decades < 2.5 else (1,), numticks=12))
        axis.set_major_formatter(_tick(shown))
        axis.set_minor_formatter(NullFormatter())

    def _marker(self, name: str) -> str:
        return _MARKERS[list(self._series).index(name) % len(_MARKERS)]

    def roofline(self, device: str) -> str:
        """Binary operations a second of each kernel against operations a byte, below what the device was seen to do."""
        limits = self._document.limits.get(device)
        points = [
            (r, k, k.binary_operations / k.bytes, k.binary_operations / k.us * 1e6)
            for r in self._binary
            for k in r.kernels
            if r.device == device and k.us and k.bytes > 0 and k.binary_operations > 0
        ]
        if limits is None or not points:
            return ""
        with self._drawing(4.2) as (figure, svg):
            axes = figure.subplots()
            axes.set_xscale("log")
            axes.set_yscale("log")
            intensities = [x for _, _, x, _ in points]
            self._roof(axes, limits, min(intensities) / 4, max(intensities) * 8)
            batches = sorted({r.batch for r, *_ in points})
            for i, batch in enumerate(batches):
                own = [(x, y) for r, _, x, y in points if r.batch == batch]
                style = {"color": _COLOURS[i % len(_COLOURS)], "marker": _MARKERS[i % len(_MARKERS)], "alpha": 0.85}
                axes.scatter(*zip(*own, strict=True), label=f"batch {batch}", s=26, linewidths=0, zorder=3, **style)
            self._name_points(axes, [p for p in points if p[0].batch == batches[-1]])
            axes.set_xlabel("binary operations a byte")
            axes.set_ylabel("binary operations a second")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_major_formatter(_tick(lambda value: quantity(value, "")))
            _legend(figure, dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
        return svg()

    def _roof(self, axes: Axes, limits: Limits, low: float, high: float) -> None:
        x = np.geomspace(low, high, 100)
        slope = np.inf if limits.copy_bytes_per_s is None else limits.copy_bytes_per_s
        for limit, name, style in (
            (limits.binary_ops_per_s, "popcount", "-"),
            (limits.tensor_core_binary_ops_per_s, "tensor cores", "--"),
        ):
            if limit:
                axes.plot(x, np.minimum(limit, slope * x), color="#444c56", linestyle=style, linewidth=1.2)
                if slope * high > limit:
                    text = f"{name}: {quantity(limit, 'op/s')}"
                    axes.annotate(text, (high, limit), (0, 3), textcoords="offset points", ha="right", size=8)
        if limits.copy_bytes_per_s:
            text = f"memory copy: {quantity(limits.copy_bytes_per_s, 'B/s')}"
            axes.plot(x[:2], slope * x[:2], color="#444c56", linewidth=1.2, label=text)

    def _name_points(self, axes: Axes, points: Sequence[tuple[Result, Kernel, float, float]]) -> None:
        """Layers' names beside the points, without two in one place."""
        taken: list[tuple[float, float]] = []
        for _, kernel, x, y in sorted(points, key=lambda p: -p[3])[:24]:
            place = (np.log10(x), np.log10(y))
            if all(abs(place[0] - px) > 0.35 or abs(place[1] - py) > 0.18 for px, py in taken):
                taken.append(place)
                name = _literal(_short(clean(kernel.layer), 20))
                axes.annotate(name, (x, y), (5, -9), textcoords="offset points", size=7.5, color="#444c56")

    def distributions(self) -> str:
        """The samples of each result over their median, as the fraction of samples below; a panel a figure."""
        panels = [name for name in ("host_us", "first_to_last_us") if _has(self._binary, name, least=8)]
        if not panels:
            return ""
        with self._drawing(3.0) as (figure, svg):
            grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
            handles: dict[str, Any] = {}
            for name, axes in zip(panels, grid[0], strict=True):
                least, greatest = 0.95, 1.05
                for result in self._binary:
                    figures: Figure | None = getattr(result, name)
                    if figures is None or len(figures.samples) < 8 or figures.median <= 0:
                        continue
                    fractions = np.linspace(0, 1, 201)
                    values = np.quantile(figures.samples, fractions) / figures.median
                    least, greatest = min(least, float(values[1])), max(greatest, float(values[198]))
                    series = series_name(self._document, result)
                    (line,) = axes.plot(values, 100 * fractions, color=self._series[series], linewidth=1.2, alpha=0.8)
                    handles.setdefault(_literal(_short(series)), line)
                axes.set_xlim(least - 0.02, min(greatest, 4) + 0.02)
                axes.set_title(_FIGURE_NAMES[name])
                axes.set_xlabel("time over the median")
            grid[0][0].set_ylabel("% of samples below")
            _legend(figure, handles)
        return svg()

    @contextmanager
    def _drawing(self, height: float) -> Iterator[tuple[Any, Callable[[], str]]]:
        """A figure to draw on, and what gives its SVG element once that is done."""
        text = ""

        def svg() -> str:
            return text

        with warnings.catch_warnings(), self._matplotlib.rc_context(_STYLE):
            # A layer's name may have characters that the font lacks; the page's reader has others.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure = self._figure_type(figsize=(_WIDTH, height))
            yield figure, svg
            file = io.StringIO()
            self._canvas_type(figure).print_svg(file, metadata={"Date": None})
            text = re.sub(r"^.*?(?=<svg)", "", file.getvalue(), count=1, flags=re.DOTALL)


def series_name(document: Document, record: Result | Peer) -> str:
    """What a record is called in plots: what is the same in all records is left out."""
    if isinstance(record, Peer):
        return clean(f"{record.peer}, {record.device}")
    parts = [record.backend]
    if len({r.bundle for r in document.results if r.role == record.role}) > 1:
        parts.append(record.bundle)
    if len({r.variants for r in document.results}) > 1:
        parts.append(record.variants)
    if record.role == "baseline":
        parts.append("full precision")
    return clean(", ".join(parts))


def _short(name: str, longest: int = 34) -> str:
    """A name that fits; what differs between layers is mostly its end."""
    head = longest // 3
    return name if len(name) <= longest else f"{name[:head]}…{name[head + 1 - longest :]}"


def _legend(figure: Any, handles: Mapping[str, Any]) -> None:
    """A legend below the axes, in as many columns as its labels leave room for; the figure grows by its rows."""
    longest = max(map(len, handles), default=0)
    columns = max(1, min(5, _LEGEND_LETTERS // (longest + 7)))
    figure.set_figheight(figure.get_figheight() + 0.17 * -(-len(handles) // columns))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


def _literal(label: str) -> str:
    """A label that matplotlib does not hide, as it does those that begin with an underscore."""
    return f" {label}" if label.startswith("_") else label


def _has(records: Sequence[Result | Peer], name: str, least: int = 1) -> bool:
    return any((figure := getattr(r, name)) is not None and len(figure.samples) >= least for r in records)
