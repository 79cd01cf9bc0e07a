"""What a verification found."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

__all__ = ["BackendResult", "Difference", "OnnxResult", "OutputResult", "SignResult", "SourceResult", "Verification"]


@dataclass(frozen=True)
class Difference:
    """The first element that differs. ``index`` is in the tensor as ``wanted``'s side has it, without the batch."""

    graph: str
    tensor: str
    node: str
    onnx: str | None
    input: str
    index: tuple[int, ...]
    wanted: float
    found: float
    elements: int
    """Elements of this tensor that differ, in the same batch."""
    position: int
    """Of the tensor in the order of the graph, those of ``pixels`` behind those of ``model``."""

    def before(self, other: Difference | None) -> bool:
        """Whether this is the one to report of the two."""
        return other is None or self.position < other.position

    def __str__(self) -> str:
        where = f"{self.tensor}{list(self.index)}"
        value = f" (ONNX {self.onnx})" if self.onnx and self.onnx != self.tensor else ""
        return f"{where}{value} is {self.found:.9g}, not {self.wanted:.9g}, for {self.input}"


@dataclass
class BackendResult:
    """A device against the reference. ``refused``: why it could not run the network."""

    backend: str
    device: str
    tensors: int = 0
    refused: str | None = None
    first_difference: Difference | None = None

    @property
    def equal(self) -> bool:
        return self.first_difference is None


@dataclass
class SignResult:
    """A sign of the ONNX model, over all inputs.

    ``zeros``: ONNX gives 0, and we give +1. ``near``: ONNX Runtime's number in front is nearer to the threshold than
    the rounding bound. ``flipped``: those of them whose bits differ. ``ties``: accumulators equal to their threshold.
    """

    node: str
    onnx: str
    elements: int = 0
    zeros: int = 0
    near: int = 0
    flipped: int = 0
    ties: int = 0


@dataclass
class OutputResult:
    """An output, over the images that were compared from end to end.

    ``left_out``: images for which a bit flipped. ``differing``: elements that differ.
    ``bound``: the largest of the bounds; 0 says that every element had to be equal.
    """

    name: str
    images: int = 0
    left_out: int = 0
    differing: int = 0
    largest_difference: float = 0.0
    bound: float = 0.0


@dataclass
class OnnxResult:
    """The reference against ONNX Runtime."""

    version: str
    tensors: int = 0
    elements: int = 0
    rounded: int = 0
    """Numbers that differ, by no more than their bound."""
    images: int = 0
    images_with_zeros: int = 0
    images_with_flips: int = 0
    first_difference: Difference | None = None
    signs: dict[str, SignResult] = field(default_factory=dict)
    outputs: dict[str, OutputResult] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return self.first_difference is None


@dataclass(frozen=True)
class SourceResult:
    """Whether the bundle is what the converter makes of the model. ``notes`` say what is not so."""

    same_file: bool
    same_graph: bool
    notes: tuple[str, ...]


@dataclass
class Verification:
    """Everything that was found; ``equal`` if there is no difference without a known cause."""

    bundle: str
    model: str
    seed: int
    source: SourceResult
    onnxruntime: OnnxResult
    backends: list[BackendResult] = field(default_factory=list)
    inputs: Counter[str] = field(default_factory=Counter)

    @property
    def equal(self) -> bool:
        return self.onnxruntime.equal and all(result.equal for result in self.backends)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON document: infinities and NaN as text."""
        onnx = asdict(self.onnxruntime)
        for name in ("signs", "outputs"):
            onnx[name] = list(onnx[name].values())
        document = {
            "equal": self.equal,
            "bundle": self.bundle,
            "model": self.model,
            "seed": self.seed,
            "inputs": dict(self.inputs),
            "source": asdict(self.source),
            "backends": [{**asdict(result), "equal": result.equal} for result in self.backends],
            "onnxruntime": {**onnx, "equal": self.onnxruntime.equal},
        }
        plain: dict[str, Any] = _plain(document)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
