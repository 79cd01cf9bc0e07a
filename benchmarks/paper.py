"""The experiment of "Binarized Convolutional Neural Networks for Efficient Inference on GPUs" on the devices at hand.

    python benchmarks/paper.py --backend cuda,opencl:gpu --output benchmarks/results/nvidia-h200/paper.json
    python benchmarks/paper.py --tables benchmarks/results/nvidia-h200/paper.json

Measures the network in full precision and binarized with each way to binarize the input, one image at a time as the
paper does; the cost of an image from batch 1 to 4096; and what the paper compares its kernels with. PyTorch and ONNX
Runtime run the network in full precision beside it where they are installed. ``--tables`` prints a result as the tables
of docs/paper.md; a picture of the cost of an image goes beside the JSON file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from float_network import float_vehicle_network
from paper_networks import SCHEMES, paper_network

from bnnrt.backends import open_backend
from bnnrt.backends.base import Backend, Language
from bnnrt.bench import onnxruntime_peer, torch_peer
from bnnrt.bench.document import Device, Document, Figure, Limits, Peer, Result, read_document, write_document
from bnnrt.bench.environment import describe, environment
from bnnrt.bench.limits import measure_limits
from bnnrt.bench.measure import Subject, expected, measure, random_feeds
from bnnrt.errors import BnnrtError
from bnnrt.session import load_bundle

# The paper's network of most use: what the sweep and the comparisons run.
MAIN = "thresholding RGB"
SETS = ("paper", "default")
SWEEP = (1, 4, 16, 64, 256, 1024, 4096)
SWEEP_RUNS = 20
COMPARED_BATCHES = (1, 256)
COMPARED_RUNS = 5
COMPARED = {
    "Patches (the paper's way first)": (
        "patch_gemm",
        "patch_division",
        "patch_separate",
        "patch_unstaged",
        "patch_width_25",
        "patch_width_32",
    ),
    "Segments of the dense layer": tuple(
        f"dense_segments_{n}" if n != 64 else "dense_segments" for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    ),
    "Reduction": ("dense_segments", "dense_segments_shuffle"),
}
PEER_BATCHES = (1, 256)
PEER_RUNS = {1: 100, 256: 20}


def jobs(backend: Backend, runs: int, batches: tuple[int, ...]) -> Iterator[tuple[Subject, int, int]]:
    """Subject, batch and runs, the paper's table first."""
    for scheme in SCHEMES:
        role = "baseline" if scheme == "float" else "binary"
        for chosen in SETS if scheme != "float" else ("default",):
            yield Subject(scheme, paper_network(scheme), chosen, role), 1, runs
    main = paper_network(MAIN)
    for batch in batches:
        for chosen in SETS if batch > 1 else ():
            yield Subject(MAIN, main, chosen), batch, SWEEP_RUNS
    for name in dict.fromkeys(name for names in COMPARED.values() for name in names):
        if name == "dense_segments_shuffle" and backend.info.language is not Language.CUDA:
            continue
        for batch in COMPARED_BATCHES:
            if batch in (1, *batches):
                yield Subject(MAIN, main, name), batch, COMPARED_RUNS


