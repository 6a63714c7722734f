"""Forecasts what the ledger's own measurements teach about the analytic model: a Gaussian process on its error. Pure.

The target is ln(measured time ÷ analytic time), the analytic model at its declared constants, which no fit has moved.
Inputs are what that model knows of a launch: its size, the share of each term, waves, split and early launch, dtype,
and the kernel, so that cells of one kernel teach each other most and a kernel without cells falls back to what all
others have in common. The training set is every measured cell of a GPU that the question knows; a seal names it.

Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ledger.forecasters import analytic
from ledger.forecasters.analytic_constants import DECLARED
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question, Term
from ledger.forecasters.geometry import geometry_of
from ledger.records import is_gpu
from ledger.roofline import percent_of_roof

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "learned"
VERSION = "1"
LEAST = 20
"""Measured cells below which nothing is learned."""
# Chosen on the cells of this repository with one kernel left out (tests/forecasters/evaluate.py), coarsely.
SIGNAL = 0.25
"""Deviation of the analytic model's error, in ln."""
NOISE = 0.04
"""Deviation between runs, chips and configurations that the inputs do not tell apart, in ln."""
OTHER_KERNEL = 1.0
"""Distance between two kernels."""
_TERMS = ("tensor", "request", "shared", "convert", "cuda", "exponentials", "chain")


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast of a GPU's cell; none where too little was measured."""
    if not is_gpu(question.hardware.target):
        return NoAnswer(NAME, VERSION, f"{question.hardware.name} is no GPU")
    runs = tuple(one for one in question.earlier if is_gpu(one.hardware.target))
    if len(runs) < LEAST:
        return NoAnswer(NAME, VERSION, f"{len(runs)} measured GPU cells here; expected at least {LEAST}")
    import numpy as np

    inputs, kernels, weights, mean = _fitted(runs)
    near = _covariance(_inputs(question)[None, :], (question.case.kernel,), inputs, kernels)[0]
    correction = float(mean + near @ weights)
    found = analytic.cost(question, DECLARED)
    time_s = found.total * math.exp(correction)
    closest = int(np.argmax(near))
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=analytic.regime_at(question, found, analytic.rates_of(question, DECLARED), time_s),
        percent=percent_of_roof(question.work, question.roof, time_s),
        time_s=time_s,
        terms=(
            Term("analytic, as declared", found.total, "s"),
            Term("correction", math.exp(correction), "1"),
            Term("of it for any cell", math.exp(mean), "1"),
            Term("measured cells", len(runs), "1"),
            Term("weight of the closest", float(near[closest]) / SIGNAL**2, "1"),
            Term("its time", runs[closest].time_s, "s"),
        ),
        assumes=("software and kernels as when the cells were measured",),
    )


def model_bytes(runs: tuple[Measured, ...]) -> bytes:
    """Return the fitted parameters as canonical JSON, 9 digits each; of too few runs an empty object."""
    known = tuple(one for one in runs if is_gpu(one.hardware.target))
    if len(known) < LEAST:
        return b"{}"
    _, _, weights, mean = _fitted(known)
    parts = {one.record: f"{weight:.9g}" for one, weight in zip(known, weights, strict=True)}
    return json.dumps({"mean": f"{mean:.9g}", "weights": parts}, sort_keys=True, separators=(",", ":")).encode()


@lru_cache(maxsize=4)
def _fitted(runs: tuple[Measured, ...]) -> tuple[NDArray[Any], tuple[str, ...], NDArray[Any], float]:
    """Return inputs, kernels, weights and mean of the process that some runs teach."""
    import numpy as np

    inputs, errors = (np.array(part) for part in zip(*map(_taught, runs), strict=True))
    kernels = tuple(one.case.kernel for one in runs)
    # Kernels count alike in the mean, however many cells each has.
    mean = float(np.mean([errors[[other == name for other in kernels]].mean() for name in sorted(set(kernels))]))
    covariance = _covariance(inputs, kernels, inputs, kernels) + NOISE**2 * np.eye(len(runs))
    return inputs, kernels, np.linalg.solve(covariance, errors - mean), mean


def _covariance(
    a: NDArray[Any], kernels_a: tuple[str, ...], b: NDArray[Any], kernels_b: tuple[str, ...]
) -> NDArray[Any]:
    import numpy as np

    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    other = np.array(kernels_a)[:, None] != np.array(kernels_b)[None, :]
    covariance: NDArray[Any] = SIGNAL**2 * np.exp(-0.5 * (np.maximum(squared, 0) + OTHER_KERNEL**2 * other))
    return covariance


@lru_cache(maxsize=4096)
def _taught(one: Measured) -> tuple[tuple[float, ...], float]:
    """Return the inputs of a run, and ln(measured time ÷ analytic time)."""
    found = analytic.cost(one.question, DECLARED)
    return tuple(_inputs(one.question).tolist()), math.log(one.time_s / found.total)


def _inputs(question: Question) -> NDArray[Any]:
    """Return the inputs of a cell, each scaled so that a distance of 1 is a notable difference."""
    import numpy as np

    found = analytic.cost(question, DECLARED)
    sms = question.hardware.limits.sms
    g = geometry_of(question.case, question.work, sms)
    total = found.total
    last = 1.0 if g.spread else g.ctas / sms / math.ceil(g.ctas / sms)
    parts = (found.launch + found.ends, found.split, found.sm, found.l2, found.dram)
    values = (
        math.log(total / 1e-6) / 3,
        *(2 * part / total for part in parts),
        *(getattr(found, name) / total for name in _TERMS),
        last,
        0.5 * (g.split > 1) * (1 if g.together else -1),
        0.5 * g.early,
        0.5 * g.ahead,
        0.5 * (question.case.dtype in ("fp32", "fp64")),
        0.5 * (question.case.dtype in ("fp8_e4m3", "int8")),
    )
    return np.array(values, dtype=float)
