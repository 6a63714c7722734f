"""Predict which resource binds a GPU kernel, seal the forecast, measure, and reconcile the two."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return the Python interface, loaded on first use: ledger.open and the decorator ledger.kernel."""
    from importlib import import_module

    if name == "open":
        return import_module("ledger.api").open
    if name == "kernel":
        return import_module("ledger.kernel")
    raise AttributeError(f"module 'ledger' has no attribute {name!r}")
