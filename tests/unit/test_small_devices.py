"""Plans for devices as boards have them: within their limits, on the paper's kernels where these fit, with reasons."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from importlib import resources
from math import prod
from pathlib import Path

import numpy as np
import pytest

from bnnrt import ops, variants
from bnnrt.backends.base import DeviceInfo, DeviceKind, Language
from bnnrt.cli import inspect, main
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Domain, TensorType, Window
from bnnrt.plan import Plan, Step, make_plan
from bnnrt.session import load_bundle

REPOSITORY = Path(__file__).parents[2]
MODELS = [
    REPOSITORY / "examples" / "vehicle" / "models" / "vehicle_threshold.onnx",
    *sorted((REPOSITORY / "tests" / "fixtures").glob("*.onnx")),
]

# OpenCL 1.2, at most 256 work-items, and local memory that is a part of main memory.
MALI_T860 = DeviceInfo(
    backend="opencl:0.0",
    name="Mali-T860",
    kind=DeviceKind.GPU,
    language=Language.OPENCL,
    platform="ARM Platform",
    driver="OpenCL 1.2",
    compute_units=4,
    max_group_size=256,
    max_group_shape=(256, 256, 256),
    local_memory=32 << 10,
    dedicated_local_memory=False,
    memory=2 << 30,
    max_allocation=512 << 20,
    exact_division=True,
)
# Compute capability 5.3.
JETSON_NANO = DeviceInfo(
    backend="cuda:0",
    name="NVIDIA Tegra X1",
    kind=DeviceKind.GPU,
    language=Language.CUDA,
    platform="CUDA",
    driver="driver for CUDA 10.2",
    compute_units=1,
    max_group_size=1024,
    max_group_shape=(1024, 1024, 64),
    local_memory=48 << 10,
    dedicated_local_memory=True,
    memory=4 << 30,
    max_allocation=4 << 30,
    exact_division=True,
)
# Sub-groups of 8 work-items.
INTEL_HD = dataclasses.replace(
    MALI_T860,
    name="Intel HD Graphics",
    compute_units=24,
    max_group_shape=(256, 256, 256),
    local_memory=64 << 10,
    dedicated_local_memory=True,
)
# Sub-groups of 64.
RADEON = dataclasses.replace(INTEL_HD, name="Radeon", max_group_shape=(1024, 1024, 1024), local_memory=32 << 10)

DEVICES = [MALI_T860, JETSON_NANO, INTEL_HD, RADEON]
every_device = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name.replace(" ", "_"))


@every_device
@pytest.mark.parametrize("chosen", ["default", "paper", "patch_gemm", "dense_segments"])
def test_launches_of_every_model_fit(device: DeviceInfo, chosen: str) -> None:
    for path in MODELS:
        bundle = load_bundle(path)
        for graph in filter(None, (bundle.model, bundle.pixels)):
            for step in make_plan(graph, device, 3, chosen).steps:
                for launch in step.launches:
                    sizes = zip(launch.block, device.max_group_shape, strict=True)
                    assert all(1 <= size <= most for size, most in sizes), (path.name, step.variant)
                    assert prod(launch.block) <= device.max_group_size, (path.name, step.variant)
                    assert launch.local_bytes <= device.local_memory, (path.name, step.variant)


def test_no_kernel_depends_on_the_width_of_sub_groups() -> None:
    """What one does has to stand in DeviceInfo first. In CUDA a warp has 32 threads, always."""
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for folder in ("common", "cl")
        for path in resources.files("bnnrt.kernels").joinpath(folder).iterdir()
    }
    assert len(texts) > 10
    calls = re.compile(r"\b(sub_group|__shfl|__ballot|__match|__reduce)\w*\s*\(")
    assert [name for name, text in texts.items() if calls.search(text)] == []


# The paper's block of S whole output rows


def convolution(width: int, channels: int = 3) -> Graph:
    """A 5x5 convolution whose output is ``width`` wide."""
    x = TensorType((None, 6, width, channels), Domain.BIT)
    node = Node("conv", ops.BinaryConv(Window((5, 5), pads=(2, 2, 2, 2)), pad_value=-1), ("x", "w"), ("y",))
    return Graph({"x": x}, (node,), ("y",), {"w": Constant.bits(np.ones((8, 5, 5, channels)))})


def only_step(graph: Graph, device: DeviceInfo, chosen: str = "paper") -> Step:
    (step,) = make_plan(graph, device, 1, chosen).steps
    return step


@every_device
def test_two_rows_where_they_fit(device: DeviceInfo) -> None:
    width = device.max_group_size // 2
    step = only_step(convolution(width), device)
    assert step.variant == "patch_gemm"
    assert step.launches[0].block == (width, 2, 1)
    assert step.launches[0].grid[:2] == (1, 3)
    assert step.notes == ()


@every_device
def test_one_row_where_two_do_not_fit(device: DeviceInfo) -> None:
    for width in (device.max_group_size // 2 + 1, device.max_group_size):
        step = only_step(convolution(width), device)
        assert step.variant == "patch_gemm"
        assert step.launches[0].block == (width, 1, 1)
        assert step.launches[0].grid[:2] == (1, 6)
        assert dict(step.launches[0].code.defines)["SEGMENT_ROWS"] == 1  # type: ignore[union-attr]
        most = device.max_group_size
        assert step.notes == (f"S=2 rows of W={width}: {2 * width} work-items are more than a group's {most}",)


@every_device
def test_the_direct_kernel_where_no_row_fits(device: DeviceInfo) -> None:
    width = device.max_group_shape[0] + 1
    step = only_step(convolution(width), device)
    assert step.variant == "direct"
    (why,) = [why for name, why in step.passed_over if name == "patch_gemm"]
    most = device.max_group_shape[0]
    assert why == f"S=1 rows of W={width}: {width} work-items along axis 0 are more than a group's {most}"


def test_rows_are_bounded_by_local_memory_too() -> None:
    """Six and five padded rows of 100 + 4 pixels, of so many words."""
    step = only_step(convolution(100, channels=32 * 14), MALI_T860)
    assert step.variant == "patch_gemm"
    assert step.launches[0].local_bytes == 5 * 104 * 14 * 4
    assert step.notes == (f"S=2 rows of W=100: {6 * 104 * 14 * 4} bytes of local memory are more than a group's 32768",)
    step = only_step(convolution(100, channels=32 * 16), MALI_T860)
    assert step.variant == "direct"
    (why,) = [why for name, why in step.passed_over if name == "patch_gemm"]
    assert why == f"S=1 rows of W=100: {5 * 104 * 16 * 4} bytes of local memory are more than a group's 32768"


def test_smaller_tiles_are_noted() -> None:
    smaller = dataclasses.replace(MALI_T860, max_group_size=128)
    step = only_step(convolution(8), smaller)
    assert step.launches[1].block == (8, 8, 1)
    assert step.notes == ("tiles of 16x16: 256 work-items are more than a group's 128",)


def test_inspect_shows_why_a_block_is_smaller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = dataclasses.replace(MALI_T860, max_group_size=100)
    monkeypatch.setattr(inspect, "select", lambda backend: tiny)
    monkeypatch.setenv("COLUMNS", "400")

    def shown(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bnnrt", "inspect", str(MODELS[0]), "--plan", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    steps = json.loads(shown("--json"))["plan"]["steps"]
    assert all(step["notes"] == [] for step in steps)
    note = "S=2 rows of W=96: 192 work-items are more than a group's 100"
    steps = json.loads(shown("--json", "--variants", "paper"))["plan"]["steps"]
    assert [step["variant"] for step in steps if note in step["notes"]] == ["patch_gemm_threshold"]
    assert note in shown("--variants", "paper")


# Local memory that is a part of main memory


def conv_plan(device: DeviceInfo, chosen: str) -> Plan:
    return make_plan(convolution(48), device, 1, chosen)


def test_what_goes_through_local_memory_is_put_off_where_that_is_main_memory() -> None:
    assert conv_plan(INTEL_HD, "default").steps[0].variant == "conv_tile"
    for chosen in ("default", "dense_segments"):
        step = conv_plan(MALI_T860, chosen).steps[0]
        assert step.variant == "direct"
        assert dict(step.passed_over)["conv_tile"] == "its local memory is main memory"


@pytest.mark.parametrize("chosen", ["paper", "patch_gemm"])
def test_what_is_asked_for_is_not_put_off(chosen: str) -> None:
    """The paper measured its kernels on such a device."""
    step = conv_plan(MALI_T860, chosen).steps[0]
    assert step.variant == "patch_gemm"
    assert "patch_gemm" not in dict(step.passed_over)


def test_what_is_put_off_still_runs_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in variants.VARIANTS if row.name not in ("direct", "direct_threshold")]
    monkeypatch.setattr(variants, "VARIANTS", tuple(rows))
    step = conv_plan(MALI_T860, "default").steps[0]
    assert step.variant == "conv_tile"
    assert "conv_tile" not in dict(step.passed_over)
