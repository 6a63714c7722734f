"""Holds the code that kernels share. A kernel imports it as `ledger.kernels.common`, and a seal covers it."""
