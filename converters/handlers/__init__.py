"""Handlers, which translate an ONNX operator to a graph each, and what they work on: scope, layout and shapes."""
