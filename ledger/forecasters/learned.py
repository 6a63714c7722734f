"""Forecasts what the ledger's own measurements teach about the analytic model: Gaussian processes on its errors. Pure.

One process learns ln(measured time ÷ analytic time), with the analytic model's fitted constants; another
ln(measured ÷ analytic load) of DRAM, L2, shared memory and arithmetic, from runs with counters. The regime is the one
that rule regime/2 names most often as time and loads deviate.

Inputs are what that model knows of a launch: its size, the share of each term, waves, steps, split, stages, cluster and
early launch, dtype, and the kernel, so that cells of one kernel teach each other most and a kernel without cells falls
back to what all others have in common. Other code, callables and a library's products, teaches about such alone, by
kind, by name and pass and, of one name, by size; an error beyond a factor of ten counts as one of ten. Until enough of
it is measured its answer is the analytic model's. A call of other code that was measured itself is not learned
(transfer.py). The training
set is every measured cell of a GPU that the question knows; a seal names it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, median

from ledger.analysis.regime_v2 import MOST_MILLI, Resource, TimedCall, decide
from ledger.callables.subject import is_callable
from ledger.forecasters import analytic
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question, Term
from ledger.forecasters.device_rates import rates_of
from ledger.forecasters.gaussian_process import Deviations, Fit, Group, Predicted, Process
from ledger.forecasters.geometry import number
from ledger.forecasters.transfer import Transferred, transferred
from ledger.records import Case, Regime, is_gpu
from ledger.roofline import memory_side, percent_of_roof

NAME = "learned"
VERSION = "7"
LEAST = 20
"""Measured cells below which nothing is learned."""
# At these, and the scales of the inputs, 513 cases of this repository's kernels were likeliest, each without its
# neighbours; rounded (tests/forecasters/evaluate.py --likelihood).
TIMES = Deviations(inputs=0.24, within=0.036, kernel=0.02, every=0.06, noise=0.033, sooner=50.0)
LOADS = Deviations(inputs=0.48, within=0.12, kernel=0.1, every=0.12, noise=0.04, sooner=30.0)
FOREIGN_TIMES = Deviations(inputs=0.15, within=0.5, kernel=0.3, every=0.05, noise=0.14, sooner=0.5, family=0.3)
FOREIGN_LOADS = Deviations(inputs=0.3, within=0.0, kernel=0.0, every=0.1, noise=0.5, sooner=1.0, family=0.3)
_FOREIGN_MOST = math.log(10)
_SIZE, _FOREIGN_SIZE = 0.03, 0.83
"""Scale of ln time as an input: other code is far from its roof at some sizes."""
RESOURCES: tuple[Resource, ...] = ("dram", "l2", "smem", "arithmetic")
_TERMS = {
    "tensor": 2.6, "request": 0.33, "shared": 0.27, "convert": 0.84, "cuda": 0.77, "exponentials": 3.8, "chain": 0.94,
}  # fmt: skip
_LEAST_LOAD_MILLI = 300
_DRAWS = 64
"""Times that time and loads are drawn for a regime."""
_IDLE_SHARE, _L2_OF_DRAM = 0.05, 0.5
"""Of the time, that counts as load beside what the model counts; load of L2 where DRAM has one of 1 and no more."""


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast of a GPU's cell; none where too little was measured."""
    runs = _alike(question.case, question.earlier)
    return _told(question, runs) or _answer(question, runs, _taught_by(runs))


def asked_without(runs: tuple[Measured, ...]) -> Callable[[Question], Answer | NoAnswer]:
    """Return what answers as `forecast` does where a question knows these runs but for a few.

    One matrix for kernels and one for callables serve all such questions, so that asking about every case takes O(N^3)
    and not O(N^4).
    """
    wholes: dict[bool, _Taught] = {}

    def ask(question: Question) -> Answer | NoAnswer:
        earlier, group = _alike(question.case, question.earlier), _foreign(question.case)
        if (said := _told(question, earlier)) is not None:
            return said
        if group not in wholes:
            wholes[group] = _taught_by(_alike(question.case, runs))
        return _answer(question, earlier, wholes[group])

    return ask


