"""Defines campaigns/sight.yaml: where the texts of old seals say that more had been timed. Pure.

A seal of version 1 declares no sight. A note quotes the words that do, from the seal itself, or names the commit and
the file that held a time before the seal. A false note would move a miss to another column of the scores: a quote must
stand where the note says, and a forecast that declares a sight keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.analysis.book import Sealed
from ledger.analysis.sight import declared
from ledger.canonical import validate
from ledger.records import CellKey, Forecast, Line, Record

NOTES_PATH = "campaigns/sight.yaml"
MAX_NOTES_BYTES = 64 * 1024
_SHORTEST = 10


class SightNote(Record):
    """Hold one correction. cells: all cells of the seal where None. commit, path: where the quote stands, if elsewhere.

    A quote without a commit stands in the `why` of the cell or of the seal.
    """

    seal: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{10,64}$")]
    cells: Annotated[tuple[CellKey, ...], Field(min_length=1, max_length=10_000)] | None = None
    sight: Literal["near", "informed"]
    quote: Annotated[str, StringConstraints(min_length=8, max_length=1000)]
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{10,64}$")] | None = None
    path: Line | None = None

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if (self.commit is None) != (self.path is None):
            raise ValueError("a quote from a file needs commit and path; expected both or neither")
        return self

    @property
    def source(self) -> str:
        """Return where the quote stands."""
        return "the seal" if self.commit is None else f"{self.path} at commit {self.commit[:10]}"


class SightFile(Record):
    """Hold the notes of a ledger."""

    notes: Annotated[tuple[SightNote, ...], Field(max_length=500)]


class SightNotes:
    """Hold the notes of a ledger with what is wrong with the file, if anything."""

    def __init__(
        self,
        notes: Iterable[SightNote] = (),
        problem: str | None = None,
        is_in_file: Callable[[SightNote], bool] = lambda _note: False,
    ) -> None:
        """Order the notes by the seals that they are about.

        is_in_file: tells whether the quote of a note with a commit stands in its file; without it none does.
        """
        self.problem = problem
        self._is_in_file = is_in_file
        self._by_seal: dict[str, list[SightNote]] = {}
        for note in notes:
            self._by_seal.setdefault(note.seal[:_SHORTEST], []).append(note)

    def about(self, sealed: Sealed) -> tuple[dict[str, list[SightNote]], list[str]]:
        """Return the notes on the cells of a seal whose quotes stand where they say, by cell; and what is unfounded."""
        found: dict[str, list[SightNote]] = {}
        unfounded: list[str] = []
        for note in self._by_seal.get(sealed.id[:_SHORTEST], ()):
            if not sealed.id.startswith(note.seal):
                continue
            named = _named(note, sealed)
            undeclared = [forecast for forecast in named if declared(forecast)[0] is None]
            standing = [forecast.cell for forecast in undeclared if self._stands(note, sealed, forecast)]
            for cell in standing:
                found.setdefault(cell, []).append(note)
            if len(undeclared) < len(named):
                unfounded.append(f"seal {sealed.id[:10]} declares the sight of cells that are named, and they keep it")
            if len(standing) < len(undeclared) or (note.cells is not None and len(named) < len(set(note.cells))):
                where = f"seal {sealed.id[:10]}" if note.commit is None else note.source
                unfounded.append(f"{where} does not say {note.quote[:60]!r} of every cell that is named")
        return found, unfounded

    def _stands(self, note: SightNote, sealed: Sealed, forecast: Forecast) -> bool:
        if note.commit is not None:
            return self._is_in_file(note)
        return note.quote in forecast.why or note.quote in sealed.prediction.why


def parse_notes(value: Any, is_in_file: Callable[[SightNote], bool] = lambda _note: False) -> SightNotes:
    """Return the notes of a parsed file; is_in_file as for SightNotes. Raises: RecordError."""
    return SightNotes(validate(SightFile, value, what=NOTES_PATH).notes, is_in_file=is_in_file)


def _named(note: SightNote, sealed: Sealed) -> list[Forecast]:
    wanted = None if note.cells is None else set(note.cells)
    return [forecast for forecast in sealed.prediction.cells if wanted is None or forecast.cell in wanted]
