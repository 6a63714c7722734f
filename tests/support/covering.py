"""Marks which cases `make test` runs: of a product enough that every pair of values of two axes occurs, or every
value.

The others have the marker `exhaustive` and run in `make test-exhaustive`. Source of the pairs: Cohen, Dalal, Fredman,
Patton, "The AETG System: An Approach to Testing Based on Combinatorial Design", 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest


def covering(cases: Sequence[tuple[Any, ...]], together: int = 2) -> list[bool]:
    """Tell of each case whether it is among those that hold every pair of values which the cases hold.

    together: 2 for pairs; 1 for every single value.
    """
    named = [[(axis, repr(value)) for axis, value in enumerate(case)] for case in cases]
    pairs = [set(combinations(case, together)) for case in named]
    left, chosen = set[Any]().union(*pairs), [False] * len(cases)
    while left:
        best = max(range(len(cases)), key=lambda at: len(pairs[at] & left))
        chosen[best] = True
        left -= pairs[best]
    return chosen


def builds(cases: Sequence[tuple[Any, ...]], ids: Sequence[str], together: int = 2) -> list[Any]:
    """Return parameters of all cases, with the marker on those that `make test` leaves to `make test-exhaustive`.

    together: as `covering` has it; 1 where a case takes the compiler long.
    """
    return [
        pytest.param(*case, id=name, marks=() if kept else pytest.mark.exhaustive)
        for case, name, kept in zip(cases, ids, covering(cases, together), strict=True)
    ]


def examples(few: int, all_of_them: int) -> pytest.MarkDecorator:
    """Give a property test its argument `examples`, how many it tries: few in `make test`."""
    return pytest.mark.parametrize("examples", [few, pytest.param(all_of_them, marks=pytest.mark.exhaustive)])


def one_in(step: int, cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Return a parameter for each case; only one in `step` runs in `make test`. name: the id of a case."""
    return [
        pytest.param(case, id=name(case), marks=pytest.mark.exhaustive if at % step else ())
        for at, case in enumerate(cases)
    ]
