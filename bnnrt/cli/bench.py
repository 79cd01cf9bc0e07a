"""``bnnrt bench``: how fast a network is on a device, kernel by kernel, and beside what else there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bnnrt.cli.output import console, print_error, status, table
from bnnrt.errors import InputError
from bnnrt.session import load_bundle
from bnnrt.variants import check_choice

# What measures is loaded when it is asked for: a board starts its other commands faster without.
if TYPE_CHECKING:
    from bnnrt.bench.compare import Row
    from bnnrt.bench.document import Document, Figure, Kernel, Peer, Result
    from bnnrt.bench.run import Request

__all__ = ["register"]

_TIMES = ("first_to_last_us", "kernels_sum_us", "events_sum_us", "replay_us", "host_us")
_RESULTS = ".json"


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    bundles: Annotated[
        list[Path] | None,
        typer.Argument(metavar="BUNDLE...", help="Bundles, models, or a .json of results to show.", readable=False),
    ] = None,
    backend: Annotated[str, typer.Option("--backend", help="Backends, separated by commas.")] = "auto",
    batch: Annotated[str, typer.Option("--batch", help="Images at once, separated by commas.")] = "1",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Random batches that are run one at a time.")] = 1000,
    variants: Annotated[
        str, typer.Option("--variants", help="default, paper or the name of a variant, separated by commas.")
    ] = "default",
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FLOAT.onnx", help="The network in full precision.", readable=False),
    ] = None,
    peer: Annotated[str, typer.Option("--peer", help="Others to measure: onnxruntime, torch.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.json", help="Where to write the results.", readable=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="A page with plots to write.", readable=False)
    ] = None,
    comparison: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A.json B.json", help="Print the ratios of two results, B to A."),
    ] = None,
) -> None:
    """Measure networks on devices, with the device's own timers.

    Prints the figures of each network and a row for each kernel. Peers run the network of [bold]--baseline[/bold], or
    else the bundle's own. What cannot be measured is reported, the rest goes on, and the exit status is 1.

    Example: [bold]bnnrt bench vehicle.bnn --backend cuda --batch 1,16 --output bench.json --report bench.html[/bold]
    """
    from bnnrt.bench.compare import compare
    from bnnrt.bench.document import read_document, write_document
    from bnnrt.bench.report import plots_available, write_report
    from bnnrt.bench.run import run

    if comparison:
        console().print(_comparison(compare(*map(read_document, comparison))))
        return
    if not bundles:
        raise InputError("nothing to measure", "BUNDLE", "name a bundle, or two results with --compare")
    if report and not plots_available():
        raise InputError("matplotlib is not installed", "--report", "run `pip install bnnrt[report]`")
    failed = False
    if bundles[0].suffix == _RESULTS:
        document = read_document(bundles[0])
    else:
        request = _request(bundles, _list(backend), _batches(batch), runs, _list(variants), baseline, _list(peer))
        with status("measuring") as tell:
            document, errors = run(request, tell)
        for error in errors:
            print_error(error)
        wrong = [r for r in document.results if not r.checked]
        for result in wrong:
            print_error(f"outputs differ from numpy's ({result.bundle}, {result.device}): please report it")
        failed = bool(errors or wrong)
    _print(document)
    if output:
        write_document(document, output)
    if report:
        write_report(document, report)
    if failed:
        raise typer.Exit(1)


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part for part in (piece.strip() for piece in text.split(",")) if part))


def _batches(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in _list(text)]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise InputError(f"{text} is no list of batch sizes", "--batch", "give such as 1,16,256")
    return sizes


def _request(
    bundles: list[Path],
    backends: list[str],
    batches: list[int],
    runs: int,
    variants: list[str],
    baseline: Path | None,
    peers: list[str],
) -> Request:
    from bnnrt.bench.measure import Subject
    from bnnrt.bench.run import PeerModel, Request

    for chosen in variants:
        check_choice(chosen)
    subjects, models = [], []
    for path in bundles:
        bundle = load_bundle(path)
        subjects += [Subject(path.name, bundle.pixels or bundle.model, chosen) for chosen in variants]
        models.append(PeerModel(path.name, bundle.model, path if path.suffix == ".onnx" else None))
    if baseline:
        full = load_bundle(baseline)
        subjects.append(Subject(baseline.name, full.pixels or full.model, role="baseline"))
        models = [PeerModel(baseline.name, full.model, baseline if baseline.suffix == ".onnx" else None)]
    return Request(subjects, backends, batches, runs, peers, models)


def _cell(figure: Figure | None) -> str:
    return f"{figure.median:.1f}" if figure else "-"


def _print(document: Document) -> None:
    out = console()
    for result in document.results:
        out.print(_kernels(result, document))
    summary = table(
        "Microseconds a batch (medians)", "network", "device", "batch", "variants", *map(_heading, _TIMES), "exact",
        right=["batch", *map(_heading, _TIMES)],
    )  # fmt: skip
    for r in document.results:
        times = (_cell(getattr(r, name)) for name in _TIMES)
        summary.add_row(r.bundle, r.device, str(r.batch), r.variants, *times, "yes" if r.checked else "NO")
    for p in document.peers:
        times = (_cell(getattr(p, name)) for name in _TIMES)
        best = ", best" if p.best else ""
        where = f"{p.peer}, {p.device}"
        summary.add_row(p.model, where, str(p.batch), p.configuration + best, *times, "close" if p.checked else "NO")
    out.print(summary)
    for device, limits in document.limits.items():
        known = document.environment.devices.get(device)
        parts = [f"{device}: {known.name}" if known else device]
        if limits.copy_bytes_per_s:
            parts.append(f"copies {limits.copy_bytes_per_s / 1e9:.1f} GB/s")
        if limits.popcounts_per_s:
            parts.append(f"{limits.popcounts_per_s / 1e9:.1f} G popcounts/s")
        if limits.tensor_core_binary_ops_per_s:
            parts.append(f"1-bit tensor cores {limits.tensor_core_binary_ops_per_s / 1e12:.0f} Top/s")
        if limits.empty_kernel_us.event and limits.empty_kernel_us.steady:
            empty = limits.empty_kernel_us
            parts.append(f"empty kernel {empty.event:.1f} us by its event, {empty.steady:.2f} us in a row")
        out.print(", ".join(parts))
    for note in document.notes:
        out.print(f"note: {note}")


def _heading(figure: str) -> str:
    return figure.removesuffix("_us").replace("_", " ")


def _kernels(result: Result, document: Document) -> Table:
    title = f"{result.bundle} on {result.device}, batch {result.batch}, {result.variants}"
    columns = ("layer", "kernel", "variant", "grid", "block", "us", "share", "Gop/s", "GB/s", "of counting", "of copy")
    rows = table(title, *columns, right=columns[5:])
    for k in result.kernels:
        rows.add_row(k.layer, k.name, k.variant, _extent(k.grid), _extent(k.block), *_rates(k))
    return rows


def _extent(sizes: tuple[int, ...] | None) -> str:
    return "x".join(map(str, sizes)) if sizes else "-"


def _rates(kernel: Kernel) -> list[str]:
    def part(fraction: float | None) -> str:
        return "-" if fraction is None else f"{fraction:.1%}"

    if not kernel.us:
        return ["-"] * 6
    done = kernel.binary_operations or kernel.float_operations
    return [
        f"{kernel.us:.2f}",
        part(kernel.share),
        f"{done / kernel.us / 1e3:.1f}",
        f"{kernel.bytes / kernel.us / 1e3:.1f}",
        part(kernel.fraction_of_counting),
        part(kernel.fraction_of_copy),
    ]


def _comparison(rows: list[Row]) -> Table:
    """Ratios below 1 are faster; in parentheses where the difference may be noise."""
    made = table(
        "B / A (in parentheses: within the spread)", "record", "figure", "A", "B", "ratio", right=["A", "B", "ratio"]
    )
    for row in rows:
        name = ", ".join(row.key)
        record: Result | Peer | None = row.a or row.b
        if row.a is None or row.b is None:
            made.add_row(name, "only in " + ("B" if row.a is None else "A"), "", "", "")
            continue
        assert record is not None
        for change in row.figures:
            if change.ratio is not None:
                ratio = f"({change.ratio:.2f})" if change.overlap else f"{change.ratio:.2f}"
                made.add_row(name, _heading(change.figure), _cell(change.a), _cell(change.b), ratio)
        for kernel in row.kernels:
            times = ("-" if us is None else f"{us:.2f}" for us in (kernel.a_us, kernel.b_us))
            ratio = "-" if kernel.ratio is None else f"{kernel.ratio:.2f}"
            made.add_row(name, f"{kernel.name} ({kernel.layer})", *times, ratio)
    return made
