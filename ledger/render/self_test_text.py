"""Renders the document of a bench's self-test as one paragraph. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def self_test_text(found: Mapping[str, Any]) -> str:
    """Return the document of a self-test as text."""
    shape = " ".join(f"{key}={size}" for key, size in found["shape"].items())
    return (
        f"{found['kernel']} {shape} {found['dtype']} on {found['device']}, timed against itself "
        f"{found['trials']} times: {found['faster']} faster, {found['slower']} slower at {found['threshold_pct']:g}%, "
        f"a false-alarm rate of {found['false_alarm_pct']:.2f}% (at most {found['false_alarm_at_most_pct']:.2f}% with "
        f"95% confidence). Medians differed by {found['median_apart_pct']:.2f}% in the median, "
        f"{found['largest_apart_pct']:.2f}% at most."
    )
