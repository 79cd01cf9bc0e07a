"""Networks of random shape whose every sum is exact, equal to ONNX Runtime in every element."""

import numpy as np
import onnx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bnnrt.errors import ConversionError

from .models import Net, check, norm, signs


def activation(net, rng, x, channels):
    """Some of norm, pool and sign, in any order, ending in bits."""
    kind = rng.integers(5)
    if kind % 2:
        x = net.batch_norm(x, *norm(rng, channels))
    if kind >= 3:
        pads = [int(p) for p in rng.integers(0, 2, 4)]
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[int(s) for s in rng.integers(1, 3, 2)], pads=pads)
    if kind == 2:
        half = net.constant(rng.normal(size=(channels, 1, 1)) * 4)
        x = net.op("Sub", x, half)
    if kind == 4:
        x = net.op("Mul", x, net.constant(np.float32(-0.7)))
        x = net.op("Add", x, net.constant(rng.normal(size=(1, channels, 1, 1))))
    return two_numbers(net, rng, x)


def two_numbers(net, rng, x):
    """One of the ways to write a sign, or a step between two other numbers."""
    kind = rng.integers(6)
    if kind == 0:
        return net.op("Cast", net.op("Greater", x, net.constant(0.0)), to=onnx.TensorProto.FLOAT)
    if kind == 1:
        levels = (net.constant(v) for v in rng.permutation([0.0, rng.choice([2.0, -1.0, 0.5])]))
        return net.op("Where", net.op("Less", x, net.constant(rng.normal())), *levels)
    if kind == 2:
        y = net.op("Clip", x, net.constant(0.0), net.constant(1.0))
        return net.op("Round", y)
    if kind == 3:
        clip = net.op("Clip", x, net.constant(-1.0), net.constant(1.0))
        return net.op("Add", net.op("Sub", net.sign(x), clip), clip)
    return net.sign(x)


def binary_conv(net, rng, x, channels):
    out = int(rng.integers(1, 40))
    kernel = [int(k) for k in rng.integers(1, 4, 2)]
    how = rng.integers(4)
    if how == 0:
        pads = net.constant([0, 0, *rng.integers(0, 3, 2), 0, 0, *rng.integers(0, 3, 2)], np.int64)
        x = net.op("Pad", x, pads, net.constant(rng.choice([-1.0, 1.0, 0.0])))
    attributes = {"auto_pad": "SAME_LOWER"} if how == 1 else {"pads": [int(p) for p in rng.integers(1, 3, 4)]}
    if how == 0:
        attributes = {}
    return net.conv(x, signs(rng, out, channels, *kernel), **attributes), out


def network(seed):
    rng = np.random.default_rng(seed)
    channels, height, width = (int(v) for v in (rng.integers(1, 5), rng.integers(5, 10), rng.integers(5, 10)))
    last = bool(rng.integers(2))
    net = Net(height, width, channels) if last else Net(channels, height, width)
    x = net.op("Transpose", "x", perm=[0, 3, 1, 2]) if last else "x"
    if rng.integers(2):
        x = net.sign(net.op("Sub", x, net.constant(rng.integers(-3, 4, (channels, 1, 1)) + 0.5)))
    for _ in range(int(rng.integers(1, 4))):
        x, channels = binary_conv(net, rng, x, channels)
        x = activation(net, rng, x, channels)
    shape = rng.integers(3)
    if shape == 0:
        x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    x = net.op("Flatten", x)
    x = net.matmul(x, signs(rng, features(net, x), 12))
    if rng.integers(2):
        x = net.matmul(net.sign(net.batch_norm(x, *norm(rng, 12))), signs(rng, 12, 4))
    images = rng.integers(-8, 9, (3, *(d.dim_value for d in net.inputs[0].type.tensor_type.shape.dim[1:])))
    return net.model(x), images.astype(np.float32)


def features(net, x):
    """The number of features of ``x``, by ONNX's own shape inference."""
    inferred = onnx.shape_inference.infer_shapes(net.model(x), data_prop=True)
    return inferred.graph.output[0].type.tensor_type.shape.dim[1].dim_value


@given(st.integers(0, 10**9))
@settings(max_examples=150, deadline=None)
def test_random_networks(seed):
    model, images = network(seed)
    try:
        check(model, images)
    except ConversionError as e:
        # A pool that is larger than what is left of the image is no network, in ONNX Runtime either.
        assume("does not fit" not in e.what)
        raise
