"""Names the lists that are kept of a ledger: what status, log and score need."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.cli.open_ledger import OpenLedger
    from ledger.evidence.judge import Growth


def listed(ledger: OpenLedger, name: str) -> Any:
    """Return a list of a ledger, kept or made, by its name: status, log or score."""
    from ledger.render import history_table, status_table
    from ledger.workflow.answers import Growing

    kinds = {
        "status": Growing(status_table.status_of, status_table.status_growth, status_table.grown_status),
        "log": Growing(
            lambda book: history_table.kept_timeline(history_table.timeline(book)),
            lambda found: history_table.kept_timeline(history_table.timeline_growth(found)),
            history_table.grown_timeline,
        ),
        "score": Growing(_scores, _scores_growth, _grown_scores),
    }
    # The list is kept to the end and has no cycles.
    gc.disable()
    return ledger.growing(name, kinds)


# What scores need is loaded when they are asked for, or the ledger grew.


def _scores(book: Book) -> Any:
    from ledger.render.score_growth import scores_kept

    return scores_kept(book)


def _scores_growth(found: Growth) -> Any:
    from ledger.render.score_growth import scores_growth

    return scores_growth(found)


def _grown_scores(kept: Any, growths: Any) -> Any:
    from ledger.render.score_growth import grown_scores

    return grown_scores(kept, growths)
