"""The command score: rates each forecaster."""

from __future__ import annotations

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out


def score(as_json: JsonOption = False) -> None:
    """Score the forecasters: bias, error, coverage, and proper scores of intervals and probabilities."""
    from ledger.analysis.repeats import repeat_spread
    from ledger.analysis.score import document, score_book
    from ledger.render.score_table import render_scores

    book = open_ledger().book
    refuse_if_refused(book)
    scores = score_book(book)
    if as_json:
        emit(document(scores))
    else:
        render_scores(scores, out(), repeats=repeat_spread(book))
