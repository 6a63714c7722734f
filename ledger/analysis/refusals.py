"""Tells why a callable has no measurement: it was refused, it was stopped, or it failed. Pure.

A record keeps the reason as its failure; the first word says which of the three it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledger.errors import EvidenceRefused, MachineError

REFUSED = "refused: "
"""Starts the failure of a callable that interfered with its own measurement."""
STOPPED = "stopped: "
"""Starts the failure of a callable that ended its process, or reached a limit."""


def check_failures(failures: Iterable[tuple[str, str | None]]) -> None:
    """Check that no measured cell was refused or stopped; each as (name, failure). Other failures are results.

    Raises: EvidenceRefused where one was refused, else MachineError where one was stopped.
    """
    found = list(failures)
    refused = [f"{name}: {text}" for name, text in found if text and text.startswith(REFUSED)]
    stopped = [f"{name}: {text}" for name, text in found if text and text.startswith(STOPPED)]
    remedy = "recorded as failed; expected a callable that computes its results at each call"
    if refused:
        raise EvidenceRefused("; ".join((*refused, *stopped, remedy)))
    if stopped:
        raise MachineError("; ".join((*stopped, "recorded as failed; expected a callable that returns")))
