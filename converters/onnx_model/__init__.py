"""Reading and writing what an ONNX model holds: nodes, constants and shapes."""
