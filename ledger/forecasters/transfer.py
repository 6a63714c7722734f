"""Forecasts a call of other code that this ledger measured already, here or on another GPU. Pure.

What took its time by DRAM takes it in the ratio of the bandwidths, beside what a launch takes anyway; any other call
takes as much more than the analytic model says as it took there. Loads follow from the same counts. Assumes that the
package chooses the same kernels, which holds between GPUs of one architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.analysis.regime_v2 import MOST_MILLI, Resource
from ledger.callables.subject import cell_suffix
from ledger.forecasters import analytic
from ledger.forecasters.analytic_constants import DECLARED
from ledger.forecasters.answer import Measured, Question
from ledger.records import Case

HERE, ELSEWHERE = 0.03, 0.1
"""Deviation of ln time where the call was measured on this device, and on another."""


@dataclass(frozen=True)
class Transferred:
    """Hold what one run says of a call. Units: seconds; loads in thousandths of a percent, None without counters."""

    run: Measured
    time_s: float
    deviation: float
    loads: dict[Resource, int] | None


def transferred(question: Question, known: Sequence[Measured]) -> Transferred | None:
    """Return what the newest run of the same call says, of one on this device rather than another; None without any."""
    runs = [one for one in known if _call(one.case) == _call(question.case)]
    here = [one for one in runs if one.hardware.name == question.hardware.name]
    if not runs:
        return None
    run = (here or runs)[-1]
    if here:
        return Transferred(run, run.time_s, HERE, None if run.loads is None else dict(run.loads))
    time_s = _time(question, run)
    return Transferred(run, time_s, ELSEWHERE, _loads(question, run, time_s))


def _call(case: Case) -> tuple[object, ...]:
    sizes, arguments = tuple(sorted(case.shape.items())), getattr(case, "arguments", None)
    return case.kernel, sizes, case.dtype, arguments, cell_suffix(case.config)


def _time(question: Question, run: Measured) -> float:
    there, here = (analytic.cost(one, DECLARED) for one in (run.question, question))
    if run.regime == "hbm-bound":
        fixed = min(there.fixed, run.time_s)
        slower = run.roof.bandwidth_bytes_per_s / question.roof.bandwidth_bytes_per_s
        return here.fixed + (run.time_s - fixed) * slower
    more = run.time_s - analytic.expected_s(there)
    if more > 0:
        return analytic.expected_s(here) + more * run.hardware.limits.sms / question.hardware.limits.sms
    return run.time_s * analytic.expected_s(here) / analytic.expected_s(there)


def _loads(question: Question, run: Measured, time_s: float) -> dict[Resource, int] | None:
    """Return the loads that the same counts give in another time at other peaks."""
    if run.loads is None:
        return None
    sms = run.hardware.limits.sms / question.hardware.limits.sms
    slower = {
        "dram": run.roof.bandwidth_bytes_per_s / question.roof.bandwidth_bytes_per_s,
        "arithmetic": run.roof.peak_flop_per_s / question.roof.peak_flop_per_s,
    }
    return {
        name: min(round(milli * slower.get(name, sms) * run.time_s / time_s), MOST_MILLI)
        for name, milli in run.loads.items()
    }
