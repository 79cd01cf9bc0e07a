"""The format, pinned: bundles made today have the bytes of the committed ones.

Run this file to write the committed bundles anew, after a change of the format; that takes a new version number.
"""

from __future__ import annotations

import hashlib
import json
import re
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bnnrt import bundle
from bnnrt.bundle import Bundle, Port, Provenance
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import (
    Arithmetic,
    ArithmeticKind,
    BinaryConv,
    BinaryDense,
    BitPool,
    Domain,
    Reshape,
    Sign,
    SignOfZero,
    TensorType,
    Threshold,
    ToFloat,
    Transpose,
    Window,
)
from bnnrt.preprocess.pipeline import ImagePipeline

BUNDLES = Path(__file__).parent / "bundles"
PAGE = Path(__file__).parents[2] / "docs" / "bundle.md"
SHA256 = {
    "dense": "6fc87b63c44fa3909945ee35137cebc72e8a16e61f5a3332d2ecb4ece9cc53d1",
    "tiny": "de1110cfe386d9514f5144202eeaa03ee3b0293b4db67e887859c30a32273b50",
}


def dense() -> Bundle:
    """The example of docs/bundle.md: two neurons of three inputs."""
    graph = Graph(
        inputs={"x": TensorType((None, 3), Domain.FLOAT32)},
        nodes=(
            Node("sign", Sign(), ("x",), ("bits",)),
            Node("fc", BinaryDense(), ("bits", "weights"), ("sums",)),
            Node("cast", ToFloat(), ("sums",), ("y",)),
        ),
        outputs=("y",),
        constants={"weights": Constant.bits([[True, False, True], [False, True, True]])},
    )
    return Bundle(
        model=graph,
        pixels=None,
        inputs=(Port("x", ("batch", 3), "float32"),),
        outputs=(Port("y", ("batch", 2), "float32"),),
        pipeline=None,
        labels=("no", "yes"),
        provenance=Provenance("dense.onnx", "0" * 64, "bnnrt 0.1.0"),
    )


def _mixed(*shape: int) -> npt.NDArray[np.bool_]:
    """Bits without a pattern, the same under every version of NumPy's generators."""
    return np.array([i * i % 23 < 11 for i in range(prod(shape))]).reshape(shape)


def tiny() -> Bundle:
    """Both graphs, shared and separate constants, every domain, text beyond ASCII."""
    shared = {
        "conv.weight": Constant.bits(_mixed(5, 3, 3, 3)),
        "conv.threshold": Constant.of(np.array([-3, 0, 5, 28, -28], np.int32)),
        "conv.falling": Constant.bits([False, True, False, True, True]),
        "fc.weight": Constant.bits(_mixed(3, 20)),
        "scale": Constant.of(np.array([0.5], np.float32)),
    }
    layers = (
        Node("conv", BinaryConv(Window((3, 3), pads=(1, 1, 1, 1)), pad_value=-1), ("bits", "conv.weight"), ("sums",)),
        Node("bn", Threshold(), ("sums", "conv.threshold", "conv.falling"), ("conv.bits",)),
        Node("pool", BitPool(Window((2, 2), strides=(2, 2))), ("conv.bits", "conv.falling"), ("pooled",)),
        Node("flatten", Reshape((20,)), ("pooled",), ("flat",)),
        Node("fc", BinaryDense(), ("flat", "fc.weight"), ("fc.sums",)),
        Node("cast", ToFloat(), ("fc.sums",), ("fc.float",)),
        Node("scale", Arithmetic(ArithmeticKind.MUL), ("fc.float", "scale"), ("scores",)),
    )
    offsets = np.array([-127.5, -100.25, -3.0], np.float32)
    model = Graph(
        inputs={"image": TensorType((None, 3, 4, 4), Domain.FLOAT32)},
        nodes=(
            Node("layout", Transpose((0, 2, 3, 1)), ("image",), ("nhwc",)),
            Node("offset", Arithmetic(ArithmeticKind.ADD), ("nhwc", "T"), ("offset",)),
            Node("sign", Sign(SignOfZero.GT), ("offset",), ("bits",)),
            *layers,
        ),
        outputs=("scores",),
        constants={**shared, "T": Constant.of(offsets)},
    )
    pixels = Graph(
        inputs={"pixels": TensorType((None, 4, 4, 3), Domain.UINT8)},
        nodes=(Node("sign", Threshold(), ("pixels", "T", "rising"), ("bits",)), *layers),
        outputs=("scores",),
        constants={
            **shared,
            "T": Constant.of(np.floor(1 - offsets).astype(np.int32)),
            "rising": Constant.bits([False, False, False]),
        },
    )
    return Bundle(
        model=model,
        pixels=pixels,
        inputs=(Port("image", ("batch", 3, 4, 4), "float32"),),
        outputs=(Port("scores", ("batch", None), "float32"),),
        pipeline=ImagePipeline(height=4, width=4),
        labels=("car", "Straßenbahn", "自行车"),
        provenance=Provenance("tiny.onnx", hashlib.sha256(b"tiny").hexdigest(), "bnnrt 0.1.0"),
    )


MADE = {"dense": dense, "tiny": tiny}


@pytest.mark.parametrize("name", MADE)
def test_the_committed_bundle_is_pinned(name: str) -> None:
    assert hashlib.sha256((BUNDLES / f"{name}.bnn").read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", MADE)
def test_the_same_bundle_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    bundle.write(MADE[name](), tmp_path / "made.bnn")
    assert (tmp_path / "made.bnn").read_bytes() == (BUNDLES / f"{name}.bnn").read_bytes()


@pytest.mark.parametrize("name", MADE)
def test_reading_and_writing_reproduces_the_bytes(name: str, tmp_path: Path) -> None:
    bundle.write(bundle.read(BUNDLES / f"{name}.bnn"), tmp_path / "again.bnn")
    assert (tmp_path / "again.bnn").read_bytes() == (BUNDLES / f"{name}.bnn").read_bytes()


def test_the_page_shows_the_committed_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    data = (BUNDLES / "dense.bnn").read_bytes()
    lines = re.findall(r"^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", page, re.MULTILINE)
    assert len(lines) >= 3
    for offset, shown in lines:
        octets = bytes.fromhex(shown)
        assert data[int(offset, 16) :][: len(octets)] == octets
    shown_document = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert shown_document is not None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(shown_document[1]) == json.loads(header["__metadata__"]["bnnrt"])


if __name__ == "__main__":
    for name, make in MADE.items():
        bundle.write(make(), BUNDLES / f"{name}.bnn")
