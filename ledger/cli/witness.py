"""The command witness: adds RFC 3161 time tokens, or entries in a public log, to records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError, MachineError, StateError

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.git.commit import Repository


def _address(tsa: str | None) -> str | None:
    """Return the address that --tsa gives, before anything is measured or sealed. Raises: InputError for none."""
    if tsa is not None:
        from ledger.evidence.timestamps import authority_name

        authority_name(tsa)
    return tsa


TsaOption = Annotated[
    str | None,
    typer.Option(
        "--tsa", callback=_address, help="Time-stamping authority (RFC 3161); default: git config ledger.tsa."
    ),
]
LogOption = Annotated[
    bool, typer.Option("--log", help="Sign with sigstore and enter the record into its public log, for ever.")
]


def authority(repository: Repository, tsa: str | None) -> str | None:
    """Return the address of the authority, from the option or from git's configuration, or None."""
    return tsa if tsa is not None else _configured(repository, "ledger.tsa")


def _configured(repository: Repository, key: str) -> str | None:
    try:
        return repository.git("config", "--get", key) or None
    except StateError:
        return None


def stamp_records(repository: Repository, paths: Sequence[str], tsa: str | None) -> None:
    """Request the tokens of new records; an authority that gives none is reported and delays nothing."""
    url = authority(repository, tsa)
    if url is None or not paths:
        return
    from ledger.evidence.timestamps import add_tokens

    try:
        for token in add_tokens(repository, paths, url):
            say(f"time token {token}")
    # A wrong address or file of configuration: the records are made already.
    except (InputError, MachineError) as error:
        say(f"no time token: {error}; the records are kept, add it later with: ledger witness --tsa {url}")


def _log_entries(repository: Repository, paths: Sequence[str], config: FilePath | None, tsa: str | None) -> list[str]:
    """Enter records into the log of a configuration, of git's, or into sigstore's public one; return the new paths."""
    from ledger.workflow.log_records import PublicLog, add_bundles

    configured = _configured(repository, "ledger.logConfig")
    log = PublicLog(config or (None if configured is None else FilePath(configured)))
    return add_bundles(repository, paths, log, authority(repository, tsa), say)


def log_records(repository: Repository, paths: Sequence[str], tsa: str | None, *, wanted: bool) -> None:
    """Enter new records into the public log; a log that takes none is reported and delays nothing."""
    if not wanted or not paths:
        return
    try:
        for file in _log_entries(repository, paths, None, tsa):
            say(f"public log {file}")
    except (InputError, MachineError) as error:
        say(f"not in the public log: {error}; the records are kept, add them later with: ledger witness --log")


def witness(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals to witness; none: every record.")] = None,
    tsa: TsaOption = None,
    log: LogOption = False,
    log_config: Annotated[
        FilePath | None,
        typer.Option(help="Another log: its client trust configuration of sigstore; or: git config ledger.logConfig."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add time tokens (RFC 3161) that records still lack. With --log, their entries in a public log."""
    from ledger.evidence.timestamps import add_tokens

    opened = open_ledger()
    refuse_if_refused(opened.book)
    if log or log_config is not None:
        _show_logged(_log_entries(opened.repository, _paths(opened.book, ids), log_config, tsa), as_json=as_json)
        return
    url = authority(opened.repository, tsa)
    if url is None:
        raise InputError("--tsa: not given; expected an authority's address here or in: git config ledger.tsa URL")
    paths = _paths(opened.book, ids)
    with working("asking for time tokens"):
        tokens = add_tokens(opened.repository, paths, url)
    if as_json:
        emit({"tokens": tokens})
    else:
        out().print(
            f"{len(tokens)} time tokens added; {len(paths) - len(tokens)} records had one already", markup=False
        )


def _show_logged(files: Sequence[str], *, as_json: bool) -> None:
    bundles = [file for file in files if file.endswith(".bundle")]
    tokens = [file for file in files if file.endswith(".tsr")]
    if as_json:
        emit({"bundles": bundles, "tokens": tokens})
    else:
        out().print(f"{len(bundles)} log entries and {len(tokens)} time tokens added", markup=False)


def _paths(book: Book, ids: Sequence[str] | None) -> list[str]:
    """Return the records of the seals named, or of all: the seals and their measurements."""
    from ledger.workflow.select import seal_named

    seals = {seal_named(book, name.partition("#")[0]) for name in ids} if ids else {one.id for one in book.seals}
    paths = [sealed.path for sealed in book.seals if sealed.id in seals]
    recorded = [(one.path, one.measurement.seal) for one in book.records]
    recorded += [(one.path, one.measurement.seal) for one in book.ratios]
    return paths + [path for path, seal in recorded if seal in seals]
