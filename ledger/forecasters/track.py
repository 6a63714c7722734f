"""Tells from what a ledger measured how far a forecaster's answers are off: intervals and probabilities. Pure.

Interval: each measured case is forecast without itself; the ratios measured ÷ forecast, from their k-th least to
their k-th greatest, hold a further one in at least 80% of all draws if it is drawn as they were (split conformal).
A question that has no neighbour among what was measured on its device is harder: there each case is forecast without
its neighbours. On the first 767 runs such intervals of `learned` held 79% of cells asked about without their
neighbours (tests/forecasters/evaluate.py --coverage). Those of the kernel asked about count alone where there are
enough. Ratios count in units of the deviation that an answer states, where it states one.

Probabilities: how often each regime was measured where the forecaster named this one, and two more cases by which no
regime is impossible. Assumes: what comes is drawn as what was measured. A forecaster whose constants were chosen with
these records in sight is off by more.

Source: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005 (conformal prediction).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ledger.analysis.book import Book
from ledger.analysis.reconcile import call_loads
from ledger.analysis.sight import is_neighbour, shape_of
from ledger.callables.subject import is_callable
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.records import REGIMES, Case, Regime

MISS = 0.2
"""Share of the cases that an interval may miss, half of it on either side."""
LEAST = math.ceil(2 / MISS) - 1
"""Cases below which no such interval is bounded."""
HOW = (
    "interval: 80% by conformal quantiles of measured / forecast over {count} answers to measured cases, each without "
    "{apart}{of}; probabilities: regimes measured where {name} named one, with two cases of prior"
)


@dataclass(frozen=True)
class Outcome:
    """Hold how one answer turned out. log_ratio: ln of measured time ÷ forecast time; deviation: that it stated."""

    kernel: str
    log_ratio: float
    forecast: Regime | None
    measured: tuple[Regime, ...]
    deviation: float | None = None


def measured_runs(book: Book) -> tuple[Measured, ...]:
    """Return every finished run of a ledger's measured cells, oldest commit first."""
    return tuple(run for _, run in measured_with_positions(book))


def measured_with_positions(book: Book) -> tuple[tuple[int, Measured], ...]:
    """Return every finished run with the position of its commit in the history, oldest first."""
    found: list[tuple[int, Measured]] = []
    for view in book.cells:
        for run in view.runs if view.state == "measured" and view.hardware is not None else ():
            measurement, forecast = run.recorded.measurement, view.forecast
            timing = measurement.timing
            if timing is not None and view.hardware is not None:
                one = Measured(
                    forecast.case,
                    forecast.work,
                    forecast.roof,
                    view.hardware,
                    timing.median_ps / 1e12,
                    run.verification.regimes,
                    run.recorded.id,
                    call_loads(forecast, measurement, view.hardware),
                    None if timing.launch_ps is None else timing.launch_ps / 1e12,
                )
                found.append((run.recorded.commit.position, one))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def subject(one: Measured) -> tuple[object, ...]:
    """Return what makes two runs alike: kernel, shape, dtype, profile."""
    case = one.case
    return case.kernel, tuple(sorted(case.shape.items())), case.dtype, case.hardware


Ask = Callable[[Question], Answer | NoAnswer]


@dataclass(frozen=True)
class Outcomes:
    """Hold how answers to measured cases turned out. apart: without what each was asked."""

    found: tuple[Outcome, ...] = ()
    apart: str = "itself"


def is_blind(case: Case, runs: Sequence[Measured]) -> bool:
    """Tell whether no run of a case's kernel on its device has a neighbouring shape."""
    return not any(other.case.hardware == case.hardware and _neighbours(case, other.case) for other in runs)


def _neighbours(case: Case, other: Case) -> bool:
    return case.kernel == other.kernel and is_neighbour(shape_of(case.shape), shape_of(other.shape))


def outcomes(ask: Ask, runs: Sequence[Measured]) -> Outcomes:
    """Return how a forecaster's answers to measured cases turn out, each asked without the runs of its own case."""
    return Outcomes(_outcomes(ask, runs, subject, lambda one, other: subject(one) == subject(other)))


def blind_outcomes(ask: Ask, runs: Sequence[Measured]) -> Outcomes:
    """Return the same, each case asked without its neighbours."""
    found = _outcomes(ask, runs, _shape, lambda one, other: _neighbours(one.case, other.case))
    return Outcomes(found, "its neighbours")


def _shape(one: Measured) -> tuple[object, ...]:
    return one.case.kernel, shape_of(one.case.shape)


def _outcomes(
    ask: Ask,
    runs: Sequence[Measured],
    group: Callable[[Measured], object],
    withheld: Callable[[Measured, Measured], bool],
) -> tuple[Outcome, ...]:
    """Return the outcomes of all runs, each asked without those withheld from its group."""
    known: dict[object, tuple[Measured, ...]] = {}
    found = []
    for one in runs:
        key = group(one)
        if key not in known:
            known[key] = tuple(other for other in runs if not withheld(one, other))
        answer = ask(replace(one.question, earlier=known[key]))
        if isinstance(answer, Answer):
            ratio = math.log(one.time_s / answer.time_s)
            found.append(Outcome(one.case.kernel, ratio, answer.regime, one.regimes, answer.deviation))
    return tuple(found)


def with_uncertainty(answer: Answer, kernel: str, known: Outcomes) -> tuple[Answer, str]:
    """Return an answer with the interval and the probabilities that earlier outcomes give it, and how they were made.

    An answer that has its own keeps them. Too few outcomes give none. Callables learn from callables alone, as kernels
    do from kernels.
    """
    alike = [one for one in known.found if is_callable(one.kernel) == is_callable(kernel)]
    own = [one for one in alike if one.kernel == kernel]
    used = own if len(own) >= LEAST else alike
    of = f", of {kernel} alone" if used is own else ""
    if answer.low is None and len(used) >= LEAST:
        fast, slow = ratios(used, answer.deviation)
        low, high = answer.percent / max(slow, 1.0), answer.percent / min(fast, 1.0)
        answer = replace(answer, low=low, high=high)
    if answer.probabilities is None and answer.regime is not None and alike:
        answer = replace(answer, probabilities=probabilities(answer.regime, alike))
    if len(used) < LEAST:
        return answer, f"no interval by measured cases: {len(used)}; expected at least {LEAST}"
    return answer, HOW.format(count=len(used), apart=known.apart, of=of, name=answer.forecaster)


def ratios(known: Sequence[Outcome], deviation: float | None = None) -> tuple[float, float]:
    """Return the conformal quantiles of measured ÷ forecast time, of at least LEAST outcomes.

    deviation: that an answer states; outcomes then count by theirs.
    """
    unit = 1.0 if deviation is None else deviation
    ordered = sorted(one.log_ratio / (one.deviation if deviation and one.deviation else 1.0) for one in known)
    rank = math.floor((len(ordered) + 1) * MISS / 2)
    return math.exp(unit * ordered[rank - 1]), math.exp(unit * ordered[-rank])


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
