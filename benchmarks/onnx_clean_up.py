"""What ONNX libraries make of models before they are converted: how many nodes, in what time, and the same bits?

    python benchmarks/onnx_clean_up.py MODEL.onnx ... [--json]

Each candidate cleans each model up. ONNX Runtime, without optimizations of its own, then runs the model as it was and
as it is now on the same inputs, random numbers and random integers; outputs are compared bit for bit. Needs onnxslim
beside `pip install bnnrt[convert]`. docs/adr/0005-clean-up-measured.md has results.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import onnxscript.optimizer
import onnxscript.version_converter
import onnxslim

from bnnrt.converters.cleanup.clean import clean

IMAGES = 4
NEWER = 21


def _copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _ours(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(clean(proto))


def _onnxscript(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(onnxscript.optimizer.optimize(ir.from_proto(proto)))


def _onnx_converter(proto: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.version_converter.convert_version(proto, NEWER)


def _onnxscript_converter(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = ir.from_proto(proto)
    onnxscript.version_converter.convert_version(model, NEWER, fallback=True)
    if model.opset_imports[""] != NEWER:
        raise ValueError(f"is of version {model.opset_imports['']} still")
    return ir.to_proto(model)


def _shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(proto)
    return onnx.shape_inference.infer_shapes(proto, data_prop=True, strict_mode=True)


CANDIDATES: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "onnx-ir, fold_constants": _ours,
    "onnxscript optimize": _onnxscript,
    "onnxslim": lambda proto: onnxslim.slim(proto),
    "onnxslim without fusion": lambda proto: onnxslim.slim(proto, skip_optimizations=["graph_fusion"]),
    "onnx checker and shapes": _shapes,
    f"onnx, to version {NEWER}": _onnx_converter,
    f"onnxscript, to version {NEWER}": _onnxscript_converter,
}


def _run(proto: onnx.ModelProto, feeds: list[dict[str, Any]]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return [array for feed in feeds for array in session.run(None, feed)]


def _feeds(proto: onnx.ModelProto) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in proto.graph.initializer}
    feeds: list[dict[str, Any]] = [{}, {}]
    for value in proto.graph.input:
        if value.name not in constants:
            tensor = value.type.tensor_type
            shape = [d.dim_value or IMAGES for d in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            feeds[0][value.name] = rng.normal(size=shape).astype(dtype)
            feeds[1][value.name] = rng.integers(0, 256, shape).astype(dtype)
    return feeds


def measure(path: Path, name: str) -> dict[str, Any]:
    """What the candidate ``name`` makes of the model at ``path``."""
    proto = onnx.load(path)
    row: dict[str, Any] = {"model": path.stem, "candidate": name, "nodes_before": len(proto.graph.node)}
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cleaned = CANDIDATES[name](_copy(proto))
    except Exception as e:  # each library has its own
        return {**row, "failure": f"{type(e).__name__}: {(str(e) or '?').strip().splitlines()[0]}"[:160]}
    row["seconds"] = round(time.perf_counter() - start, 3)
    row["nodes_after"] = len(cleaned.graph.node)
    before, after = (Counter(n.op_type for n in p.graph.node) for p in (proto, cleaned))
    row["gone"], row["new"] = dict(before - after), dict(after - before)
    feeds = _feeds(proto)
    try:
        want = _run(proto, feeds)
    except Exception:
        return {**row, "same_bits": None}  # operators that ONNX Runtime does not have
    try:
        found = _run(cleaned, feeds)
    except Exception as e:
        return {**row, "failure": f"ONNX Runtime refuses the result: {str(e).splitlines()[0]}"[:160]}
    row["same_bits"] = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(want, found, strict=True))
    row["largest_difference"] = max(float(np.abs(a - b).max()) for a, b in zip(want, found, strict=True))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    rows = [measure(path, name) for path in arguments.models for name in CANDIDATES]
    if arguments.json:
        json.dump({"schema": "bnnrt-onnx-clean-up-1", "onnx": onnx.__version__, "rows": rows}, sys.stdout, indent=1)
        return
    for row in rows:
        result = row.get("failure") or f"{row['nodes_after']} nodes, {row['seconds']} s, same bits: {row['same_bits']}"
        print(f"{row['model']:28} {row['candidate']:26} {row['nodes_before']:4} -> {result}")


if __name__ == "__main__":
    main()
