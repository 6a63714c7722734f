"""Renders the self-test of a bench as one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def self_test_text(found: Mapping[str, Any]) -> str:
    """Return a self-test as text; `found` is the document that measure.bench_self_test returns."""
    shape = " ".join(f"{key}={size}" for key, size in found["shape"].items())
    return (
        f"{found['kernel']} {shape} {found['dtype']} on {found['device']}, timed against itself "
        f"{found['trials']} times: {found['faster']} faster, {found['slower']} slower at {found['threshold_pct']:g}%, "
        f"a false-alarm rate of {found['false_alarm_pct']:.2f}% (at most {found['false_alarm_at_most_pct']:.2f}% with "
        f"95% confidence). Medians lay {found['median_apart_pct']:.2f}% apart in the median, "
        f"{found['largest_apart_pct']:.2f}% at most."
    )
