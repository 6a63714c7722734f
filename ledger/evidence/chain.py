"""Checks the chain of seals: check 7 of judge. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ledger.analysis.book import Sealed
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.ancestry import Ancestry, Meter


def check_chain(gathered: GatheredRecords, ancestry: Ancestry, *, sound_before: Collection[str] = ()) -> set[str]:
    """Check every seal's position in the chain; return the paths of those without a refusal.

    ancestry: of the seals alone. sound_before: paths of seals that are known to be sound: the chain of each is all
    seals of its history, and need not be here. Raises: BudgetExceeded for chains whose sets need too much memory.
    """
    by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
    followers = Counter(previous for sealed in by_id.values() for previous in sealed.prediction.previous)
    # A seal's chain is held until its last follower has been reached, so that memory does not follow its length.
    closure: dict[str, int] = {}
    meter = Meter()
    sound: set[str] = set()
    for sealed in sorted(by_id.values(), key=lambda sealed: (sealed.prediction.sequence, sealed.id)):
        if sealed.path in sound_before:
            closure[sealed.id] = ancestry.before(sealed.commit.position)
            sound.add(sealed.path)
            continue
        parents = [by_id.get(previous) for previous in sealed.prediction.previous]
        known = [parent for parent in parents if parent is not None]
        reached = 0
        for parent in known:
            reached |= closure.get(parent.id, 0) | ancestry.bit(parent.path)
        within = 0
        for parent in known:
            within |= closure.get(parent.id, 0)
            followers[parent.id] -= 1
            if not followers[parent.id]:
                meter.drop(closure.pop(parent.id, 0))
        if followers[sealed.id]:
            closure[sealed.id] = reached
            meter.hold(reached)
        if any(within & ancestry.bit(parent.path) for parent in known):
            message = "names a previous seal that another one already follows; expected the tips of the chain alone"
            gathered.findings.refuse("chain-broken", sealed.path, message)
        _check_links(gathered, sealed, known)
        for position in gathered.introduced.get(sealed.path, ()):
            seen = ancestry.before(position)
            if reached & ~seen:
                message = "a seal in its chain was not introduced in an ancestor of its commit"
                gathered.findings.refuse("chain-order", sealed.path, message)
            elif seen & ~reached:
                message = (
                    "an earlier seal of its history is missing from its chain, as after a rebase; expected branches to "
                    "be merged with a merge commit"
                )
                gathered.findings.refuse("chain-skip", sealed.path, message)
        if not gathered.findings.refused(sealed.path):
            sound.add(sealed.path)
    return sound


def _check_links(gathered: GatheredRecords, sealed: Sealed, known: list[Sealed]) -> None:
    prediction = sealed.prediction
    if list(prediction.previous) != sorted(set(prediction.previous)):
        message = "previous seals are not sorted, each once"
        gathered.findings.refuse("chain-broken", sealed.path, message)
        return
    if len(known) < len(prediction.previous):
        held = {parent.id for parent in known}
        missing = next(previous for previous in prediction.previous if previous not in held)
        gathered.findings.refuse("chain-broken", sealed.path, f"previous seal {missing[:12]} is not in this ledger")
        return
    expected = 1 + max((parent.prediction.sequence for parent in known), default=0)
    if prediction.sequence != expected:
        message = f"sequence is {prediction.sequence}; expected {expected}"
        gathered.findings.refuse("chain-broken", sealed.path, message)
