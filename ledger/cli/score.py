"""The command score: rates each forecaster, compares it with baselines, ranks those who share cells."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.kept_lists import listed
from ledger.cli.open_ledger import open_ledger, refuse
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say

ByOption = Annotated[str | None, typer.Option("--by", help="Score groups apart: kernel, hw or regime.")]


def score(
    by: ByOption = None,
    ranking: Annotated[bool, typer.Option("--ranking", help="Only rank forecasters on the cells they share.")] = False,
    forecaster: Annotated[
        str | None, typer.Option("--forecaster", help="Only this one, with every number and its calibration.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score the forecasters. Errors, coverage, proper scores, skill against baselines, and a ranking."""
    from ledger.analysis.score import document, group_by
    from ledger.render import score_table as table
    from ledger.render.claim_text import SCORE_HEADINGS, score_rows, with_claims
    from ledger.render.score_sheet import as_value, from_value, only
    from ledger.render.tables import print_rows

    group = None if by is None else group_by(by)

    ledger = open_ledger(uncommitted_is_refused=False)

    def made() -> object:
        from ledger.render.kept_scores import kept_sheet, needed

        kept = listed(ledger, "cells", needed)
        if kept.more["refusals"]:
            refuse(kept.more["refusals"])
        return as_value(kept_sheet(kept, group))

    with ledger.refusing_uncommitted():
        sheet = from_value(ledger.remembered(f"score by {group}", made))
    if forecaster is not None:
        sheet = only(sheet, forecaster)
    if ranking:
        if as_json:
            emit(table.ranking_document(sheet.rankings))
        else:
            table.render_rankings(sheet.rankings, out())
            if not sheet.rankings:
                say("nothing to rank: no two forecasters share a measured cell; run: ledger verify, ledger score")
        return
    claims = sheet.claims
    if as_json:
        scored = table.with_skills(document(sheet.scores), sheet.skills if group is None else ())
        emit(with_claims(scored, claims if group is None else ()))
        return
    if claims:
        print_rows(out(), SCORE_HEADINGS, score_rows(claims), folding=("forecaster",))
        if not sheet.scores:
            return
    table.render_scores(sheet.scores, out(), repeats=sheet.repeats, machines=sheet.machines)
    if group is None:
        table.render_skills(sheet.skills, out())
        if forecaster is not None or table.side_by_side(sheet.scores, out()):
            table.render_rankings(sheet.rankings, out())
            table.render_calibration(sheet.scores, out())
        elif sheet.scores:
            say("see also: ledger score --ranking, --forecaster NAME (calibration), --by kernel")
