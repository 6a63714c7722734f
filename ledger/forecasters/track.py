"""Tells from what a ledger measured how far a forecaster's answers are off: intervals and probabilities. Pure.

Interval: each measured case is forecast without itself; the ratios measured ÷ forecast, from their k-th least to
their k-th greatest, hold a further one in at least 80% of all draws if it is drawn as they were (split conformal).
Those of the kernel asked about count alone where there are enough. Probabilities: how often each regime was measured
where the forecaster named this one, and two more cases by which no regime is impossible. Assumes: what comes is drawn
as what was measured. A forecaster whose constants were chosen with these records in sight is off by more.

Source: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005 (conformal prediction).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ledger.analysis.book import Book
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.records import REGIMES, Regime

MISS = 0.2
"""Share of the cases that an interval may miss, half of it on either side."""
LEAST = math.ceil(2 / MISS) - 1
"""Cases below which no such interval is bounded."""
HOW = (
    "interval: 80% by conformal quantiles of measured / forecast over {count} measured cases, each forecast without "
    "itself{of}; probabilities: regimes measured where {name} named one, with two cases of prior"
)


@dataclass(frozen=True)
class Outcome:
    """Hold how one answer turned out. log_ratio: ln of measured time ÷ forecast time."""

    kernel: str
    log_ratio: float
    forecast: Regime | None
    measured: tuple[Regime, ...]


def measured_runs(book: Book) -> tuple[Measured, ...]:
    """Return every finished run of a ledger's measured cells, oldest commit first."""
    return tuple(run for _, run in measured_with_positions(book))


def measured_with_positions(book: Book) -> tuple[tuple[int, Measured], ...]:
    """Return every finished run with the position of its commit in the history, oldest first."""
    found: list[tuple[int, Measured]] = []
    for view in book.cells:
        for run in view.runs if view.state == "measured" and view.hardware is not None else ():
            measurement, forecast = run.recorded.measurement, view.forecast
            if measurement.timing is not None and view.hardware is not None:
                one = Measured(
                    forecast.case,
                    forecast.work,
                    forecast.roof,
                    view.hardware,
                    measurement.timing.median_ps / 1e12,
                    run.verification.regimes,
                    run.recorded.id,
                )
                found.append((run.recorded.commit.position, one))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def same_case(one: Measured, other: Measured) -> bool:
    """Tell whether two runs are of one kernel, shape, dtype and profile, whatever the version of its sources."""
    return subject(one) == subject(other)


def subject(one: Measured) -> tuple[object, ...]:
    """Return what makes two runs alike: kernel, shape, dtype, profile."""
    case = one.case
    return case.kernel, tuple(sorted(case.shape.items())), case.dtype, case.hardware


Ask = Callable[[Question], Answer | NoAnswer]


def outcomes(ask: Ask, runs: Sequence[Measured]) -> tuple[Outcome, ...]:
    """Return how a forecaster's answers to measured cases turn out, each asked without the runs of its own case."""
    by_case: dict[tuple[object, ...], tuple[Measured, ...]] = {}
    found = []
    for one in runs:
        key = subject(one)
        if key not in by_case:
            by_case[key] = tuple(other for other in runs if subject(other) != key)
        answer = ask(replace(one.question, earlier=by_case[key]))
        if isinstance(answer, Answer):
            ratio = math.log(one.time_s / answer.time_s)
            found.append(Outcome(one.case.kernel, ratio, answer.regime, one.regimes))
    return tuple(found)


def with_uncertainty(answer: Answer, kernel: str, known: Sequence[Outcome]) -> tuple[Answer, str]:
    """Return an answer with the interval and the probabilities that earlier outcomes give it, and how they were made.

    An answer that has its own keeps them. Too few outcomes give none.
    """
    own = [one for one in known if one.kernel == kernel]
    used = own if len(own) >= LEAST else known
    of = f", of {kernel} alone" if used is own else ""
    if answer.low is None and len(used) >= LEAST:
        fast, slow = ratios(used)
        low, high = answer.percent / max(slow, 1.0), answer.percent / min(fast, 1.0)
        answer = replace(answer, low=low, high=high)
    if answer.probabilities is None and answer.regime is not None and known:
        answer = replace(answer, probabilities=probabilities(answer.regime, known))
    if len(used) < LEAST:
        return answer, f"no interval: {len(used)} measured cases; expected at least {LEAST}"
    return answer, HOW.format(count=len(used), of=of, name=answer.forecaster)


def ratios(known: Sequence[Outcome]) -> tuple[float, float]:
    """Return the conformal quantiles of measured ÷ forecast time, at least LEAST of them."""
    ordered = sorted(one.log_ratio for one in known)
    rank = math.floor((len(ordered) + 1) * MISS / 2)
    return math.exp(ordered[rank - 1]), math.exp(ordered[-rank])


def probabilities(regime: Regime, known: Sequence[Outcome]) -> dict[Regime, float]:
    """Return the probability of each regime where a forecaster names one; they sum to 1."""
    judged = [one for one in known if one.measured]
    counted = dict.fromkeys(REGIMES, 0.0)
    for one in judged:
        for named in one.measured if one.forecast == regime else ():
            counted[named] += 1 / len(one.measured)
    # Two cases of prior: one says that the forecaster is right, one what was measured anywhere, or nothing at all.
    everywhere = {name: sum((name in one.measured) / len(one.measured) for one in judged) for name in REGIMES}
    prior = {name: (everywhere[name] + 1 / len(REGIMES)) / (len(judged) + 1) for name in REGIMES}
    total = sum(counted.values()) + 2
    return {name: (counted[name] + prior[name] + (name == regime)) / total for name in REGIMES}
