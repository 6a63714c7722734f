"""Keeps the attempts at each cell of an order in a file, so that a driver that was ended leaves none unrecorded.

A line is one JSON value: an attempt that begins, or how it ended. The file lies beside the measurements.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from ledger.errors import ParseError, shortened
from ledger.record_files import write_atomically
from ledger.records import Attempt, OrderedCell

FILE = "attempts.jsonl"
MAX_ATTEMPTS = 1000
"""What a record holds."""
_BROKEN = "the driver ended before the result"
_LONGEST = 2000

Key = tuple[str, str, int]


def key_of(cell: OrderedCell) -> Key:
    """Return the seal, the cell and the run: unique within an order."""
    return (cell.seal, cell.cell, cell.run)


@dataclass(frozen=True)
class _Begun:
    node: str
    started_at: str


class Attempts:
    """Hold the attempts that gave no measurement, by cell, and write each down as it begins and ends."""

    def __init__(self, folder: FilePath) -> None:
        """Read what earlier drivers left in a folder. Raises: ParseError."""
        self._path = folder / FILE
        self._begun: dict[Key, _Begun] = {}
        self._failed: dict[Key, list[Attempt]] = {}
        for number, line in enumerate(self._lines(), start=1):
            self._read(number, line)
        for key in list(self._begun):
            self._close(key, _BROKEN)

    def of(self, cell: OrderedCell) -> tuple[Attempt, ...]:
        """Return the attempts at a cell that gave no measurement, oldest first."""
        return tuple(self._failed.get(key_of(cell), ())[-MAX_ATTEMPTS:])

    def begin(self, cell: OrderedCell, node: str, started_at: str) -> None:
        """Note that a node begins a cell."""
        self._begun[key_of(cell)] = _Begun(node, started_at)
        self._write({"begin": key_of(cell), "node": node, "started_at": started_at})

    def end(self, cell: OrderedCell, reason: str | None) -> None:
        """Note how the attempt at a cell ended. reason: why it gave no measurement; None where it gave one."""
        reason = None if reason is None else shortened(reason, _LONGEST)
        self._close(key_of(cell), reason)
        self._write({"end": key_of(cell), "reason": reason})

    def _close(self, key: Key, reason: str | None) -> None:
        begun = self._begun.pop(key, None)
        if begun is not None and reason is not None:
            made = Attempt(started_at=begun.started_at, node=begun.node, reason=reason)
            self._failed.setdefault(key, []).append(made)

    def _lines(self) -> list[str]:
        """Return the lines of the file; a part of a line, which a driver that was ended left, is cut off."""
        if not self._path.is_file():
            return []
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            write_atomically(self._path, whole)
        return whole.decode("utf-8", errors="replace").splitlines()

    def _read(self, number: int, line: str) -> None:
        try:
            found: dict[str, Any] = json.loads(line)
            if "begin" in found:
                key = _key(found["begin"])
                # A driver that was ended wrote no end.
                self._close(key, _BROKEN)
                self._begun[key] = _Begun(str(found["node"]), str(found["started_at"]))
            else:
                self._close(_key(found["end"]), found["reason"])
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise ParseError(
                f"{self._path}: line {number}: no attempt; expected the file that a driver left"
            ) from error

    def _write(self, value: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(value) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _key(value: Any) -> Key:
    seal, cell, run = value
    return (str(seal), str(cell), int(run))
