"""Holds what a person practised: every answer, and how well percents and probabilities were calibrated. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from ledger.analysis.drill import Answered
from ledger.analysis.estimate import Estimate
from ledger.analysis.formatting import count_text
from ledger.analysis.gap import HIT_POINTS
from ledger.analysis.regime_probabilities import probabilities_of
from ledger.records import Record

Grade = Literal["again", "hard", "good"]
_RECENT = 20
_LONGEST = 200_000


class Review(Record):
    """Hold one answer. at, sitting: ISO times; gap: points; covered: by its interval; sure: of the regime, 0 to 1."""

    key: Annotated[str, Field(max_length=400)]
    at: Annotated[str, Field(max_length=40)]
    sitting: Annotated[str, Field(max_length=40)]
    kind: Literal["cell", "fact"]
    grade: Grade
    right: bool
    estimates: tuple[bool, ...] = ()
    gap: float | None = None
    covered: bool | None = None
    sure: float | None = None


class PracticeHistory(Record):
    """Hold all answers of a person, and the state of each question that is repeated (fsrs), by its key."""

    schema_: Literal["ledger/practice/1"] = Field(alias="schema")
    cards: dict[str, dict[str, Any]] = Field(default_factory=dict)
    reviews: Annotated[tuple[Review, ...], Field(max_length=_LONGEST)] = ()


def review_of_cell(answered: Answered, *, key: str, at: str, sitting: str) -> Review:
    """Return the answer to a cell: good with the regime right and a gap of at most 5 points, hard with one of them."""
    forecast, verdict = answered.view.forecast, answered.view.runs[0].verification
    gap, measured = verdict.gap, verdict.measured_percent
    right = verdict.regime_is_right
    close = gap is not None and abs(gap.percent) <= HIT_POINTS
    low, high = forecast.low_milli, forecast.high_milli
    covered = None
    if low is not None and high is not None and measured is not None:
        covered = low <= 1000 * measured <= high
    stated = forecast.probabilities_ppm is not None
    return Review(
        key=key,
        at=at,
        sitting=sitting,
        kind="cell",
        grade="good" if right and close else "hard" if right or close else "again",
        right=right,
        estimates=tuple(one.is_near for one in answered.estimates if one.guess is not None),
        gap=None if gap is None else gap.percent,
        covered=covered,
        sure=probabilities_of(forecast)[forecast.regime] if stated else None,
    )


def review_of_fact(estimate: Estimate, *, key: str, at: str, sitting: str) -> Review:
    """Return the answer to a fact: good where it is near, again elsewhere."""
    near = estimate.is_near
    return Review(key=key, at=at, sitting=sitting, kind="fact", grade="good" if near else "again", right=near)


def calibration_text(reviews: Sequence[Review]) -> tuple[str, ...]:
    """Return what all sittings say of a person: lines on regimes, percents, intervals, probabilities, estimates."""
    cells = [one for one in reviews if one.kind == "cell"]
    facts = [one for one in reviews if one.kind == "fact"]
    lines = [f"{_share([one.right for one in cells])} regimes right"] if cells else []
    gaps = [abs(one.gap) for one in cells if one.gap is not None]
    if gaps:
        recent = f", {fmean(gaps[-_RECENT:]):.1f} in the last {_RECENT}" if len(gaps) > _RECENT else ""
        lines.append(f"error {fmean(gaps):.1f} points on average{recent}")
    held = [one.covered for one in cells if one.covered is not None]
    if held:
        lines.append(f"{_share(held)} percents in their interval; meant are 80%")
    sure = [(one.sure, one.right) for one in cells if one.sure is not None]
    if sure:
        meant, were = fmean(share for share, _ in sure), fmean(right for _, right in sure)
        lines.append(
            f"of {count_text(len(sure), 'regime')} you were {100 * meant:.0f}% sure, and right in {100 * were:.0f}%"
        )
    near = [value for one in cells for value in one.estimates]
    if near:
        lines.append(f"{_share(near)} estimates of intensity and ridge within a factor of 1.25")
    if facts:
        lines.append(f"{_share([one.right for one in facts])} facts of GPUs right")
    sittings = len({one.sitting for one in reviews})
    head = f"{count_text(len(reviews), 'answer')} in {count_text(sittings, 'sitting')}"
    return (head, *lines) if reviews else ()


def _share(values: Sequence[bool | None]) -> str:
    return f"{sum(map(bool, values))} of {len(values)}"
