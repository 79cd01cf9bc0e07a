"""bnnrt runs trained binarized neural networks on embedded GPUs, through CUDA and OpenCL, bit for bit.

session = bnnrt.InferenceSession("vehicles.bnn")
for result in session.classify(["road.jpg"]):
    print(result.label, result.score)
"""

from bnnrt.errors import (
    BackendError,
    BnnrtError,
    BundleError,
    ConversionError,
    GraphError,
    ImageError,
    InputError,
    OutputError,
)
from bnnrt.session import Classification, InferenceSession

__all__ = [
    "BackendError",
    "BnnrtError",
    "BundleError",
    "Classification",
    "ConversionError",
    "GraphError",
    "ImageError",
    "InferenceSession",
    "InputError",
    "OutputError",
]

__version__ = "0.1.0"
