"""Renders a judged ledger as one HTML page that asks for nothing else: no font, no image, no request. Pure.

With scripts off it holds every number in tables and a static roofline; assets/page.js adds charts (Apache ECharts),
filters and sorting. Text of records is escaped, the document inside the page cannot end its element, and the page's own
policy allows the two scripts and the style by their digests and nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.report_rows import ReportRow, case_rows, rows
from ledger.render import page_sections as sections
from ledger.render import report_text as lines
from ledger.render import roofline_svg, svg
from ledger.render.html_parts import folded, listing, safe, tag
from ledger.render.page_document import FILTERS, page_document, row_value
from ledger.render.page_rows import gap_table
from ledger.render.plot_model import RooflinePlot
from ledger.render.roofline_plot import dot_of, plot_of

_FILTER_NAMES = {"gpu": "GPU", "regime": "measured regime"}


@functools.cache
def _asset(name: str) -> str:
    return files("ledger.render").joinpath("assets", name).read_text(encoding="utf-8")


@functools.cache
def _digest(text: str) -> str:
    """Return the source expression by which a policy allows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def html(book: Book, *, only: Collection[str] | None = None) -> str:
    """Return the report as a page. only: short names (SEAL#CELL) of the cells to show; all by default."""
    if book.refused:
        reasons = (f"{finding.code}: {finding.place}: {finding.message}" for finding in book.refused)
        return _page(tag("h1", "The report does not open: the evidence is refused") + listing(reasons))
    listed = tuple(row for row in rows(book) if only is None or row.view.short_name in only)
    whole = book if only is None else None
    plot, values = _drawn(listed)
    head = [tag("h1", "Ledger report")]
    summary = lines.summary_text(book) if whole else (f"{_cases(listed)} of {_cases(rows(book))} cases",)
    about = [tag("p", safe(words), class_="dim") for words in (f"commit {book.head}", *summary)]
    if not listed:
        return _page("\n".join([*head, *about, *_claims(whole), *_evidence(book, listed, whole)]))
    charts = any(value["percent"] is not None for value in values)
    parts = [*head, sections.cards(listed), *about, _navigation(whole), _controls(values)]
    parts += _pictures(plot, charts) + (_record(book) if whole and charts else [])
    parts += [
        _heading("Gaps", "gaps"),
        tag("p", safe(lines.LEGEND), class_="dim"),
        gap_table(listed),
        _heading("Kernels", "kernels"),
        sections.kernel_table(listed),
        *_claims(whole),
        *_evidence(book, listed, whole),
    ]
    return _page("\n".join(parts), page_document(plot, values, whole) if charts else None)


def _cases(listed: Sequence[ReportRow]) -> int:
    return len({row.number for row in listed})


def _drawn(listed: Sequence[ReportRow]) -> tuple[RooflinePlot, list[dict[str, Any]]]:
    """Return the roofline of the first forecasts of some cases, and all rows as values with their dots."""
    dots = [None if row.result is None else dot_of(row.view, row.result) for row in listed]
    profiles = {row.view.hardware.name: row.view.hardware for row in listed if row.view.hardware is not None}
    leads = {id(case.lead) for case in case_rows(listed)}
    pairs = list(zip(listed, dots, strict=True))
    leading = [dot for row, dot in pairs if dot is not None and row.scored is not None and id(row) in leads]
    plot = plot_of([profiles[name] for name in sorted(profiles)], None, leading)
    return plot, [row_value(row, dot, leads=id(row) in leads) for row, dot in pairs]


def _page(body: str, document: str | None = None) -> str:
    style = _asset("page.css") + svg.STYLE
    scripts = [] if document is None else [_asset("echarts.common.min.js"), _asset("page.js")]
    allowed = " ".join(map(_digest, scripts)) or "'none'"
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {allowed}; base-uri 'none'; form-action 'none'"
    )
    written = "" if document is None else f'<script type="application/json" id="data">{document}</script>\n'
    written += "".join(f"<script>{script}</script>\n" for script in scripts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Ledger report</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n{written}</body>\n</html>\n"
    )


def _navigation(whole: Book | None) -> str:
    names = ("roofline", "calibration", "track record", "gaps", "kernels", "claims", "evidence")
    kept = [name for name in names if whole or name in ("roofline", "gaps", "kernels")]
    kept = [name for name in kept if name != "claims" or (whole and whole.claims)]
    return tag("nav", " ".join(tag("a", name, href=f"#{_anchor(name)}") for name in kept))


def _heading(words: str, name: str | None = None) -> str:
    return tag("h2", words, id=None if name is None else _anchor(name))


