"""Renders what `ledger tune` wrote for review as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.analysis.formatting import usual_order


def render_markdown(document: Mapping[str, Any]) -> str:
    """Return the fastest configurations of each cell, as multiples of the time of the kernel's own configuration."""
    lines = [f"# {document['kernel']} on {document['hardware']}, tuned"]
    for row in document["rows"]:
        lines += _row(row)
    return "\n".join(lines) + "\n"


def _row(row: Mapping[str, Any]) -> Iterator[str]:
    shape = " ".join(f"{key}={size}" for key, size in usual_order(row["shape"]))
    yield from ("", f"## {shape} {row['dtype']}", "")
    yield f"{row['timed']} timed; the kernel's own configuration takes {row['own_us']} µs: {config_text(row['own'])}"
    yield from ("", "| time ÷ own | timed twice | configuration |", "|---:|---|---|")
    for one in row["fastest"]:
        again = "yes" if one["again"] else "no"
        yield f"| {one['ratio']:.4f} | {again} | {config_text(one['config'])} |"


def config_text(config: Mapping[str, int]) -> str:
    """Return a launch configuration as KEY=VALUE, separated by commas."""
    return ",".join(f"{key}={value}" for key, value in config.items())
