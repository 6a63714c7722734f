"""Renders what the HTML page shows without a script: headline, calibration, confusion, track record, evidence. Pure.

Every chart of the page has its table here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ledger.analysis.book import Book, ClaimView
from ledger.analysis.formatting import count_text, signed
from ledger.analysis.report_rows import ReportRow, case_rows
from ledger.analysis.row_choice import groups
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.analysis.track_record import calibration, confusion, outcome_of, track_record
from ledger.evidence.audit_result import LEVELS, NOT_PROVEN
from ledger.records import REGIMES
from ledger.render import claim_text
from ledger.render import report_text as lines
from ledger.render.html_parts import folded, listing, safe, table, tag


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}%"


def _points(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else signed(value)


def cards(listed: Sequence[ReportRow]) -> str:
    """Return the headline numbers of the cases that count, by the first forecast of each."""
    leads = [case.lead for case in case_rows(listed)]
    results = [(row.view, run) for row in leads if (run := row.scored) is not None]
    if not results:
        return ""
    found = outcome_of(results)
    sights = Counter(view.sight for view, _ in results)
    seen = ", ".join(f"{sights[sight]} {sight_name(sight)}" for sight in (*SIGHTS, None) if sights[sight])
    grades = Counter(run.verification.grade for _, run in results)
    shown = (
        ("cases measured", str(len(results)), seen),
        ("regime right", _percent(found.regime_right), f"of {found.regimes} determined"),
        ("mean gap", _points(found.error), f"points; {_signed(found.bias)} signed"),
        ("in interval", _percent(found.in_interval), f"of {found.intervals} intervals"),
        ("by counters", str(grades["A"]), "grade A; B: timing and intervention, C: timing alone"),
    )
    parts = (
        tag("div", tag("dt", safe(name)) + tag("dd", safe(value) + tag("small", safe(of)))) for name, value, of in shown
    )
    return tag("dl", "".join(parts), class_="cards") + "\n"


def kernel_table(listed: Sequence[ReportRow]) -> str:
    """Return the sums of each kernel, the largest mean gap first."""
    body = [
        (
            group.name,
            f"{group.measured} of {group.rows}",
            _points(group.error),
            _signed(group.bias),
            f"{group.regimes_right} of {group.regimes}" if group.regimes else "–",
        )
        for group in groups(listed, "kernel")
    ]
    return table(("kernel", "measured", "mean gap", "signed", "regime right"), body)


def calibration_table(book: Book) -> str:
    """Return stated probabilities against how often what they were given to was measured."""
    body = [
        (_percent(one.stated), _percent(one.observed), f"{_percent(one.low)} to {_percent(one.high)}", str(one.count))
        for one in calibration(book)
    ]
    return table(("stated", "measured", "95%", "probabilities"), body) if body else ""


def confusion_table(book: Book) -> str:
    """Return forecast regimes against measured ones, as counts shaded by their share of the row."""
    found = confusion(book)
    names = [regime for regime in REGIMES if any(regime in pair for pair in found)]
    if not names:
        return ""
    head = tag("th", "forecast ↓ measured →", scope="col", data_regimes=",".join(names))
    head += "".join(tag("th", name.removesuffix("-bound"), scope="col", class_="number") for name in names)
    body = ""
    for said in names:
        total = sum(found.get((said, other), 0) for other in names)
        cells = ""
        for other in names:
            count = found.get((said, other), 0)
            shade = f"share{0 if not count else 1 + min(2, 3 * count // (total + 1))}"
            cells += tag("td", str(count or "·"), class_=f"number {shade}{' right' if said == other else ''}")
        body += tag("tr", tag("th", said.removesuffix("-bound"), scope="row") + cells) + "\n"
    written = tag("table", f"<thead>{tag('tr', head)}</thead>\n<tbody>\n{body}</tbody>", id="confusion")
    return tag("div", written, class_="wide")


def track_table(book: Book) -> str:
    """Return how each seal fared, in the order in which they were sealed."""
    body = [
        (
            record.campaign or record.seal[:10],
            record.date[:10],
            str(record.outcome.measured),
            _points(record.outcome.error),
            _signed(record.outcome.bias),
            _percent(record.outcome.in_interval),
            _percent(record.outcome.regime_right),
        )
        for record in track_record(book)
    ]
    headings = ("seal", "committed", "measured", "mean gap", "signed", "in interval", "regime right")
    return table(headings, body, left=2) if body else ""


def claim_table(claims: Sequence[ClaimView]) -> str:
    """Return claims with what was measured of them, and why those that failed have no ratio."""
    parts = [
        tag("p", safe(claim_text.summary_line(claims))),
        table(claim_text.HEADINGS, claim_text.table_rows(claims), left=len(claim_text.HEADINGS)),
        tag("p", safe(claim_text.LEGEND), class_="dim"),
    ]
    failed = [f"{view.short_name}: {why}" for view in claims if (why := claim_text.failure_of(view))]
    return "\n".join([*parts, *([listing(failed)] if failed else [])])


def evidence(book: Book, listed: Sequence[ReportRow]) -> str:
    """Return what the evidence proves and what not, and every finding."""
    reached = Counter(level for view in book.cells for level in view.levels)
    reached.update(level for view in book.claims for level in view.levels)
    held = count_text(len(book.cells), "cell")
    held += f" and {count_text(len(book.claims), 'claim')}" if book.claims else ""
    levels = [(str(level), str(reached[level]), proves, not_proves) for level, (proves, not_proves) in LEVELS.items()]
    parts = [table(("level", f"of {held}", "proves", "does not prove"), levels, left=4)]
    parts += [tag("h3", "Not proven at any level"), listing(NOT_PROVEN)]
    for title, words in (
        ("Not measured", lines.missing_text(book)),
        ("Findings", lines.finding_text(book)),
        ("Timed before", lines.known_text(listed)),
    ):
        if words:
            parts.append(folded(f"{title} ({len(words)})", listing(words)))
    return "\n".join(parts)
