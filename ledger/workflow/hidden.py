"""Keeps the texts and salts of hidden forecasts, and reveals them.

They lie in ledger/hidden of git's common folder, readable by their owner alone, one file a forecast, named by its
digest. Git neither commits nor pushes nor clones that folder: without it a hidden forecast can never be revealed.
Each file is on disk before its seal is committed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import count_text
from ledger.analysis.hiding import commitment_of, contradiction
from ledger.budgets import MAX_RECORD_BYTES, MAX_RECORD_VALUES, values_of
from ledger.canonical import decode, encode, record_id, record_path
from ledger.errors import InputError, StateError
from ledger.evidence.reveals import commitments_of
from ledger.git.commit import Repository, Written
from ledger.record_files import read_bytes
from ledger.records import REVEAL_SCHEMA, Commitment, ForecastV2, Opening, Reveal
from ledger.workflow.seal import TOOL

MAX_OPENING_BYTES = 1 << 20
LOST = (
    "it lies only in the clone that sealed it, or in a copy of that folder (--from DIR); a text that is lost cannot be "
    "revealed, and counts as missing"
)


def vault(repository: Repository) -> FilePath:
    """Return the folder that keeps what is hidden."""
    return repository.common_dir / "ledger" / "hidden"


def hide(repository: Repository, forecasts: Sequence[ForecastV2], forecaster: str) -> tuple[Commitment, ...]:
    """Return what is sealed of forecasts, having kept their texts and salts. Raises: StateError."""
    made = []
    for forecast in forecasts:
        opening = Opening(forecast=forecast, salt=secrets.token_hex(32))
        commitment = commitment_of(opening, forecaster[:400])
        _keep(vault(repository), commitment.sha256, encode(opening))
        made.append(commitment)
    return tuple(made)


def _keep(folder: FilePath, name: str, data: bytes) -> None:
    """Write a file that only its owner reads, and have it and its name on disk. Raises: StateError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        handle = os.open(folder / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # Windows opens no folders.
        if os.name == "posix":
            above = os.open(folder, os.O_RDONLY)
            os.fsync(above)
            os.close(above)
    except OSError as error:
        raise StateError(f"{folder}: cannot keep a hidden forecast ({error}); nothing is sealed") from error


def openings(folder: FilePath, cells: Sequence[CellView]) -> tuple[dict[str, list[Opening]], list[str]]:
    """Return what a folder can open of some hidden cells, by seal, and the names of those that it cannot.

    Raises: InputError for a file that is there and does not open its cell.
    """
    found: dict[str, list[Opening]] = {}
    lost = []
    for cell in cells:
        commitment = commitments_of(cell.sealed)[cell.forecast.cell]
        path = folder / f"{commitment.sha256}.json"
        if not path.is_file():
            lost.append(cell.short_name)
            continue
        opening = decode(Opening, read_bytes(path, limit=MAX_OPENING_BYTES), what=str(path))
        why = contradiction(opening, commitment, cell.sealed.prediction.forecaster)
        if why is not None:
            raise InputError(f"{path}: does not open {cell.short_name}: {why}; expected the file as it was sealed")
        found.setdefault(cell.sealed.id, []).append(opening)
    return found, lost


def chosen(book: Book, names: Sequence[str]) -> list[CellView]:
    """Return the hidden cells that seals or SEAL#CELL name, all without names. Raises: InputError, UnknownName."""
    from ledger.workflow.select import named

    if not names:
        cells = list(book.hidden)
    else:
        cells = list(
            {cell.name: cell for name in names for cell in named(book, name) if cell.state == "hidden"}.values()
        )
    if not cells:
        what = "of those named" if names else "here"
        raise InputError(f"no forecast {what} is hidden; expected one that is sealed with --hidden and not revealed")
    return cells


def reveal(repository: Repository, opened: Mapping[str, Sequence[Opening]]) -> list[tuple[str, str, Written]]:
    """Commit a reveal for each seal, several where one would be too large; return the id, path and commit of each."""
    made = []
    for seal, parts in ((seal, part) for seal, every in opened.items() for part in _divided(every)):
        record = Reveal(schema=REVEAL_SCHEMA, tool=TOOL, seal=seal, openings=tuple(parts), extensions={})
        data = encode(record)
        identity = record_id(Reveal, data)
        path = record_path("verifications", identity)
        message = f"Reveal {seal[:10]}: {count_text(len(parts), 'forecast')}\n\nSeal-Id: {seal}\n"
        made.append((identity, path, repository.commit(partial(_composed, {path: data}, message))))
    return made


def _divided(parts: Sequence[Opening]) -> Iterator[Sequence[Opening]]:
    """Yield openings in parts, each of half the bytes and values that a record may have at most."""
    held: list[Opening] = []
    size = values = 0
    for opening in parts:
        data = encode(opening)
        size, values = size + len(data), values + values_of(data) + 1
        if held and (size > MAX_RECORD_BYTES // 2 or values > MAX_RECORD_VALUES // 2):
            yield held
            held, size, values = [], len(data), values_of(data) + 1
        held.append(opening)
    yield held


def _composed(files: Mapping[str, bytes], message: str, _parent: str | None) -> tuple[Mapping[str, bytes], str]:
    return files, message
