"""Reads and writes the problems of benchmarks: flashinfer-trace and SOL-ExecBench JSON, and KernelBench files."""
