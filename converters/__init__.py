"""ONNX model -> graph -> bundle: :mod:`bnnrt.converters.convert` calls the steps, one subject a file."""
