"""Sets what holds for every test: no thread spins while it waits, since workers share the processors, and property
tests take their time on a busy machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Read when torch is imported, here and in every process that a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
