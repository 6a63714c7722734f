"""Checks the chain of seals: check 7 of judge. Pure."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import or_

from ledger.analysis.book import Sealed
from ledger.evidence.object_checks import GatheredRecords
from ledger.git.ancestry import Ancestry


def check_chain(gathered: GatheredRecords, ancestry: Ancestry) -> set[str]:
    """Check every seal's position in the chain; return the paths of those without a finding."""
    by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
    seals = reduce(or_, map(ancestry.bit, gathered.seals), 0)
    followers = Counter(previous for sealed in by_id.values() for previous in sealed.prediction.previous)
    closure: dict[str, int] = {}
    sound: set[str] = set()
    for sealed in sorted(by_id.values(), key=lambda sealed: (sealed.prediction.sequence, sealed.id)):
        before = len(gathered.findings.found)
        parents = [by_id.get(previous) for previous in sealed.prediction.previous]
        known = [parent for parent in parents if parent is not None]
        reached = 0
        for parent in known:
            reached |= closure.get(parent.id, 0) | ancestry.bit(parent.path)
        closure[sealed.id] = reached
        within = 0
        for parent in known:
            within |= closure.get(parent.id, 0)
            # A seal's chain is dropped with its last follower, so that memory does not follow the chain's length.
            followers[parent.id] -= 1
            if not followers[parent.id]:
                closure.pop(parent.id, None)
        if any(within & ancestry.bit(parent.path) for parent in known):
            message = "names a previous seal that another one already follows; expected the tips of the chain alone"
            gathered.findings.refuse("chain-broken", sealed.path, message)
        _check_links(gathered, sealed, known)
        for position in gathered.introduced.get(sealed.path, ()):
            seen = ancestry.before(position) & seals
            if reached & ~seen:
                message = "a seal in its chain was not introduced in an ancestor of its commit"
                gathered.findings.refuse("chain-order", sealed.path, message)
            elif seen & ~reached:
                message = "an earlier seal of its history is missing from its chain"
                gathered.findings.refuse("chain-skip", sealed.path, message)
        if len(gathered.findings.found) == before:
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
