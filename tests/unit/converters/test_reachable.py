"""Where a 0 can reach an ONNX Sign."""

import numpy as np
import pytest

from .models import Net, converted, signs

RNG = np.random.default_rng(15)


def warned(net, x, outputs):
    y = net.matmul(net.op("Sign", x), signs(RNG, outputs, 3))
    _, report = converted(net.model(y))
    return [w.node for w in report.warnings]


@pytest.mark.parametrize("terms", [8, 9])
@pytest.mark.parametrize("bias", [None, 0.5, 1.0])
def test_dense_layers(terms, bias):
    net = Net(terms)
    x = net.matmul(net.sign("x"), signs(RNG, terms, 7))
    if bias is not None:
        x = net.op("Add", x, net.constant(np.full(7, bias)))
    # The accumulator has the parity of the number of terms.
    reached = bias != 0.5 and (terms + (bias or 0)) % 2 == 0
    assert bool(warned(net, x, 7)) == reached


@pytest.mark.parametrize(("channels", "pads", "reached"), [(3, 0, False), (3, 1, True), (4, 1, True), (4, 0, True)])
def test_convolutions(channels, pads, reached):
    net = Net(channels, 5, 5)
    x = net.conv(net.sign("x"), signs(RNG, 7, channels, 3, 3), pads=[pads] * 4)
    y = net.conv(net.op("Sign", x), signs(RNG, 3, 7, 1, 1))
    _, report = converted(net.model(y))
    assert bool(report.warnings) == reached


def test_taps_left_out_change_parity_only_by_their_channels():
    net = Net(4, 5, 5)
    x = net.conv(net.sign("x"), signs(RNG, 7, 4, 3, 3), pads=[1] * 4)
    y = net.conv(net.op("Sign", net.op("Add", x, net.constant(1.0))), signs(RNG, 3, 7, 1, 1))
    assert not converted(net.model(y))[1].warnings


def test_behind_a_pool_and_real_numbers():
    net = Net(3, 6, 6)
    x = net.op("MaxPool", net.conv(net.sign("x"), signs(RNG, 7, 3, 3, 3)), kernel_shape=[2, 2])
    assert not converted(net.model(net.op("Sign", x)))[1].warnings
    net = Net(3, 6, 6)
    net.op("Sign", "x")
    (warning,) = converted(net.model("sign0_out"))[1].warnings
    assert str(warning) == "sign0: ONNX Sign gives 0 where its input is 0; here it gives +1"


def test_sign_of_sign_is_no_question():
    net = Net(9)
    x = net.sign(net.matmul(net.sign("x"), signs(RNG, 9, 7)))
    assert not warned(net, x, 7)