def _foreign(case: Case) -> bool:
    """Tell whether other code than this project's kernels takes most of a call: a callable, or a library's product."""
    # Records of rmsnorm_matmul have the variant library, which the kernel has not.
    return is_callable(case.kernel) or case.config.get("variant") == "library"


def _alike(case: Case, runs: tuple[Measured, ...]) -> tuple[Measured, ...]:
    """Return the runs that teach about a case: on GPUs, of own kernels about one, of other code about such."""
    group = _foreign(case)
    return tuple(one for one in runs if is_gpu(one.hardware.target) and _foreign(one.case) == group)


def _told(question: Question, runs: tuple[Measured, ...]) -> Answer | NoAnswer | None:
    """Return what is said without learning: of other code what the same call took, or the analytic model says."""
    if not is_gpu(question.hardware.target):
        return NoAnswer(NAME, VERSION, f"{question.hardware.name} is no GPU")
    if _foreign(question.case) and (seen := transferred(question, runs)) is not None:
        return _seen(question, runs, seen)
    if len(runs) >= LEAST:
        return None
    if not _foreign(question.case):
        return NoAnswer(NAME, VERSION, f"{len(runs)} measured GPU cells here; expected at least {LEAST}")
    said = analytic.answer_of(question, analytic.cost(question), rates_of(question))
    why = f"the analytic model: {len(runs)} measured cells of other code here; expected at least {LEAST} to learn of"
    return replace(said, forecaster=NAME, version=VERSION, assumes=(*said.assumes, why), instead=why)


def _seen(question: Question, runs: tuple[Measured, ...], seen: Transferred) -> Answer:
    """Return the answer that the same call's run gives."""
    found, loads = analytic.cost(question), seen.loads or {}
    if loads:
        regime: Regime | None = _regime(question, found, runs, loads, seen.time_s, (seen.deviation, seen.deviation))
    else:
        regime = analytic.regime_at(question, found, rates_of(question), seen.time_s)
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=regime,
        percent=percent_of_roof(question.work, question.roof, seen.time_s),
        time_s=seen.time_s,
        terms=(
            Term(f"the same call on {seen.run.hardware.name}", seen.run.time_s, "s"),
            Term("deviation of ln time", seen.deviation, "1"),
            *(Term(f"load of {name}", milli / 1e5, "1") for name, milli in loads.items()),
        ),
        assumes=("software and kernels as when the call was measured",),
        deviation=seen.deviation,
    )


@dataclass(frozen=True)
class _Taught:
    """Hold what runs teach of times and of loads; loads is None where too few have counters."""

    runs: tuple[Measured, ...]
    counted: tuple[Measured, ...]
    times: Process
    loads: Process | None

    def fits(self, known: Sequence[Measured]) -> tuple[Fit, Fit | None]:
        """Return the fits of those runs that are known."""
        held = set(known)
        times = self.times.without([row for row, one in enumerate(self.runs) if one not in held])
        left = [row for row, one in enumerate(self.counted) if one not in held]
        few = self.loads is None or len(self.counted) - len(left) < LEAST
        return times, None if few or self.loads is None else self.loads.without(left)


@lru_cache(maxsize=4)
def _taught_by(runs: tuple[Measured, ...]) -> _Taught:
    times, loads = (FOREIGN_TIMES, FOREIGN_LOADS) if _foreign(runs[0].case) else (TIMES, LOADS)
    counted = tuple(one for one in runs if one.loads is not None)
    few = len(counted) < LEAST
    return _Taught(
        runs,
        counted,
        _process(runs, [(_time_taught(one),) for one in runs], times),
        None if few else _process(counted, [_loads_taught(one) for one in counted], loads),
    )


def _process(runs: Sequence[Measured], targets: Sequence[Sequence[float]], of: Deviations) -> Process:
    return Process.of([_inputs_taught(one) for one in runs], [_group_taught(one) for one in runs], targets, of)


def _group(case: Case, found: analytic.Cost) -> Group:
    """Return what a cell is of: its kernel, of other code its kind, and its name with the pass."""
    if not _foreign(case):
        return Group(case.kernel, case.kernel)
    family = "library" if found.kind is None else found.kind.name
    return Group(family, f"{case.kernel} {case.config.get('pass', 'forward')}")


