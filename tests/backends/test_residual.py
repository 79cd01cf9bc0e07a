"""Blocks of residual networks on every backend and set of variants: the same bits as the reference, whatever the batch.

Their equality with ONNX Runtime, tensor by tensor, is in tests/unit/converters/test_residual.py.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnnrt import InferenceSession, reference
from bnnrt.backends.base import Backend

Array = npt.NDArray[Any]

RESIDUAL = Path(__file__).parents[1] / "fixtures" / "residual"
CASES = ("bi_real_net", "binary_dense_net", "melius_net", "quick_net", "react_net", "xnor_net")


def golden(case: str) -> tuple[Array, Array]:
    with np.load(RESIDUAL / f"{case}_golden.npz") as arrays:
        return arrays["x"], arrays["logits_legacy"]


@pytest.mark.parametrize("variants", ["default", "paper"])
@pytest.mark.parametrize("case", CASES)
def test_blocks_give_the_bits_of_the_reference(backend: Backend, tmp_path: Path, case: str, variants: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(gzip.decompress((RESIDUAL / f"{case}_legacy.onnx.gz").read_bytes()))
    x, logits = golden(case)
    with InferenceSession(path, backend.info.backend, variants=variants) as session:
        wanted = reference.run(session.bundle.model, {"input": x})["logits"]
        # No bit of these images flips: tests/unit/converters/test_residual.py.
        np.testing.assert_allclose(wanted, logits, rtol=0, atol=1e-5 * np.abs(logits).max())
        for batch in (6, 3, 1):
            parts = [session.run(None, {"input": x[i : i + batch]})[0] for i in range(0, len(x), batch)]
            np.testing.assert_array_equal(np.concatenate(parts), wanted)
        pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype(np.uint8)
        np.testing.assert_array_equal(session.run(None, {"pixels": pixels})[0], wanted)
