"""A network of the size of ResNet-18 converts in the time and memory that a small computer has."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from .models import Net

RNG = np.random.default_rng(43)

MEASURED = """
import json, resource, sys
from bnnrt import cli
sys.argv = ["bnnrt", "convert", *sys.argv[1:]]
try:
    cli.main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]), file=sys.stderr)
"""
SECONDS, BYTES = 10, 1.5e9


def bi_real_net_18():
    """The layers of Bi-Real Net 18 (Liu et al., 2018) on 224 by 224 pixels; 11.2 million weights in binary layers."""
    net = Net(3, 224, 224)

    def norm(x, channels):
        return net.batch_norm(x, *(RNG.uniform(0.5, 2, channels) for _ in range(4)))

    def weights(*shape):
        return np.where(RNG.random(shape, dtype=np.float32) < 0.5, np.float32(-1), np.float32(1))

    x = norm(net.conv("x", RNG.normal(size=(64, 3, 7, 7)), strides=[2, 2], pads=[3] * 4), 64)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for out in (64, 128, 256, 512):
        for layer in range(4):
            down = layer == 0 and out != channels
            shortcut = x
            if down:
                shortcut = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
                shortcut = norm(net.conv(shortcut, RNG.normal(size=(out, channels, 1, 1))), out)
            y = net.conv(net.sign(x), weights(out, channels, 3, 3), strides=[1 + down] * 2, pads=[1] * 4)
            x, channels = net.op("Add", norm(y, out), shortcut), out
    y = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.op("Gemm", y, net.constant(RNG.normal(size=(512, 1000))), net.constant(np.zeros(1000))))


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_a_network_of_the_size_of_resnet_18(tmp_path):
    (tmp_path / "m.onnx").write_bytes(bi_real_net_18().SerializeToString())
    # Two threads, as on two cores. Seconds of the processor, since others may use it too.
    limited = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "m.onnx", "-o", tmp_path / "m.bnn", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **limited},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seconds, kilobytes = json.loads(done.stderr)
    assert seconds < SECONDS
    assert kilobytes * 1024 < BYTES
    kinds = [layer["kind"] for layer in json.loads(done.stdout)["layers"]]
    assert kinds.count("binary") == 16
    assert (tmp_path / "m.bnn").stat().st_size < 5_000_000
