"""The command witness: adds RFC 3161 time tokens to records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, MachineError, StateError

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.git.commit import Repository

TsaOption = Annotated[
    str | None, typer.Option("--tsa", help="Time-stamping authority (RFC 3161); default: git config ledger.tsa.")
]


def authority(repository: Repository, tsa: str | None) -> str | None:
    """Return the address of the authority, from the option or from git's configuration, or None."""
    if tsa is not None:
        return tsa
    try:
        return repository.git("config", "--get", "ledger.tsa") or None
    except StateError:
        return None


def stamp_records(repository: Repository, paths: Sequence[str], tsa: str | None) -> None:
    """Request the tokens of new records; an authority that does not answer is reported and delays nothing."""
    url = authority(repository, tsa)
    if url is None or not paths:
        return
    from ledger.evidence.timestamps import add_tokens

    try:
        for token in add_tokens(repository, paths, url):
            say(f"time token {token}")
    except MachineError as error:
        say(f"no time token: {error}; the records are kept, add it later with: ledger witness --tsa {url}")


def witness(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals to witness; none: every record.")] = None,
    tsa: TsaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the time tokens that records still lack from a time-stamping authority (RFC 3161)."""
    from ledger.evidence.timestamps import add_tokens

    opened = open_ledger()
    refuse_if_refused(opened.book)
    url = authority(opened.repository, tsa)
    if url is None:
        raise InputError("--tsa: not given; expected an authority's address here or in: git config ledger.tsa URL")
    paths = _paths(opened.book, ids)
    tokens = add_tokens(opened.repository, paths, url)
    if as_json:
        emit({"tokens": tokens})
    else:
        out().print(
            f"{len(tokens)} time tokens added; {len(paths) - len(tokens)} records had one already", markup=False
        )


def _paths(book: Book, ids: Sequence[str] | None) -> list[str]:
    """Return the records of the seals named, or of all: the seals and their measurements."""
    from ledger.workflow.select import select

    seals = {sealed.id for sealed in book.seals}
    if ids:
        seals = {cell.sealed.id for name in ids for cell in select(book, [name])}
    paths = [sealed.path for sealed in book.seals if sealed.id in seals]
    return paths + [recorded.path for recorded in book.records if recorded.measurement.seal in seals]