def _anchor(name: str) -> str:
    return f"to-{name.partition(' ')[0]}"


def _controls(values: Sequence[dict[str, Any]]) -> str:
    """Return the filters, which the script shows."""
    parts = [
        tag(
            "label", safe(_FILTER_NAMES.get(key, key)) + _select(sorted({value[key] for value in values}), data_key=key)
        )
        for key in FILTERS
    ]
    parts.append(tag("label", "text" + '<input type="search" id="search" autocomplete="off">'))
    choices = [
        tag("option", safe(_FILTER_NAMES.get(key, key)), value=key, selected="" if key == "regime" else None)
        for key in FILTERS
    ]
    parts.append(tag("label", "colour" + tag("select", "".join(choices), id="colour")))
    parts.append(tag("button", "Reset", type="reset") + tag("output", id="count"))
    return tag("form", "\n".join(parts), id="controls", class_="controls needs-script")


def _select(names: Sequence[str], **attributes: str) -> str:
    first = [tag("option", "first of each case", value="*")] if attributes.get("data_key") == "forecaster" else []
    options = [*first, tag("option", "all", value=""), *(tag("option", safe(name), value=name) for name in names)]
    return tag("select", "".join(options), **attributes)


def _chart(name: str, label: str, kind: str = "chart", *, zooms: bool = True) -> str:
    """Return the place of a chart, with buttons to zoom, for the script."""
    role = "application" if zooms else "img"
    place = tag("div", id=name, class_=kind, tabindex="0" if zooms else None, role=role, aria_label=label)
    if not zooms:
        return tag("div", place, class_="needs-script")
    buttons = "".join(
        tag("button", words, type="button", data_zoom=factor, data_chart=name)
        for words, factor in (("Zoom in", "0.5"), ("Zoom out", "2"), ("Whole picture", "0"))
    )
    said = tag("output", id=f"{name}-said", class_="dim")
    hint = tag("small", "drag to move, Ctrl and wheel to zoom; keys: ← → + − 0 Enter", class_="dim")
    return tag("div", f"{place}\n<p>{buttons} {hint}</p>{said}", class_="needs-script")


def _pictures(plot: RooflinePlot, charts: bool) -> list[str]:
    parts = [_heading("Roofline", "roofline")]
    if plot.ceilings:
        parts.append(_chart("roofline", "Roofline of the cells below") if charts else "")
        caption = tag("figcaption", "Every measured cell: colour is the measured regime, shape the dtype.")
        parts.append(tag("figure", roofline_svg.draw(plot) + caption, class_="no-script" if charts else None))
    if charts:
        against = _chart("against", "Forecast against measured percent of the roof")
        parts.append(tag("div", tag("h2", "Forecast against measured") + against, class_="needs-script"))
    return parts


def _record(book: Book) -> list[str]:
    """Return calibration, confusion and track record: of all forecasts here, in the browser of those chosen."""
    stated = sections.calibration_table(book)
    left = _heading("Calibration of probabilities", "calibration")
    left += tag(
        "p", "How often a regime was measured, by the probability that the forecasts chosen gave it.", class_="dim"
    )
    if stated:
        left += _chart("calibration", "Stated against measured", "chart low", zooms=False)
        left += _numbers(tag("div", stated, id="calibrated"))
    else:
        left += tag("p", "No forecast states probabilities.")
    right = tag("h2", "Forecast and measured regimes") + sections.confusion_table(book)
    right += tag("p", "Over the forecasts chosen whose regime was determined.", class_="dim")
    track = _heading("Track record", "track record") + _chart(
        "track", "Mean gap, regimes and intervals by seal", "chart low", zooms=False
    )
    return [
        tag("div", tag("div", left) + tag("div", right), class_="pair"),
        track,
        _numbers(sections.track_table(book)),
    ]


def _numbers(table: str) -> str:
    """Return the table of a chart, open until the script has drawn the chart."""
    return folded("Numbers", table, class_="numbers", open="")


def _claims(whole: Book | None) -> list[str]:
    """Return the claims of a whole ledger, with what settled them."""
    if whole is None or not whole.claims:
        return []
    return [_heading("Claims", "claims"), sections.claim_table(whole.claims)]


def _evidence(book: Book, listed: Sequence[ReportRow], whole: Book | None) -> list[str]:
    if whole is None:
        known = lines.known_text(listed)
        return [tag("h2", "Timed before"), listing(known)] if known else []
    return [_heading("Evidence, and what is not proven", "evidence"), sections.evidence(book, listed)]
