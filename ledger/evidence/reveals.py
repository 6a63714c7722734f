"""Opens hidden forecasts with the reveals of a ledger: check 16 of judge. Pure.

A reveal comes after its seal, names cells that the seal hides, and is exactly what was sealed, by digest. What is
revealed counts as if it had been sealed in the open; what is not stays hidden and counts as missing, measured or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ledger.analysis.book import Revealed, Sealed
from ledger.analysis.hiding import contradiction
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.ancestry import Ancestry
from ledger.records import Commitment, ForecastV2, PredictionV2


def open_hidden(gathered: GatheredRecords, ancestry: Ancestry) -> tuple[Revealed, ...]:
    """Put revealed forecasts among the cells of their seals, and return the reveals that hold, in their order."""
    by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
    opened: dict[str, dict[str, ForecastV2]] = {}
    held = []
    for path, (identity, reveal) in sorted(
        gathered.reveals.items(), key=lambda item: (gathered.first_commit(item[0]).position, item[0])
    ):
        found = Revealed(identity, path, gathered.first_commit(path), reveal)
        sealed = by_id.get(reveal.seal)
        if sealed is None:
            gathered.findings.refuse("seal-unknown", path, f"reveals {reveal.seal[:12]}, which is not in this ledger")
        elif not ancestry.precedes(sealed.path, gathered.introduced.get(path, ())):
            message = f"reveals {reveal.seal[:12]}, which was not introduced in a proper ancestor of its commit"
            gathered.findings.refuse("reveal-precedes", path, message)
        else:
            _open(gathered, sealed, found, opened.setdefault(sealed.id, {}))
            held.append(found)
    for identity, forecasts in opened.items():
        sealed = by_id[identity]
        gathered.seals[sealed.path] = replace(sealed, prediction=_opened(sealed, forecasts))
    return tuple(held)


def commitments_of(sealed: Sealed) -> Mapping[str, Commitment]:
    """Return the hidden forecasts of a seal by their cells."""
    prediction = sealed.prediction
    return {one.cell: one for one in prediction.commitments} if isinstance(prediction, PredictionV2) else {}


def _open(gathered: GatheredRecords, sealed: Sealed, found: Revealed, opened: dict[str, ForecastV2]) -> None:
    commitments = commitments_of(sealed)
    for opening in found.reveal.openings:
        cell = opening.forecast.cell
        commitment = commitments.get(cell)
        if commitment is None:
            message = f"reveals {cell}, which its seal {sealed.id[:12]} does not hide"
            gathered.findings.refuse("reveal-unknown", found.path, message)
        elif (why := contradiction(opening, commitment, sealed.prediction.forecaster)) is not None:
            gathered.findings.refuse("reveal-contradicted", found.path, f"{cell}: {why}")
        elif opening.forecast.draw is not None:
            message = f"hides {cell}, which was drawn: drawn cells are sealed in the open, hidden ones could be chosen"
            gathered.findings.refuse("draw-mixed", sealed.path, message)
        elif cell in opened:
            gathered.findings.flag(
                "reveal-repeated", found.path, f"{cell} is revealed more than once, to the same text"
            )
        else:
            opened[cell] = opening.forecast


def _opened(sealed: Sealed, forecasts: Mapping[str, ForecastV2]) -> PredictionV2:
    """Return a seal's prediction with the revealed forecasts among its cells, in the order of the commitments."""
    prediction = sealed.prediction
    assert isinstance(prediction, PredictionV2)
    revealed = tuple(forecasts[one.cell] for one in prediction.commitments if one.cell in forecasts)
    hidden = tuple(one for one in prediction.commitments if one.cell not in forecasts)
    return prediction.model_copy(update={"cells": (*prediction.cells, *revealed), "commitments": hidden})
