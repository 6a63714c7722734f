"""Forecasts what the ledger's own measurements teach about the analytic model: a Gaussian process on its error. Pure.

The target is ln(measured time ÷ analytic time), the analytic model at its declared constants, which no fit has moved.
Inputs are what that model knows of a launch: its size, the share of each term, waves, split and early launch, dtype,
and the kernel, so that cells of one kernel teach each other most and a kernel without cells falls back to what all
others have in common. Other code, callables and a library's products, teaches about such alone; until enough of it is
measured its answer is the analytic model's. The training set is every measured cell of a GPU that the question knows;
a seal names it.

Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ledger.callables.subject import is_callable
from ledger.forecasters import analytic
from ledger.forecasters.analytic_constants import CONSTANTS, DECLARED, Constants
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question, Term
from ledger.records import Case, is_gpu
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
    runs = _alike(question.case, question.earlier)
    return _unlearned(question, runs) or _answer(question, _fitted(runs))


def asked_without(runs: tuple[Measured, ...]) -> Callable[[Question], Answer | NoAnswer]:
    """Return what answers as `forecast` does where a question knows these runs but for a few.

    One matrix for kernels and one for callables serve all such questions, so that asking about every case takes O(N^3)
    and not O(N^4).
    """
    wholes: dict[bool, _Whole] = {}

    def ask(question: Question) -> Answer | NoAnswer:
        earlier, group = _alike(question.case, question.earlier), _foreign(question.case)
        if (said := _unlearned(question, earlier)) is not None:
            return said
        if group not in wholes:
            wholes[group] = _Whole.of(_alike(question.case, runs))
        return _answer(question, wholes[group].fit_of(frozenset(earlier)))

    return ask


def _foreign(case: Case) -> bool:
    """Tell whether other code than this project's kernels takes most of a call: a callable, or a library's product."""
    return is_callable(case.kernel) or case.config.get("variant") == "library"


def _alike(case: Case, runs: tuple[Measured, ...]) -> tuple[Measured, ...]:
    """Return the runs that teach about a case: on GPUs, of own kernels about one, of other code about such."""
    group = _foreign(case)
    return tuple(one for one in runs if is_gpu(one.hardware.target) and _foreign(one.case) == group)


def _unlearned(question: Question, runs: tuple[Measured, ...]) -> Answer | NoAnswer | None:
    """Return what is said where nothing was learned; of other code what the analytic model says."""
    if not is_gpu(question.hardware.target):
        return NoAnswer(NAME, VERSION, f"{question.hardware.name} is no GPU")
    if len(runs) >= LEAST:
        return None
    if not _foreign(question.case):
        return NoAnswer(NAME, VERSION, f"{len(runs)} measured GPU cells here; expected at least {LEAST}")
    said = analytic.answer_of(question, analytic.cost(question), analytic.rates_of(question, CONSTANTS))
    why = f"the analytic model: {len(runs)} measured cells of other code here; expected at least {LEAST} to learn of"
    return replace(said, forecaster=NAME, version=VERSION, assumes=(*said.assumes, why))


def _answer(question: Question, fit: _Fit) -> Answer:
    import numpy as np

    near = _covariance(_inputs(question)[None, :], (question.case.kernel,), fit.inputs, fit.kernels)[0]
    correction = float(fit.mean + near @ fit.weights)
    k = _constants(question.case)
    found = analytic.cost(question, k)
    time_s = _declared_s(found) * math.exp(correction)
    closest = int(np.argmax(near))
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=analytic.regime_at(question, found, analytic.rates_of(question, k), time_s),
        percent=percent_of_roof(question.work, question.roof, time_s),
        time_s=time_s,
        terms=(
            Term("analytic", _declared_s(found), "s"),
            Term("correction", math.exp(correction), "1"),
            Term("of it for any cell", math.exp(fit.mean), "1"),
            Term("measured cells", len(fit.runs), "1"),
            Term("weight of the closest", float(near[closest]) / SIGNAL**2, "1"),
            Term("its time", fit.runs[closest].time_s, "s"),
        ),
        assumes=("software and kernels as when the cells were measured", *analytic.assumed(found.kind)),
    )


def model_bytes(runs: tuple[Measured, ...]) -> bytes:
    """Return the fitted parameters, of kernels and of callables, as canonical JSON, 9 digits each."""
    made = {}
    for name, group in (("kernels", False), ("callables", True)):
        known = tuple(one for one in runs if is_gpu(one.hardware.target) and _foreign(one.case) == group)
        if len(known) >= LEAST:
            fit = _fitted(known)
            parts = {one.record: f"{weight:.9g}" for one, weight in zip(known, fit.weights, strict=True)}
            made[name] = {"mean": f"{fit.mean:.9g}", "weights": parts}
    return json.dumps(made, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True)
class _Fit:
    """Hold the process that some runs teach."""

    runs: tuple[Measured, ...]
    inputs: NDArray[Any]
    kernels: tuple[str, ...]
    weights: NDArray[Any]
    mean: float


@lru_cache(maxsize=4)
def _fitted(runs: tuple[Measured, ...]) -> _Fit:
    import numpy as np

    inputs, errors, kernels = _teaching(runs)
    mean = _mean(errors, kernels)
    return _Fit(runs, inputs, kernels, np.linalg.solve(_noisy(inputs, kernels), errors - mean), mean)


@dataclass(frozen=True)
class _Whole:
    """Hold what all runs teach, from which a fit without a few of them follows. inverse: of the covariance."""

    runs: tuple[Measured, ...]
    inputs: NDArray[Any]
    errors: NDArray[Any]
    kernels: tuple[str, ...]
    inverse: NDArray[Any]

    @classmethod
    def of(cls, runs: tuple[Measured, ...]) -> _Whole:
        import numpy as np

        inputs, errors, kernels = _teaching(runs)
        return cls(runs, inputs, errors, kernels, np.linalg.inv(_noisy(inputs, kernels)))

    @cached_property
    def _products(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.inverse @ self.errors, self.inverse.sum(axis=1)

    def fit_of(self, known: Set[Measured]) -> _Fit:
        """Return the fit of those runs that are known.

        Source: the inverse of a principal submatrix by Schur complement (Rasmussen, Williams, section 5.4.2).
        """
        import numpy as np

        chosen = np.array([one in known for one in self.runs])
        kept, left = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        kernels = tuple(self.kernels[index] for index in kept)
        mean = _mean(self.errors[kept], kernels)
        of_errors, of_ones = self._products
        full = of_errors - mean * of_ones
        weights = full[kept]
        if len(left):
            lost = np.linalg.solve(self.inverse[np.ix_(left, left)], full[left])
            weights = weights - self.inverse[np.ix_(kept, left)] @ lost
        return _Fit(tuple(self.runs[index] for index in kept), self.inputs[kept], kernels, weights, mean)


def _teaching(runs: tuple[Measured, ...]) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Return inputs, errors and kernels of some runs."""
    import numpy as np

    inputs, errors = (np.array(part) for part in zip(*map(_taught, runs), strict=True))
    return inputs, errors, tuple(one.case.kernel for one in runs)


