"""Renders a judged ledger, and single seals, as Markdown.

Pure: text out, nothing written. A field of a record is made harmless and then escaped, so that it can neither open a
link, an image or HTML nor leave its table cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ledger.analysis.book import Book, Sealed
from ledger.analysis.formatting import PATH_NAMES, count_text, duration, harmless, si, sizes_text
from ledger.analysis.ledger_diff import LedgerDiff, added, author_of
from ledger.analysis.report_rows import CaseRow, ReportRow, case_rows, rows
from ledger.records import Forecast
from ledger.render import report_text as lines
from ledger.render.claim_text import HEADINGS as CLAIM_HEADINGS
from ledger.render.claim_text import LEGEND as CLAIM_LEGEND
from ledger.render.claim_text import table_rows as claim_rows
from ledger.roofline import memory_side, ridge_point, time_lower_bound_s


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, and in which no renderer finds an address to link."""
    plain = re.sub(r"([\\`*_{}\[\]<>#!|~&$])", r"\\\1", harmless(text))
    # Renderers look for www., names of hosts and schemes in what is written, and for e-mail in the text that results:
    # there only another element keeps the two sides apart.
    dotted = re.sub(r"(?<!\d)\.(?=\w)|\.(?=[^\W\d])", r"\\.", plain)
    return re.sub(r"@+", r"`\g<0>`", re.sub(r":(?=//|[^\s\d])", "&#58;", dotted))


