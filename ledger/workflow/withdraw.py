"""Withdraws seals and cells that are not measured."""

from __future__ import annotations

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.canonical import encode, record_id, record_path
from ledger.errors import EvidenceRefused, InputError
from ledger.git.commit import Repository
from ledger.records import (
    VOID_SCHEMA,
    Void,
)
from ledger.workflow.seal import TOOL
from ledger.workflow.select import claims_named, named


def withdraw(repository: Repository, book: Book, name: str, why: str) -> tuple[str, str, str]:
    """Commit the withdrawal of an unmeasured seal, or of one cell of it; return its id, path and commit.

    Raises: UnknownName; EvidenceRefused for a cell that is already measured, withdrawn or refused; InputError.
    """
    if not why.strip():
        raise InputError("--why: empty; expected the reason")
    cells: list[CellView] | list[ClaimView] = claims_named(book, name) or named(book, name)
    for cell in cells:
        if cell.state not in ("open", "stale", "failed"):
            raise EvidenceRefused(
                f"{cell.short_name} is {cell.state} and stays; expected one that is open, stale or failed"
            )
    record = Void(
        schema=VOID_SCHEMA,
        tool=TOOL,
        seal=cells[0].sealed.id,
        cell=cells[0].name.partition("#")[2] if "#" in name else None,
        why=why,
        extensions={},
    )
    data = encode(record)
    path = record_path("verifications", record_id(Void, data))
    message = f"Void {cells[0].short_name if record.cell else record.seal[:10]}\n\nSeal-Id: {record.seal}\n"
    written = repository.commit(lambda _parent: ({path: data}, message))
    return record_id(Void, data), path, written.commit
