"""The command reveal: opens hidden forecasts."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say
from ledger.errors import InputError


def reveal(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals or SEAL#CELL names; none: every hidden one.")] = None,
    source: Annotated[
        FilePath | None, typer.Option("--from", help="Folder with the kept texts (default: ledger/hidden in .git).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reveal hidden forecasts, as they were sealed. Those never revealed count as missing."""
    from ledger.workflow import hidden

    opened = open_ledger()
    refuse_if_refused(opened.book)
    folder = source or hidden.vault(opened.repository)
    found, lost = hidden.openings(folder, hidden.chosen(opened.book, ids or []))
    if not found:
        raise InputError(f"{folder}: has no text of {', '.join(lost[:5])}; expected it there: {hidden.LOST}")
    made = hidden.reveal(opened.repository, found)
    if as_json:
        emit([{"id": identity, "path": path, "commit": written.commit} for identity, path, written in made])
    else:
        for identity, path, written in made:
            out().print(f"revealed {identity}\n  file   {path}\n  commit {written.commit}", soft_wrap=True)
    for _, _, written in made:
        if written.index_note:
            say(written.index_note)
    if lost:
        raise InputError(f"{folder}: has no text of {', '.join(lost[:5])}; the rest is revealed. {hidden.LOST}")
