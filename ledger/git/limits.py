"""Bounds what git processes may use, as far as the operating system can: all of it on Linux, less elsewhere."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

try:
    import resource as _module
except ImportError:  # Windows
    _resource: Any = None
else:
    _resource = _module

KILLED = tuple(-getattr(signal, name) for name in ("SIGKILL", "SIGXCPU") if hasattr(signal, name))
"""The exit codes of a process that broke a bound."""


def bound(pid: int, **limits: int) -> None:
    """Bound a running process, by names of limits such as RLIMIT_AS; only Linux can."""
    if not hasattr(_resource, "prlimit"):
        return
    # A process that has ended already needs no bound.
    with suppress(ProcessLookupError, PermissionError):
        for name, most in limits.items():
            kind = getattr(_resource, name)
            lowest = _within(most, _resource.prlimit(pid, kind)[1])
            _resource.prlimit(pid, kind, (lowest, lowest))


def bounding(limits: Mapping[str, int]) -> Callable[[], None] | None:
    """Return what a new process calls to bound itself, None where a process cannot."""
    if _resource is None:
        return None

    def bound_itself() -> None:
        for name, most in limits.items():
            try:
                kind = getattr(_resource, name)
                lowest = _within(most, _resource.getrlimit(kind)[1])
                _resource.setrlimit(kind, (lowest, lowest))
            except (AttributeError, ValueError, OSError):
                # macOS knows RLIMIT_AS and refuses to set it.
                if sys.platform == "linux":
                    raise

    return bound_itself


def _within(most: int, hard: int) -> int:
    """Return a bound that is no higher than the hard limit, which a process cannot raise."""
    return most if hard == _resource.RLIM_INFINITY else min(most, hard)


def end_group(leader: int) -> None:
    """Kill a process that leads its group, and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(leader, signal.SIGKILL)
