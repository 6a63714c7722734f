"""Makes the record of a cell of an order from what its measurement gave. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger import __version__
from ledger.analysis.revealing import masked_text
from ledger.device.machine_names import machine_names
from ledger.measure.order_checks import Job
from ledger.measure.order_counters import CounterEvidence
from ledger.measure.run_cell import Outcome
from ledger.records import MEASUREMENT_SCHEMA_V2, Attempt, Digest, MeasurementV2, Tool


@dataclass(frozen=True)
class Origin:
    """Hold what a record says of where it was made: the order, the node, and earlier attempts at its run."""

    order_sha256: Digest | None
    node: str | None
    attempts: tuple[Attempt, ...]


def record_of(
    job: Job, evidence: CounterEvidence, outcome: Outcome, *, origin: Origin, when: str, device_ms: int
) -> MeasurementV2:
    """Return the record of a cell's outcome, without names of this machine. Raises: ValidationError, LedgerError."""
    cell = job.ordered
    return MeasurementV2(
        schema=MEASUREMENT_SCHEMA_V2,
        tool=Tool(name="ledger", version=__version__),
        seal=cell.seal,
        cell=cell.cell,
        run=cell.run,
        anchor=cell.anchor,
        order_sha256=origin.order_sha256,
        case=cell.case,
        kernel_sha256=cell.kernel_sha256,
        hardware_sha256=cell.hardware_sha256,
        protocol=cell.protocol,
        device=job.facts,
        status="measured" if outcome.failure is None else "failed",
        failure=_masked(outcome.failure),
        correctness=outcome.correctness,
        samples=outcome.samples,
        timing=outcome.timing,
        before=outcome.before,
        after=outcome.after,
        counters=evidence.counters,
        counters_missing=_masked(evidence.missing),
        interventions=outcome.interventions,
        attachments=evidence.attachments,
        started_at=when,
        device_ms=device_ms,
        extensions=_masked_texts(outcome.extensions),
        ran=outcome.ran,
        attempts=origin.attempts,
        node=origin.node,
    )


def _masked(text: str | None) -> str | None:
    return None if text is None else masked_text(text, machine_names())


def _masked_texts(value: Any) -> Any:
    """Return plain JSON types with every text masked."""
    if isinstance(value, dict):
        return {key: _masked_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked_texts(item) for item in value]
    return _masked(value) if isinstance(value, str) else value
