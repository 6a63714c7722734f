"""Checks shapes that were drawn from a declared domain: check 18 of judge, and grants level 5 in an audit.

The domain's seal comes first and names the round, or the digest of an auditor's secret; the seal of the answers is by
the same forecaster and holds every drawn cell; each measurement is made from the pulse. Whether the pulse is genuine,
and whether the domain's seal existed before it, is the audit's question (with_draws).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ledger.analysis.book import Book, CellView, Drawn, Sealed
from ledger.analysis.draws import commitment_to, contradictions, drawn_cells, randomness_of, round_time, seconds_of
from ledger.budgets import MAX_PULSES
from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.evidence.beacon import check_signature
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.ancestry import Ancestry
from ledger.records import Domain, Finding, Forecast, ForecasterCode, ForecastV2, Measurement, PredictionV2, Pulse

MISSED = "draw-missed"


def domain_of(sealed: Sealed) -> Domain | None:
    """Return the domain that a seal declares."""
    return sealed.prediction.domain if isinstance(sealed.prediction, PredictionV2) else None


def check_draws(
    gathered: GatheredRecords, objects: Objects, ancestry: Ancestry, seals: Sequence[Sealed]
) -> tuple[Drawn, ...]:
    """Check every declared domain and every seal of drawn cells; return those that hold."""
    by_id = {sealed.id: sealed for sealed in seals}
    found = []
    drawn_from: set[str] = set()
    for sealed in seals:
        domain = domain_of(sealed)
        if domain is not None:
            with gathered.findings.about_one(sealed.path):
                for message in (*contradictions(domain), *_unsealed(objects, sealed, domain)):
                    gathered.findings.refuse("domain-contradicted", sealed.path, f"its domain {message}")
        cells = [cell for cell in sealed.prediction.cells if isinstance(cell, ForecastV2) and cell.draw is not None]
        if not cells:
            continue
        with gathered.findings.about_one(sealed.path):
            one = _check(gathered, objects, ancestry, by_id, sealed, cells)
            if one is not None:
                found.append(one)
                if one.origin.id in drawn_from:
                    message = f"draws from {one.origin.id[:12]}, from which an earlier seal drew"
                    gathered.findings.flag("draw-repeated", sealed.path, message)
                drawn_from.add(one.origin.id)
    _disclose_unanswered(gathered, [sealed for sealed in seals if sealed.id not in drawn_from], found)
    return tuple(found)


def _disclose_unanswered(gathered: GatheredRecords, seals: Sequence[Sealed], drawn: Sequence[Drawn]) -> None:
    """Disclose domains that nothing answers: of many that are declared, the best draw could be chosen."""
    latest = max((one.pulse.round or 0 for one in drawn), default=0)
    secrets = {one.domain.auditor_sha256 for one in drawn if one.pulse.secret is not None}
    for sealed in seals:
        domain = domain_of(sealed)
        if domain is None:
            continue
        known = domain.auditor_sha256 in secrets or (domain.beacon is not None and domain.beacon.round <= latest)
        message = f"declares a domain of which no seal answers the {domain.cells} cells"
        if known:
            gathered.findings.flag("draw-unanswered", sealed.path, f"{message}, though what draws them is known")
        else:
            gathered.findings.note("draw-unanswered", sealed.path, message)


def _unsealed(objects: Objects, sealed: Sealed, domain: Domain) -> Iterator[str]:
    """Yield what a domain's seal must hold and does not: the code of its forecaster, with its files."""
    objects.kernel_source(domain.kernel_sha256, sealed.path)
    objects.hardware(domain.hardware_sha256, sealed.path)
    participant = sealed.prediction.participant if isinstance(sealed.prediction, PredictionV2) else None
    if participant is None or participant.sha256 is None:
        yield "is sealed without the digest of a forecaster's code"
        return
    code = objects.decoded(ForecasterCode, participant.sha256, sealed.path)
    if code is not None:
        if (code.name, code.version) != (sealed.prediction.forecaster, participant.version):
            yield f"names another forecaster than the code, which is {code.name} {code.version}"
        for digest in (*(file.sha256 for file in code.files), *([code.model] if code.model else [])):
            objects.sound("predictions", digest, sealed.path)


