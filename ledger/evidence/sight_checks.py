"""Decides the sight of each sealed cell, and says where records disprove what is declared: part of check 13.

read_notes alone asks git, for one file and those that it quotes; the rest is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ledger.analysis.book import Sealed
from ledger.analysis.sight import Shown, counts_as_blind, declared, worst
from ledger.analysis.sight_names import SIGHTS
from ledger.analysis.sight_notes import MAX_NOTES_BYTES, NOTES_PATH, SightNote, SightNotes, parse_notes
from ledger.errors import InputError, LedgerError
from ledger.evidence.findings import Findings
from ledger.evidence.known_cases import KnownCases
from ledger.evidence.record_checks import ReadBlob
from ledger.git.reader import Reader
from ledger.record_files import parse_yaml
from ledger.records import Forecast, Sight

CONTRADICTED = "sight-contradicted"
UNDER_ANOTHER_NAME = "measured-under-another-name"
UNFOUNDED = "sight-note-unfounded"
UNREADABLE_NOTES = "sight-notes-unreadable"
MAX_QUOTED_BYTES = 4 * 1024 * 1024
_SHOWN_NAMES = 3


@dataclass(frozen=True)
class CellSight:
    """Hold the sight of a cell, and what its own texts and files say of it, with where they stand."""

    sight: Sight | None
    corrections: tuple[tuple[str, str], ...] = ()

    @property
    def blind(self) -> bool:
        """Tell what the older key `blind` says."""
        return counts_as_blind(self.sight)


def read_notes(reader: Reader, head: str, read: ReadBlob) -> SightNotes:
    """Return what campaigns/sight.yaml says at a commit; a file that cannot be read says so and nothing else."""
    listed = reader.run("ls-tree", "-z", "--full-tree", head, "--", NOTES_PATH).decode("utf-8", "surrogateescape")
    mode, _, blob = [*listed.partition("\t")[0].split(" "), "", ""][:3]
    if not listed:
        return SightNotes()
    try:
        data = read(blob, MAX_NOTES_BYTES) if mode == "100644" else None
        if data is None:
            return SightNotes(problem=f"is no regular file of at most {MAX_NOTES_BYTES} bytes; nothing of it counts")
        is_in_file = cache(lambda note: _is_in_file(note, reader, read))
        return parse_notes(parse_yaml(data, what=NOTES_PATH), is_in_file)
    except InputError as error:
        return SightNotes(problem=f"cannot be read, and nothing of it counts: {error}")


def _is_in_file(note: SightNote, reader: Reader, read: ReadBlob) -> bool:
    """Tell whether the file that a note names holds its quote, at the commit that it names."""
    try:
        listed = reader.run("ls-tree", "-z", "--full-tree", str(note.commit), "--", str(note.path))
        mode, _, blob = [*listed.decode("utf-8", "surrogateescape").partition("\t")[0].split(" "), "", ""][:3]
        data = read(blob, MAX_QUOTED_BYTES) if mode in ("100644", "100755") else None
    # The repository may lack the commit or the file.
    except LedgerError:
        return False
    return data is not None and note.quote.encode() in data


class SightChecks:
    """Set what is declared and noted beside what records show."""

    def __init__(self, known: KnownCases, notes: SightNotes, findings: Findings) -> None:
        """Remember what was measured; say what is wrong with the file of notes."""
        self._known = known
        self._notes = notes
        self._findings = findings
        if notes.problem is not None:
            findings.flag(UNREADABLE_NOTES, NOTES_PATH, notes.problem)

    def of(self, sealed: Sealed) -> Iterator[tuple[Forecast, CellSight]]:
        """Yield the forecasts of a seal with their sights."""
        notes, unfounded = self._notes.about(sealed)
        for message in unfounded:
            self._findings.flag(UNFOUNDED, NOTES_PATH, message)
        for forecast in sealed.prediction.cells:
            yield forecast, self._sight(sealed, forecast, notes.get(forecast.cell, ()))

    def _sight(self, sealed: Sealed, forecast: Forecast, notes: Sequence[SightNote]) -> CellSight:
        said, _ = declared(forecast)
        claim = worst([said, *(note.sight for note in notes)])
        shown = self._known.disproof(forecast, sealed.path, claim)
        if said is not None and shown is not None and SIGHTS.index(shown.sight) > SIGHTS.index(said):
            self._contradict(sealed, forecast, said, shown)
        if claim is None and self._known.same_kernel(forecast, sealed.path) is None:
            self._name_alike(sealed, forecast)
        sight = worst([claim, None if shown is None else shown.sight])
        return CellSight(sight, tuple((note.quote, note.source) for note in notes))

    def _contradict(self, sealed: Sealed, forecast: Forecast, said: Sight, shown: Shown) -> None:
        message = f"{forecast.cell} declares {said}, yet {shown.words}, not after it: it counts as {shown.sight}"
        self._findings.flag(CONTRADICTED, sealed.path, message)

    def _name_alike(self, sealed: Sealed, forecast: Forecast) -> None:
        """Note that an undeclared forecast's case may have been measured as another kernel."""
        for shown in self._known.other_kernels(forecast, sealed.path)[:_SHOWN_NAMES]:
            message = f"{forecast.cell} declares no sight, yet {shown.words}, not after it"
            self._findings.note(UNDER_ANOTHER_NAME, sealed.path, message)
