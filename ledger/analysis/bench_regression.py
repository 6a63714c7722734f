"""Compares a bench with an earlier one, by ratios within each run. Pure.

Absolute times of two runs differ by clock, power and neighbours; the ratio to a baseline measured in the same run
does not. So a cell regresses when (ours ÷ baseline) grew, and only a cell that both runs hold with the same baseline
can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.errors import InputError, ThresholdMissed


@dataclass(frozen=True)
class RatioChange:
    """Hold how a cell's time relative to its baseline changed; 0.03 is three percent slower."""

    cell: str
    baseline: str
    change: float

    @property
    def sentence(self) -> str:
        """Return the change as text."""
        way = "slower" if self.change > 0 else "faster"
        return f"{self.cell}: {abs(self.change):.1%} {way} than before, relative to {self.baseline}"


def compare(now: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[RatioChange, ...]:
    """Return the change of every cell that both benches hold.

    Raises: InputError for a document that is no bench, or when the two have no cell in common or another device.
    """
    earlier, later = _by_cell(before, "the earlier bench"), _by_cell(now, "this bench")
    if now.get("device") != before.get("device"):
        raise InputError(f"device is {now.get('device')!r}, before it was {before.get('device')!r}; expected the same")
    common = [cell for cell in later if cell in earlier]
    if not common:
        raise InputError("the two benches have no cell in common; expected at least one")
    changes = []
    for cell in common:
        was, is_ = earlier[cell], later[cell]
        contexts = [row.get("context", "back-to-back") for row in (was, is_)]
        if contexts[0] != contexts[1]:
            raise InputError(
                f"{cell}: calls were timed {contexts[0]} before and {contexts[1]} now; expected one context: "
                "time the earlier code again"
            )
        name = next((n for n in _baselines(is_) if n in _baselines(was)), None)
        if name is None:
            raise InputError(f"{cell}: no baseline was measured in both benches; expected one to relate the times to")
        ratio = (is_["ours_us"] / is_[name]) / (was["ours_us"] / was[name])
        changes.append(RatioChange(cell, name.removesuffix("_us"), ratio - 1))
    return tuple(changes)


def check(changes: Sequence[RatioChange], limit: str) -> None:
    """Check that no cell is slower by more than `limit`, a percentage. Raises: ThresholdMissed; InputError."""
    try:
        allowed = float(limit.strip().removesuffix("%")) / 100
    except ValueError as error:
        raise InputError(f"--fail-on-regress: got {limit!r}; expected a percentage, as in 3%") from error
    if not math.isfinite(allowed) or allowed < 0:
        raise InputError(f"--fail-on-regress: got {limit!r}; expected a percentage of at least 0")
    worse = [change for change in changes if change.change > allowed]
    if worse:
        raise ThresholdMissed(f"{len(worse)} of {len(changes)} cells regressed: {'; '.join(c.sentence for c in worse)}")


def _baselines(row: Mapping[str, Any]) -> list[str]:
    names = ("torch_matmul_us", "baseline_us", "torch_eager_us", "torch_compile_us")
    return [name for name in names if isinstance(row.get(name), (int, float)) and row[name] > 0]


def _by_cell(document: Mapping[str, Any], what: str) -> dict[str, Mapping[str, Any]]:
    rows = document.get("rows") if isinstance(document, Mapping) else None
    if not isinstance(rows, list):
        raise InputError(f"{what} has no rows; expected the JSON that ledger bench writes")
    cells: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        try:
            shape = " ".join(f"{key}={size}" for key, size in sorted(row["shape"].items()))
            time = float(row["ours_us"])
            cells[f"{row['kernel']} {shape} {row['dtype']}"] = row
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{what} has a row without kernel, shape, dtype or ours_us; expected all four") from error
        if not math.isfinite(time) or time <= 0:
            raise InputError(f"{what}: ours_us is {time}; expected a positive time")
    return cells
