"""The session: ONNX Runtime's interface over a bundle, so that moving over is a change of import.

session = bnnrt.InferenceSession("vehicles.bnn", backend="opencl")
(logits,) = session.run(None, {"input": x})
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bnnrt import bundle as bundles
from bnnrt.backends import open_backend
from bnnrt.backends.base import DeviceInfo
from bnnrt.bundle import Bundle, Port
from bnnrt.errors import BackendError, BundleError, ImageError, InputError
from bnnrt.executor import Executor, Feed, KernelTiming
from bnnrt.graph import STORAGE, Graph, class_scores
from bnnrt.ops import Reshape, Softmax, TensorType
from bnnrt.plan import Plan, make_plan
from bnnrt.preprocess.images import ImageSource
from bnnrt.preprocess.parallel import load_many
from bnnrt.variants import check_choice

__all__ = [
    "PIXELS",
    "WORKERS",
    "Classification",
    "InferenceSession",
    "NodeArg",
    "class_names",
    "ends_in_softmax",
    "load_bundle",
    "scoring",
]

Array = npt.NDArray[Any]
SourceT = TypeVar("SourceT", bound=ImageSource)

PIXELS = "pixels"
# Plans are kept for this many batch sizes; each holds its own device memory.
_KEPT_PLANS = 4
# Images that `classify` runs at once.
_CLASSIFY_BATCH = 16
WORKERS = 4
"""Threads that decode images meanwhile."""

_ORT_TYPES = {"float32": "tensor(float)", "int32": "tensor(int32)", "uint8": "tensor(uint8)", "int64": "tensor(int64)"}


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle, or convert a model if a loader is installed for its suffix (entry points ``bnnrt.loaders``).

    Raises BundleError where the file is no bundle, ConversionError where the model cannot be converted.
    """
    suffix = Path(path).suffix.lower().lstrip(".")
    for entry in entry_points(group="bnnrt.loaders", name=suffix):
        try:
            loader = entry.load()
        except ImportError:
            raise BundleError(
                f"a .{suffix} file needs the converter", os.fspath(path), "run `pip install bnnrt[convert]`"
            ) from None
        loaded: Bundle = loader(path)
        return loaded
    return bundles.read(path)


@dataclass(frozen=True)
class NodeArg:
    """An input or output as ONNX Runtime describes it: ``type`` is such as ``tensor(float)``."""

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class Classification:
    """What a network says of one image.

    ``scores`` has the softmax of the model's output for each class, or the output itself if the model ends in one;
    ``score`` is that of ``label``.
    """

    label: str
    index: int
    score: float
    scores: tuple[float, ...]


def _node_args(ports: Sequence[Port]) -> list[NodeArg]:
    return [NodeArg(p.name, list(p.shape), _ORT_TYPES.get(p.dtype, f"tensor({p.dtype})")) for p in ports]


