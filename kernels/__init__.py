"""Kernel sources: ``common/`` bodies shared by OpenCL and CUDA, and a prelude for each language in ``cl/`` and ``cu/``."""
