"""Prints how far forecasters are off on the measured cells of this repository: python tests/forecasters/evaluate.py

Each kernel is forecast without any measurement of it, and each cell without its neighbours: constants are fitted and
models are trained on the others. This is a first look and proves nothing: the forms of the models were chosen with
these cells in sight. Regimes are those of the cells' own rule, regime/1, and as regime/2, which seals name now, would
give them. --fit prints the analytic constants fitted to all cells; --residuals NAME its worst cells; --coverage how
many cells, asked about without their neighbours, are inside 80% intervals of other cells, and the spread of the
analytic time; --likelihood how the deviations of `learned`, and the scale of each input, would change for the greatest
likelihood of all runs of kernels. --sealed is no first look: it prints how far sealed blind forecasts of format 2 were
off, those of other packages' kernels, torch's products and this project's kernels apart; with --after or --until SEAL
those sealed later alone, or those up to it; with --sight blind,near those of near sight too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from ledger.analysis.book import Book
from ledger.analysis.reconcile import measured_regime, preview_timed_loads
from ledger.callables.subject import is_callable
from ledger.cli.open_ledger import open_ledger
from ledger.forecasters import analytic, gaussian_process, learned, track
from ledger.forecasters.analytic_constants import DECLARED, FITTED, Constants
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.forecasters.device_rates import rates_of
from ledger.forecasters.gaussian_process import Deviations, Process
from ledger.forecasters.registry import FORECASTERS, PARTICIPANTS
from ledger.forecasters.track import LEAST, blind_outcomes, is_blind, measured_runs, ratios
from ledger.records import PredictionV2, Regime, is_gpu
from ledger.roofline import percent_of_roof

Ask = Callable[[Question], Answer | NoAnswer]
PRIOR = 0.35
"""Deviation, in ln, within which a constant is expected around its declared value."""


def loss(runs: Sequence[Measured], k: Constants) -> float:
    """Return the mean error of ln time, every kernel counting as the root of its cells, and how far constants moved."""
    counts: dict[str, int] = {}
    for one in runs:
        counts[one.case.kernel] = counts.get(one.case.kernel, 0) + 1
    weights = [1 / math.sqrt(counts[one.case.kernel]) for one in runs]
    errors = [abs(math.log(one.time_s / analytic.expected_s(analytic.cost(one.question, k)))) for one in runs]
    moved = sum((math.log(getattr(k, name) / getattr(DECLARED, name)) / PRIOR) ** 2 for name in FITTED)
    return sum(w * e for w, e in zip(weights, errors, strict=True)) / sum(weights) + 0.002 * moved


def fit(runs: Sequence[Measured], start: Constants = DECLARED) -> Constants:
    """Return constants that lower the loss, by coordinate descent in ln."""
    best, least, step = start, loss(runs, start), 0.2
    while step > 0.01:
        before = least
        for name in FITTED:
            for factor in (math.exp(step), math.exp(-step)):
                tried = best._replace(**{name: getattr(best, name) * factor})
                if (found := loss(runs, tried)) < least:
                    best, least = tried, found
        if before - least < 1e-4:
            step /= 2
    return best


def analytic_without(runs: Sequence[Measured]) -> Ask:
    """Return the analytic forecaster with constants fitted to some runs alone."""
    k = fit(runs)

    def ask(question: Question) -> Answer:
        return analytic.answer_of(question, analytic.cost(question, k), rates_of(question, k))

    return ask


def regimes_now(book: Book) -> dict[str, tuple[Regime, ...]]:
    """Return by record the regimes that rule regime/2 would give; none where it gives none."""
    found = {}
    for view in book.cells:
        for run in view.runs if view.hardware is not None else ():
            assert view.hardware is not None
            verdict = preview_timed_loads(view.forecast, run.recorded.measurement, view.hardware)
            found[run.recorded.id] = verdict.regimes if verdict is not None else ()
    return found


def table(name: str, pairs: Sequence[tuple[Measured, Answer]], now: Mapping[str, tuple[Regime, ...]]) -> str:
    """Return one line: cells, median and 90th percentile of the error of time, regimes right by either rule."""
    if not pairs:
        return f"{name:28} {0:4}"
    errors = sorted(abs(answer.time_s / one.time_s - 1) for one, answer in pairs)
    ninth = errors[math.ceil(0.9 * len(errors)) - 1]
    sealed = [answer.regime in one.regimes for one, answer in pairs if one.regimes]
    newer = [answer.regime in now[one.record] for one, answer in pairs if now[one.record]]
    shares = " ".join(f"{100 * sum(right) / max(len(right), 1):8.0f}" for right in (sealed, newer))
    return f"{name:28} {len(errors):4} {100 * median(errors):6.1f} {100 * ninth:6.1f} {shares}"


def without_a_kernel(name: str, runs: Sequence[Measured]) -> list[tuple[Measured, Answer]]:
    """Return each run with what a forecaster says of it that knows no run of its kernel."""
    found = []
    for kernel in sorted({one.case.kernel for one in runs}):
        others = tuple(one for one in runs if one.case.kernel != kernel)
        ask = analytic_without(others) if name == analytic.NAME else FORECASTERS[name]
        for one in runs:
            if one.case.kernel == kernel:
                answer = ask(replace(one.question, earlier=others))
                if isinstance(answer, Answer):
                    found.append((one, answer))
    return found


def without_neighbours(name: str, runs: Sequence[Measured]) -> list[tuple[Measured, Answer]]:
    """Return each run of a kernel with what a forecaster says of it that knows no neighbour of it on any device."""
    one, own = PARTICIPANTS[name], tuple(run for run in runs if not is_callable(run.case.kernel))
    ask = one.forecast if one.asked_without is None else one.asked_without(own)
    found = []
    for run in own:
        answer = ask(replace(run.question, earlier=tuple(at for at in own if not track._neighbours(run.case, at.case))))
        found += [(run, answer)] if isinstance(answer, Answer) else []
    return found


def coverage(name: str, runs: Sequence[Measured]) -> str:
    """Return one line: the share of cells inside intervals as cells get them that have no neighbour."""
    one = PARTICIPANTS[name]
    ask = one.forecast if one.asked_without is None else one.asked_without(tuple(runs))
    found = blind_outcomes(ask, runs).found
    inside = 0
    for run, outcome in zip(runs, found, strict=True):
        apart = [other for other, at in zip(found, runs, strict=True) if is_blind(run.case, [at])]
        own = [other for other in apart if other.kernel == run.case.kernel]
        fast, slow = ratios(own if len(own) >= LEAST else apart, outcome.deviation)
        inside += min(fast, 1) <= math.exp(outcome.log_ratio) <= max(slow, 1)
    return f"{name}: {100 * inside / len(runs):.0f}% of {len(runs)} runs"


def spread(runs: Sequence[Measured]) -> str:
    """Return one line: between how many times the analytic time 80% of the runs of kernels took."""
    own = [one for one in runs if is_gpu(one.hardware.target) and not is_callable(one.case.kernel)]
    ratios = sorted(one.time_s / analytic.cost(one.question).total for one in own)
    tenth = len(ratios) // 10
    return f"analytic: 80% of {len(own)} runs took {ratios[tenth]:.2f} to {ratios[-tenth - 1]:.2f} times its time"


def likelihood(runs: Sequence[Measured]) -> str:
    """Return the factors of the deviations and of the inputs' scales at which runs without neighbours are likeliest.

    Of each case the first run counts, as of a Student distribution of four degrees of freedom with the mean and
    deviation that the process gives it without its neighbours on any device.
    """
    import numpy as np

    own = [one for one in runs if is_gpu(one.hardware.target) and not learned._foreign(one.case)]
    inputs = np.array([learned._inputs_taught(one) for one in own])
    groups, names = [learned._group_taught(one) for one in own], Deviations.__dataclass_fields__
    targets = np.array([[learned._time_taught(one)] for one in own])
    targets = targets - gaussian_process._mean(targets, [one.kernel for one in groups])
    beside = [[row for row, at in enumerate(own) if track._neighbours(one.case, at.case)] for one in own]
    firsts = {(one.case.hardware, one.case.model_dump_json()): row for row, one in reversed(list(enumerate(own)))}
    factors = dict.fromkeys([*names, *range(inputs.shape[1])], 1.0)

    def badness(of: dict[str | int, float]) -> float:
        deviations = Deviations(*(getattr(learned.TIMES, name) * of[name] for name in names))
        rows = inputs * [of[column] for column in range(inputs.shape[1])]
        inverse = Process.of(rows.tolist(), groups, targets, deviations).inverse
        weights, found = inverse @ targets[:, 0], 0.0
        for row in firsts.values():
            left = beside[row]
            block = np.linalg.inv(inverse[np.ix_(left, left)])
            at = left.index(row)
            scale = 0.8 * math.sqrt(block[at, at])
            found += math.log(scale) + 2.5 * math.log1p((float(block[at] @ weights[left]) / scale) ** 2 / 4)
        return found + sum(math.log(value) ** 2 for value in of.values())

    least, step = badness(factors), 0.5
    start = least
    while step > 0.2:
        before = least
        for name in factors:
            for factor in (math.exp(step), math.exp(-step)):
                tried = {**factors, name: factors[name] * factor}
                if (found := badness(tried)) < least:
                    factors, least = tried, found
        step /= 2 if before - least < 5 else 1
    rounded = {name: round(value, 2) for name, value in factors.items()}
    return f"{len(own)} runs, log likelihood {-start:.0f} -> {-least:.0f} (with a prior on factors): {rounded}"


def sealed(
    book: Book, sights: Sequence[str] = ("blind",), after: str | None = None, until: str | None = None
) -> list[str]:
    """Return a line for each device, group of kernels and forecaster: errors of time, intervals, regimes.

    sights: forecasts that declared one of these count. after, until: digits of a seal; forecasts sealed later alone
    count, or those up to it.
    """
    position = {view.sealed.id: view.sealed.commit.position for view in book.cells}
    first, last = (
        min(at for seal, at in position.items() if seal.startswith(one)) if one else None for one in (after, until)
    )
    found: dict[tuple[str, str, str], list[tuple[float, bool | None, bool | None]]] = {}
    for view in book.cells:
        prediction, forecast, run = view.sealed.prediction, view.forecast, view.scored
        timing = run and run.recorded.measurement.timing
        if not (run and timing and view.hardware and view.sight in sights and isinstance(prediction, PredictionV2)):
            continue
        at = position[view.sealed.id]
        if (first is not None and at <= first) or (last is not None and at > last):
            continue
        case = forecast.case
        group = "own" if ":" not in case.kernel else "torch" if "torch_products" in case.kernel else "packages"
        took = timing.median_ps * 1e-12
        percent = 1000 * percent_of_roof(forecast.work, forecast.roof, took)
        low, high = forecast.low_milli, forecast.high_milli
        inside = None if low is None or high is None else low <= percent <= high
        verdict = measured_regime(forecast, run.recorded.measurement, view.hardware, rule=prediction.rule)
        right = forecast.regime in verdict.regimes if verdict.regimes else None
        name = prediction.forecaster or "a person"
        # Percents are as 1 ÷ time: this is |measured ÷ forecast time - 1|.
        error = abs(forecast.percent_milli / percent - 1)
        found.setdefault((case.hardware, group, name), []).append((error, inside, right))
    lines = [f"{'percent':44} {'n':>4} {'median':>6} {'90th':>6} {'inside':>6} {'regime':>6}"]
    for key, cells in sorted(found.items()):
        errors = sorted(error for error, _, _ in cells)
        ninth = errors[math.ceil(0.9 * len(errors)) - 1]
        shares = [_share([one[place] for one in cells]) for place in (1, 2)]
        lines.append(
            f"{' '.join(key):44} {len(cells):4} {100 * median(errors):6.1f} {100 * ninth:6.1f} {shares[0]} {shares[1]}"
        )
    return lines


def _share(found: Sequence[bool | None]) -> str:
    known = [one for one in found if one is not None]
    return f"{100 * sum(known) / len(known):6.0f}" if known else f"{'-':>6}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--by")
    parser.add_argument("--residuals")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--likelihood", action="store_true")
    parser.add_argument("--sealed", action="store_true")
    parser.add_argument("--sight", default="blind", help="of --sealed, joined by commas")
    parser.add_argument("--after", metavar="SEAL")
    parser.add_argument("--until", metavar="SEAL")
    given = parser.parse_args()
    book = open_ledger().book
    if given.sealed:
        print("\n".join(sealed(book, given.sight.split(","), given.after, given.until)))
        return
    runs, now = measured_runs(book), regimes_now(book)
    if given.coverage:
        print("\n".join(coverage(name, runs) for name in (analytic.NAME, "learned", "rule-of-thumb")))
        print(spread(runs))
        return
    if given.likelihood:
        print(likelihood(runs))
        return
    if given.fit:
        print(fit(runs))
        return
    print(f"{'percent, kernel left out':28} {'n':>4} {'median':>6} {'90th':>6} {'regime/1':>8} {'regime/2':>8}")
    for name in given.by.split(",") if given.by else FORECASTERS:
        if name in ("persistence", "learned"):
            pairs = without_neighbours(name, runs)
            print(table(f"{name} (neighbours left out)", pairs, now))
            for device in sorted({run.case.hardware for run, _ in pairs} if given.by else ()):
                print(table(f"  {device}", [pair for pair in pairs if pair[0].case.hardware == device], now))
        if name == "persistence":
            continue
        pairs = without_a_kernel(name, runs)
        print(table(name, pairs, now), flush=True)
        if given.by:
            for kernel in sorted({one.case.kernel for one, _ in pairs}):
                print(table(f"  {kernel}", [pair for pair in pairs if pair[0].case.kernel == kernel], now))
        if given.residuals:
            for one, answer in pairs:
                if one.case.kernel == given.residuals:
                    terms = " ".join(f"{t.name} {t.value * 1e6:.2f}" for t in answer.terms if t.unit == "s")
                    ratio = 100 * (answer.time_s / one.time_s - 1)
                    shape = ",".join(f"{k}={v}" for k, v in one.case.shape.items())
                    said = f"{answer.regime} {now[one.record]}"
                    print(f"{one.time_s * 1e6:8.2f} {ratio:+5.0f}% {shape} {one.case.dtype} {said} {terms}")


if __name__ == "__main__":
    main()