def _check(
    gathered: GatheredRecords,
    objects: Objects,
    ancestry: Ancestry,
    by_id: Mapping[str, Sealed],
    sealed: Sealed,
    cells: Sequence[ForecastV2],
) -> Drawn | None:
    refuse = gathered.findings.refuse
    draws = [cell.draw for cell in cells if cell.draw is not None]
    sources = {(draw.domain_seal, draw.challenge) for draw in draws}
    own = sealed.prediction
    assert isinstance(own, PredictionV2)
    if len(sources) > 1 or len(cells) < len(own.cells) or own.commitments or own.ratios:
        refuse("draw-mixed", sealed.path, "holds cells of several draws, or beside a draw; expected one draw alone")
        return None
    ((identity, challenge),) = sources
    origin = by_id.get(identity)
    domain = None if origin is None else domain_of(origin)
    if origin is None or domain is None:
        refuse("draw-unknown", sealed.path, f"draws from {identity[:12]}, which declares no domain in this ledger")
        return None
    if not ancestry.precedes(origin.path, gathered.introduced.get(sealed.path, ())):
        message = f"draws from {identity[:12]}, which was not introduced in a proper ancestor of its commit"
        refuse("draw-precedes", sealed.path, message)
    pulse = objects.decoded(Pulse, challenge, sealed.path, kept=True)
    if pulse is None:
        return None
    if (why := _wrong_pulse(domain, pulse)) is not None:
        refuse("draw-round", sealed.path, why)
        return None
    first = origin.prediction
    assert isinstance(first, PredictionV2)
    if first.participant is None or (own.forecaster, own.participant) != (first.forecaster, first.participant):
        refuse(
            "draw-forecaster", sealed.path, "is not by the forecaster, version and code that the domain's seal names"
        )
    for code, message in _wrong_cells(domain, identity, pulse, cells):
        refuse(code, sealed.path, message)
    return Drawn(sealed, origin, domain, pulse)


def _wrong_pulse(domain: Domain, pulse: Pulse) -> str | None:
    """Return why a pulse is not the one that a domain names."""
    if domain.beacon is not None and pulse.round != domain.beacon.round:
        return f"is drawn by round {pulse.round}; its domain names round {domain.beacon.round}"
    committed = None if pulse.secret is None else commitment_to(pulse.secret)
    if domain.auditor_sha256 is not None and committed != domain.auditor_sha256:
        return "is not drawn by the secret whose digest its domain names"
    return None


def _wrong_cells(domain: Domain, identity: str, pulse: Pulse, cells: Sequence[ForecastV2]) -> Iterator[tuple[str, str]]:
    """Yield where the cells of a seal are not those that the pulse draws."""
    held = [cell.draw.index for cell in cells if cell.draw is not None]
    left_out = sorted(set(range(domain.cells)) - set(held))
    if left_out or len(held) != domain.cells:
        number = f"draw {left_out[0]} is left out" if left_out else "a draw is held twice, or is none"
        yield "draw-incomplete", f"holds {len(held)} of {domain.cells} drawn cells: {number}"
        # Drawing costs as much as the domain declares: it is done for a seal that holds as many cells.
        return
    try:
        expected = drawn_cells(domain, identity, randomness_of(pulse))
    except InputError:
        # The domain is refused by itself.
        return
    for cell in cells:
        index = cell.draw.index if cell.draw is not None else len(expected)
        case = cell.case
        sealed = (case.kernel, case.hardware, cell.kernel_sha256, cell.hardware_sha256)
        if sealed != (domain.kernel, domain.hardware, domain.kernel_sha256, domain.hardware_sha256):
            yield "draw-contradicted", f"{cell.cell} is of another kernel or profile, or version, than its domain"
        elif index < len(expected) and (case.dtype, tuple(sorted(case.shape.items()))) != expected[index]:
            dtype, sizes = expected[index]
            shape = ",".join(f"{key}={size}" for key, size in sizes)
            yield "draw-contradicted", f"{cell.cell} is not draw {index}, which is {dtype} {shape}"


def check_anchor(gathered: GatheredRecords, forecast: Forecast, path: str, measurement: Measurement) -> None:
    """Refuse a measurement of a drawn cell that is not made from the pulse."""
    draw = forecast.draw if isinstance(forecast, ForecastV2) else None
    if draw is not None and measurement.anchor != draw.challenge:
        gathered.findings.refuse(
            "draw-anchor", path, "measures a drawn cell and is not made from the pulse that drew it"
        )


