"""Runs kernels: inputs, correctness, timing, counters, comparisons."""
