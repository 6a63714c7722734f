"""Names what had been timed before a forecast. Pure; imports no records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.records import Sight

SIGHTS: tuple[Sight, ...] = ("blind", "near", "informed")
"""From the least to the most that was known."""


def sight_name(sight: Sight | None) -> str:
    """Return a sight in a word: undeclared where there is none."""
    return sight or "undeclared"
