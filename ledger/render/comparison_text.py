"""Renders the document of a comparison of two commits, as Markdown and as rows for a terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.analysis.formatting import count_text, harmless, shape_text
from ledger.callables.subject import is_callable
from ledger.render.markdown_page import escape, table
from ledger.render.tuning_page import config_text

HEADINGS = ("case", "before µs", "after µs", "ratio", "claim", "verdict", "configuration", "% of roof")
FOLDING = ("case", "claim", "configuration")
_WORDS = {
    "same": "same ±{noise:.1f}%",
    "unclear": "unclear ±{noise:.1f}%",
    "faster": "faster",
    "slower": "SLOWER",
    "wrong": "WRONG",
    "failed": "FAILED",
    "base-failed": "base failed",
}
_REASONS = {
    "unchanged": "same sources",
    "comments": "differ in comments only",
    "gpu code on a CPU": "differ in GPU code only, which a CPU does not run",
    "same machine code": "same machine code",
    "new": "new: nothing to compare with",
    "removed": "removed",
}


def table_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a comparison's table, under HEADINGS."""
    return [_row(row) for row in document["rows"]]


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """Return what stands around the table: what was compared where, what was skipped, how often it errs."""
    base, head = document["base"], document["head"]
    lines = [
        f"{harmless(head['name'])} ({head['commit'][:10]}) against {harmless(base['name'])} ({base['commit'][:10]}) "
        f"on {harmless(document['device'])}: {_verdicts(document)}"
    ]
    lines += [f"failure: {harmless(_case(row))}: {harmless(row['failure'], 600)}" for row in failures(document)]
    for side, words in (("base", "removed from"), ("head", "added to")):
        if cells := [_case(row) for row in (*document["rows"], *document["to_time"]) if row["listed"] == side]:
            lines.append(f"{words} the cases, compared all the same: {', '.join(map(harmless, cells[:20]))}")
    if document["to_time"]:
        lines.append(f"to time: {', '.join(harmless(_case(row)) for row in document['to_time'][:20])}")
    lines += [f"not timed, {text}" for text in _skipped(document)]
    if any(row["ratio"] is not None for row in document["rows"]):
        lines.append(
            f"ratio: time before ÷ time after. An equal case among the {document['cases']} is called different in at "
            f"most {document['false_alarms_at_most']:.0%} of comparisons, if its rounds are independent; a second run "
            "confirmed each call."
        )
    return lines


def render_markdown(document: Mapping[str, Any]) -> str:
    """Return a comparison as Markdown for a comment. Text of the compared commits mentions, links and shows nothing."""
    first, *rest = summary_lines(document)
    lines = ["### Performance", "", escape(first), ""]
    if document["rows"]:
        body = [tuple(map(escape, row)) for row in table_rows(document)]
        lines.append(table(HEADINGS, body, right=(1, 2, 3, 7)))
    return "\n".join([*lines, *(f"- {escape(line)}" for line in rest)]) + "\n"


def failures(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows that have no ratio."""
    return [row for row in document["rows"] if row["failure"]]


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        harmless(_case(row)),
        _number(row["base_us"]),
        _number(row["head_us"]),
        _ratio(row),
        _claim(row["claim"]),
        _WORDS[row["verdict"]].format(noise=row["noise_pct"] or 0.0),
        harmless(_config(row)),
        "–" if row["pct_of_roof"] is None else f"{row['pct_of_roof']:.1f}",
    )


def _case(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, [row["subject"], shape_text(row["shape"]) if row["shape"] else "", row["dtype"]]))


def _ratio(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return "–"
    if row["low"] is None or row["high"] is None:
        return f"{row['ratio']:.3f}"
    return f"{row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f})"


def _claim(claim: Mapping[str, Any] | None) -> str:
    if claim is None:
        return "–"
    verdict = {None: "", "fails": "FAILS"}.get(claim["verdict"], claim["verdict"])
    return f"{claim['ratio']:.3g} ({claim['low']:.3g}–{claim['high']:.3g}) {verdict}".strip()


def _config(row: Mapping[str, Any]) -> str:
    now, before = row["config"], row["base_config"]
    if is_callable(row["subject"]):
        return "–" if now.get("pass", "forward") == "forward" else str(now["pass"])
    if now == before:
        return config_text(now) or "–"
    changed = {key: value for key, value in before.items() if now.get(key) != value}
    return f"{config_text(now)} (before: {config_text(changed) or 'fewer keys'})"


def _verdicts(document: Mapping[str, Any]) -> str:
    found = Counter(row["verdict"] for row in document["rows"])
    if not found:
        return f"{count_text(len(document['to_time']), 'case')} to time" if document["to_time"] else "nothing to time"
    return ", ".join(f"{count} {verdict}" for verdict, count in found.most_common())


def _skipped(document: Mapping[str, Any]) -> list[str]:
    groups: dict[str, dict[str, list[str]]] = {}
    for one in document["skipped"]:
        cells = groups.setdefault(one["reason"], {}).setdefault(one["subject"], [])
        cells += filter(None, [one["cell"]])
    return [f"{_REASONS[reason]}: {_listed(subjects)}" for reason, subjects in groups.items()]


def _listed(subjects: Mapping[str, Sequence[str]]) -> str:
    """Return subjects with their cells, where only some of them are meant; many cells are counted."""
    return ", ".join(
        harmless(name if not cells else f"{name} {cells[0]}" if len(cells) == 1 else f"{name} ({len(cells)} cases)")
        for name, cells in subjects.items()
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
