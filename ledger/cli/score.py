"""The command score: rates each forecaster, compares it with baselines, ranks those who share cells."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say

ByOption = Annotated[str | None, typer.Option("--by", help="Score groups apart: kernel, hw or regime.")]


def score(
    by: ByOption = None,
    ranking: Annotated[bool, typer.Option("--ranking", help="Only rank forecasters on the cells they share.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Score the forecasters. Errors, coverage, proper scores, skill against baselines, and a ranking."""
    from ledger.analysis.machines import machine_lines
    from ledger.analysis.repeats import repeat_spread
    from ledger.analysis.score import document, group_by, score_book
    from ledger.forecasters.baselines import compared, rankings, skills
    from ledger.render import score_table as table
    from ledger.render.claim_text import SCORE_HEADINGS, score_rows, scores_of, with_claims
    from ledger.render.tables import print_rows

    group = None if by is None else group_by(by)
    book = open_ledger().book
    refuse_if_refused(book)
    found = compared(book)
    ranked = rankings(found)
    if ranking:
        if as_json:
            emit(table.ranking_document(ranked))
        else:
            table.render_rankings(ranked, out())
            if not ranked:
                say("nothing to rank: no two forecasters share a measured cell; run: ledger verify, ledger score")
        return
    scores, skilled = score_book(book, group), skills(found)
    if as_json:
        scored = table.with_skills(document(scores), skilled if group is None else ())
        emit(with_claims(scored, scores_of(book) if group is None else ()))
        return
    claims = scores_of(book)
    if claims:
        print_rows(out(), SCORE_HEADINGS, score_rows(claims), folding=("forecaster",))
        if not scores:
            return
    table.render_scores(scores, out(), repeats=repeat_spread(book), machines=machine_lines(book))
    if scores and all(one.wis is None for one in scores if one.measured):
        say("WIS needs scoringrules: pip install 'roofline-ledger[score]'")
    if group is None:
        table.render_skills(skilled, out())
        table.render_rankings(ranked, out())
        table.render_calibration(scores, out())
