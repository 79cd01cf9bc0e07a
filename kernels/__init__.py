"""Kernel sources: ``common/`` bodies shared by OpenCL and CUDA; ``cl/`` and ``cu/`` preludes and fast paths."""
