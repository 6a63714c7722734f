"""Draws challenges and tells which measurements answer one. Pure, but for the drawing.

Who asks for a measurement gives a text that nobody could know before. Its digest is the anchor of the inputs
(docs/format.md), so output samples that agree with it were computed after the text was given. That says nothing
of the timings, which a challenge binds no more than a seal does.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ledger.analysis.book import Book
from ledger.canonical import encode, object_id
from ledger.errors import InputError
from ledger.records import Digest

_DOMAIN = b"ledger/challenge/v1\0"
LEAST, MOST = 16, 400


def draw() -> str:
    """Return a challenge: 32 hexadecimal digits of the system's randomness."""
    return secrets.token_hex(16)


def anchor_of(challenge: str) -> Digest:
    """Return the anchor that stands for a challenge: SHA-256 over its domain and its UTF-8, blanks around it cut off.

    Raises: InputError for a text that is too short to be unforeseen, or too long.
    """
    text = challenge.strip()
    if not LEAST <= len(text) <= MOST:
        raise InputError(f"--challenge: {len(text)} characters; expected {LEAST} to {MOST}: see ledger challenge")
    return hashlib.sha256(_DOMAIN + text.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Answer:
    """Hold one measurement that was made for a challenge; `proven` when its samples agree with it.

    Units: percent of the roof, None where it cannot be judged.
    """

    cell: str
    run: int
    record: Digest
    percent: float | None
    proven: bool


def answers(book: Book, challenge: str, agreed: Collection[str]) -> tuple[Answer, ...]:
    """Return the finished measurements that a challenge, or a draw by it as a secret, went into.

    agreed: paths of those whose recomputed samples agree.
    """
    anchors = {anchor_of(challenge), *(digest for digest in _draws_by(book, challenge.strip()))}
    return tuple(
        Answer(
            cell=cell.short_name,
            run=run.recorded.measurement.run,
            record=run.recorded.id,
            percent=run.verification.measured_percent,
            proven=run.recorded.path in agreed,
        )
        for cell in book.cells
        for run in cell.runs
        if run.recorded.measurement.anchor in anchors and run.recorded.measurement.status == "measured"
    )


def _draws_by(book: Book, secret: str) -> Iterator[Digest]:
    """Yield the digests of the pulses that hold a secret."""
    return (object_id(encode(one.pulse)) for one in book.drawn if one.pulse.secret == secret)
