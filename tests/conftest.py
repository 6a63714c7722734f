"""Sets what holds for every test: no thread spins while it waits, since workers share the processors, property tests
take their time on a busy machine, and what was collected is not searched for garbage again."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

# Read when torch is imported, here and in every process that a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """Leave modules and tests, which live to the end, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