def _mean(errors: NDArray[Any], kernels: tuple[str, ...]) -> float:
    """Return the mean error; kernels count alike, however many cells each has."""
    import numpy as np

    return float(np.mean([errors[[other == name for other in kernels]].mean() for name in sorted(set(kernels))]))


def _noisy(inputs: NDArray[Any], kernels: tuple[str, ...]) -> NDArray[Any]:
    import numpy as np

    covariance: NDArray[Any] = _covariance(inputs, kernels, inputs, kernels) + NOISE**2 * np.eye(len(kernels))
    return covariance


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
    found = analytic.cost(one.question, _constants(one.case))
    return tuple(_inputs(one.question).tolist()), math.log(one.time_s / _declared_s(found))


def _constants(case: Case) -> Constants:
    """Return the constants that errors refer to: as declared, of callables those to which their kinds were set."""
    return CONSTANTS if _foreign(case) else DECLARED


def _declared_s(found: analytic.Cost) -> float:
    """Return the time that the analytic model gives, of a callable the median of its kind."""
    return found.total * (1.0 if found.kind is None else found.kind.median)


def _inputs(question: Question) -> NDArray[Any]:
    """Return the inputs of a cell, each scaled so that a distance of 1 is a notable difference."""
    import numpy as np

    found = analytic.cost(question, _constants(question.case))
    sms = question.hardware.limits.sms
    g = found.geometry
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