def _softmax(logits: Array) -> Array:
    """Softmax over the last axis, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    result: Array = powers / powers.sum(axis=-1, keepdims=True)
    return result


def class_names(bundle: Bundle) -> tuple[str, ...]:
    """Names of the classes; numbers where the model has none."""
    if bundle.labels is not None:
        return bundle.labels
    output = bundle.model.types[class_scores(bundle.model) or bundle.model.outputs[0]]
    return tuple(str(index) for index in range(prod(output.with_batch(1)[1:])))


def ends_in_softmax(graph: Graph) -> bool:
    """Whether the scores of the classes are shares of 1 already."""
    producers = graph.producers()
    node = producers.get(class_scores(graph) or "")
    while node is not None and isinstance(node.op, Reshape):
        node = producers.get(node.inputs[0])
    # A softmax over a part of the classes is no score of all of them.
    return node is not None and isinstance(node.op, Softmax) and len(graph.types[node.outputs[0]].shape) == 2


def scoring(graph: Graph | None) -> Graph | None:
    """``graph``, or where it ends in the classes themselves, its part up to their scores; None if it has none."""
    scores = None if graph is None else class_scores(graph)
    if graph is None or scores is None or scores == graph.outputs[0]:
        return graph if scores is not None else None
    return Graph(graph.inputs, graph.nodes, (scores,), graph.constants).rebuilt(graph.nodes)


class InferenceSession:
    """A network on a device.

    Args:
        path: a bundle (``.bnn``), or a model that an installed converter reads (``.onnx``).
        backend: ``auto``, ``numpy``, ``opencl``, or one device such as ``opencl:gpu`` (see :mod:`bnnrt.backends`).
        variants: ``default``, or ``paper`` for the paper's kernels.

    Raises BundleError, ConversionError or BackendError. A session may be used from several threads, which take turns;
    it belongs to the process that opened it.
    """

    def __init__(self, path: str | os.PathLike[str], backend: str = "auto", *, variants: str = "default") -> None:
        check_choice(variants)
        self._bundle = load_bundle(path)
        self._backend = open_backend(backend)
        self._variants = variants
        self._labels = class_names(self._bundle)
        self._gives_scores = ends_in_softmax(self._bundle.model)
        self._scoring = scoring(self._bundle.pixels)
        self._executors: OrderedDict[tuple[int, int], Executor] = OrderedDict()
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False

    @property
    def bundle(self) -> Bundle:
        return self._bundle

    @property
    def labels(self) -> list[str]:
        """Names of the classes; numbers where the model has none."""
        return list(self._labels)

    @property
    def device(self) -> DeviceInfo:
        """The device that the session runs on."""
        return self._backend.info

    @property
    def queue(self) -> Any:
        """What the session's work is enqueued on: ``pyopencl.CommandQueue``, ``pycuda.driver.Stream``, or None."""
        return getattr(self._backend, "queue", None)

    def get_inputs(self) -> list[NodeArg]:
        """The ONNX model's inputs."""
        return _node_args(self._bundle.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The ONNX model's outputs."""
        return _node_args(self._bundle.outputs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], *, outputs: str = "host") -> list[Any]:
        """Run the network once.

        Args:
            output_names: which outputs, in which order; ``None`` for all.
            feeds: an array for each input of the ONNX model, in its own layout; or, for a network that classifies
                images, ``{"pixels": uint8 [N, H, W, C]}``. Arrays that lie on the session's device stay there: on
                CUDA by DLPack or ``__cuda_array_interface__``, on OpenCL a ``pyopencl.array.Array`` on
                :attr:`queue`.
            outputs: ``host`` for NumPy arrays, ``device`` for arrays on the device (on CUDA by the same two protocols,
                on OpenCL as ``pyopencl.array.Array``).

        Raises InputError where a name, shape or dtype does not fit.
        """
        if outputs not in ("host", "device"):
            raise InputError(f"outputs cannot be {outputs}", "outputs", "use host or device")
        self._check_open()
        with self._lock:
            graph, arrays = self._checked(feeds)
            wanted = self._wanted(output_names)
            batch = next(iter(arrays.values())).shape[0]
            if batch == 0:
                return [self._empty(graph.types[name], outputs == "device") for name in wanted]
            results = self._executor(graph, batch).run(arrays, on_device=outputs == "device")
            return [results[name] for name in wanted]

    def run_timed(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.ArrayLike]
    ) -> tuple[list[Array], list[KernelTiming]]:
        """:meth:`run`, and the device's own time of each kernel, in the order of their launches."""
        self._check_open()
        with self._lock:
            graph, arrays = self._checked(feeds)
            wanted = self._wanted(output_names)
            batch = next(iter(arrays.values())).shape[0]
            if batch == 0:
                return self.run(output_names, feeds), []
            results, timings = self._executor(graph, batch).run_timed(arrays)
            return [results[name] for name in wanted], timings

    def plan(self, batch: int = 1) -> Plan:
        """The plan by which a batch runs: from pixels where the network takes images, else from the model's inputs."""
        return make_plan(self._bundle.pixels or self._bundle.model, self.device, batch, self._variants)

    def classify(self, images: Iterable[ImageSource]) -> list[Classification]:
        """Classify a list of image files, file objects, bytes or Pillow images, through the bundle's image pipeline.

        Raises ImageError at the first image that cannot be read (:meth:`classify_each` goes on), and InputError where
        the network does not classify images.
        """
        if isinstance(images, str | bytes | os.PathLike):
            raise InputError("one image is no list of images", "images", "give [image]")
        found = []
        for _, result in self.classify_each(images):
            if isinstance(result, ImageError):
                raise result
            found.append(result)
        return found

    def classify_each(
        self, images: Iterable[SourceT], batch: int = _CLASSIFY_BATCH
    ) -> Generator[tuple[SourceT, Classification | ImageError], None, None]:
        """Pairs of an image and its classification, or the error that kept it from being read, in order.

        Images are decoded by threads meanwhile, and run ``batch`` at a time.
        """
        if self._bundle.pixels is None or self._bundle.pipeline is None:
            raise InputError("the network does not take images", self._bundle.provenance.source, "use run()")
        if self._scoring is None:
            raise InputError("the network gives no scores of classes", self._bundle.provenance.source, "use run()")
        fixed = self._bundle.pixels.inputs[PIXELS].shape[0]
        batch = fixed if fixed is not None else max(1, batch)
        waiting: list[tuple[SourceT, Array | ImageError]] = []
        good = full = 0
        for pair in load_many(images, self._bundle.pipeline, WORKERS):
            waiting.append(pair)
            good += not isinstance(pair[1], ImageError)
            # Errors count too, so that a folder of broken files is reported as it is read.
            if good == batch or len(waiting) == 4 * batch:
                yield from self._classified(waiting, batch)
                full, good, waiting = 1, 0, []
        if waiting:
            # The rest is run as a whole batch where one has been planned already.
            yield from self._classified(waiting, batch if full or fixed is not None else good)

    def _classified(
        self, pairs: list[tuple[SourceT, Array | ImageError]], batch: int
    ) -> Generator[tuple[SourceT, Classification | ImageError], None, None]:
        pixels = [p for _, p in pairs if not isinstance(p, ImageError)]
        rows: Iterable[Array] = ()
        if pixels:
            whole = np.zeros((batch, *pixels[0].shape), dtype=np.uint8)
            np.stack(pixels, out=whole[: len(pixels)])
            output = self._run_pixels(whole)
            rows = output.reshape(len(output), -1)
        remaining = iter(rows)
        for source, pair in pairs:
            yield source, pair if isinstance(pair, ImageError) else self._classification(next(remaining))

    def _run_pixels(self, pixels: Array) -> Array:
        """The scores of a batch uint8 [N, H, W, C], N > 0."""
        self._check_open()
        graph = self._scoring
        assert graph is not None  # classify_each
        with self._lock:
            self._check_open()
            output: Array = self._executor(graph, len(pixels)).run({PIXELS: pixels})[graph.outputs[0]]
            return output

    def _classification(self, output: Array) -> Classification:
        scores = output.astype(np.float64) if self._gives_scores else _softmax(output)
        index = int(output.argmax())
        return Classification(
            label=self._labels[index],
            index=index,
            score=float(scores[index]),
            scores=tuple(float(s) for s in scores),
        )

    def _wanted(self, output_names: Sequence[str] | None) -> Sequence[str]:
        known = [port.name for port in self._bundle.outputs]
        if isinstance(output_names, str):
            raise InputError("one name is no list of outputs", "output_names", f"give [{output_names!r}]")
        unknown = [name for name in output_names or () if name not in known]
        if unknown:
            raise InputError(f"there is no output {unknown[0]}", fix=f"choose among {', '.join(known)}")
        return output_names or known

    def _checked(self, feeds: Mapping[str, npt.ArrayLike]) -> tuple[Graph, dict[str, Feed]]:
        """The graph that takes these feeds, and the feeds as arrays that fit it."""
        self._check_open()  # again: another thread may have closed it meanwhile
        own_name = any(port.name == PIXELS for port in self._bundle.inputs)
        if self._bundle.pixels is not None and list(feeds) == [PIXELS] and not own_name:
            pixel_type = self._bundle.pixels.inputs[PIXELS]
            ports: Sequence[Port] = [Port(PIXELS, pixel_type.shape, "uint8")]
            graph = self._bundle.pixels
        else:
            ports, graph = self._bundle.inputs, self._bundle.model
        names = [port.name for port in ports]
        for name in feeds:
            if name not in names:
                raise InputError(f"there is no input {name}", fix=f"the inputs are {', '.join(names)}")
        arrays: dict[str, Feed] = {}
        batch: int | None = None
        for port in ports:
            if port.name not in feeds:
                raise InputError("an input is missing", port.name, f"feed {', '.join(names)}")
            array = self._array(port, feeds[port.name])
            if array.dtype != np.dtype(port.dtype):
                raise InputError(f"the array is {array.dtype}", port.name, f"give {port.dtype}")
            wanted = graph.inputs[port.name].shape
            fits = len(array.shape) == len(wanted) and all(
                w in (None, a) for w, a in zip(wanted, array.shape, strict=True)
            )
            if not fits or (batch is not None and array.shape[0] != batch):
                shape = ", ".join("N" if w is None else str(w) for w in wanted)
                raise InputError(f"the array has shape {list(array.shape)}", port.name, f"give [{shape}]")
            batch = array.shape[0]
            arrays[port.name] = array
        return graph, arrays

    def _array(self, port: Port, feed: Any) -> Feed:
        """A feed as an array of the host's, or as one that lies on the device."""
        try:
            return self._backend.borrow(feed) or np.asarray(feed)
        except InputError as e:
            raise InputError(e.what, port.name, e.fix) from None
        except (RuntimeError, TypeError, ValueError):  # as array libraries refuse, each in its own way
            raise InputError(
                "the feed is no array that the backend can read", port.name, f"give {port.dtype}"
            ) from None

    def _empty(self, tensor_type: TensorType, on_device: bool) -> Any:
        """The output of a batch of no image."""
        shape, dtype = tensor_type.with_batch(0), STORAGE[tensor_type.domain]
        return self._backend.lend(self._backend.alloc(0), shape, dtype) if on_device else np.empty(shape, dtype)

    def _check_open(self) -> None:
        # Before the lock too: in a forked child it may be held by a thread that does not exist there.
        if self._closed:
            raise InputError("the session is closed", fix="open another")
        if self._process != os.getpid():
            # Drivers do not survive a fork: one that was in use before cannot be used by the child at all.
            fix = "open it there; start the process by spawn if this one has used a device"
            raise InputError("the session was opened in another process", fix=fix)

    def _executor(self, graph: Graph, batch: int) -> Executor:
        key = (id(graph), batch)  # graphs of the session itself, which live as long
        found = self._executors.get(key)
        if found is None:
            plan = make_plan(graph, self.device, batch, self._variants)
            while len(self._executors) >= _KEPT_PLANS:
                self._executors.popitem(last=False)[1].close()
            try:
                found = Executor(self._backend, plan)
            except BackendError:
                if not self._executors:
                    raise
                # The memory that other batches keep may be what is missing.
                while self._executors:
                    self._executors.popitem()[1].close()
                found = Executor(self._backend, plan)
            self._executors[key] = found
        self._executors.move_to_end(key)
        return found

    def close(self) -> None:
        """Free the device's memory. Closing twice is allowed; a session also works as a context manager."""
        if self._process != os.getpid():
            return  # a forked child has no part in the device's memory
        with self._lock:
            if not self._closed:
                self._closed = True
                with ExitStack() as stack:
                    stack.callback(self._backend.close)
                    for executor in self._executors.values():
                        stack.callback(executor.close)
                    self._executors.clear()

    def __del__(self) -> None:
        # A session that nobody closed; what of it exists depends on how far its opening got.
        with suppress(AttributeError, BackendError):
            self.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
