"""ONNX model -> graph -> bundle: one pass a file."""
