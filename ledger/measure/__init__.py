"""Runs and compiles kernels: inputs, correctness, timing, counters, benches, tuning."""
