"""Renders the gap table of the HTML page: a row a case, worst first, a sentence below it, the rest behind a click.

Pure. assets/page.js sorts and filters these rows, and shows the forecast of another forecaster in their place; without
it they stand as they are written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ledger.analysis.formatting import harmless
from ledger.analysis.report_rows import CaseRow, ReportRow, case_rows
from ledger.analysis.row_choice import gap_of
from ledger.render import report_text as lines
from ledger.render.counter_card import counter_lines
from ledger.render.html_parts import folded, pairs, safe, tag

# Heading, and the key of the page's document that a click sorts by.
_COLUMNS = (
    ("#", "n"),
    ("cell", "cell"),
    ("predicted", "forecast"),
    ("measured", "percent"),
    ("time", "us"),
    ("gap", "gap"),
    ("grade", "grade"),
    ("sight", "sight"),
)


def gap_table(listed: Sequence[ReportRow]) -> str:
    """Return the table of cases, the largest gap first, those without one last."""
    head = "".join(
        tag(
            "th",
            name,
            scope="col",
            data_sort=key,
            class_=_kind(name),
            aria_sort="descending" if name == "gap" else None,
        )
        for name, key in _COLUMNS
    )
    ordered = sorted(case_rows(listed), key=_order)
    written = tag("table", f"<thead>{tag('tr', head)}</thead>\n{''.join(map(_body, ordered))}", class_="rows") + "\n"
    # HTML lets these end tags be left out, a tenth of a long table; no text holds one, all of it is escaped.
    return re.sub("</(?:td|tr|dt|dd)>", "", written)


def _order(case: CaseRow) -> tuple[float, int]:
    gap = gap_of(case.lead)
    return (1.0 if gap is None else -abs(gap), case.lead.number)


def _kind(heading: str, outcome: str | None = None) -> str | None:
    names = ["number"] if heading in ("#", "gap") else []
    return " ".join(names + ([outcome] if outcome else [])) or None


def _body(case: CaseRow) -> str:
    row = case.lead
    number, cell, predicted, measured, gap, grade, sight = lines.table_rows(row)
    words = (number, cell, predicted, measured, lines.time_text(row), gap, grade, sight)
    marked = {"gap": lines.outcome(row), "measured": "miss" if lines.regime_is_wrong(row) else None}
    cells = "".join(
        tag("td", safe(word), class_=_kind(name, marked.get(name)))
        for (name, _), word in zip(_COLUMNS, words, strict=True)
    )
    about = tag("span", safe(lines.sentence(row))) + _others(case)
    about += folded("Reasons and counters", pairs(_details(row)))
    why = tag("tr", tag("td") + tag("td", about, colspan=str(len(_COLUMNS) - 1)), class_="why")
    return tag("tbody", f"{tag('tr', cells)}{why}", id=f"row-{row.number}") + "\n"


def _others(case: CaseRow) -> str:
    """Return the forecasts of a case with several, the first one first."""
    if not case.others:
        return ""
    first = lines.sight_text(case.lead.view)
    body = "".join(
        tag(
            "tr",
            tag("td", safe(row.view.sealed.prediction.forecaster))
            + tag("td", safe(lines.predicted_text(row.view.forecast, digits=3)), class_=_wrong(row))
            + tag("td", safe(lines.gap_text(row)), class_=_kind("gap", lines.outcome(row)))
            + (tag("td", safe(sight)) if (sight := lines.sight_text(row.view)) != first else ""),
        )
        for row in case.rows
    )
    return folded(f"{len(case.rows)} forecasts", tag("table", tag("tbody", body)), class_="others")


def _wrong(row: ReportRow) -> str | None:
    return "miss" if lines.regime_is_wrong(row) else None


def _details(row: ReportRow) -> Iterator[tuple[str, str]]:
    """Yield what stands behind the click: the author's reason, probabilities, sight, findings and counters."""
    view, forecast = row.view, row.view.forecast
    if forecast.why:
        yield "forecast because", forecast.why
    if forecast.probabilities_ppm:
        shares = forecast.probabilities_ppm.items()
        yield "probabilities", ", ".join(f"{regime} {share / 10_000:g}%" for regime, share in shares)
    if view.declared and view.known:
        yield f"known ({view.declared})", view.known
    for quote, source in view.corrections:
        yield "timed before", f"{quote!r} ({source})"
    if row.result is not None:
        for finding in row.result.verification.findings:
            yield "finding", f"#{row.number} {finding.code}: {finding.message}"
        for title, text in counter_lines(row):
            yield title, harmless(text, 400)
        yield "record", row.result.recorded.id[:10]
    yield "seal", lines.seal_text(view)