class Measurements:
    """What has been measured so far, written after each step: hours on a board should not hang on the last of them."""

    def __init__(self, output: Path | None) -> None:
        self._output = output
        self._limits: dict[str, Limits] = {}
        self._devices: dict[str, Device] = {}
        self._results: list[Result] = []
        self._peers: list[Peer] = []
        self._notes: list[str] = []

    def document(self) -> Document:
        notes = tuple(dict.fromkeys(self._notes))
        return Document(
            environment(self._devices.items()), self._limits, tuple(self._results), tuple(self._peers), notes
        )

    def _save(self) -> None:
        if self._output:
            write_document(self.document(), self._output)

    def device(self, asked: str, runs: int, batches: tuple[int, ...]) -> None:
        backend = open_backend(asked)
        device = backend.info.backend
        self._limits[device], notes = measure_limits(backend)
        self._notes += notes
        self._devices[device] = describe(backend.info)
        for subject, batch, count in jobs(backend, runs, batches):
            print(f"{device}: {subject.bundle}, {subject.variants}, batch {batch}", file=sys.stderr)
            try:
                self._results.append(measure(backend, subject, asked, batch, count, self._limits[device]))
            except BnnrtError as e:
                self._notes.append(str(e))
            self._save()
        backend.close()

    def peers(self, batches: tuple[int, ...]) -> None:
        """The network in full precision in PyTorch and in ONNX Runtime, where they are installed."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "float.onnx"
            onnx.save(float_vehicle_network(), path)
            graph = load_bundle(path).model
            for batch in batches:
                feeds = random_feeds(graph, batch, np.random.default_rng(0))
                judged = expected(graph, feeds)
                for name, call in (
                    ("torch", partial(torch_peer.measure, graph, feeds, judged, "float")),
                    ("onnxruntime", partial(onnxruntime_peer.measure, path, feeds, judged)),
                ):
                    print(f"{name}, batch {batch}", file=sys.stderr)
                    try:
                        records, notes = call(runs=PEER_RUNS[batch])
                    except BnnrtError as e:
                        self._notes.append(str(e))
                        continue
                    self._peers += records
                    self._notes += notes
                    self._save()


# The document as tables


def us(figure: Figure | float | None) -> str:
    value = figure.median if isinstance(figure, Figure) else figure
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def head(*cells: str, text: int = 1) -> str:
    return row(*cells) + "\n|" + "---|" * text + "---:|" * (len(cells) - text)


def of(document: Document, device: str, variants: str, batch: int, bundle: str) -> Result | None:
    wanted = (device, variants, batch, bundle)
    return next((r for r in document.results if (r.device, r.variants, r.batch, r.bundle) == wanted), None)


def tables(document: Document) -> Iterator[str]:
    """Markdown: the paper's table, the other figures, peers, the sweep, the comparisons."""
    devices = list(document.limits)
    for chosen in SETS:
        yield f"\n**The paper's table, variants `{chosen}`**: mean of first-to-last, microseconds an image\n"
        yield head("Input", *(f"{d} ({document.environment.devices[d].name})" for d in devices))
        for scheme in SCHEMES:
            found = [of(document, d, "default" if scheme == "float" else chosen, 1, scheme) for d in devices]
            yield row(
                scheme,
                *("-" if r is None or r.first_to_last_us is None else f"{r.first_to_last_us.mean:.1f}" for r in found),
            )
    for device in devices:
        yield f"\n**The other figures, batch 1, {device}** (medians, microseconds)\n"
        yield head("Input", "Variants", "Launches", "kernels_sum", "replay", "single replay", "first to last",
                   "events_sum", "an empty kernel's event", "host", text=2)  # fmt: skip
        for r in document.results:
            if r.device == device and r.batch == 1 and r.variants in SETS:
                yield row(r.bundle, r.variants, len(r.kernels), us(r.kernels_sum_us), us(r.replay_us),
                          us(r.single_replay_us), us(r.first_to_last_us), us(r.events_sum_us),
                          us(r.event_floor_us), us(r.host_us))  # fmt: skip
    if document.peers:
        yield "\n**The network in full precision elsewhere** (medians, microseconds a batch)\n"
        yield head("Peer", "Batch", "kernels_sum", "replay", "first to last", "host")
        for p in document.peers:
            name = f"{p.peer}, {p.configuration}" + (" (best)" if p.best else "")
            yield row(name, p.batch, us(p.kernels_sum_us), us(p.replay_us), us(p.first_to_last_us), us(p.host_us))
    yield f"\n**Microseconds an image by batch, {MAIN}** (kernels_sum / batch)\n"
    yield head("Batch", *(f"{d}, {chosen}" for d in devices for chosen in SETS))
    for batch in SWEEP:
        found = [of(document, d, chosen, batch, MAIN) for d in devices for chosen in SETS]
        if any(found):
            costs = [r.kernels_sum_us.median / batch if r and r.kernels_sum_us else None for r in found]
            yield row(batch, *("-" if c is None else f"{c:.3g}" for c in costs))
    for title, names in COMPARED.items():
        layer = "conv2" if names[0].startswith("patch") else "dense1"
        yield f"\n**{title}**: {layer}, steady state, microseconds\n"
        columns = [(d, b) for d in devices for b in COMPARED_BATCHES]
        yield head("Variant", *(f"{d}, batch {b}" for d, b in columns))
        for name in names:
            yield row(f"`{name}`", *(us(_compared(document, d, name, b)) for d, b in columns))
    for device in devices:
        yield from consists_of(document, device)


