"""Makes a drill of a ledger, and finds the cells that ship with the package.

The drill file is made when the package is built. In a checkout there is none, and the cells come from its own ledger.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.drill import Drill, drill_of
from ledger.canonical import validate
from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.evidence.judged_ledger import judged_ledger
from ledger.git.commit import Repository
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.workflow.answers import remembered
from ledger.workflow.drill_files import read_drill
from ledger.workflow.seal import TOOL

PACKAGE = FilePath(__file__).parent.parent
SHIPPED = PACKAGE / "drills" / "recorded.json"


def read_book(root: FilePath) -> Book:
    """Return the book of the ledger in a repository at HEAD.

    Raises: StateError without a repository or a commit; EvidenceRefused for a ledger whose report does not open.
    """
    repository = Repository(root)
    head = repository.head()
    if head is None:
        raise StateError(f"{root}: no commit yet; expected a ledger with measured cells")
    return _book(repository, head)


def _book(repository: Repository, head: str) -> Book:
    reader = Reader(repository.git_dir, quiet_environment())
    book = judged_ledger(reader, read_history(reader, head, wait=False))
    if book.refused:
        finding = book.refused[0]
        raise EvidenceRefused(f"{repository.root}: the report does not open: {finding.text}")
    return book


def drill_of_ledger(root: FilePath) -> Drill:
    """Return the drill of a repository's ledger. Raises: as read_book; InputError without a measured cell."""
    return drill_of(read_book(root), TOOL)


def remembered_drill(root: FilePath) -> Drill:
    """Return the drill of a repository's ledger, which the index keeps for its HEAD. Raises: as drill_of_ledger."""
    repository = Repository(root)
    head = repository.head()
    if head is None:
        return drill_of_ledger(root)
    made = remembered(repository.git_dir, "drill", head, lambda: _document(_book(repository, head)))
    return validate(Drill, made, what=f"the drill of {root}")


def _document(book: Book) -> dict[str, Any]:
    return drill_of(book, TOOL).model_dump(mode="json", by_alias=True)


@cache
def shipped_drill() -> Drill:
    """Return the cells that ship with the package; in a checkout, those of its ledger. Raises: InputError."""
    if SHIPPED.is_file():
        return read_drill(SHIPPED)
    checkout = PACKAGE.parent
    if not (checkout / ".git").exists():
        raise InputError("no drill ships with this package; expected --from LEDGER")
    return remembered_drill(checkout)
