"""Keeps a person's practice between sittings in a file, and says by FSRS which questions are due.

Source: Ye, Su, Cao, "A Stochastic Shortest Path Algorithm for Optimizing Spaced Repetition Scheduling", KDD 2022; the
package fsrs (extra `drill`). Without it answers are kept and nothing is scheduled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath

from ledger.analysis.practice import Grade, PracticeHistory, Review
from ledger.canonical import parse_json, validate
from ledger.errors import InputError
from ledger.record_files import read_bytes, write_atomically

_MOST_BYTES = 64 * 1024 * 1024
_RATING: Mapping[Grade, int] = {"again": 1, "hard": 2, "good": 3}


def default_path() -> FilePath:
    """Return where a person's practice is kept: in the folder for data of the desktop standard, $XDG_DATA_HOME."""
    base = os.environ.get("XDG_DATA_HOME")
    return (FilePath(base) if base else FilePath.home() / ".local" / "share") / "roofline-ledger" / "practice.json"


class Practice:
    """Hold the practice of one person during a sitting; every answer is on disk before the next question."""

    def __init__(self, path: FilePath, now: datetime | None = None) -> None:
        """Read the file, or begin a new one. Raises: InputError, RecordError for a file that is none."""
        self.path = path
        self.sitting = _text(now or datetime.now(UTC))
        self.history = PracticeHistory(schema="ledger/practice/1")
        if path.exists():
            value = parse_json(read_bytes(path, limit=_MOST_BYTES), what=str(path))
            self.history = validate(PracticeHistory, value, what=str(path))

    @property
    def is_scheduled(self) -> bool:
        """Tell whether the package that schedules repetitions is installed."""
        from importlib.util import find_spec

        return find_spec("fsrs") is not None

    def ranks(self, now: datetime | None = None) -> dict[str, int]:
        """Return the rank of each question answered before: 0 due, 2 not yet due; a new one has 1."""
        moment = now or datetime.now(UTC)
        due = {key: _moment(card.get("due"), f"{self.path}: {key}") for key, card in self.history.cards.items()}
        return {key: 0 if when <= moment else 2 for key, when in due.items()}

    def due(self, now: datetime | None = None) -> int:
        """Return how many questions are due."""
        return list(self.ranks(now).values()).count(0)

    def add(self, review: Review, now: datetime | None = None) -> None:
        """Keep an answer and say when its question comes again. Raises: OSError, InputError."""
        cards = dict(self.history.cards)
        if self.is_scheduled:
            cards[review.key] = self._repeated(review, now or datetime.now(UTC))
        reviews = (*self.history.reviews, review)
        self.history = PracticeHistory(schema="ledger/practice/1", cards=cards, reviews=reviews)
        data = json.dumps(self.history.model_dump(mode="json", by_alias=True), indent=1)
        write_atomically(self.path, f"{data}\n".encode())

    def _repeated(self, review: Review, now: datetime) -> dict[str, object]:
        from fsrs import Card, Rating, Scheduler

        held = self.history.cards.get(review.key)
        try:
            card = Card.from_json(json.dumps(held)) if held else Card()
            # Without its random shift a question is due at a time that can be checked.
            card, _ = Scheduler(enable_fuzzing=False).review_card(card, Rating(_RATING[review.grade]), now)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.path}: {review.key}: no state of fsrs ({error}); expected one") from error
        value: dict[str, object] = json.loads(card.to_json())
        return value


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _moment(value: object, what: str) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise InputError(f"{what}: due is {value!r}; expected an ISO time") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
