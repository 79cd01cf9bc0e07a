"""PyTorch as a peer. Where it is installed (`make test` does without), operators are compared with the reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnnrt import ops, reference
from bnnrt.bench import torch_network, torch_peer
from bnnrt.bench.peers import deviation
from bnnrt.bench.torch_network import TorchNetwork
from bnnrt.errors import BackendError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import OPS, ArithmeticKind, Domain, SignOfZero, TensorType, Window

Array = npt.NDArray[Any]
FLOAT, BIT, INT, PIXEL = Domain.FLOAT32, Domain.BIT, Domain.INT32, Domain.UINT8
SAME = Window((3, 3), pads=(1, 1, 1, 1))
UNEVEN = Window((3, 2), (2, 1), (0, 1, 2, 0), (1, 2))
WIDE = Window((2, 2), pads=(1, 1, 1, 1), strides=(2, 2))


def bits(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice(np.array([-1, 1], np.float32), shape)


def reals(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def thresholds(rng: np.random.Generator, channels: int, reach: int = 8) -> tuple[Constant, Constant]:
    limits = rng.integers(-reach, reach, channels).astype(np.int32)
    limits[0] = np.iinfo(np.int32).max  # never reached
    return Constant.of(limits), Constant.bits(bits(rng, channels) > 0)


def one(op: ops.Op, domain: Domain, shape: tuple[int, ...], *constants: Constant) -> Graph:
    names = [f"c{i}" for i in range(len(constants))]
    node = Node("node", op, ("x", *names), ("y",))
    return Graph({"x": TensorType((None, *shape), domain)}, (node,), ("y",), dict(zip(names, constants, strict=True)))


def behind_relu(op: ops.Op, shape: tuple[int, ...]) -> Graph:
    nodes = (Node("relu", ops.Relu(), ("x",), ("a",)), Node("node", op, ("a",), ("y",)))
    return Graph({"x": TensorType((None, *shape), FLOAT)}, nodes, ("y",))


def random(rng: np.random.Generator, domain: Domain, shape: tuple[int, ...], batch: int = 3) -> Array:
    if domain is BIT:
        return bits(rng, batch, *shape)
    if domain is PIXEL:
        return rng.integers(0, 256, (batch, *shape)).astype(np.uint8)
    if domain is INT:
        return rng.integers(-20, 21, (batch, *shape)).astype(np.int32)
    return np.round(reals(rng, batch, *shape), 1) + np.float32(0)  # some are 0


R = np.random.default_rng(7)
IMAGE = (6, 5, 4)
CASES: dict[str, Graph] = {
    "binary conv, padded with 0": one(ops.BinaryConv(SAME), BIT, IMAGE, Constant.bits(bits(R, 6, 3, 3, 4) > 0)),
    "binary conv, padded with +1": one(ops.BinaryConv(SAME, 2, 1), BIT, IMAGE, Constant.bits(bits(R, 6, 3, 3, 2) > 0)),
    "binary conv, uneven, padded with -1": one(
        ops.BinaryConv(UNEVEN, 1, -1), BIT, IMAGE, Constant.bits(bits(R, 5, 3, 2, 4) > 0)
    ),
    "binary conv, uneven, padded with 0": one(
        ops.BinaryConv(UNEVEN), BIT, IMAGE, Constant.bits(bits(R, 5, 3, 2, 4) > 0)
    ),
    "binary weights": one(ops.BinaryWeightConv(SAME, 2), FLOAT, IMAGE, Constant.bits(bits(R, 6, 3, 3, 2) > 0)),
    "conv": one(ops.Conv(UNEVEN), FLOAT, IMAGE, Constant.of(reals(R, 5, 3, 2, 4))),
    "depthwise conv": one(ops.Conv(SAME, 4), FLOAT, IMAGE, Constant.of(reals(R, 4, 3, 3, 1))),
    "binary dense": one(ops.BinaryDense(), BIT, (37,), Constant.bits(bits(R, 5, 37) > 0)),
    "binary weights, dense": one(ops.BinaryWeightDense(), FLOAT, (37,), Constant.bits(bits(R, 5, 37) > 0)),
    "dense": one(ops.Dense(), FLOAT, (37,), Constant.of(reals(R, 5, 37))),
    "threshold of integers": one(ops.Threshold(), INT, IMAGE, *thresholds(R, 4)),
    "threshold of a vector": one(ops.Threshold(), INT, (9,), *thresholds(R, 9)),
    "threshold of pixels": one(ops.Threshold(), PIXEL, (6, 5, 3), *thresholds(R, 3, 200)),
    "grayscale": one(ops.Grayscale(), PIXEL, (6, 5, 3)),
    "local binary pattern": one(ops.LocalBinaryPattern(), PIXEL, (6, 5, 1)),
    "sign, 0 is +1": one(ops.Sign(), FLOAT, IMAGE),
    "sign, 0 is -1": one(ops.Sign(SignOfZero.GT), FLOAT, (9,)),
    "bit pool": one(ops.BitPool(WIDE), BIT, IMAGE, Constant.bits(np.array([True, False, True, False]))),
    "bit pool, only OR": one(ops.BitPool(SAME), BIT, IMAGE, Constant.bits(np.zeros(4, np.bool_))),
    "max pool": one(ops.MaxPool(UNEVEN), FLOAT, IMAGE),
    "max pool of integers": one(ops.MaxPool(WIDE), INT, IMAGE),
    "average pool": one(ops.AveragePool(Window((2, 2), (2, 2))), FLOAT, IMAGE),
    "average pool, padding left out": one(ops.AveragePool(SAME), FLOAT, IMAGE),
    "average pool, padding counted": one(ops.AveragePool(SAME, (1, 1, 1, 1)), FLOAT, IMAGE),
    "average pool, uneven": one(ops.AveragePool(UNEVEN, (0, 1, 1, 0)), FLOAT, IMAGE),
    "average pool, the whole image": one(ops.AveragePool(Window((6, 5))), FLOAT, IMAGE),
    "relu": one(ops.Relu(), FLOAT, IMAGE),
    "prelu": one(ops.PRelu(), FLOAT, IMAGE, Constant.of(reals(R, 4))),
    "prelu, one slope": one(ops.PRelu(), FLOAT, (9,), Constant.of(reals(R, 1))),
    "prelu of three dimensions": one(ops.PRelu(), FLOAT, (5, 4), Constant.of(reals(R, 4))),
    "clip": one(ops.Clip(-0.5, float("inf")), FLOAT, IMAGE),
    "sigmoid": one(ops.Sigmoid(), FLOAT, IMAGE),
    "softmax of an image": one(ops.Softmax(), FLOAT, IMAGE),
    "softmax of three dimensions": one(ops.Softmax(), FLOAT, (5, 4)),
    "log softmax of an image": one(ops.LogSoftmax(), FLOAT, IMAGE),
    **{
        f"{op.extreme.value} of {len(shape)} dimensions, of equals the {op.ties.value}": one(op, FLOAT, shape)
        for op in (ops.ArgMax(), ops.ArgMax(ops.Extreme.LEAST, ops.Ties.LAST))
        for shape in ((6, 40), (6, 5, 40))
    },
    **{
        f"{op.picked.value} of the {op.extreme.value} of {len(shape)} dimensions": one(op, FLOAT, shape)
        for op in (ops.TopK(30), ops.TopK(30, ops.Extreme.LEAST, ops.Picked.INDICES))
        for shape in ((60,), (6, 5, 60))
    },
    "integers to int64": one(ops.ToInt64(), INT, IMAGE),
    **{
        f"gather along axis {axis}": one(ops.Gather(axis), BIT, IMAGE, Constant.of(np.int32([3, 0, 3])))
        for axis in (1, 2, 3)
    },
    "gather of two dimensions": one(ops.Gather(1), FLOAT, (9,), Constant.of(np.int32([8, 0, 3]))),
    "pad": one(ops.Pad((1, 0, 2, 3), -1.5), FLOAT, IMAGE),
    "to float": one(ops.ToFloat(), PIXEL, IMAGE),
    "bits to float": one(ops.ToFloat(), BIT, (9,)),
    "integers to float": one(ops.ToFloat(), INT, IMAGE),
    "transpose": one(ops.Transpose((0, 2, 3, 1)), FLOAT, IMAGE),
    "transpose of five dimensions": one(ops.Transpose((0, 4, 2, 1, 3)), FLOAT, (2, 3, 4, 5)),
    "transpose within": behind_relu(ops.Transpose((0, 2, 3, 1)), IMAGE),
    "transpose of five dimensions within": behind_relu(ops.Transpose((0, 4, 2, 1, 3)), (2, 3, 4, 5)),
    "an input that is transposed and read": Graph(
        {"x": TensorType((None, 4, 4, 4), FLOAT)},
        (
            Node("transpose", ops.Transpose((0, 3, 1, 2)), ("x",), ("a",)),
            Node("add", ops.Arithmetic(ArithmeticKind.ADD), ("a", "x"), ("y",)),
        ),
        ("y", "a"),
    ),
    "reshape to a vector": one(ops.Reshape((120,)), FLOAT, IMAGE),
    "reshape to an image": one(ops.Reshape((4, 5, 6)), BIT, (120,)),
    "reshape to five dimensions": one(ops.Reshape((2, 3, 5, 4)), FLOAT, IMAGE),
    **{
        f"{kind.value} a vector": one(ops.Arithmetic(kind), FLOAT, IMAGE, Constant.of(np.float32([1.5, -2, 3, 0.5])))
        for kind in ArithmeticKind
    },
    **{
        f"{kind.value} of tensors that repeat": Graph(
            {"x": TensorType((None, 6, 1, 4), FLOAT), "z": TensorType((None, 1, 5, 1), FLOAT)},
            (Node("n", ops.Arithmetic(kind), ("x", "z"), ("y",)),),
            ("y",),
        )
        for kind in (ArithmeticKind.SUB, ArithmeticKind.MAX)
    },
    "divide by 0": one(ops.Arithmetic(ArithmeticKind.DIV), FLOAT, (2,), Constant.of(np.float32([2, 0]))),
    "add one number": one(ops.Arithmetic(ArithmeticKind.ADD), FLOAT, (9,), Constant.of(np.float32([1.5]))),
    **{
        f"{kind.value} from a constant": Graph(
            {"x": TensorType((None, *IMAGE), FLOAT)},
            (Node("n", ops.Arithmetic(kind), ("c", "x"), ("y",)),),
            ("y",),
            {"c": Constant.of(np.float32([1.5, -2, 3, 0.5]))},
        )
        for kind in (ArithmeticKind.SUB, ArithmeticKind.ADD)
    },
    "add a constant image": Graph(
        {"x": TensorType((1, *IMAGE), FLOAT)},
        (Node("n", ops.Arithmetic(ArithmeticKind.ADD), ("c", "x"), ("y",)),),
        ("y",),
        {"c": Constant.of(reals(R, 1, *IMAGE))},
    ),
    "a residual": Graph(
        {"x": TensorType((None, *IMAGE), FLOAT)},
        (
            Node("conv", ops.Conv(SAME), ("x", "w"), ("a",)),
            Node("scale", ops.Arithmetic(ArithmeticKind.MUL), ("a", "s"), ("b",)),
            Node("shift", ops.Arithmetic(ArithmeticKind.SUB), ("t", "b"), ("c",)),
            Node("relu", ops.Relu(), ("c",), ("d",)),
            Node("add", ops.Arithmetic(ArithmeticKind.ADD), ("d", "x"), ("e",)),
            Node("twice", ops.Arithmetic(ArithmeticKind.ADD), ("e", "e"), ("f",)),
            Node("concat", ops.Concat(), ("e", "f"), ("g",)),
        ),
        ("c", "g"),
        {"w": Constant.of(reals(R, 4, 3, 3, 4)), "s": Constant.of(reals(R, 4)), "t": Constant.of(reals(R, 1))},
    ),
    "scaled accumulators": Graph(
        {"x": TensorType((None, *IMAGE), BIT)},
        (
            Node("conv", ops.BinaryConv(SAME), ("x", "w"), ("a",)),
            Node("float", ops.ToFloat(), ("a",), ("b",)),
            Node("scale", ops.Arithmetic(ArithmeticKind.DIV), ("b", "s"), ("c",)),
            Node("shift", ops.Arithmetic(ArithmeticKind.ADD), ("c", "t"), ("y",)),
        ),
        ("y",),
        {
            "w": Constant.bits(bits(R, 4, 3, 3, 4) > 0),
            "s": Constant.of(np.float32([2, -3, 4, 0.5])),
            "t": Constant.of(reals(R, 4)),
        },
    ),
    "dense layers behind an image": Graph(
        {"x": TensorType((None, *IMAGE), BIT)},
        (
            Node("flat", ops.Reshape((120,)), ("x",), ("a",)),
            Node("fc1", ops.BinaryDense(), ("a", "w"), ("b",)),
            Node("fc2", ops.BinaryDense(), ("a", "v"), ("c",)),
        ),
        ("b", "c"),
        {"w": Constant.bits(bits(R, 5, 120) > 0), "v": Constant.bits(bits(R, 7, 120) > 0)},
    ),
    "an image that is flattened for others too": Graph(
        {"x": TensorType((None, *IMAGE), BIT)},
        (
            Node("flat", ops.Reshape((120,)), ("x",), ("a",)),
            Node("fc1", ops.BinaryDense(), ("a", "w"), ("b",)),
            Node("float", ops.ToFloat(), ("a",), ("c",)),
        ),
        ("b", "c"),
        {"w": Constant.bits(bits(R, 5, 120) > 0)},
    ),
    "a concatenated constant": Graph(
        {"x": TensorType((1, 4), FLOAT)},
        (Node("n", ops.Concat(), ("c", "x"), ("y",)),),
        ("y",),
        {"c": Constant.of(reals(R, 1, 3))},
    ),
}


def feeds_of(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: random(rng, t.domain, t.shape[1:], t.shape[0] or 3) for name, t in graph.inputs.items()}  # type: ignore[arg-type]


def network() -> tuple[Graph, dict[str, Array], Mapping[str, Array]]:
    """A small network from pixels, what is fed to it and what comes out."""
    rng = np.random.default_rng(3)
    graph = Graph(
        {"pixels": TensorType((None, 8, 8, 3), PIXEL)},
        (
            Node("bits", ops.Threshold(), ("pixels", "pt", "pf"), ("a",)),
            Node("conv", ops.BinaryConv(SAME), ("a", "cw"), ("b",)),
            Node("norm", ops.Threshold(), ("b", "ct", "cf"), ("c",)),
            Node("pool", ops.BitPool(Window((2, 2), (2, 2))), ("c", "m"), ("d",)),
            Node("flat", ops.Reshape((256,)), ("d",), ("e",)),
            Node("fc", ops.BinaryDense(), ("e", "fw"), ("f",)),
            Node("float", ops.ToFloat(), ("f",), ("g",)),
            Node("scale", ops.Arithmetic(ArithmeticKind.MUL), ("g", "s"), ("scores",)),
        ),
        ("scores",),
        {
            **dict(zip(("pt", "pf"), thresholds(rng, 3, 200), strict=True)),
            **dict(zip(("ct", "cf"), thresholds(rng, 16), strict=True)),
            "cw": Constant.bits(bits(rng, 16, 3, 3, 3) > 0),
            "m": Constant.bits(bits(rng, 16) > 0),
            "fw": Constant.bits(bits(rng, 10, 256) > 0),
            "s": Constant.of(reals(rng, 10)),
        },
    )
    feeds = {"pixels": random(rng, PIXEL, (8, 8, 3), 2)}
    return graph, feeds, reference.run(graph, feeds)


def test_every_counterpart_is_compared() -> None:
    covered = {*torch_network._LAYERS, *torch_network._FUNCTIONS}
    assert covered <= set(OPS.values())
    assert {type(node.op) for graph in CASES.values() for node in graph.nodes} == covered


def test_without_pytorch_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    graph, feeds, expected = network()
    with pytest.raises(BackendError, match=r"PyTorch is not installed .*: run `pip install torch`"):
        torch_peer.measure(graph, feeds, expected, "model")


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    graph = CASES[name]
    feeds = feeds_of(graph)
    with torch.inference_mode():
        built = TorchNetwork(torch, graph, "cpu", torch.float32, channels_last=layout == "channels_last")
        inputs = [built.upload(built.feed(key, feeds[key])) for key in graph.inputs]
        found = built.arrays(built.run(inputs))
        calls = built.calls(inputs)
    assert [step for step, _, _ in calls] == list(built.steps)
    for step, _, output in calls:
        if step.output in found:
            np.testing.assert_array_equal(built.arrays([output] * len(found))[step.output], found[step.output])
    expected = reference.run(graph, feeds)
    for key, wanted in expected.items():
        exact = graph.types[key].domain is not FLOAT
        np.testing.assert_allclose(found[key], wanted, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("name", ["a residual", "scaled accumulators", "dense layers behind an image"])
def test_half_precision(name: str) -> None:
    torch = pytest.importorskip("torch")
    graph = CASES[name]
    feeds = feeds_of(graph)
    with torch.inference_mode():
        built = TorchNetwork(torch, graph, "cpu", torch.float16, channels_last=True)
        found = built.arrays(built.run([built.upload(built.feed(key, feeds[key])) for key in graph.inputs]))
    assert all(array.dtype == np.float16 for array in found.values())
    assert deviation(found, reference.run(graph, feeds)) < 1e-2


def test_constant_scales_and_shifts_are_folded_into_layers() -> None:
    torch = pytest.importorskip("torch")
    steps = TorchNetwork(torch, CASES["scaled accumulators"], "cpu", torch.float32, channels_last=False).steps
    assert [step.name for step in steps] == ["conv"]
    steps = TorchNetwork(torch, CASES["a residual"], "cpu", torch.float32, channels_last=False).steps
    assert [step.name for step in steps] == ["conv", "relu", "add", "twice", "concat"]


def test_a_network_on_the_cpu() -> None:
    pytest.importorskip("torch")
    graph, feeds, expected = network()
    peers, notes = torch_peer.measure(graph, feeds, expected, "small.onnx", device="cpu", runs=20)
    assert [p.configuration for p in peers] == ["fp32 NCHW eager", "fp32 channels_last eager"]
    assert sum(p.best for p in peers) == 1
    for p in peers:
        assert (p.peer, p.model, p.device, p.batch, p.checked) == ("torch", "small.onnx", "cpu", 2, True)
        assert p.host_us is not None
        assert len(p.host_us.samples) == 20
        assert p.host_us.median > 0
        assert p.first_to_last_us is p.kernels_sum_us is p.events_sum_us is p.event_floor_us is p.replay_us is None
    assert len(notes) == 1
    assert "CPU" in notes[0]


def test_wrong_outputs_are_not_checked() -> None:
    pytest.importorskip("torch")
    graph, feeds, expected = network()
    wrong = {name: array + np.float32(0.01) * np.ptp(array) for name, array in expected.items()}
    peers, notes = torch_peer.measure(graph, feeds, wrong, "small.onnx", device="cpu", runs=2)
    assert len(peers) == 2
    assert not any(p.checked or p.best for p in peers)
    assert sum("within 0.01 of their range" in note for note in notes) == 2


def test_what_pytorch_refuses_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def refuse(*_: object) -> Callable[..., object]:
        def call(*_: object) -> object:
            raise torch.OutOfMemoryError("not enough memory\nsecond line")

        return call

    monkeypatch.setitem(torch_network._FUNCTIONS, ops.BitPool, refuse)
    graph, feeds, expected = network()
    peers, notes = torch_peer.measure(graph, feeds, expected, "small.onnx", device="cpu", runs=2)
    assert peers == []
    assert [note.endswith("batch 2: not enough memory") for note in notes] == [False, True, True]


def test_an_operator_without_a_counterpart_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.delitem(torch_network._FUNCTIONS, ops.BitPool)
    graph, feeds, expected = network()
    peers, notes = torch_peer.measure(graph, feeds, expected, "small.onnx", device="cpu", runs=2)
    assert peers == []
    assert "BitPool has no counterpart in PyTorch here (pool)" in notes[1]


def test_a_device_that_is_not_there() -> None:
    pytest.importorskip("torch")
    graph, feeds, expected = network()
    with pytest.raises(BackendError, match="PyTorch cannot use the device"):
        torch_peer.measure(graph, feeds, expected, "small.onnx", device="cuda:99")


@pytest.mark.parametrize("precision", torch_peer._PRECISIONS, ids=lambda p: p.name)
def test_settings_are_as_they_were(precision: torch_peer._Precision) -> None:
    torch = pytest.importorskip("torch")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul

    def settings() -> tuple[bool, ...]:
        return cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32

    def measured() -> None:
        with torch_peer._settings(torch, precision, "cpu"):
            assert settings() == (True, True, precision.tf32, precision.tf32)
            raise KeyError

    before = settings()
    assert before[0]
    with pytest.raises(KeyError):
        measured()
    assert settings() == before


def test_an_input_in_the_layout_of_onnx_is_not_copied() -> None:
    torch = pytest.importorskip("torch")
    x = TensorType((None, 3, 6, 5), FLOAT)
    nodes = (
        Node("to NHWC", ops.Transpose((0, 2, 3, 1)), ("x",), ("a",)),
        Node("relu", ops.Relu(), ("a",), ("y",)),
    )
    array = reals(np.random.default_rng(0), 2, 3, 6, 5)
    for channels_last in (False, True):
        built = TorchNetwork(torch, Graph({"x": x}, nodes, ("y",)), "cpu", torch.float32, channels_last=channels_last)
        assert [step.name for step in built.steps] == ["relu"]
        given = built.upload(built.feed("x", array))
        assert given.shape == array.shape  # NCHW
        assert torch.equal(given, torch.from_numpy(array))
        (found,) = built.arrays(built.run([given])).values()
        np.testing.assert_array_equal(found, np.maximum(array.transpose(0, 2, 3, 1), 0))


def test_images_keep_their_layout() -> None:
    torch = pytest.importorskip("torch")
    graph, feeds, _ = network()
    for layout in (torch.contiguous_format, torch.channels_last):
        built = TorchNetwork(torch, graph, "cpu", torch.float32, channels_last=layout is torch.channels_last)
        with torch.inference_mode():
            calls = built.calls([built.upload(built.feed("pixels", feeds["pixels"]))])
        images = [output for _, _, output in calls if output.dim() == 4]
        assert len(images) == 4
        assert all(image.is_contiguous(memory_format=layout) for image in images)


def test_a_network_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    graph, feeds, expected = network()
    peers, notes = torch_peer.measure(graph, feeds, expected, "small.onnx", runs=50)
    names = [
        f"{p} {layout} {mode}"
        for p in ("fp32", "TF32", "fp16")
        for layout in ("NCHW", "channels_last")
        for mode in ("eager", "graph")
    ]
    assert [p.configuration for p in peers] == names
    assert len(notes) == 8  # TF32 and fp16 say how far they are off
    assert sum(p.best for p in peers) == 1
    for p in peers:
        assert p.checked
        assert p.device == "cuda:0"
        assert p.host_us is not None
        assert p.first_to_last_us is not None
        assert len(p.host_us.samples) == len(p.first_to_last_us.samples) == 50
        assert (p.replay_us is not None) == (p.kernels_sum_us is not None) == p.configuration.endswith("graph")
        if p.replay_us is not None and p.kernels_sum_us is not None:
            assert 0 < p.kernels_sum_us.median < p.host_us.median
            assert 0 < p.replay_us.median < p.host_us.median
