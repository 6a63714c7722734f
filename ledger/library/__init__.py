"""Makes the shipped kernels callable as torch operations of the namespace `ledger`."""
