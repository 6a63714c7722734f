"""Decides which samples an audit has the time and the memory to recompute. Pure.

The cost of a sample follows from its operation and shape alone. Cheap measurements come first, so that a few of any
cost that a hostile author adds keep none of the others from being recomputed; what is left over is named, and then
the audit concludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledger.budgets import MAX_ELEMENT_READS, MAX_READS, MAX_READS_AT_ONCE
from ledger.evidence.seal_checks import Sampled, Subject
from ledger.operations import OPERATIONS

OVER_BUDGET = "the budget of recomputation is spent on cheaper measurements"


SAMPLE_READS = 2000
"""What a sample costs besides its input elements, in the time of as many of them."""
OTHER_INPUTS = 8
"""Positions at most at which the output of other inputs is computed as well, to see whether it depends on them."""


@dataclass(frozen=True)
class RecomputeBudget:
    """Say why the samples of a measurement are not recomputed. left_out: by the measurement's path."""

    left_out: dict[str, str]

    def refusal(self, path: str) -> str | None:
        """Return the reason, None where the samples are to be recomputed."""
        return self.left_out.get(path)


def recompute_budget(runs: Iterable[tuple[Subject, Sampled, str]]) -> RecomputeBudget:
    """Return what of some measurements, each with its path, cannot be recomputed within the budgets."""
    left_out: dict[str, str] = {}
    costs: list[tuple[int, str]] = []
    for subject, sampled, path in runs:
        found = reads_of(subject, sampled)
        if found is None:
            continue
        each, at_once, samples = found
        if each > MAX_ELEMENT_READS or at_once > MAX_READS_AT_ONCE:
            reason = f"an output element of {each} input elements, {at_once} at once"
            left_out[path] = f"{reason}; at most {MAX_ELEMENT_READS} and {MAX_READS_AT_ONCE}"
        else:
            costs.append(((each + SAMPLE_READS) * (samples + 2 * OTHER_INPUTS), path))
    spent = 0
    for cost, path in sorted(costs):
        spent += cost
        if spent > MAX_READS:
            left_out[path] = OVER_BUDGET
    return RecomputeBudget(left_out)


def reads_of(forecast: Subject, measurement: Sampled) -> tuple[int, int, int] | None:
    """Return the input elements that one sample needs, those at once, and the number of samples; None if not known."""
    operation, shape, samples = OPERATIONS.get(forecast.operation), forecast.case.shape, measurement.samples
    if operation is None or samples is None or set(shape) != set(operation.shape_keys):
        return None
    assert operation.reads is not None, "an operation of the registry says what an element costs"
    each, at_once = operation.reads(shape)
    return each, at_once, len(samples.positions)
