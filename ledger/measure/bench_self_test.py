"""Tests the bench against itself: times one kernel as two contestants and counts how often they seem to differ.

Both contestants run the same launches, each with its own rotation: every "faster" and "slower" is a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Any, Literal

from ledger.device.facts import facts_for, require_profile
from ledger.errors import InputError
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.contestants import Cell, Contestant, Context, interleave, line_up_twice
from ledger.measure.launch_contexts import ChainRounds
from ledger.measure.run_cell import release, threads_set
from ledger.measure.timer import Interval
from ledger.records import Case, Hardware, is_gpu

THRESHOLD = 0.02
TRIALS = 200
Verdict = Literal["faster", "slower", "same"]


def judge_pair(first: Interval, second: Interval, threshold: float = THRESHOLD) -> Verdict:
    """Return what a bench says of the second interval compared with the first.

    They differ when their medians differ by more than the threshold and their confidence intervals do not overlap.
    """
    if second.median > first.median * (1 + threshold) and second.low > first.high:
        return "slower"
    if first.median > second.median * (1 + threshold) and first.low > second.high:
        return "faster"
    return "same"


def upper_bound(alarms: int, trials: int) -> float:
    """Return the one-sided 95% upper bound of a rate, after `alarms` in `trials`.

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
class SelfTest:
    """Hold the pairs of intervals that the trials of one cell gave."""

    device: str
    case: Case
    pairs: tuple[tuple[Interval, Interval], ...]
    context: Context
    threshold: float = THRESHOLD

    def document(self) -> dict[str, Any]:
        """Return the counts, the false-alarm rate with its bound, and the microseconds of both runs of every trial."""
        verdicts = [judge_pair(*pair, self.threshold) for pair in self.pairs]
        alarms, trials = len(verdicts) - verdicts.count("same"), len(verdicts)
        differences = [abs(second.median / first.median - 1) for first, second in self.pairs]
        return {
            "device": self.device,
            "kernel": self.case.kernel,
            "shape": dict(self.case.shape),
            "dtype": self.case.dtype,
            "context": self.context,
            "trials": trials,
            "threshold_pct": 100 * self.threshold,
            "faster": verdicts.count("faster"),
            "slower": verdicts.count("slower"),
            "false_alarm_pct": 100 * alarms / trials,
            "false_alarm_at_most_pct": round(100 * upper_bound(alarms, trials), 3),
            "median_apart_pct": round(100 * median_high(differences), 4),
            "largest_apart_pct": round(100 * max(differences), 4),
            "beyond_threshold_by_median_alone": sum(one > self.threshold for one in differences),
            "pairs_us": [[round(one.median / 1e6, 5) for one in pair] for pair in self.pairs],
        }


def self_test(
    file: KernelFile,
    cell: Cell,
    *,
    hardware: Hardware,
    trials: int = TRIALS,
    on_progress: Callable[[str], None] = lambda _step: None,
) -> SelfTest:
    """Return the self-test of a bench of one cell.

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
            parameters, both = line_up_twice(file.kernel, case, facts, device=device)
            pairs = list(_trials(both, lambda: interleave(both, parameters), trials, on_progress))
    finally:
        release(device)
    return SelfTest(facts.name, case, tuple(pairs), both[0].context)


def _trials(
    both: Sequence[Contestant], take: Callable[[], None], trials: int, on_progress: Callable[[str], None]
) -> Iterator[tuple[Interval, Interval]]:
    for one in both:
        # Reading the state after every round would take longer than the round.
        if isinstance(one.rounds, ChainRounds):
            one.rounds.watch = False
    for trial in range(trials):
        yield _trial(both, take, swap=bool(trial % 2))
        if (trial + 1) % 50 == 0:
            on_progress(f"{trial + 1} of {trials} trials")


def _trial(both: Sequence[Contestant], take: Callable[[], None], *, swap: bool) -> tuple[Interval, Interval]:
    """Take one trial; every second one swaps the contestants, so that neither is always first."""
    for one in both:
        one.samples.clear()
    take()
    first, second = (both[1], both[0]) if swap else (both[0], both[1])
    return first.interval, second.interval
