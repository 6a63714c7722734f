"""Renders claims of ratios with what was measured of them: rows for a terminal, lines, and JSON values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ledger.analysis.book import Book, ClaimView
from ledger.analysis.claims import ClaimScore, claim_document, claim_scores, verdict_of
from ledger.analysis.formatting import count_text, harmless, sizes_text
from ledger.analysis.score import document, score_of_nothing
from ledger.records import Case, Ratio, RatioMeasurement

HEADINGS = ("claim", "base", "head", "claimed", "measured", "verdict")
FOLDING = ("claim",)
SCORE_HEADINGS = ("forecaster", "claims settled", "holds", "fails", "undecided", "error of the ratio")
LEGEND = (
    "A claim is of time before ÷ time after. It holds where the measured interval lies within the claimed one, and "
    "fails where it lies outside by more than the noise of base against base."
)


def claimed_text(claim: Ratio) -> str:
    """Return a claimed ratio with its interval: 1.12 (1.08–1.15)."""
    return ratio_text(claim.ratio_ppm / 1e6, claim.low_ppm / 1e6, claim.high_ppm / 1e6)


def ratio_text(ratio: float, low: float, high: float | None) -> str:
    """Return a ratio with its interval, whose end may be open."""
    return f"{ratio:.3g} ({low:.3g}–)" if high is None else f"{ratio:.4g} ({low:.4g}–{high:.4g})"


def measured_text(measured: RatioMeasurement) -> str:
    """Return a measured ratio with its interval and noise, or that it failed."""
    if measured.ratio_ppm is None or measured.low_ppm is None or measured.noise_ppm is None:
        return "failed"
    high = None if measured.high_ppm is None else measured.high_ppm / 1e6
    ratio = ratio_text(measured.ratio_ppm / 1e6, measured.low_ppm / 1e6, high)
    return f"{ratio}, noise {measured.noise_ppm / 1e4:.1f}%"


def table_rows(claims: Sequence[ClaimView]) -> list[tuple[str, ...]]:
    """Return the rows of some claims, under HEADINGS."""
    return [_row(view) for view in claims]


def _row(view: ClaimView) -> tuple[str, ...]:
    run, claim = view.counted, view.claim
    return (
        f"{view.sealed.id[:10]} {case_words(claim.case)}",
        claim.base.commit[:7],
        claim.head.commit[:7],
        claimed_text(claim),
        view.state if run is None else measured_text(run.measurement),
        "" if run is None else verdict_of(claim, run.measurement) or "",
    )


def case_words(case: Case) -> str:
    """Return subject, shape, dtype and device of a case."""
    return harmless(f"{case.kernel} {sizes_text(case)} {case.dtype} {case.hardware}")


def summary_line(claims: Sequence[ClaimView]) -> str:
    """Return how many claims hold, fail and are open."""
    counts = dict.fromkeys(("holds", "fails", "undecided", "open"), 0)
    for view in claims:
        word = view.state if view.counted is None else verdict_of(view.claim, view.counted.measurement) or "failed"
        counts[word] = counts.get(word, 0) + 1
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{count_text(len(claims), 'claim')}: {said}"


def failure_of(view: ClaimView) -> str | None:
    """Return why a claim that failed has no ratio."""
    return view.runs[-1].measurement.failure if view.runs and view.counted is None else None


def claim_row(view: ClaimView) -> dict[str, Any]:
    """Return a claim with what settled it as JSON values; dates and times are as recorded."""
    run = view.counted
    measured = None
    if run is not None:
        record = run.measurement
        measured = {
            "id": run.id,
            "commit": run.commit.sha,
            "ratio": _share(record.ratio_ppm),
            "low": _share(record.low_ppm),
            "high": _share(record.high_ppm),
            "noise_pct": None if record.noise_ppm is None else record.noise_ppm / 1e4,
            "base_us": None if record.base.median_ps is None else record.base.median_ps / 1e6,
            "head_us": None if record.head.median_ps is None else record.head.median_ps / 1e6,
            "rounds": len(record.again_ps),
            "device": record.device.name,
        }
    case = view.claim.case
    return {
        "seal": view.sealed.id,
        "cell": view.claim.cell,
        "forecaster": view.sealed.prediction.forecaster,
        "state": view.state,
        "subject": case.kernel,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        "hardware": case.hardware,
        "claim": dict(claim_document(view.claim)),
        "measured": measured,
        "verdict": None if run is None else verdict_of(view.claim, run.measurement),
        "failure": failure_of(view),
        "runs": len(view.runs),
        "levels": list(view.levels),
        "samples": view.binding,
    }


def _share(ppm: int | None) -> float | None:
    return None if ppm is None else ppm / 1e6


def scores_of(book: Book) -> tuple[ClaimScore, ...]:
    """Return the scores of the claims of a book; none when it is refused."""
    if book.refused:
        return ()
    return claim_scores(
        (view.sealed.prediction.forecaster, view.claim, None if view.counted is None else view.counted.measurement)
        for view in book.claims
    )


def with_claims(documents: list[dict[str, Any]], claims: Sequence[ClaimScore]) -> list[dict[str, Any]]:
    """Return score documents, each with how its forecaster's claims came out, None where there is none.

    A forecaster of claims alone has a document whose scores are those of no cell.
    """
    by_name = {
        one.forecaster: {key: value for key, value in asdict(one).items() if key != "forecaster"} for one in claims
    }
    rest = sorted(set(by_name) - {one["forecaster"] for one in documents})
    listed = [*documents, *(document([score_of_nothing(name)])[0] for name in rest)]
    return [{**one, "claims": by_name.get(one["forecaster"])} for one in listed]


def score_rows(scores: Sequence[ClaimScore]) -> list[tuple[str, ...]]:
    """Return the rows of the scores of claims, under SCORE_HEADINGS."""
    return [
        (
            harmless(one.forecaster, 30),
            f"{one.settled} of {one.sealed}",
            str(one.holds),
            str(one.fails),
            str(one.undecided),
            "–" if one.error_percent is None else f"{one.error_percent:.1f}%",
        )
        for one in scores
    ]


def claim_rows(book: Book) -> list[dict[str, Any]]:
    """Return all claims of a book as JSON values."""
    return [claim_row(view) for view in book.claims]
