"""Tests the bench against itself: times one kernel as two contestants and counts how often they seem to differ.

The two are the same launches in two rotations of their own, so every "faster" and "slower" is a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.device.facts import facts_for, require_profile
from ledger.errors import InputError
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.bench import OURS, Cell, Contestant, interleave, open_row
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.run_cell import release, threads_set
from ledger.measure.timer import Interval
from ledger.records import Hardware, is_gpu

THRESHOLD = 0.02
TRIALS = 200
Verdict = Literal["faster", "slower", "same"]


def judge_pair(first: Interval, second: Interval, threshold: float = THRESHOLD) -> Verdict:
    """Return what a bench says of the second beside the first.

    They differ when their medians do by more than the threshold and their confidence intervals do not overlap.
    """
    if second.median > first.median * (1 + threshold) and second.low > first.high:
        return "slower"
    if first.median > second.median * (1 + threshold) and first.low > second.high:
        return "faster"
    return "same"


def upper_bound(alarms: int, trials: int) -> float:
    """Return the one-sided 95% upper bound of a rate of which `alarms` in `trials` were seen.

    Source: Clopper and Pearson, Biometrika 26 (1934); by bisection of the binomial distribution.
    """
    if alarms >= trials:
        return 1.0
    low, high = alarms / trials, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        at_most = math.fsum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(alarms + 1))
        low, high = (rate, high) if at_most > 0.05 else (low, rate)
    return high


@dataclass(frozen=True)
class Trials:
    """Hold the pairs of intervals that the trials gave."""

    pairs: tuple[tuple[Interval, Interval], ...]

    def summary(self, threshold: float = THRESHOLD) -> dict[str, Any]:
        """Return the counts, the false-alarm rate with its bound, and how far the pairs lay apart."""
        verdicts = [judge_pair(*pair, threshold) for pair in self.pairs]
        alarms, trials = len(verdicts) - verdicts.count("same"), len(verdicts)
        apart = sorted(abs(second.median / first.median - 1) for first, second in self.pairs)
        return {
            "trials": trials,
            "threshold_pct": 100 * threshold,
            "faster": verdicts.count("faster"),
            "slower": verdicts.count("slower"),
            "false_alarm_pct": 100 * alarms / trials,
            "false_alarm_at_most_pct": round(100 * upper_bound(alarms, trials), 3),
            "median_apart_pct": round(100 * apart[trials // 2], 4),
            "largest_apart_pct": round(100 * apart[-1], 4),
            "beyond_threshold_by_median_alone": sum(one > threshold for one in apart),
        }


def self_test(
    file: KernelFile,
    cell: Cell,
    *,
    hardware: Hardware,
    trials: int = TRIALS,
    on_progress: Callable[[str], None] = lambda _step: None,
) -> dict[str, Any]:
    """Return the self-test of a bench of one cell: device, cell, counts, and the microseconds of every trial's two.

    Raises: as bench.bench; InputError for fewer than one trial.
    """
    if trials < 1:
        raise InputError(f"--self-test: got {trials}; expected at least 1 trial")
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    case = build_case(file.kernel, hardware, shape=cell[0], dtype=cell[1])
    device = "cuda" if is_gpu(hardware.target) else "cpu"
    try:
        with threads_set(None):
            pairs = []
            parameters, two = open_row(file.kernel, case, facts, device=device)
            for one in two:
                # Reading the state after every round would take longer than the round.
                if isinstance(one.rounds, GraphRounds):
                    one.rounds.watch = False
            for trial in range(trials):
                pairs.append(_trial(two, lambda: interleave(two, parameters), swap=bool(trial % 2)))
                if (trial + 1) % 50 == 0:
                    on_progress(f"{trial + 1} of {trials} trials")
    finally:
        release(device)
    found = Trials(tuple(pairs))
    return {
        "device": facts.name,
        "kernel": case.kernel,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        **found.summary(),
        "pairs_us": [[round(one.median / 1e6, 5) for one in pair] for pair in found.pairs],
    }


def _trial(two: Sequence[Contestant], take: Callable[[], None], *, swap: bool) -> tuple[Interval, Interval]:
    """Take one trial; every other one names the contestants the other way round, so that neither is always first."""
    for one in two:
        one.samples.clear()
    take()
    first, second = (two[1], two[0]) if swap else (two[0], two[1])
    assert {first.name, second.name} == {OURS, "ours again"}
    return first.interval, second.interval


def render(found: dict[str, Any]) -> str:
    """Return a self-test in words."""
    shape = " ".join(f"{key}={size}" for key, size in found["shape"].items())
    return (
        f"{found['kernel']} {shape} {found['dtype']} on {found['device']}, timed against itself "
        f"{found['trials']} times: {found['faster']} faster, {found['slower']} slower at {found['threshold_pct']:g}%, "
        f"a false-alarm rate of {found['false_alarm_pct']:.2f}% (at most {found['false_alarm_at_most_pct']:.2f}% with "
        f"95% confidence). Medians lay {found['median_apart_pct']:.2f}% apart in the median, "
        f"{found['largest_apart_pct']:.2f}% at most."
    )
