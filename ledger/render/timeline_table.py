"""Renders a timeline, one slice a row. Pure; the caller prints it."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import harmless

_LONGEST = 40


def slices_table(found: dict[str, Any]) -> Table:
    """Return the slices of a timeline as a table. Units: microseconds a call; the gap from one kernel to the next."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("slice, µs a call")
    for heading in ("calls", "host", "device", "kernels", "gap"):
        table.add_column(heading, justify="right")
    table.add_column("the device ran")
    for one in found["slices"]:
        ran = ", ".join(f"{harmless(run['name'], _LONGEST)} × {run['count']}" for run in one["ran"])
        numbers = (one["host_us"], one["device_us"], one["busy_us"], one["gap_us"])
        table.add_row(Text(one["name"]), str(one["calls"]), *(_digits(number) for number in numbers), Text(ran))
    return table


def scopes_table(found: dict[str, Any]) -> Table:
    """Return the scopes within a kernel as a table. Units: clocks of the SM; FLOP and bytes of a CTA by kind."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scope: function, kind, line", overflow="fold")
    for heading in ("events", "CTAs", "warps", "clocks", "% of warp", "FLOP of kind", "bytes of kind"):
        table.add_column(heading, justify="right")
    for one in found["scopes"]:
        counts = (str(one[key]) for key in ("count", "ctas", "warps"))
        numbers = (one[key] for key in ("clocks", "share", "flops", "bytes"))
        table.add_row(Text(harmless(one["name"])), *counts, *(_digits(number) for number in numbers))
    return table


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
