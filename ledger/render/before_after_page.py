"""Renders times of the same cells before and after a change as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.analysis.formatting import usual_order
from ledger.render.bench_page import condition_lines

SCHEMA = "ledger/before-after/1"


def render_markdown(document: Mapping[str, Any]) -> str:
    """Return a before-after document as Markdown: its conditions, then one table row for each cell."""
    lines = [f"# Before and after: {document['device']}", "", "Microseconds a call, median of interleaved rounds.", ""]
    lines += condition_lines(document["conditions"])
    lines += ["", "| kernel | shape | dtype | before | after | before again | after ÷ before |"]
    lines.append("|---|---|---|---:|---:|---:|---:|")
    lines += [_line(row) for row in document["rows"]]
    return "\n".join(lines) + "\n"


def _line(row: Mapping[str, Any]) -> str:
    shape = " ".join(f"{key}={size}" for key, size in usual_order(row["shape"]))
    times = [row["before_us"], row["after_us"], row["before_again_us"]]
    cells = [row["kernel"], shape, row["dtype"], *map(str, times), f"{times[1] / times[0]:.3f}"]
    return "| " + " | ".join(cells) + " |"
