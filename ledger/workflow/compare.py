"""Runs a planned comparison of two commits and makes its document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from ledger.analysis.book import ClaimView
from ledger.analysis.claims import claim_document, verdict
from ledger.analysis.formatting import shape_text
from ledger.analysis.paired_ratio import FAMILY_ERROR, error_of_case
from ledger.device.cpu_load import load_average
from ledger.device.facts import facts_for, require_profile
from ledger.measure.comparison import Compared, compare_case
from ledger.measure.comparison_effort import Effort
from ledger.measure.run_cell import require_live
from ledger.records import DeviceFacts, Hardware, is_gpu
from ledger.workflow.compare_plan import Pair, Plan, Skipped
from ledger.workflow.revisions import Side

SCHEMA = "ledger/comparison/1"
Verdict = Literal["faster", "slower", "same", "unclear", "wrong", "failed", "base-failed", "new", "removed"]
FAILING: frozenset[str] = frozenset({"slower", "wrong", "failed"})
"""Verdicts for which a gate fails."""


def compare(
    plan: Plan,
    base: Side,
    head: Side,
    hardware: Hardware,
    *,
    effort: Effort | None = None,
    claims: Sequence[ClaimView] = (),
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """Return the document of a comparison: its conditions, a row a timed case, what was skipped and why.

    claims: those of a ledger; a row has the last one that is sealed of its case and of the sources of both sides.
    Raises: MachineError where this device is not the profile's, or a case leaves it unusable.
    """
    facts = facts_for(hardware)
    # Also where nothing is timed: of another device's profile other code is skipped.
    require_profile(hardware, facts)
    error, device = error_of_case(len(plan.pairs)), "cuda" if is_gpu(hardware.target) else "cpu"
    sealed = {
        (view.claim.base.kernel_sha256, view.claim.head.kernel_sha256, view.claim.case.cell): view
        for view in claims
        if view.state not in ("void", "refused")
    }
    rows = []
    for number, pair in enumerate(plan.pairs):
        case = pair.head.case
        on_progress(f"{number + 1} of {len(plan.pairs)}: {case.kernel} {shape_text(case.shape)} {case.dtype}")
        found = compare_case(pair.base, pair.head, facts=facts, device=device, error=error, effort=effort)
        if device == "cuda":
            said = f": {found.failure}" if found.failure else ""
            require_live(f"{case.kernel} {shape_text(case.shape)} {case.dtype}{said}", "leave it out, or mend it")
        rows.append(_row(pair, found, sealed.get(_key(pair))))
    return document_of(plan, base, head, hardware, rows=rows, facts=facts)


def document_of(
    plan: Plan,
    base: Side,
    head: Side,
    hardware: Hardware,
    *,
    rows: Sequence[Mapping[str, Any]] = (),
    facts: DeviceFacts | None = None,
) -> dict[str, Any]:
    """Return the document of a plan, with the rows that were timed. facts: None where nothing was to be timed."""
    return {
        "schema": SCHEMA,
        "base": {"name": base.name, "commit": base.commit},
        "head": {"name": head.name, "commit": head.commit},
        "device": hardware.title if facts is None else facts.name,
        "hardware": hardware.name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "software": {} if facts is None else dict(facts.software),
        "load_average": None if facts is None or is_gpu(hardware.target) else load_average(),
        "cases": len(plan.pairs),
        "false_alarms_at_most": FAMILY_ERROR,
        "rows": [*rows, *(_failure(one) for one in plan.skipped if one.reason == "failed")],
        "skipped": [_skip(one) for one in plan.skipped if one.reason != "failed"],
        "to_time": [] if rows else [_cell(pair) for pair in plan.pairs],
    }


def failing(document: Mapping[str, Any]) -> list[str]:
    """Return the rows for which a gate fails, as text."""
    return [f"{_named(row)} {row['verdict']}" for row in document["rows"] if row["verdict"] in FAILING]


def without_verdict(document: Mapping[str, Any]) -> list[str]:
    """Return the rows whose base failed, as text: nothing is known of head there."""
    return [f"{_named(row)} base failed" for row in document["rows"] if row["verdict"] == "base-failed"]


def _named(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, [row["subject"], shape_text(row["shape"]) if row["shape"] else "", row["dtype"]]))


def _cell(pair: Pair) -> dict[str, Any]:
    case = pair.head.case
    return {"subject": case.kernel, "shape": dict(case.shape), "dtype": case.dtype, "listed": pair.listed}


def _key(pair: Pair) -> tuple[str, str, Any]:
    return pair.base.file.sha256, pair.head.file.sha256, pair.head.case.cell


def _claim(view: ClaimView | None, found: Compared) -> dict[str, Any] | None:
    """Return a claim beside what this comparison says of it; None where none was sealed."""
    if view is None:
        return None
    judged, claim = found.judged, claim_document(view.claim)
    fits = None
    if judged is not None and math.isfinite(judged.low):
        fits = verdict((claim["low"], claim["high"]), (judged.low, judged.high), judged.noise)
    return {"name": view.short_name, "state": view.state, **claim, "verdict": fits}


def _row(pair: Pair, found: Compared, sealed: ClaimView | None) -> dict[str, Any]:
    judged, head_us = found.judged, _us(found.head_ps)
    return {
        **_cell(pair),
        "verdict": _verdict(found),
        "base_us": _us(found.base_ps),
        "head_us": head_us,
        "ratio": None if judged is None else _number(judged.ratio),
        "low": None if judged is None else _number(judged.low),
        "high": None if judged is None else _number(judged.high),
        "noise_pct": None if judged is None else _number(100 * judged.noise),
        "claim": _claim(sealed, found),
        "rounds": found.rounds,
        "runs": found.runs,
        "config": dict(pair.head.case.config),
        "base_config": dict(pair.base.case.config),
        "pct_of_roof": _percent(pair.floor_s, found.head_ps),
        "rel_error": None if found.correctness is None else float(found.correctness.relative_error),
        "failure": found.failure,
    }


def _verdict(found: Compared) -> Verdict:
    if found.judged is not None:
        return found.judged.call
    if found.side == "base":
        return "base-failed"
    return "wrong" if (found.failure or "").startswith("wrong:") else "failed"


_NOTHING = ("listed", "base_us", "head_us", "ratio", "low", "high", "noise_pct", "claim", "pct_of_roof", "rel_error")


def _failure(one: Skipped) -> dict[str, Any]:
    """Return the row of a subject that could not be loaded or offers no such case."""
    empty = dict.fromkeys(_NOTHING, None)
    verdict: Verdict = "base-failed" if one.side == "base" else "failed"
    return {
        "subject": one.subject, "shape": {}, "dtype": one.cell, "verdict": verdict, **empty, "rounds": 0, "runs": 0,
        "config": {}, "base_config": {}, "failure": one.detail,
    }  # fmt: skip


def _skip(one: Skipped) -> dict[str, Any]:
    return {"subject": one.subject, "cell": one.cell, "reason": one.reason, "detail": one.detail}


def _us(picoseconds: int | None) -> float | None:
    return None if picoseconds is None else float(f"{picoseconds / 1e6:.5g}")


def _percent(floor_s: float | None, picoseconds: int | None) -> float | None:
    return None if floor_s is None or not picoseconds else float(f"{100 * floor_s / (picoseconds / 1e12):.4g}")


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
