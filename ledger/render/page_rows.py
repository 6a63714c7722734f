"""Renders the gap table of the HTML page: a row a cell, worst first, a sentence below it, the counters behind a click.

Pure. assets/page.js sorts and filters these rows; without it they stand as they are written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.analysis.formatting import harmless
from ledger.analysis.report_rows import ReportRow
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
    """Return the table of rows, the largest gap first, those without one last."""
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
    ordered = sorted(listed, key=_order)
    return tag("table", f"<thead>{tag('tr', head)}</thead>\n{''.join(map(_body, ordered))}", class_="rows") + "\n"


def _order(row: ReportRow) -> tuple[float, int]:
    gap = row.run.verification.gap if row.run else None
    return (1.0 if gap is None else -abs(gap.percent), row.number)


def _kind(heading: str, outcome: str | None = None) -> str | None:
    names = ["number"] if heading in ("#", "gap") else []
    return " ".join(names + ([outcome] if outcome else [])) or None


def _body(row: ReportRow) -> str:
    number, cell, predicted, measured, gap, grade, sight = lines.table_rows(row)
    words = (number, cell, predicted, measured, lines.time_text(row), gap, grade, sight)
    verdict = row.run.verification if row.run else None
    wrong = verdict is not None and bool(verdict.regimes) and not verdict.regime_is_right
    marked = {"gap": lines.outcome(row), "measured": "miss" if wrong else None}
    cells = "".join(
        tag("td", safe(word), class_=_kind(name, marked.get(name)), data_label=name)
        for (name, _), word in zip(_COLUMNS, words, strict=True)
    )
    about = safe(lines.sentence(row)) + folded("Reasons and counters", pairs(_details(row)))
    why = tag("tr", tag("td") + tag("td", about, colspan=str(len(_COLUMNS) - 1)), class_="why")
    return tag("tbody", f"{tag('tr', cells)}{why}", id=f"row-{row.number}") + "\n"


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
    if row.run is not None:
        for finding in row.run.verification.findings:
            yield "finding", f"#{row.number} {finding.code}: {finding.message}"
        for title, text in counter_lines(row):
            yield title, harmless(text, 400)
        yield "record", row.run.recorded.path
    yield "seal", lines.seal_text(view)
