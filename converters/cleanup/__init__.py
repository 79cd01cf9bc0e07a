"""Cleaning up an ONNX model, so that only ONNX's own operators are left and every constant is one."""
