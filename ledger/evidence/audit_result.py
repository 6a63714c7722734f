"""Defines the outcome of an audit: the verdict, what each level proves and what nobody can, and the JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.analysis.claims import claim_document, verdict_of
from ledger.analysis.report_rows import sight_document
from ledger.evidence.challenge import Answer
from ledger.evidence.checkpoint import Checkpoint
from ledger.records import Finding

Verdict = Literal["holds", "refused", "undetermined"]

LEVELS: dict[int, tuple[str, str]] = {
    0: (
        "git order: the seal is an ancestor of the measurement in this history",
        "anything about time: a history can be made in a second",
    ),
    1: (
        "chained and bound: the recorded samples were computed after the seal was fixed, where they were recomputed",
        "that the timings came from that run; that nobody measured before",
    ),
    2: ("signed: a key that the auditor trusts, and that is valid now, signed the commits of both", "time"),
    3: (
        "trusted time: the seal existed at T1 and its measurement's record at a later T2, as authorities stamped",
        "that the measurement was made after T1: a challenge given after T1 proves this of its samples; that no secret "
        "measurement came first",
    ),
    4: (
        "public log: a signer whom the auditor names entered seal and measurement, the seal first",
        "that nothing was left out, unless all entries are shown",
    ),
    5: (
        "drawn: the shape was drawn after the forecaster's code was sealed, and measured after the draw",
        "immunity to a dense secret sweep; that the code gave the answers, until somebody runs it",
    ),
}

NOT_PROVEN = (
    "Nobody can prove that no measurement was made in secret first, or that no second ledger was kept.",
    "Timings are unproven at every level: samples can be computed on any CPU. A run on a machine that the auditor "
    "controls, or one whose hardware attests the timed run, would change that.",
    "A rewrite of history that keeps every record and their order cannot be seen below level 3.",
    "Commit dates are self-declared and decide nothing.",
)


@dataclass(frozen=True)
class Audit:
    """Hold the outcome of an audit; `notes` are what a reader must know besides the findings.

    answers: the measurements that carry the auditor's challenge, None where none was given. log: in a few words what
    was checked of a public log, None where nothing was logged.
    """

    source: str
    verdict: Verdict
    reason: str
    book: Book | None
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    answers: tuple[Answer, ...] | None = None
    log: str | None = None
    checkpoint: Checkpoint | None = None


def document(result: Audit) -> dict[str, Any]:
    """Return the audit as one JSON document."""
    book = result.book
    reached = dict.fromkeys(LEVELS, 0)
    held = [] if book is None else [cell.levels for cell in book.cells] + [claim.levels for claim in book.claims]
    for levels in held:
        for level in levels:
            reached[level] += 1
    return {
        "verdict": result.verdict,
        "reason": result.reason,
        "commit": None if book is None else book.head,
        "findings": [finding.model_dump(mode="json") for finding in result.findings],
        "levels": {
            str(level): {
                "proves": proves,
                "does_not_prove": not_proves,
                "cells": reached[level],
                "provided": reached[level] > 0,
            }
            for level, (proves, not_proves) in LEVELS.items()
        },
        "predictions": [] if book is None else [_cell_document(cell) for cell in book.cells],
        "claims": [] if book is None else [_claim_document(claim) for claim in book.claims],
        "challenge": None if result.answers is None else [vars(answer) for answer in result.answers],
        "notes": list(result.notes),
        "not_proven": list(NOT_PROVEN),
        "log": result.log,
    }


def shown_cells(book: Book) -> dict[str, Any]:
    """Return what is shown of each cell and claim, without what depends on the auditor's options."""
    told = {view.name: _cell_document(view) for view in book.cells}
    told |= {view.name: _claim_document(view) for view in book.claims}
    return {name: {key: value for key, value in one.items() if key not in _OPTIONAL} for name, one in told.items()}


_OPTIONAL = ("levels", "samples")


def _claim_document(view: ClaimView) -> dict[str, Any]:
    run = view.counted
    return {
        "seal": view.sealed.id,
        "cell": view.claim.cell,
        "state": view.state,
        "levels": list(view.levels),
        "samples": view.binding,
        "claim": dict(claim_document(view.claim)),
        "sealed": {"commit": view.sealed.commit.sha, "date_self_declared": view.sealed.commit.when},
        "measured": [
            {"id": item.id, "commit": item.commit.sha, "date_self_declared": item.commit.when} for item in view.runs
        ],
        "verdict": None if run is None else verdict_of(view.claim, run.measurement),
    }


def _cell_document(cell: CellView) -> dict[str, Any]:
    run = cell.counted
    return {
        "seal": cell.sealed.id,
        "cell": cell.forecast.cell,
        "state": cell.state,
        "levels": list(cell.levels),
        "samples": cell.binding,
        "blind": cell.blind,
        **sight_document(cell),
        "revises": list(cell.revises),
        "sealed": {"commit": cell.sealed.commit.sha, "date_self_declared": cell.sealed.commit.when},
        "measured": [
            {
                "id": item.recorded.id,
                "run": item.recorded.measurement.run,
                "status": item.recorded.measurement.status,
                "commit": item.recorded.commit.sha,
                "date_self_declared": item.recorded.commit.when,
            }
            for item in cell.runs
        ],
        "predicted_regime": cell.forecast.regime,
        "predicted_percent": cell.forecast.percent_milli / 1000,
        "measured_regime": None if run is None else run.verification.measured_regime,
        "measured_percent": None if run is None else run.verification.measured_percent,
        "grade": None if run is None else run.verification.grade,
    }
