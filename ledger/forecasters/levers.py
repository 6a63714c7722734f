"""Says what would have to change to move a forecast: the analytic time with one of its rates a quarter higher. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ledger.forecasters.analytic import Cost, binding, cost
from ledger.forecasters.analytic_constants import CONSTANTS, Constants
from ledger.forecasters.answer import Question

FASTER = 1.25
COMPARED = ("h200", "h100_sxm")
SPREAD = (0.86, 1.16)
"""Measured ÷ analytic time between which 80% of 685 runs on these GPUs are, which chose the constants
(tests/forecasters/evaluate.py --coverage). On another GPU nothing was compared."""

_RATES: dict[str, tuple[str, ...]] = {
    "DRAM": ("read", "write"),
    "L2": ("l2", "request"),
    "tensor": ("tensor", "sustained"),
    "shared": ("shared",),
    "convert": ("convert",),
    "exponentials": ("exponentials",),
    "CUDA cores": ("cuda", "products"),
}
_WORDS = {
    "DRAM": "fewer bytes: a smaller dtype, fusion with what is before or after",
    "L2": "fewer requests: larger tiles or clusters",
    "tensor": "less arithmetic or padding: a smaller dtype, tiles that fit",
    "shared": "fewer bytes through shared memory: operands in registers, larger tiles",
    "convert": "less conversion, or more warps that convert",
    "exponentials": "exponentials hidden behind products",
    "CUDA cores": "arithmetic on tensor cores",
    "launch and ends": "more work a launch: a larger batch, fusion",
    "waves": "tiles that fill the last wave, or stream-K",
}


@dataclass(frozen=True)
class Lever:
    """Hold what moves a time most. binding: the longest term. saved: share of the time that goes away."""

    binding: str
    name: str
    change: str
    saved: float
    words: str


def lever_of(question: Question, k: Constants = CONSTANTS) -> Lever:
    """Return the single change that saves most of a GPU cell's analytic time."""
    found = cost(question, k)
    saved = {name: 1 - cost(question, _faster(k, names)).total / found.total for name, names in _RATES.items()}
    saved["launch and ends"] = (1 - 1 / FASTER) * found.fixed / found.total
    saved["waves"] = _idle(found)
    best = max(saved, key=lambda name: saved[name])
    change = "full waves" if best == "waves" else f"{best} {100 * (FASTER - 1):.0f}% faster"
    return Lever(binding(found), best, change, saved[best], _WORDS[best])


def _faster(k: Constants, names: tuple[str, ...]) -> Constants:
    return k._replace(**{name: getattr(k, name) * FASTER for name in names})


def _idle(found: Cost) -> float:
    """Return the share of the time that SMs without a CTA in the last wave cost, where the SMs limit."""
    if found.sm < max(found.l2, found.dram) or found.waves <= 1 or not found.whole_waves:
        return 0.0
    return (1 - found.waves / math.ceil(found.waves)) * found.sm / found.total
