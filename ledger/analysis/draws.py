"""Draws cells from a declared domain, and says which round of drand does it. Pure.

Randomness: of a round, SHA-256 of its signature, as drand defines it; of a secret, SHA-256 over
`ledger/draw-secret/v1`, a zero byte and its UTF-8. What is committed to beforehand is SHA-256 over
`ledger/draw-commitment/v1`, a zero byte and the same text, from which no randomness follows.

Draw n of a domain takes SHA-256 over `ledger/draw/v1`, a zero byte, the seal's id, the randomness, n and a field
number (big-endian words of 8 bytes), as an integer modulo the choices: field 0 is the dtype, the next are the sizes in
the order of their keys. A cell that was drawn before is passed over, so cells are distinct and in the order drawn.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime

from ledger.errors import InputError
from ledger.records import Digest, Domain, Dtype, Pulse, SizeRange

GENESIS_S = 1_692_803_367
"""Time of round 1 of quicknet (chain 52db9ba7…), in seconds since 1970; a round every PERIOD_S. Source: drand.love."""
PERIOD_S = 3
DrawnCell = tuple[Dtype, tuple[tuple[str, int], ...]]
"""A dtype, and sizes by key in the order of the keys."""


def round_time(number: int) -> int:
    """Return when a round of quicknet is published, in seconds since 1970."""
    return GENESIS_S + (number - 1) * PERIOD_S


def round_at(time_s: int) -> int:
    """Return the first round that is published at a time or later."""
    return max(1, 1 + math.ceil((time_s - GENESIS_S) / PERIOD_S))


def seconds_of(moment: str) -> int:
    """Return a stored moment in seconds since 1970. Raises: InputError for one that no calendar has."""
    try:
        # strptime and the records' patterns take the digits of every script.
        if not moment.isascii():
            raise ValueError("has other digits than 0 to 9")
        return int(datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise InputError(f"moment {moment!r}: {error}; expected UTC as 2026-01-31T12:00:00Z") from error


def randomness_of(pulse: Pulse) -> bytes:
    """Return the 32 bytes that a pulse gives."""
    if pulse.signature is not None:
        return hashlib.sha256(bytes.fromhex(pulse.signature)).digest()
    assert pulse.secret is not None
    return _of_text(b"ledger/draw-secret/v1\0", pulse.secret)


def commitment_to(secret: str) -> Digest:
    """Return the digest by which an auditor commits to a secret."""
    return _of_text(b"ledger/draw-commitment/v1\0", secret).hex()


def _of_text(domain: bytes, text: str) -> bytes:
    return hashlib.sha256(domain + text.encode("utf-8", "surrogateescape")).digest()


def domain_size(domain: Domain) -> int:
    """Return how many cells a domain holds."""
    return len(domain.dtypes) * math.prod(_choices(size) for size in domain.sizes.values())


def _first(size: SizeRange) -> int:
    return -(-size.low // size.multiple_of) * size.multiple_of


def _choices(size: SizeRange) -> int:
    return max(0, (size.high - _first(size)) // size.multiple_of + 1)


def drawn_cells(domain: Domain, seal: Digest, randomness: bytes) -> tuple[DrawnCell, ...]:
    """Return the cells that are drawn from a domain, as many as it declares. Raises: InputError where it has fewer."""
    if domain_size(domain) < 2 * domain.cells:
        raise InputError(f"domain: {domain_size(domain)} cells; expected twice the {domain.cells} to be drawn, or more")
    found: dict[DrawnCell, None] = {}
    number = 0
    while len(found) < domain.cells:
        found.setdefault(_drawn(domain, bytes.fromhex(seal) + randomness, number))
        number += 1
    return tuple(found)


def _drawn(domain: Domain, seed: bytes, number: int) -> DrawnCell:
    def pick(field: int, choices: int) -> int:
        words = number.to_bytes(8, "big") + field.to_bytes(8, "big")
        return int.from_bytes(hashlib.sha256(b"ledger/draw/v1\0" + seed + words).digest(), "big") % choices

    dtype = domain.dtypes[pick(0, len(domain.dtypes))]
    sizes = tuple(
        (key, _first(size) + size.multiple_of * pick(field, _choices(size)))
        for field, (key, size) in enumerate(sorted(domain.sizes.items()), start=1)
    )
    return dtype, sizes


def contradictions(domain: Domain) -> list[str]:
    """Return what is wrong with a declared domain by itself."""
    found = []
    if (domain.beacon is None) == (domain.auditor_sha256 is None):
        found.append("names a beacon and an auditor, or neither; expected one of them")
    if domain_size(domain) < 2 * domain.cells:
        found.append(f"holds {domain_size(domain)} cells; expected twice the {domain.cells} to be drawn, or more")
    try:
        deadline = seconds_of(domain.deadline)
        if domain.beacon is not None:
            expected = round_at(seconds_of(domain.beacon.sealed_at) + domain.beacon.delay_s)
            if domain.beacon.round != expected:
                found.append(f"names round {domain.beacon.round}; its time and delay give {expected}")
            if deadline <= round_time(expected):
                found.append("has its deadline before the draw")
    except InputError as error:
        found.append(str(error))
    return found