def _answer(question: Question, known: tuple[Measured, ...], taught: _Taught) -> Answer:
    times, loads = taught.fits(known)
    found = analytic.cost(question)
    inputs, group = _inputs(question, found), _group(question.case, found)
    said = times.at(inputs, group)
    time_s = analytic.expected_s(found) * math.exp(said.means[0])
    if loads is None:
        regime = analytic.regime_at(question, found, rates_of(question), time_s)
        predicted: dict[Resource, int] = {}
    else:
        of_loads = loads.at(inputs, group)
        predicted = _loads(question, found, of_loads, time_s)
        regime = _regime(question, found, known, predicted, time_s, (said.deviation, of_loads.deviation))
    closest = taught.runs[said.closest]
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=regime,
        percent=percent_of_roof(question.work, question.roof, time_s),
        time_s=time_s,
        terms=(
            Term("analytic", analytic.expected_s(found), "s"),
            Term("correction", math.exp(said.means[0]), "1"),
            Term("of it for any cell", math.exp(float(times.mean[0])), "1"),
            Term("deviation of ln time", said.deviation, "1"),
            Term("measured cells", len(known), "1"),
            Term("weight of the closest", said.near, "1"),
            Term("its time", closest.time_s, "s"),
            *(Term(f"load of {name}", milli / 1e5, "1") for name, milli in predicted.items()),
        ),
        assumes=("software and kernels as when the cells were measured", *analytic.assumed(found.kind)),
        deviation=said.deviation,
    )


def _loads(question: Question, found: analytic.Cost, said: Predicted, time_s: float) -> dict[Resource, int]:
    """Return the loads of the timed call, in thousandths of a percent, at most what the rule takes."""
    counted = _amounts(question, found)
    return {
        name: _load(amount * math.exp(ratio), time_s)
        for (name, amount), ratio in zip(counted.items(), said.means, strict=True)
    }


def _load(busy_s: float, time_s: float) -> int:
    return min(round(1e5 * busy_s / time_s), MOST_MILLI)


def _regime(
    question: Question,
    found: analytic.Cost,
    known: Sequence[Measured],
    loads: Mapping[Resource, int],
    time_s: float,
    deviations: tuple[float, float],
) -> Regime:
    """Return the regime that rule regime/2 names most often as time and loads deviate.

    deviations: of ln time and of ln load. An empty launch takes what it took on this device.
    """
    empty = [one.launch_s for one in known if one.launch_s and one.hardware.name == question.hardware.name]
    launch_ps = round(1e12 * (median(empty) if empty else found.launch))
    on_memory_side = memory_side(question.work, question.roof)
    named: Counter[Regime] = Counter()
    for of_time, *of_loads in _draws(len(loads)):
        drawn_s = time_s * math.exp(deviations[0] * of_time)
        drawn = {
            name: _load(milli * time_s / 1e5 * math.exp(deviations[1] * deviation), drawn_s)
            for (name, milli), deviation in zip(loads.items(), of_loads, strict=True)
        }
        call = TimedCall(call_ps=max(1, round(drawn_s * 1e12)), clock_hz=None, launch_ps=launch_ps)
        named.update(decide(drawn, call, on_memory_side=on_memory_side).regimes)
    return named.most_common(1)[0][0]


@lru_cache(maxsize=1)
def _draws(resources: int) -> tuple[tuple[float, ...], ...]:
    """Return what a time and loads deviate by, as quantiles of a normal distribution: a Halton sequence.

    The first of them is zero.
    """
    normal, bases = NormalDist(), (2, 3, 5, 7, 11)[: resources + 1]
    return tuple(
        tuple(normal.inv_cdf(_radical_inverse(number, base)) if number else 0.0 for base in bases)
        for number in range(_DRAWS)
    )


def _radical_inverse(number: int, base: int) -> float:
    found, share = 0.0, 1.0
    while number:
        share /= base
        number, digit = divmod(number, base)
        found += share * digit
    return found


def model_bytes(runs: tuple[Measured, ...]) -> bytes:
    """Return the fitted weights, of kernels and of callables, as canonical JSON, 9 digits each."""
    made = {}
    for name, group in (("kernels", False), ("callables", True)):
        known = tuple(one for one in runs if is_gpu(one.hardware.target) and _foreign(one.case) == group)
        if len(known) >= LEAST:
            taught = _taught_by(known)
            times, loads = taught.fits(known)
            made[name] = {"times": _weights(times, taught.runs)}
            if loads is not None:
                made[name]["loads"] = _weights(loads, taught.counted)
    return json.dumps(made, sort_keys=True, separators=(",", ":")).encode()


