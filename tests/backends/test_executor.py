"""An executor that cannot be made ready gives everything back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bnnrt import ops
from bnnrt.backends.base import Backend
from bnnrt.errors import BackendError
from bnnrt.executor import Executor
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import ArithmeticKind, Domain, TensorType
from bnnrt.plan import make_plan

CONSTANT = Constant.of(np.ones(4, dtype=np.float32))
GRAPH = Graph(
    {"x": TensorType((None, 4), Domain.FLOAT32)},
    (
        Node("a", ops.Arithmetic(ArithmeticKind.ADD), ("x", "c"), ("y",)),
        Node("b", ops.Arithmetic(ArithmeticKind.MUL), ("y", "y"), ("z",)),
    ),
    ("z",),
    {"c": CONSTANT},
)


@pytest.mark.parametrize("method", ["alloc", "upload", "compile", "prepare"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_failure_half_way_frees_what_was_allocated(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, method: str, which: int
) -> None:
    plan = make_plan(GRAPH, backend.info, 3)
    held: list[int] = []
    alloc, free, failing = backend.alloc, backend.free, getattr(backend, method)
    calls = 0

    def counted_alloc(nbytes: int) -> Any:
        buffer = alloc(nbytes)
        held.append(id(buffer))
        return buffer

    def counted_free(buffer: Any) -> None:
        held.remove(id(buffer))
        free(buffer)

    def fail(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > which:
            raise BackendError("out of memory")
        return counted_alloc(*args) if method == "alloc" else failing(*args)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "alloc", counted_alloc)
        patch.setattr(backend, "free", counted_free)
        patch.setattr(backend, method, fail)
        if method == "upload" and which == 1:
            Executor(backend, plan).close()  # one constant, so one upload
        else:
            with pytest.raises(BackendError, match="out of memory"):
                Executor(backend, plan)
        assert not held

    # And the backend works on.
    executor = Executor(backend, plan)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(executor.run({"x": x})["z"], (x + 1) ** 2)
    executor.close()
    executor.close()
