"""Documents such as `bnnrt bench` writes, made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bnnrt.bench.document import (
    Device,
    Document,
    EmptyKernel,
    Environment,
    Figure,
    Host,
    Kernel,
    Limits,
    Peer,
    Result,
)

# Launches of the vehicle network: kernel, layer, variant, microseconds at batch 1, bytes, binary operations.
_LAUNCHES = (
    ("pixel_bits", "input", "threshold", 1.1, 31_000, 0),
    ("binary_conv", "conv1", "direct", 2.1, 41_000, 44_236_800),
    ("bit_pool", "pool1", "words", 2.0, 45_000, 0),
    ("binary_conv", "conv2", "tensor_core", 4.0, 19_000, 117_964_800),
    ("bit_pool", "pool2", "words", 1.2, 12_000, 0),
    ("binary_dense", "fc1", "split", 1.6, 231_000, 3_686_400),
    ("threshold", "fc1", "words", 1.0, 420, 0),
    ("binary_dense", "fc2", "split", 1.1, 1_900, 20_000),
    ("real_dense", "fc3", "rows", 1.3, 1_700, 0),
)
_SPEED = {"cuda": 1.0, "opencl:gpu": 1.6, "opencl:cpu": 40.0, "numpy": 900.0}
_DEVICES = {"cuda": "cuda:0", "opencl:gpu": "opencl:0.0", "opencl:cpu": "opencl:1.0", "numpy": "numpy"}
_NAMES = {"cuda": "NVIDIA H200", "opencl:gpu": "NVIDIA H200", "opencl:cpu": "pthread-Intel Xeon", "numpy": "host"}


def _figure(rng: np.random.Generator, us: float, count: int = 200) -> Figure:
    samples = us * (1 + 0.03 * rng.standard_normal(count).clip(-2, 2))
    samples[rng.random(count) < 0.05] *= 1.6  # an interrupt now and then
    return Figure.of(samples.tolist())


def _result(
    rng: np.random.Generator, bundle: str, backend: str, batch: int, role: str, prefix: str, layers: int
) -> Result:
    factor = _SPEED[backend] * (0.6 + 0.4 * batch) * (6.0 if role == "baseline" else 1.0)
    kernels = []
    for i in range(layers):
        name, layer, variant, us, size, operations = _LAUNCHES[i % len(_LAUNCHES)]
        if i >= len(_LAUNCHES):
            layer = f"{layer}_{i // len(_LAUNCHES)}"
        if role == "baseline" and name.startswith("b"):
            name, variant = name.replace("binary", "real"), "tiles"
        binary = operations * batch if role == "binary" else 0
        kernels.append(
            Kernel(
                name=name,
                layer=prefix + layer,
                variant=variant,
                grid=(12 * batch, 3, 1),
                block=(32, 4, 1),
                local_bytes=4096,
                us=us * factor,
                event_us=us * factor + 4.1,
                bytes=size * batch,
                binary_operations=binary,
                float_operations=0 if role == "binary" else operations * batch,
                share=0.0,
                fraction_of_copy=size * batch / (us * factor * 1e-6) / 4.1e12,
                fraction_of_popcount=binary / (us * factor * 1e-6) / 2.6e14,
            )
        )
    total = sum(k.us or 0 for k in kernels)
    gpu = backend in ("cuda", "opencl:gpu")
    return Result(
        bundle=bundle,
        backend=backend,
        device=_DEVICES[backend],
        batch=batch,
        variants="default",
        role=role,
        first_to_last_us=_figure(rng, total * 1.5) if gpu else None,
        kernels_sum_us=_figure(rng, total, 20),
        events_sum_us=_figure(rng, total + 4.1 * layers) if backend != "numpy" else None,
        event_floor_us=_figure(rng, 5.2) if gpu else None,
        replay_us=_figure(rng, total * 1.1, 20) if backend == "cuda" else None,
        host_us=_figure(rng, total * 1.2 + 15),
        kernels=tuple(replace(k, share=(k.us or 0) / total) for k in kernels),
        checked=backend != "numpy",
        arena_bytes=310_000 * batch,
        constants_bytes=270_000,
        single_replay_us=_figure(rng, total * 1.1 + 9, 20) if backend == "cuda" else None,
    )


def _peers(rng: np.random.Generator, batch: int, gpu: bool) -> list[Peer]:
    """PyTorch on the GPU and ONNX Runtime on the CPU."""
    found = []
    for configuration, us in (
        ("fp32 NCHW eager", 340.0),
        ("fp32 NCHW graph", 54.0),
        ("TF32 channels_last graph", 53.0),
        ("fp16 channels_last graph", 47.0),
    ):
        us *= 0.9 + 0.1 * batch
        found.append(
            Peer(
                peer="torch",
                model="float.onnx",
                device="cuda:0",
                batch=batch,
                configuration=configuration,
                first_to_last_us=_figure(rng, us),
                kernels_sum_us=_figure(rng, us * 0.8, 20) if "graph" in configuration else None,
                events_sum_us=None,
                event_floor_us=None,
                replay_us=_figure(rng, us, 20) if "graph" in configuration else None,
                host_us=_figure(rng, us + 40),
                checked=True,
                best=configuration.startswith("fp16"),
            )
        )
    for threads in ("1 thread", "2 threads"):
        us = (3000.0 if threads == "1 thread" else 1700.0) * batch
        found.append(
            Peer(
                peer="onnxruntime",
                model="float.onnx",
                device="cpu",
                batch=batch,
                configuration=f"CPU, {threads}",
                first_to_last_us=None,
                kernels_sum_us=None,
                events_sum_us=None,
                event_floor_us=None,
                replay_us=None,
                host_us=_figure(rng, us),
                checked=True,
                best=threads != "1 thread",
            )
        )
    return found if gpu else found[4:]


def _limits(backend: str) -> Limits:
    slow = _SPEED[backend]
    return Limits(
        copy_bytes_per_s=4.1e12 / slow,
        popcounts_per_s=4.1e12 / slow,
        binary_ops_per_s=2.6e14 / slow,
        tensor_core_binary_ops_per_s=1.02e16 if backend in ("cuda", "opencl:gpu") else None,
        empty_kernel_us=EmptyKernel(event=5.2, steady=0.54 if backend == "cuda" else None),
    )


def build(
    results: int = 4,
    *,
    bundle: str = "vehicle.bnn",
    prefix: str = "",
    layers: int = len(_LAUNCHES),
    peers: bool = True,
    notes: tuple[str, ...] = ("replay_us: OpenCL has no graphs",),
    seed: int = 0,
) -> Document:
    """A document of so many results, over several backends, batch sizes and roles; layers' names begin with prefix."""
    rng = np.random.default_rng(seed)
    wanted = list(product((1, 4, 16, 64, 256, 1024, 2048, 4096), _SPEED, ("binary", "baseline")))[:results]
    backends = list(dict.fromkeys(backend for _, backend, _ in wanted))
    records = [
        _result(rng, bundle if role == "binary" else "float.bnn", backend, batch, role, prefix, layers)
        for batch, backend, role in wanted
    ]
    beside = [p for batch in dict.fromkeys(b for b, _, _ in wanted) for p in _peers(rng, batch, "cuda" in backends)]
    environment = Environment(
        time="2026-11-29T23:10:00+00:00",
        commit="a8b267c0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6",
        command=f"bnnrt bench {bundle} --baseline float.bnn --json bench.json",
        host=Host(cpu="Intel(R) Xeon(R) Platinum 8468", cores=16, os="Linux 6.8 (Ubuntu 24.04)", python="3.11.7"),
        devices={
            _DEVICES[b]: Device(
                name=_NAMES[b],
                driver="570.86.15",
                platform="NVIDIA CUDA" if b == "cuda" else "host" if b == "numpy" else "OpenCL",
                clocks_mhz={"sm": 1980, "memory": 3201} if b == "cuda" else None,
            )
            for b in backends
        },
        versions={"bnnrt": "0.1.0", "numpy": "2.3.5", "pycuda": "2025.1.2", "torch": "2.11.0"},
    )
    return Document(
        environment=environment,
        limits={_DEVICES[b]: _limits(b) for b in backends if b != "numpy"},
        results=tuple(records),
        peers=tuple(beside) if peers else (),
        notes=notes,
    )


@pytest.fixture
def make_document() -> Callable[..., Document]:
    return build
