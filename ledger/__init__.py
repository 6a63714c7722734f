"""Predict which resource binds a GPU kernel, seal the forecast, measure, and reconcile the two."""

__version__ = "0.1.0"
