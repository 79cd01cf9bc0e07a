"""Arrays that lie on the device already: in by each protocol, out with ``outputs="device"``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl.array as cl_array
import pytest

import bnnrt
from bnnrt.backends import devices

FIXTURE = Path(__file__).parents[1] / "fixtures" / "paper_dynamo.onnx"
PRESENT = [info.backend for info in devices()]

needs_cuda = pytest.mark.skipif("cuda:0" not in PRESENT, reason="no NVIDIA device is present")


def pixels(seed: int = 0, batch: int = 3) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (batch, 12, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module", params=[name for name in PRESENT if name != "numpy"])
def session(request: pytest.FixtureRequest) -> Iterator[bnnrt.InferenceSession]:
    with bnnrt.InferenceSession(FIXTURE, request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def cuda_session() -> Iterator[bnnrt.InferenceSession]:
    with bnnrt.InferenceSession(FIXTURE, "cuda:0") as opened:
        yield opened


def expected(x: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    with bnnrt.InferenceSession(FIXTURE, "numpy") as reference:
        (result,) = reference.run(None, {"pixels": x})
    return np.asarray(result)


def test_outputs_stay_on_the_device(session: bnnrt.InferenceSession) -> None:
    first, second = pixels(0), pixels(1)
    (a,) = session.run(None, {"pixels": first}, outputs="device")
    (b,) = session.run(None, {"pixels": second}, outputs="device")
    # The first result is its own memory, not the arena that the second run wrote.
    np.testing.assert_array_equal(a.get(), expected(first))
    np.testing.assert_array_equal(b.get(), expected(second))
    assert a.shape == b.shape == (3, 5)
    assert a.dtype == np.float32


def test_outputs_may_outlive_the_session() -> None:
    for name in PRESENT:
        if name == "numpy":
            continue
        session = bnnrt.InferenceSession(FIXTURE, name)
        (result,) = session.run(None, {"pixels": pixels()}, outputs="device")
        session.close()
        np.testing.assert_array_equal(result.get(), expected(pixels()))
        del result


def test_numpy_backend_gives_numpy_arrays() -> None:
    with bnnrt.InferenceSession(FIXTURE, "numpy") as session:
        (result,) = session.run(None, {"pixels": pixels()}, outputs="device")
        session.run(None, {"pixels": pixels(1)})
    np.testing.assert_array_equal(result, expected(pixels()))


def test_a_batch_of_none_stays_on_the_device_too(session: bnnrt.InferenceSession) -> None:
    (some,) = session.run(None, {"pixels": pixels()}, outputs="device")
    (none,) = session.run(None, {"pixels": pixels(0, 0)}, outputs="device")
    assert type(none) is type(some)
    assert (none.shape, none.dtype) == ((0, 5), np.float32)


def test_outputs_elsewhere_are_refused(session: bnnrt.InferenceSession) -> None:
    with pytest.raises(bnnrt.InputError, match="host or device"):
        session.run(None, {"pixels": pixels()}, outputs="moon")


@pytest.fixture(scope="module")
def opencl() -> Iterator[bnnrt.InferenceSession]:
    with bnnrt.InferenceSession(FIXTURE, "opencl") as opened:
        yield opened


class TestOpenCL:
    def test_in_and_out(self, opencl: bnnrt.InferenceSession) -> None:
        x = pixels(5)
        lent = cl_array.to_device(opencl.queue, x)
        np.testing.assert_array_equal(opencl.run(None, {"pixels": lent})[0], expected(x))
        (result,) = opencl.run(None, {"pixels": lent}, outputs="device")
        assert isinstance(result, cl_array.Array)
        np.testing.assert_array_equal((result + 1).get(), expected(x) + 1)

    def test_part_of_an_array(self, opencl: bnnrt.InferenceSession) -> None:
        x = pixels(6, 6)
        lent = cl_array.to_device(opencl.queue, x)
        np.testing.assert_array_equal(opencl.run(None, {"pixels": lent[2:5]})[0], expected(x[2:5]))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda a: a[:, :, ::2], "strided"),
            (lambda a: a[:, :6], "strided"),
            (lambda a: a.reshape(3, 12, 36), "shape"),
            (lambda a: a.astype(np.float32), "float32"),
        ],
    )
    def test_refused(self, opencl: bnnrt.InferenceSession, change: Any, message: str) -> None:
        lent = cl_array.to_device(opencl.queue, pixels())
        with pytest.raises(bnnrt.InputError, match=message):
            opencl.run(None, {"pixels": change(lent)})

    def test_another_context_is_refused(self, opencl: bnnrt.InferenceSession) -> None:
        with bnnrt.InferenceSession(FIXTURE, "opencl") as other:
            lent = cl_array.to_device(other.queue, pixels())
            with pytest.raises(bnnrt.InputError, match="another context"):
                opencl.run(None, {"pixels": lent})


@needs_cuda
class TestCuda:
    def test_torch_in_and_out(self, cuda_session: bnnrt.InferenceSession) -> None:
        torch = pytest.importorskip("torch")
        x = pixels(7)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            # Still being computed when the session takes it: the protocols' handshake has to wait.
            busy = torch.ones(4096, 4096, device="cuda")
            for _ in range(20):
                busy = busy @ busy / 4096
            lent = torch.from_numpy(x).cuda() + (busy[0, 0] * 0).to(torch.uint8)
            (result,) = cuda_session.run(None, {"pixels": lent}, outputs="device")
        np.testing.assert_array_equal(torch.from_dlpack(result).cpu().numpy(), expected(x))
        np.testing.assert_array_equal(torch.as_tensor(result, device="cuda").cpu().numpy(), expected(x))
        np.testing.assert_array_equal(cuda_session.run(None, {"pixels": lent})[0], expected(x))

    def test_cupy_in_and_out(self, cuda_session: bnnrt.InferenceSession) -> None:
        cupy = pytest.importorskip("cupy")
        x = pixels(8)
        (result,) = cuda_session.run(None, {"pixels": cupy.asarray(x)}, outputs="device")
        np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(result)), expected(x))
        np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(result)), expected(x))

    def test_array_interface_without_dlpack(self, cuda_session: bnnrt.InferenceSession) -> None:
        torch = pytest.importorskip("torch")
        x = pixels(9)
        lent = torch.from_numpy(x).cuda()

        class Interface:
            @property
            def __cuda_array_interface__(self) -> dict[str, Any]:
                return {**lent.__cuda_array_interface__, "version": 3, "stream": 1}

        np.testing.assert_array_equal(cuda_session.run(None, {"pixels": Interface()})[0], expected(x))

    def test_host_tensors_are_host_arrays(self, cuda_session: bnnrt.InferenceSession) -> None:
        torch = pytest.importorskip("torch")
        x = pixels(10)
        for lent in (torch.from_numpy(x), torch.from_numpy(x).pin_memory()):
            np.testing.assert_array_equal(cuda_session.run(None, {"pixels": lent})[0], expected(x))
        with pytest.raises(bnnrt.InputError, match="no array that the backend can read"):
            cuda_session.run(None, {"input": torch.zeros(3, 3, 12, 12, requires_grad=True)})

    def test_the_threads_context_is_left_as_it_was(self, cuda_session: bnnrt.InferenceSession) -> None:
        driver = pytest.importorskip("cuda.bindings.driver")
        before = driver.cuCtxGetCurrent()
        for _ in range(3):
            session = bnnrt.InferenceSession(FIXTURE, "cuda:0")
            session.run(None, {"pixels": pixels()})
            with ThreadPoolExecutor(1) as pool:
                pool.submit(session.close).result()
            bnnrt.InferenceSession(FIXTURE, "cuda:0").close()
        assert [int(v) for v in driver.cuCtxGetCurrent()] == [int(v) for v in before]
        np.testing.assert_array_equal(cuda_session.run(None, {"pixels": pixels()})[0], expected(pixels()))

    def test_refused(self, cuda_session: bnnrt.InferenceSession) -> None:
        torch = pytest.importorskip("torch")
        lent = torch.from_numpy(pixels()).cuda()
        for wrong, message in (
            (lent[:, :, ::2], "strided"),
            (lent.reshape(3, 12, 36), "shape"),
            (lent.float(), "float32"),
        ):
            with pytest.raises(bnnrt.InputError, match=message):
                cuda_session.run(None, {"pixels": wrong})
        with pytest.raises(bnnrt.InputError, match="not lent"):
            cuda_session.run(None, {"pixels": torch.ones(3, 12, 12, 3, device="cuda", requires_grad=True)})

    def test_beside_torch_in_one_process(self, cuda_session: bnnrt.InferenceSession) -> None:
        torch = pytest.importorskip("torch")
        a = torch.rand(64, 64, device="cuda")
        before = (a @ a).cpu()
        for seed in range(20):
            np.testing.assert_array_equal(cuda_session.run(None, {"pixels": pixels(seed)})[0], expected(pixels(seed)))
            with bnnrt.InferenceSession(FIXTURE, "cuda:0") as other:
                other.run(None, {"pixels": pixels(seed)})
            assert torch.equal((a @ a).cpu(), before)
