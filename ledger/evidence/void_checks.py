"""Checks that a void withdraws what its ledger sealed before it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ledger.analysis.book import Voided
from ledger.evidence.claim_checks import claims_of
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.ancestry import Ancestry


def check_voids(
    gathered: GatheredRecords, ancestry: Ancestry, cells: Mapping[str, Collection[str]]
) -> tuple[Voided, ...]:
    """Return the voids that stand. cells: names of the cells of each seal, by its id; its claims are added."""
    by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
    voided = []
    for path, (identity, void) in gathered.voids.items():
        sealed = by_id.get(void.seal)
        named = () if sealed is None else (*cells[sealed.id], *(claim.cell for claim in claims_of(sealed)))
        if sealed is None or (void.cell is not None and void.cell not in named):
            message = f"withdraws {void.seal[:12]}#{void.cell or ''}, which is not in this ledger"
            gathered.findings.refuse("seal-unknown", path, message)
        elif not ancestry.precedes(sealed.path, gathered.introduced.get(path, ())):
            message = f"withdraws {void.seal[:12]}, which was not introduced in a proper ancestor of its commit"
            gathered.findings.refuse("void-precedes", path, message)
        else:
            voided.append(Voided(identity, path, gathered.first_commit(path), void))
    return tuple(voided)
