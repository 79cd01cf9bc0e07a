"""Recognising signs in an ONNX model: every way to write one becomes the operator ``bnnrt.Sign``."""
