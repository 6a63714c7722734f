"""Renders comparisons of the timer with CUPTI, with Nsight Compute and with itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.render.self_test_text import self_test_text

CUPTI_HEADINGS = (
    "call",
    "timer, µs",
    "CUPTI, µs",
    "CUPTI to timer, same launches",
    "timer alone, µs",
    "CUPTI to it",
    "again to alone",
    "MHz alone, again",
)
NCU_HEADINGS = ("call", "timer, µs", "ncu, µs", "ncu to timer", "timer, MHz", "ncu, MHz", "in cycles")
STATES_HEADINGS = ("operands", "input sets", "state or timer", "µs", "MHz")
STEADY_HEADINGS = ("call", "boost, µs", "boost, MHz", "steady, µs", "steady, MHz", "steady to boost", "again, µs")


def render_markdown(document: Mapping[str, Any]) -> str | None:
    """Return a comparison of the timer as Markdown; None for any other document."""
    if "pairs_us" in document:
        return f"# The timer compared with itself\n\n{self_test_text(document)}\n"
    rows = document.get("rows")
    first = rows[0] if isinstance(rows, list) and rows else {}
    if "cupti" in first:
        return _page("The timer compared with CUPTI", document, CUPTI_HEADINGS, cupti_lines(document))
    if "boost" in first:
        return _page("Boost and steady state", document, STEADY_HEADINGS, steady_lines(document))
    if "operands" in first:
        return _page("Clock states and operands of cuBLAS", document, STATES_HEADINGS, states_lines(document))
    if "ncu" in first:
        return _page("The timer compared with Nsight Compute", document, NCU_HEADINGS, ncu_lines(document))
    return None


def _page(title: str, document: Mapping[str, Any], headings: tuple[str, ...], body: list[str]) -> str:
    head = [f"# {title}: {document['device']}", "", f"- driver: {document['driver']}"]
    head += [f"- {name}: {version}" for name, version in document["software"].items()]
    rule = f"|---|{'---:|' * (len(headings) - 1)}"
    return "\n".join([*head, "", f"| {' | '.join(headings)} |", rule, *body]) + "\n"


def _to(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.1f}%"


def cupti_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the rows of the comparison with CUPTI, for the same launches and for separate ones."""
    found = []
    for row in document["rows"]:
        timer, cupti = row["timer"]["us"], row["cupti"]
        words = [
            row["case"],
            f"{cupti['timer_us']:.2f}",
            f"{cupti['us']:.2f}",
            _to(cupti["us"], cupti["timer_us"]),
            f"{timer:.2f}",
            _to(cupti["us"], timer),
            _to(row["timer_again"]["us"], timer),
            f"{row['timer']['mhz']}, {row['timer_again']['mhz']}",
        ]
        found.append(f"| {' | '.join(words)} |")
    return found


def ncu_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the rows of the comparison with ncu, in time and in cycles of the SM clock."""
    found = []
    for row in document["rows"]:
        timer, ncu = row["timer"], row["ncu"]
        cycles = _to(ncu["us"] * ncu["mhz"], timer["us"] * timer["mhz"])
        words = [row["case"], f"{timer['us']:.2f}", f"{ncu['us']:.2f}", _to(ncu["us"], timer["us"])]
        found.append(f"| {' | '.join([*words, str(timer['mhz']), str(ncu['mhz']), cycles])} |")
    return found


def steady_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the rows of first and steady batches by cold-graph/2, and the steady time of another process."""
    found = []
    for row in document["rows"]:
        boost, steady = row["boost"], row["steady"]
        words = [row["case"], f"{boost['us']:.2f}", str(boost["mhz"]), f"{steady['us']:.2f}", str(steady["mhz"])]
        found.append(f"| {' | '.join([*words, _to(steady['us'], boost['us']), format(row['again_us'], '.2f')])} |")
    return found


def states_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the table rows of times by operands and clock state."""
    return [
        f"| {row['operands']} | {row.get('input_sets', 1)} | {row.get('state') or row['timer']} | {row['us']:.2f} "
        f"| {row.get('sm_clock_mhz', '–')} |"
        for row in document["rows"]
    ]
