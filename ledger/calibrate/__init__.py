"""Measures what a device really reaches, and writes it down as a hardware profile."""
