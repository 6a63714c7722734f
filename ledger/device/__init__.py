"""Asks the machine that is here: its device, its sensors and its profiler."""
