"""Reads this machine: its device, its sensors and its profiler."""
