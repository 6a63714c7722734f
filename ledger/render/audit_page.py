"""Renders an audit as one page for somebody who interviews, or hires, the author of a ledger. Pure; no scripts.

It says in order: the verdict, what was forecast how blind and how well, when, what was left out, what to ask about, and
what all of it does not prove.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files

from ledger.analysis.book import Book
from ledger.analysis.formatting import count_text, signed
from ledger.analysis.report_rows import STATE_TEXT, rows, void_reasons
from ledger.analysis.row_choice import RowChoice, chosen
from ledger.analysis.score import score_book
from ledger.analysis.seal_lines import SealLine, seal_lines
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.callables.subject import recompute_command
from ledger.evidence.audit_result import LEVELS, NOT_PROVEN, Audit
from ledger.records import Sight
from ledger.render import report_text as lines
from ledger.render.html_parts import listing, safe, table, tag
from ledger.render.page_sections import cards
from ledger.render.score_values import number_text, value_of

_ASKED = 5
_LISTED = 40
SIGHT_LEGEND = (
    "Blind: nothing like the cell had been timed, by declaration and as far as records show; near: a neighbouring "
    "shape or another version had; informed: the cell itself. Undeclared counts as none of them. Only blind forecasts "
    "show what the author can tell from first principles."
)
DATES_LEGEND = (
    "Dates are those that the commits claim. Later by: from the seal to its first measurement, by those dates."
)


def audit_page(result: Audit) -> str:
    """Return an audit as a page that asks for nothing else."""
    name = "this ledger" if result.source == "." else result.source
    parts = [tag("h1", f"Audit of {safe(name)}")]
    parts.append(tag("p", tag("strong", safe(f"{result.verdict}: {result.reason}"))))
    book = result.book
    if book is not None:
        parts.append(tag("p", safe(f"commit {book.head}"), class_="dim"))
    if book is None or book.refused:
        return _page([*parts, *_findings(result), *_limits()])
    parts += [cards(rows(book)), *_scores(book), *_timeline(book), *_left_out(book), *_questions(book)]
    return _page([*parts, *_levels(book, result.log), *_findings(result), *_limits()])


def _scores(book: Book) -> list[str]:
    body = [
        (
            score.forecaster,
            sight_name(score.sight),
            f"{score.measured} of {score.sealed}",
            _share(score.regime_right),
            _points(score.error),
            "–" if score.bias is None else signed(score.bias),
            _share(score.coverage),
            number_text(value_of(score, "brier"), 2),
        )
        for score in score_book(book)
    ]
    headings = ("forecaster", "sight", "measured", "regime right", "mean gap", "signed", "in interval", "Brier")
    return [tag("h2", "How blind, and how well"), table(headings, body, left=2), tag("p", safe(SIGHT_LEGEND))]


def _timeline(book: Book) -> list[str]:
    listed = seal_lines(book)
    several = len({one.forecaster for one in listed}) > 1
    headings = ("sealed", "seal", "sight", "measured at", "later by", "measured", "regime right", "mean gap")
    found = [tag("h2", "Timeline"), table(headings, (_line(one, named=several) for one in listed), left=4)]
    voids = [
        f"{one.commit.when[:10]}: {one.void.seal[:10]} {one.void.cell or ''}: {one.void.why}" for one in book.voids
    ]
    found += [tag("h3", "Withdrawn"), listing(_first(voids))] if voids else []
    return [*found, tag("p", safe(DATES_LEGEND), class_="dim")]


def _line(one: SealLine, *, named: bool) -> tuple[str, ...]:
    """Return the cells of a seal's row. named: with its forecaster, where the ledger has several."""
    outcome, done = one.outcome, dict.fromkeys(map(_minute, one.measured or ()))
    return (
        _minute(one.date),
        f"{one.campaign or one.seal[:10]}{f', {one.forecaster}' if named else ''}",
        _sights(one.sights),
        " to ".join(done) or "–",
        "–" if one.hours is None else _lapse(one.hours),
        f"{outcome.measured} of {one.cells}",
        _share(outcome.regime_right),
        _points(outcome.error),
    )


def _minute(when: str) -> str:
    return when[:16].replace("T", " ")


def _lapse(hours: float) -> str:
    """Return a time in the unit that suits it; negative where a measurement's commit claims the earlier date."""
    return f"{60 * hours:.0f} min" if abs(hours) < 2 else f"{hours:.0f} h" if abs(hours) < 72 else f"{hours / 24:.0f} d"


def _sights(found: Mapping[Sight | None, int]) -> str:
    return ", ".join(f"{found[sight]} {sight_name(sight)}" for sight in (*SIGHTS, None) if found.get(sight))


def _left_out(book: Book) -> list[str]:
    """Return what was sealed and has no result that counts: leaving out misses would show here."""
    missing = [view for view in book.cells if view.scored is None]
    states = Counter(view.state for view in missing)
    words = [f"{count} {state}: {STATE_TEXT[state]}" for state, count in states.items()]
    reasons = void_reasons(book)
    words += [f"{lines.cell_text(view)}: {reasons[view.name]}" for view in missing if view.name in reasons]
    told = listing(_first(words)) if words else tag("p", "Every sealed cell has a result that counts.")
    return [tag("h2", "Sealed and not measured"), told]


def _questions(book: Book) -> list[str]:
    """Return the largest misses: whoever made the forecasts can say what happened there."""
    worst = chosen(rows(book), RowChoice(worst=_ASKED))
    if not worst:
        return []
    words = [
        f"{lines.cell_text(row.view)}, {sight_name(row.view.sight)}, "
        f"forecast {lines.predicted_text(row.view.forecast)}: {lines.sentence(row)}"
        for row in worst
    ]
    asked = "The largest misses. What did you assume, which counter contradicts it, what would you measure next?"
    return [tag("h2", "What to ask about"), tag("p", asked), listing(words)]


def _levels(book: Book, log: str | None) -> list[str]:
    reached = Counter(level for view in book.cells for level in view.levels)
    body = [(str(level), str(reached[level]), proves, not_proves) for level, (proves, not_proves) in LEVELS.items()]
    headings = ("level", f"of {count_text(len(book.cells), 'cell')}", "proves", "does not prove")
    held = [view.forecast.case.kernel for view in book.cells if view.binding == "positions only"]
    notes = (
        [f"Samples of {count_text(len(held), 'cell')} were not recomputed: {recompute_command(held)}."] if held else []
    )
    notes += [f"Public log: {log}."] if log else []
    return [tag("h2", "What the evidence proves"), table(headings, body, left=4), listing(notes) if notes else ""]


def _findings(result: Audit) -> list[str]:
    found = [f"{one.severity} {one.code}: {one.place}: {one.message}" for one in result.findings]
    found += list(result.notes)
    return [tag("h2", "Findings"), listing(_first(found))] if found else []


def _limits() -> list[str]:
    return [tag("h2", "What this does not prove"), listing(NOT_PROVEN)]


def _first(words: list[str]) -> list[str]:
    more = len(words) - _LISTED
    return [*words[:_LISTED], f"and {more} more: ledger audit"] if more > 0 else words


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}%"


def _points(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _page(parts: list[str]) -> str:
    style = files("ledger.render").joinpath("assets", "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of a ledger</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