def consists_of(document: Document, device: str) -> Iterator[str]:
    """Markdown: what each kernel's time consists of, by the limits of the same run."""
    launch = document.limits[device].empty_kernel_us.steady
    if launch is None:
        return
    for batch in COMPARED_BATCHES:
        for chosen in SETS:
            result = of(document, device, chosen, batch, MAIN)
            if result is None:
                continue
            yield f"\n**{device}, `{chosen}`, batch {batch}**: microseconds, and what they would be at the limits\n"
            yield head("Kernel", "Layer", "Time", "A launch", "Memory", "Counting", "The rest", text=2)
            for k in result.kernels:
                taken = k.us or 0.0
                memory, counts = ((part or 0.0) * taken for part in (k.fraction_of_copy, k.fraction_of_counting))
                # Memory and arithmetic can overlap: what neither explains is the latency of their chain.
                rest = max(0.0, taken - launch - max(memory, counts))
                times = (taken, launch, memory, counts, rest)
                yield row(f"`{k.name}`", k.layer, *(f"{us:.2f}" for us in times))


def _compared(document: Document, device: str, variant: str, batch: int) -> float | None:
    """Time of the second convolution without its product, or of the first dense layer.

    On GPUs the first convolution is one kernel with the thresholds of the pixels, whatever is asked for by name.
    """
    result = of(document, device, variant, batch, MAIN)
    if result is None:
        return None
    layers: dict[str, float] = {}
    for k in result.kernels:
        if k.variant == variant and k.name != "xnor_gemm":
            layers[k.layer] = layers.get(k.layer, 0.0) + (k.us or 0.0)
    times = list(layers.values())
    return times[-1 if variant.startswith("patch") else 0] if times else None


def plot(document: Document, path: Path) -> None:
    """Cost of an image by batch, with PyTorch's best."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "bnnrt"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for device in document.limits:
        for chosen in SETS:
            found = [(b, of(document, device, chosen, b, MAIN)) for b in SWEEP]
            points = [(b, r.kernels_sum_us.median / b) for b, r in found if r and r.kernels_sum_us]
            axes.plot(*zip(*points, strict=True), marker="o", label=f"{device}, {chosen}")
    best = [(p.batch, p.kernels_sum_us.median / p.batch) for p in document.peers if p.best and p.kernels_sum_us]
    if best:
        axes.plot(
            *zip(*best, strict=True), marker="s", linestyle="--", color="black", label="PyTorch/cuDNN, full precision"
        )
    axes.set(xscale="log", yscale="log", xlabel="images in a batch", ylabel="kernels_sum, µs an image")
    axes.set_xticks(SWEEP, [str(b) for b in SWEEP])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="auto", help="backends, separated by commas")
    parser.add_argument("--runs", type=int, default=1000, help="images of the paper's table")
    parser.add_argument("--largest", type=int, default=SWEEP[-1], help="largest batch of the sweep")
    parser.add_argument("--output", type=Path, help="where to write the JSON document, and a picture beside it")
    parser.add_argument("--tables", type=Path, help="a document to print as tables, without measuring")
    arguments = parser.parse_args()
    if arguments.tables:
        document = read_document(arguments.tables)
    else:
        measured = Measurements(arguments.output)
        first, *others = arguments.backend.split(",")
        batches = tuple(b for b in SWEEP if b <= arguments.largest)
        measured.device(first, arguments.runs, batches)
        measured.peers(tuple(b for b in PEER_BATCHES if b <= arguments.largest))
        for backend in others:
            measured.device(backend, arguments.runs, batches)
        document = measured.document()
    for line in tables(document):
        print(line)
    output = arguments.output or arguments.tables
    if output:
        plot(document, output.with_suffix(".svg"))
    return 0 if all(r.checked for r in document.results) else 1


if __name__ == "__main__":
    sys.exit(main())