def _weights(fit: Fit, runs: Sequence[Measured]) -> dict[str, object]:
    rows = {one.record: [f"{value:.9g}" for value in row] for one, row in zip(runs, fit.weights, strict=True)}
    return {"mean": [f"{value:.9g}" for value in fit.mean], "weights": rows}


@lru_cache(maxsize=4096)
def _cost_taught(one: Measured) -> analytic.Cost:
    return analytic.cost(one.question)


@lru_cache(maxsize=4096)
def _group_taught(one: Measured) -> Group:
    return _group(one.case, _cost_taught(one))


@lru_cache(maxsize=4096)
def _inputs_taught(one: Measured) -> tuple[float, ...]:
    return _inputs(one.question, _cost_taught(one))


@lru_cache(maxsize=4096)
def _time_taught(one: Measured) -> float:
    """Return ln(measured time ÷ analytic time)."""
    found = math.log(one.time_s / analytic.expected_s(_cost_taught(one)))
    return max(-_FOREIGN_MOST, min(found, _FOREIGN_MOST)) if _foreign(one.case) else found


@lru_cache(maxsize=4096)
def _loads_taught(one: Measured) -> tuple[float, ...]:
    """Return ln(measured ÷ analytic amount) of each resource; an amount is the time that it takes at its peak."""
    counted = _amounts(one.question, _cost_taught(one))
    loads = one.loads or {}
    return tuple(
        math.log(max(loads[name], _LEAST_LOAD_MILLI) / 1e5 * one.time_s / amount) for name, amount in counted.items()
    )


def _amounts(question: Question, found: analytic.Cost) -> dict[Resource, float]:
    """Return how long each resource is busy at its peak, in seconds, as the analytic model counts."""
    rates, roof = rates_of(question), question.roof
    idle, moved = _IDLE_SHARE * found.total, found.dram_bytes / roof.bandwidth_bytes_per_s
    flops = max(found.tensor_flops if "_tensor" in roof.path else 0.0, question.work.flops)
    return {
        "dram": moved + idle / 5,
        "l2": max(found.l2_bytes / rates.l2, _L2_OF_DRAM * moved) + idle,
        "smem": found.shared + idle,
        "arithmetic": flops / roof.peak_flop_per_s + idle,
    }


def _inputs(question: Question, found: analytic.Cost) -> tuple[float, ...]:
    """Return the inputs of a cell, each scaled so that a distance of 1 is a notable difference."""
    work = question.work
    sms = question.hardware.limits.sms
    g = found.geometry
    total = found.total
    last = 1.0 if g.spread else g.ctas / sms / math.ceil(g.ctas / sms)
    config = question.case.config
    return (
        (_FOREIGN_SIZE if _foreign(question.case) else _SIZE) * math.log(total / 1e-6),
        3.5 * (found.launch + found.ends + found.waited) / total,
        21.0 * found.split / total,
        1.1 * found.sm / total,
        0.77 * found.l2 / total,
        0.5 * found.dram / total,
        *(scale * getattr(found, name) / total for name, scale in _TERMS.items()),
        0.86 * last,
        0.26 * (g.split > 1) * (1 if g.together else -1),
        0.08 * g.early,
        0.39 * g.ahead,
        0.15 * (question.case.dtype in ("fp32", "fp64")),
        0.18 * (question.case.dtype in ("fp8_e4m3", "int8")),
        0.46 * math.log(max(g.steps, 1e-3)),
        0.07 * math.log(max(found.waves, 1e-2)),
        0.8 * work.bytes_written / max(work.bytes, 1),
        0.02 * math.log(max(work.flops, 1) / max(work.bytes, 1)),
        0.7 * math.log(question.roof.bandwidth_bytes_per_s / 1e12),
        0.49 * (config.get("variant", config.get("pipeline")) in ("generic", 0)),
        0.56 * math.log2(max(number(config, "num_stages", 1), 1)),
        0.07 * math.log2(max(number(config, "cluster_m", 1), 1) * max(number(config, "cluster_n", 1), 1)),
    )
