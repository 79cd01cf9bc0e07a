"""What several operators compute from one number: whatever is taken for a step is one, for every float32 number."""

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnrt import reference
from bnnrt.errors import ConversionError

from .models import Net, converted, expected, kinds

FLOAT = onnx.TensorProto.FLOAT
NUMBERS = [0.0, 0.1, 0.5, 1.0, 2.0, 3.0, -0.25, -1.0, 1e-6, 1e9]
UNARY = ["Sign", "Round", "Floor", "Ceil", "Relu", "Neg", "Tanh", "Abs"]
BINARY = ["Add", "Sub", "Mul", "Div", "Min", "Max"]
COMPARED = ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"]


def function(net, rng, x, depth):
    """A random function of ``x``, element by element."""
    if depth == 0:
        return x
    kind = rng.integers(7)
    y = function(net, rng, x, depth - 1)
    number = net.constant(rng.choice(NUMBERS))
    if kind == 0:
        return net.op(str(rng.choice(UNARY)), y)
    if kind == 1:
        operands = [y, number] if rng.integers(2) else [number, y]
        return net.op(str(rng.choice(BINARY)), *operands)
    if kind == 2:
        low, high = sorted(rng.choice(NUMBERS, 2))
        return net.op("Clip", y, net.constant(low), net.constant(high))
    condition = net.op(str(rng.choice(COMPARED)), y, number)
    if kind == 3:
        return net.op("Cast", net.op("Not", condition) if rng.integers(2) else condition, to=FLOAT)
    if kind == 4:
        return net.op("Where", condition, net.constant(rng.choice(NUMBERS)), net.constant(rng.choice(NUMBERS)))
    z = function(net, rng, x, depth - 1)
    if kind == 5:
        return net.op("Add", net.op("Sub", y, z), z)
    return net.op(str(rng.choice(BINARY)), y, z)


def numbers(rng):
    """Every power of two, the numbers of these tests, and the float32 numbers beside them; any other bits."""
    some = np.concatenate([[0.0, np.inf], NUMBERS, np.float32(2.0) ** np.arange(-149, 128)]).astype(np.float32)
    some = np.concatenate([some, *(np.nextafter(some, np.float32(s * np.inf), dtype=np.float32) for s in (1, -1))])
    random = rng.integers(-(2**31), 2**31, 1000).astype(np.int32).view(np.float32)
    return np.concatenate([some, -some, random, rng.normal(size=1000).astype(np.float32)])[None]


@given(st.integers(0, 10**9))
@settings(max_examples=150, deadline=None)
def test_random_functions(seed):
    rng = np.random.default_rng(seed)
    x = numbers(rng)
    net = Net(x.shape[1])
    result = function(net, rng, "x", 4)
    model = net.model(result)
    try:
        bundle, report = converted(model)
    except ConversionError:
        return
    (got,) = reference.run(bundle.model, {"x": x}).values()
    truth = [node.output[0] for node in net.nodes if node.op_type in (*COMPARED, "Not")]
    every = [node.output[0] for node in net.nodes if node.output[0] not in (*truth, result)]
    want, *others = expected(net.model(result, *every), x)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if "Sign" in kinds(bundle.model):
        same |= np.isnan([x, want, *others]).any(axis=0)  # a bit holds no NaN,
        if any("2**24" in warning.what for warning in report.warnings):
            same |= np.abs(x) >= 2**23
        if any("gives 0" in warning.what for warning in report.warnings):
            return  # and no 0
    assert same.all()