def with_deadlines(
    gathered: GatheredRecords, views: Iterable[CellView], drawn: Sequence[Drawn]
) -> tuple[CellView, ...]:
    """Return views of which those measured after their domain's deadline count as missed."""
    deadlines = {one.sealed.id: seconds_of(one.domain.deadline) for one in drawn if not contradictions(one.domain)}
    made = []
    for view in views:
        deadline, run = deadlines.get(view.sealed.id), view.counted
        if deadline is None or run is None or view.state == "refused":
            made.append(view)
            continue
        if _began(run.recorded.measurement) > deadline:
            message = f"{view.forecast.cell} was measured after the deadline of its draw: it counts as missed"
            gathered.findings.flag(MISSED, run.recorded.path, message)
            view = replace(view, state="missed")
        made.append(view)
    return tuple(made)


def _began(measurement: Measurement) -> float:
    try:
        return seconds_of(measurement.started_at)
    except InputError:
        return float("inf")


# Level 5


def with_draws(
    book: Book, drawn: Sequence[Drawn], times: Mapping[str, datetime], secret: str | None
) -> tuple[Book, tuple[str, ...]]:
    """Return a book with level 5 where a genuine pulse drew a cell after its forecaster was sealed, and notes.

    times: trusted times of records by id. secret: what the auditor gave after the domain's seal, if anything.
    Level 5 needs level 1, since the samples show that the measurement came after the pulse.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    proven: set[str] = set()
    drawn = [one for one in drawn if not contradictions(one.domain)]
    rounds = dict.fromkeys((one.pulse.round, one.pulse.signature) for one in drawn if one.pulse.secret is None)
    if len(rounds) > MAX_PULSES:
        return book, (f"no level 5: {len(rounds)} rounds of drand; expected at most {MAX_PULSES} to verify",)
    broken = {finding.path for finding in book.refused}
    for one in drawn:
        why = _unproven(one, times, secret, findings)
        if why is None and one.origin.path in broken:
            why = "the seal of its domain is refused"
        if why is None:
            proven.add(one.sealed.id)
        else:
            notes.append(f"{one.sealed.id[:10]}: no level 5: {why}")
    refused = {finding.path for finding in findings if finding.severity == "refused"}

    deadlines = {one.sealed.id: one.domain.deadline for one in drawn}

    def judged(cell: CellView) -> CellView:
        if cell.sealed.path in refused:
            return replace(cell, state="refused", levels=())
        run = cell.counted
        late = run is None or _late(deadlines.get(cell.sealed.id), times.get(run.recorded.id))
        if cell.sealed.id in proven and 1 in cell.levels and not late:
            return replace(cell, levels=tuple(sorted({*cell.levels, 5})))
        return cell

    return replace(book, cells=tuple(map(judged, book.cells)), findings=(*book.findings, *findings)), tuple(notes)


def _unproven(one: Drawn, times: Mapping[str, datetime], secret: str | None, findings: list[Finding]) -> str | None:
    """Return what keeps a draw from level 5; None where nothing does. A pulse that is forged is refused."""
    if one.pulse.secret is not None:
        return None if one.pulse.secret == secret else "the auditor did not give its secret (--challenge)"
    assert one.pulse.round is not None and one.pulse.signature is not None
    try:
        check_signature(one.pulse.round, one.pulse.signature)
    except EvidenceRefused as error:
        findings.append(Finding(code="pulse-forged", severity="refused", path=one.sealed.path, message=str(error)))
        return str(error)
    except MachineError as error:
        return str(error)
    sealed_at = times.get(one.origin.id)
    if sealed_at is None:
        return "no authority that the auditor trusts stamped the domain's seal"
    if sealed_at.timestamp() >= round_time(one.pulse.round):
        message = f"round {one.pulse.round} was public before its domain's seal was stamped, at {sealed_at.isoformat()}"
        findings.append(Finding(code="draw-late", severity="flag", path=one.origin.path, message=message))
        return message
    return None


def _late(deadline: str | None, stamped: datetime | None) -> bool:
    """Tell whether an authority stamped a measurement after its deadline."""
    return stamped is not None and deadline is not None and stamped.timestamp() > seconds_of(deadline)
