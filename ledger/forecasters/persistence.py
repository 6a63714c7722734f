"""Forecasts what the ledger measured last: of the cell itself, or of its nearest neighbour. Pure.

A neighbour is another shape of the same kernel, dtype and profile, of a callable with the same arguments and pass; its
percent of the roof and its regime carry over.
The distance of two shapes is the sum of |log2| of the ratios of their sizes, in doublings. Assumes: neither the
kernel's sources nor the software changed since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ledger.analysis.formatting import shape_text
from ledger.callables.subject import is_callable
from ledger.forecasters.answer import Answer, NoAnswer, Question, Term
from ledger.roofline import percent_of_roof, time_lower_bound_s

NAME = "persistence"
VERSION = "2"


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast; none where no cell of the kernel, dtype and profile is measured.

    Its interval is the range of the cell's own runs, where there are two or more.
    """
    case, roof = question.case, question.roof
    known = [
        one
        for one in question.earlier
        if (one.case.cell[0], one.case.dtype, one.case.hardware) == (case.cell[0], case.dtype, case.hardware)
        and one.case.shape.keys() == case.shape.keys()
    ]
    if not known:
        how = " with these arguments" if is_callable(case.kernel) else ""
        what = f"no {case.dtype} cell of {case.kernel}{how} on {case.hardware}"
        return NoAnswer(NAME, VERSION, f"{what} is measured here")
    least, places = nearest_of(case.shape, [one.case.shape for one in known])
    nearest = [known[place] for place in places]
    last = nearest[-1]
    percent = percent_of_roof(last.work, roof, last.time_s)
    runs = [percent_of_roof(one.work, roof, one.time_s) for one in nearest if least == 0]
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=last.regime,
        percent=percent,
        time_s=100 * time_lower_bound_s(question.work, roof) / percent,
        terms=(
            Term(f"measured {shape_text(last.case.shape)}", last.time_s, "s"),
            Term("distance", least, "doublings"),
            Term("runs of this cell", len(runs), "1"),
        ),
        assumes=("kernel and software as when it was measured", "the same percent of the roof"),
        low=min(runs) if len(runs) > 1 else None,
        high=max(runs) if len(runs) > 1 else None,
    )


def nearest_of(shape: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> tuple[float, list[int]]:
    """Return how near the nearest of some shapes are, and their places. Raises: ValueError where there is none."""
    apart = [distance(shape, other) for other in others]
    least = min(apart)
    return least, [place for place, found in enumerate(apart) if found == least]


def distance(shape: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Return how far apart two shapes with the same keys are, in doublings."""
    return sum(abs(math.log2(size / other[key])) for key, size in shape.items())
