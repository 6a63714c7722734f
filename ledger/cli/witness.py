"""The commands about when a record was made: time tokens over it, and challenges that go into its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import emit, open_place, out, refuse_if_refused, say
from ledger.errors import InputError, MachineError, StateError

if TYPE_CHECKING:
    from ledger.git.commit import Repository

TsaOption = Annotated[
    str | None, typer.Option("--tsa", help="Time-stamping authority (RFC 3161); default: git config ledger.tsa.")
]

ChallengeOption = Annotated[
    str | None, typer.Option("--challenge", help="What an auditor handed over: it goes into the inputs.")
]


def anchor(challenge: str | None) -> str | None:
    """Return the digest of a challenge that goes into the inputs, or None. Raises: InputError."""
    from ledger.evidence.challenge import anchor_of

    return None if challenge is None else anchor_of(challenge)


def challenge(as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False) -> None:
    """Draw a text to hand to whoever is to measure, so that the measurement must come after it."""
    from ledger.evidence.challenge import anchor_of, draw

    text = draw()
    if as_json:
        emit({"challenge": text, "anchor": anchor_of(text)})
        return
    out().print(text, markup=False)
    say(f"they run: ledger verify --challenge {text} SEAL#CELL (or ledger order --challenge …, and ledger measure)")
    say(f"then you run: ledger audit --challenge {text} PATH-or-URL")


def authority(repository: Repository, tsa: str | None) -> str | None:
    """Return the address of the authority that the user named here or in git's settings, or None."""
    if tsa is not None:
        return tsa
    try:
        return repository.git("config", "--get", "ledger.tsa") or None
    except StateError:
        return None


def stamp_records(repository: Repository, paths: Sequence[str], tsa: str | None) -> None:
    """Ask for the tokens of new records; one that is down delays nothing and is said."""
    url = authority(repository, tsa)
    if url is None or not paths:
        return
    from ledger.evidence.timestamps import add_tokens

    try:
        for token in add_tokens(repository, paths, url):
            say(f"time token {token}")
    except MachineError as error:
        say(f"no time token: {error}; the records stand, add it later with: ledger witness --tsa {url}")


def witness(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals to witness; none: every record.")] = None,
    tsa: TsaOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Add the time tokens that records still lack from a time-stamping authority (RFC 3161)."""
    from ledger.evidence.timestamps import add_tokens
    from ledger.workflow.select import select

    place = open_place()
    refuse_if_refused(place.book)
    url = authority(place.repository, tsa)
    if url is None:
        raise InputError("--tsa: not given; expected an authority's address here or in: git config ledger.tsa URL")
    if ids:
        seals = {cell.sealed.id for name in ids for cell in select(place.book, [name])}
    else:
        seals = {sealed.id for sealed in place.book.seals}
    paths = [sealed.path for sealed in place.book.seals if sealed.id in seals]
    paths += [recorded.path for recorded in place.book.records if recorded.measurement.seal in seals]
    tokens = add_tokens(place.repository, paths, url)
    if as_json:
        emit({"tokens": tokens})
    else:
        out().print(f"{len(tokens)} time tokens added; {len(paths) - len(tokens)} records had theirs", markup=False)
