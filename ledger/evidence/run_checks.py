"""Checks one measurement against its seal, and computes its verdict: checks 8, 9, 11 and 12 of judge. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ledger.analysis.book import Recorded, RecordedRatio, Run, Sealed
from ledger.analysis.reconcile import refutations, verify_cell
from ledger.errors import LedgerError
from ledger.evidence.findings import Findings
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords
from ledger.evidence.shared_parts import share_names
from ledger.git.ancestry import Ancestry
from ledger.records import Finding, Forecast, Hardware, Measurement, RegimeRule, Verification

UNREADABLE = "counters-unreadable"


@dataclass(frozen=True)
class CheckedRun:
    """Hold a measurement that belongs to a cell of a seal, with the findings about it."""

    recorded: Recorded
    findings: tuple[Finding, ...]


# 8 order


def check_order(
    gathered: GatheredRecords,
    ancestry: Ancestry,
    *,
    sealed: Sealed | None,
    cells: Collection[str],
    recorded: Recorded | RecordedRatio,
) -> bool:
    """Tell whether a measurement belongs to a cell of a seal; refuse one whose seal does not come before it.

    sealed: the seal that it names, None when the ledger has none of that id. cells: the names of the seal's cells.
    """
    findings, measurement = gathered.findings, recorded.measurement
    if sealed is None:
        findings.refuse("seal-unknown", recorded.path, f"its seal {measurement.seal[:12]} is not in this ledger")
        return False
    if measurement.cell not in cells:
        findings.refuse("cell-unknown", recorded.path, f"its cell {measurement.cell} is not in its seal")
        return False
    if not ancestry.precedes(sealed.path, gathered.introduced.get(recorded.path, ())):
        message = (
            f"prediction {sealed.id[:12]} (commit {sealed.commit.sha[:12]}) is no proper ancestor of this "
            f"measurement (commit {recorded.commit.sha[:12]}); a prediction comes before its measurement"
        )
        findings.refuse("prediction-postdates", recorded.path, message)
    return True


# 9 subject, 10 binding, 11 physics, 12 dates


def check_run(
    findings: Findings, objects: Objects, *, sealed: Sealed, forecast: Forecast, recorded: Recorded, bound: bool
) -> CheckedRun:
    """Return a measurement with the findings about it.

    bound: whether its samples are at the positions that its seal's key draws (seal_checks).
    """
    with findings.about_one(recorded.path):
        _check_run(findings, objects, sealed=sealed, forecast=forecast, recorded=recorded, bound=bound)
    return CheckedRun(recorded, findings.about(recorded.path))


def _check_run(
    findings: Findings, objects: Objects, *, sealed: Sealed, forecast: Forecast, recorded: Recorded, bound: bool
) -> None:
    path, measurement = recorded.path, recorded.measurement
    hardware = objects.hardware(forecast.hardware_sha256, sealed.path)
    for attachment in measurement.attachments:
        if not objects.sound("verifications", attachment.sha256, path):
            findings.refuse("attachment-lost", path, f"its evidence {attachment.name} is missing or altered")
    if measurement.protocol != forecast.protocol:
        findings.refuse("protocol-changed", path, "its timing protocol or parameters are not the sealed ones")
    if not bound:
        findings.refuse("binding-broken", path, "its samples are not at the positions drawn from its seal")
    if hardware is not None:
        for finding in _physics(forecast, measurement, hardware, path):
            findings.add(finding)
    if is_earlier(recorded.commit.when, sealed.commit.when):
        message = "its commit date is before its seal's; dates prove nothing, the graph decides"
        findings.flag("date-order", path, message)


def _physics(forecast: Forecast, measurement: Measurement, hardware: Hardware, path: str) -> list[Finding]:
    try:
        found = refutations(forecast=forecast, measurement=measurement, hardware=hardware)
    except (LedgerError, ArithmeticError) as error:
        return [Finding(code=UNREADABLE, severity="refused", path=path, message=str(error))]
    return [finding.model_copy(update={"path": path}) for finding in found]


def is_earlier(when: str, than: str) -> bool:
    """Tell whether one date of git is before another; False for what is no date."""
    try:
        return datetime.fromisoformat(when) < datetime.fromisoformat(than)
    except (ValueError, TypeError, OverflowError):
        return False


# Verdicts


def verdict_of(
    findings: Findings, forecast: Forecast, checked: CheckedRun, *, hardware: Hardware, blind: bool, rule: RegimeRule
) -> Run:
    """Return a run with its verdict; numbers that cannot be judged are refused."""
    measurement = checked.recorded.measurement
    verification: Verification | None = None
    with findings.about_one(checked.recorded.path):
        try:
            verification = verify_cell(
                forecast=forecast,
                measurement=measurement,
                hardware=hardware,
                blind=blind,
                findings=checked.findings,
                rule=rule,
            )
        except (LedgerError, ArithmeticError) as error:
            findings.refuse(UNREADABLE, checked.recorded.path, f"its numbers cannot be judged: {error}")
    if verification is not None:
        share_names(verification)
        if verification.gap is not None:
            share_names(verification.gap)
            for cause in verification.gap.causes:
                share_names(cause)
    return Run(checked.recorded, verification or _no_verdict(forecast, measurement, blind, findings, checked))


def _no_verdict(
    forecast: Forecast, measurement: Measurement, blind: bool, findings: Findings, checked: CheckedRun
) -> Verification:
    return Verification(
        seal=measurement.seal,
        cell=measurement.cell,
        run=measurement.run,
        predicted_regime=forecast.regime,
        measured_regime=None,
        predicted_percent=forecast.percent_milli / 1000,
        measured_percent=None,
        grade=None,
        gap=None,
        blind=blind,
        findings=findings.about(checked.recorded.path),
    )