def table(headings: Sequence[str], body: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a Markdown table of cells that are Markdown already; `right` numbers the columns that hold numbers."""
    rule = ["--:" if number in right else "---" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *body)) + "\n"


def _escaped(*cells: str) -> tuple[str, ...]:
    return tuple(escape(cell) for cell in cells)


def results_table(cases: Sequence[CaseRow]) -> str:
    """Return the table of forecasts beside measurements, a row a case."""
    headings = ("#", "cell", "predicted", "measured", "time", "gap", "grade", "sight")
    several = any(case.others for case in cases)
    body = []
    for case in cases:
        number, cell, predicted, measured, gap, grade, sight = lines.table_rows(case.lead)
        words = (number, cell, predicted, measured, lines.time_text(case.lead), gap, grade, sight)
        body.append(_escaped(*words, *([lines.others_text(case).removeprefix("also ")] if several else [])))
    return table((*headings, *(["also"] if several else [])), body, right=(0, 5))


def counters_table(listed: Sequence[ReportRow]) -> str:
    """Return the table of what the hardware counters said, for the rows that have any; empty where none has."""
    counters = [(row, lines.counter_text(row)) for row in listed]
    body = [_escaped(str(row.number), lines.cell_text(row.view), *values) for row, values in counters if values]
    if not body:
        return ""
    return table(("#", "cell", *lines.COUNTER_HEADINGS), body, right=(0, *range(2, 2 + len(lines.COUNTER_HEADINGS))))


def markdown(book: Book) -> str:
    """Return the report as Markdown."""
    if book.refused:
        return _join(
            "# Report",
            "**The report does not open: the evidence is refused.**",
            _bullets(f"`{finding.code}` {escape(f'{finding.place}: {finding.message}')}" for finding in book.refused),
        )
    listed = rows(book)
    cases = case_rows(listed)
    leads = [case.lead for case in cases]
    explained = [(row, lines.sentence(row)) for row in leads if row.result is not None]
    counters = counters_table(leads)
    return _join(
        "# Report",
        "Rendered from the records by `ledger report`; do not edit.",
        *(escape(words) for words in lines.summary_text(book)),
        results_table(cases) if listed else "",
        escape(lines.LEGEND) if listed else "",
        "## Why" if explained else "",
        _bullets(f"**{row.number}.** {escape(words)}" for row, words in explained),
        "## Counters" if counters else "",
        counters,
        *_claims(book),
        *_section("Not measured", [escape(words) for words in lines.missing_text(book)]),
        *_section("Timed before", [escape(words) for words in lines.known_text(listed)]),
        *_section("Findings", [escape(words) for words in lines.finding_text(book)]),
    )


def added_page(found: LedgerDiff) -> str:
    """Return what the second of two commits adds to the first, as Markdown for the comment of a pull request."""
    new = added(found)
    known = {row.view.sealed.id for row in found.a.rows}
    seals = len({row.view.sealed.id for row in new} - known)
    runs = sum(row.run is not None for row in new)
    a, b = (f"`{escape(side.name)}`" for side in (found.a, found.b))
    body = []
    for row in new:
        _, cell, predicted, measured, gap, grade, sight = lines.table_rows(row, timed=True)
        commits = [row.view.sealed.commit, *([row.run.recorded.commit] if row.run else [])]
        authors = ", ".join(dict.fromkeys(commit.author for commit in commits))
        names = (row.view.sealed.prediction.forecaster, authors)
        body.append(_escaped(cell, *(harmless(name, 40) for name in names), predicted, measured, gap, grade, sight))
    headings = ("cell", "forecaster", "author", "predicted", "measured", "gap", "grade", "sight")
    others = [
        f"{lines.cell_text(row.view)}: {lines.measured_text(other, timed=True)} by {harmless(author_of(other), 40)}, "
        f"beside {lines.measured_text(row, timed=True)} by {harmless(author_of(row), 40)}"
        for row in new
        if row.counts
        for other in found.b.by_others(row)
    ]
    return _join(
        f"### {b} adds {count_text(seals, 'seal')} and {count_text(runs, 'measurement')} to {a}",
        table(headings, body, right=(5,)) if new else "",
        escape(lines.LEGEND) if new else "",
        *_section("Measured by others too", [escape(words) for words in others]),
    )


def _claims(book: Book) -> tuple[str, ...]:
    if not book.claims:
        return ()
    rows = (_escaped(*row) for row in claim_rows(book.claims))
    return ("## Claims", table(CLAIM_HEADINGS, rows), escape(CLAIM_LEGEND))


def _section(title: str, bullets: Sequence[str]) -> tuple[str, ...]:
    return (f"## {title}", _bullets(bullets)) if bullets else ()


def _bullets(words: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in words)


def _join(*parts: str) -> str:
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


# Seals


def forecast_table(forecasts: Iterable[Forecast]) -> str:
    """Return a table of forecasts, with the roof that each is a percentage of."""
    headings = ("cell", "FLOP/byte", "ridge", "side", "roof time", "regime", "percent", "interval", "probabilities")
    return table(headings, (_forecast(forecast) for forecast in forecasts), right=(1, 2, 4, 6))


def _forecast(forecast: Forecast) -> tuple[str, ...]:
    case, work, roof = forecast.case, forecast.work, forecast.roof
    intensity = f"{work.flops / work.bytes:.1f}" if work.bytes else ""
    low, high, ppm = forecast.low_milli, forecast.high_milli, forecast.probabilities_ppm
    return _escaped(
        f"{case.kernel} {sizes_text(case)} {case.dtype} {case.hardware}",
        intensity,
        f"{ridge_point(roof):.0f}",
        "left" if memory_side(work, roof) else "right",
        duration(round(time_lower_bound_s(work, roof) * 1e12)),
        forecast.regime,
        f"{forecast.percent_milli / 1000:g}%",
        "" if low is None or high is None else f"{low / 1000:g} to {high / 1000:g}",
        ", ".join(f"{regime} {share / 10_000:g}%" for regime, share in (ppm or {}).items()),
    )


def seal_page(sealed: Sealed) -> str:
    """Return the page of one seal: its forecasts and their reasons."""
    identity, prediction = sealed.id, sealed.prediction
    roofs = {(f.case.hardware, f.roof.path, f.roof.ceilings): f.roof for f in prediction.cells}
    return _join(
        f"# {escape(prediction.campaign or f'Seal {identity[:12]}')}",
        "Sealed forecasts, rendered from the seal; do not edit.",
        _bullets(
            (
                f"seal `{identity}`, sequence {prediction.sequence}",
                f"forecaster {escape(prediction.forecaster)}, rule `{prediction.rule}`, metric `{prediction.metric}`",
                *(
                    f"roof on {name}: {si(roof.peak_flop_per_s, 'FLOP/s')} ({PATH_NAMES[path]}) and "
                    f"{si(roof.bandwidth_bytes_per_s, 'B/s')} of DRAM, {kind}"
                    for (name, path, kind), roof in roofs.items()
                ),
            )
        ),
        escape(prediction.why),
        forecast_table(prediction.cells),
        *_section("Why", _reasons(prediction.cells)),
    )


def _reasons(cells: Sequence[Forecast]) -> list[str]:
    """Return each reason once, with the cells that share it."""
    shared: dict[str, list[str]] = {}
    for forecast in cells:
        if forecast.why:
            shared.setdefault(forecast.why, []).append(forecast.cell)
    return [f"{escape(why)} ({', '.join(escape(cell) for cell in names)})" for why, names in shared.items()]


def page_name(sealed: Sealed) -> str:
    """Return the file name of a seal's page; two campaigns of one name, sealed on two branches, have two."""
    return f"{sealed.prediction.campaign or 'seal'}-{sealed.id[:10]}.md"


def seals_table(book: Book) -> str:
    """Return a table of every seal, oldest first, with what became of its cells and a link to its page."""
    states: dict[str, Counter[str]] = {}
    for view in book.cells:
        states.setdefault(view.sealed.id, Counter())[view.state] += 1
    body = []
    for sealed in book.seals:
        counts = ", ".join(f"{count} {state}" for state, count in states.get(sealed.id, Counter()).items())
        prediction = sealed.prediction
        body.append(
            (
                str(prediction.sequence),
                f"[{sealed.id[:10]}](predictions/{page_name(sealed)})",
                *_escaped(prediction.campaign or "", prediction.forecaster, sealed.commit.when, counts),
            )
        )
    return table(("sequence", "seal", "campaign", "forecaster", "committed", "cells"), body, right=(0,))
