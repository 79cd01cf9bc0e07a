"""``bnnrt verify``: a bundle beside the ONNX model that it comes from, on every backend."""
