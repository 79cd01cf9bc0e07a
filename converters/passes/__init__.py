"""Passes over a graph, which make bits, binary layers and integer thresholds of float32 operators."""
