"""Selects the cells that a user names, and computes the digests of kernels and profiles as they are now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path as FilePath
from typing import Literal

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.analysis.sight import Devices
from ledger.callables.subject import is_callable
from ledger.callables.subject_files import closure_named
from ledger.canonical import encode, object_id
from ledger.errors import EvidenceRefused, InputError, UnknownName
from ledger.evidence.repeated_cases import one_of_each_case
from ledger.evidence.staleness import CurrentDigest
from ledger.kernel_files import kernel_names
from ledger.record_files import hardware_names, load_hardware
from ledger.records import ForecastV2
from ledger.suggestions import unknown

CHANGED = "its kernel or profile has changed since it was sealed"
"""Why an open cell is stale."""


def current_digests(root: FilePath) -> CurrentDigest:
    """Return a function that gives the digest of a kernel or profile as it is now; it separates open from stale cells.

    Only what is asked for is read. None for an unknown name; empty for what cannot be read any more, so that its open
    cells count as stale.
    """

    @cache
    def digest(kind: Literal["kernel", "hardware"], name: str) -> str | None:
        try:
            if kind == "kernel":
                known = is_callable(name) or name in kernel_names(root)
                return closure_named(name, root)[0].sha256 if known else None
            return object_id(encode(load_hardware(name, root))) if name in hardware_names(root) else None
        except InputError:
            return ""

    return digest


def select(book: Book, wanted: Sequence[str], *, again: bool = False, once: bool = False) -> tuple[CellView, ...]:
    """Return the cells that a user named, or every open one; with `again` the measured ones that can be repeated.

    once: one forecast of each case, and all that were drawn.
    wanted: seal ids, or SEAL#CELL names; a seal's id may be shortened to four digits or more. Raises: UnknownName for
    a name that fits nothing or several seals; EvidenceRefused for a named cell that is stale, void or refused.
    """
    if once:
        devices = Devices(view.hardware for view in book.cells if view.hardware is not None)
        return one_of_each_case(select(book, wanted, again=again), devices)
    if again:
        return _repeatable(book, wanted)
    if not wanted:
        return tuple(cell for cell in book.cells if cell.state == "open")
    chosen = {cell.name: cell for name in wanted for cell in named(book, name)}
    unmeasured = {cell.name for cell in unmeasured_hidden(book)}
    for cell in chosen.values():
        if not isinstance(cell.forecast, ForecastV2) and cell.state in ("open", "stale"):
            raise EvidenceRefused(f"{cell.short_name}: {other_format(cell)}")
        if cell.state == "hidden" and cell.name not in unmeasured:
            raise EvidenceRefused(f"{cell.short_name} is hidden and measured already; expected: ledger reveal")
        if cell.state in ("stale", "void", "refused"):
            why = f": {CHANGED}" if cell.state == "stale" else ""
            raise EvidenceRefused(f"{cell.short_name} is {cell.state}{why}; expected an open cell: seal a new forecast")
    return tuple(chosen.values())


def unmeasured_hidden(book: Book) -> list[CellView]:
    """Return the hidden forecasts of which there is no measurement."""
    measured = {(one.measurement.seal, one.measurement.cell) for one in book.records}
    return [cell for cell in book.hidden if (cell.sealed.id, cell.forecast.cell) not in measured]


def _repeatable(book: Book, wanted: Sequence[str]) -> tuple[CellView, ...]:
    """Return measured cells of format 2, all or those named. Raises: InputError where there is none; UnknownName."""
    cells = book.cells if not wanted else [cell for name in wanted for cell in named(book, name)]
    found = {cell.name: cell for cell in cells if cell.state == "measured" and isinstance(cell.forecast, ForecastV2)}
    if not found:
        raise InputError("--again: no measured cell of format 2; expected one: ledger verify, or see ledger status")
    return tuple(found.values())


def other_format(cell: CellView) -> str:
    """Return why a forecast of format 1 is not measured here, and what to do."""
    tool, commit = cell.sealed.prediction.tool, cell.sealed.commit.sha[:10]
    return (
        f"sealed in format 1 by {tool.name} {tool.version}, which this version reads and does not measure; measure it "
        f"with that version from a work tree of commit {commit} (git worktree add), then: ledger verify --from DIR"
    )


def seal_named(book: Book, prefix: str) -> str:
    """Return the id of the one seal, of cells, of claims or of a domain, that begins so. Raises: UnknownName."""
    seals = {one.id for one in book.seals if one.id.startswith(prefix)}
    if len(prefix) < 4 or len(seals) != 1:
        raise UnknownName(f"seal {prefix!r} names {len(seals)} seals; expected four or more digits that name one")
    return seals.pop()


def named(book: Book, name: str) -> list[CellView]:
    """Return the cells of a seal, or the one cell, that a name fits, in any state. Raises: UnknownName."""
    prefix, _, key = name.partition("#")
    seal = seal_named(book, prefix)
    cells = [cell for cell in (*book.cells, *book.hidden) if cell.sealed.id == seal]
    if not cells:
        raise UnknownName(f"seal {prefix!r} holds no cell; expected one of cells, see: ledger status")
    found = [cell for cell in cells if key in ("", cell.forecast.cell)]
    if not found:
        raise UnknownName(f"cell {key!r} is not in seal {prefix}; see: ledger status")
    return found


def claims_named(book: Book, name: str) -> list[ClaimView]:
    """Return the claims of a seal, or the one claim, that a name fits, in any state; none where it fits no claim.

    Raises: UnknownName for a name that fits no seal, or several.
    """
    prefix, _, key = name.partition("#")
    seal = seal_named(book, prefix)
    return [claim for claim in book.claims if claim.sealed.id == seal and key in ("", claim.claim.cell)]


def select_claims(book: Book, wanted: Sequence[str]) -> tuple[list[ClaimView], list[str]]:
    """Return the claims that a user named, or every open one, and the names that are of no claim.

    Raises: UnknownName; EvidenceRefused for a named claim that is void, refused or measured.
    """
    if not wanted:
        return [claim for claim in book.claims if claim.state in ("open", "failed") and not claim.runs], []
    chosen: dict[str, ClaimView] = {}
    rest: list[str] = []
    for name in wanted:
        found = claims_named(book, name)
        chosen.update({claim.name: claim for claim in found})
        rest += [] if found else [name]
    for claim in chosen.values():
        if claim.state not in ("open", "failed"):
            raise EvidenceRefused(f"{claim.short_name} is {claim.state}; expected an open claim: seal a new one")
    return list(chosen.values()), rest


def same_cells(book: Book, subject: str) -> list[CellView]:
    """Return every forecast of the cells that a name is of: a kernel's or callable's, a seal's, or SEAL#CELL.

    Raises: UnknownName.
    """
    subjects = {view.forecast.case.kernel for view in book.cells}
    if subject in subjects:
        return [view for view in book.cells if view.forecast.case.kernel == subject]
    if re.fullmatch(r"[0-9a-f]{4,64}(#.*)?", subject) is None:
        raise UnknownName(f"{unknown('kernel', subject, sorted(subjects))}; or a seal, or SEAL#CELL")
    wanted = {view.forecast.case.cell for view in named(book, subject)}
    return [view for view in book.cells if view.forecast.case.cell in wanted]
