"""Finds what two names to compare are of: campaigns, GPUs by their profiles, or commits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path as FilePath

from ledger.analysis.book import Book
from ledger.analysis.ledger_diff import KINDS, Kind, Side
from ledger.analysis.report_rows import rows
from ledger.analysis.row_choice import name_of
from ledger.errors import EvidenceRefused, InputError, StateError, UnknownName
from ledger.evidence.judged_ledger import judged_ledger
from ledger.git.history import read_history
from ledger.git.reader import Reader
from ledger.record_files import hardware_names
from ledger.suggestions import did_you_mean


def compared(book: Book, reader: Reader, root: FilePath, a: str, b: str) -> tuple[Side, Side]:
    """Return the sides that two names are of, both of one kind.

    Raises: UnknownName for a name of nothing; InputError for two kinds; EvidenceRefused for a commit whose ledger is.
    """
    known: Mapping[Kind, frozenset[str]] = {
        "campaign": frozenset(name_of(row, "campaign") for row in rows(book)) - {""},
        "GPU": frozenset(name_of(row, "hw") for row in rows(book)),
    }
    found = {name: _kinds(reader, known, root, name) for name in (a, b)}
    kind = next((kind for kind in KINDS if kind in found[a] and kind in found[b]), None)
    if kind is None:
        raise InputError(f"{a} is a {found[a][0]} and {b} a {found[b][0]}; expected two of one kind")
    return _side(book, reader, kind, a), _side(book, reader, kind, b)


def _kinds(reader: Reader, known: Mapping[Kind, frozenset[str]], root: FilePath, name: str) -> list[Kind]:
    """Return what a name may be of. Raises: UnknownName where it is of nothing."""
    kinds: list[Kind] = [kind for kind in KINDS if name in known.get(kind, ())]
    with suppress(StateError):
        reader.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        kinds.append("commit")
    if kinds:
        return kinds
    if name in hardware_names(root):
        raise UnknownName(f"profile {name} has no cells in this ledger; expected one of: {', '.join(known['GPU'])}")
    choices = sorted(known["campaign"] | known["GPU"])
    raise UnknownName(
        f"{name!r} is neither a campaign, nor the profile of a GPU, nor a commit{did_you_mean(name, choices)}; "
        f"expected a commit, or one of: {', '.join(choices)}"
    )


def _side(book: Book, reader: Reader, kind: Kind, name: str) -> Side:
    if kind != "commit":
        what = "campaign" if kind == "campaign" else "hw"
        return Side(kind, name, tuple(row for row in rows(book) if name_of(row, what) == name))
    history = read_history(reader, name, wait=False)
    held = book if history.head == book.head else judged_ledger(reader, history)
    if held.refused:
        finding = held.refused[0]
        raise EvidenceRefused(f"the ledger at {name} is refused: {finding.text}")
    return Side(kind, name, rows(held))
