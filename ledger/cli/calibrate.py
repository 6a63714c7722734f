"""The command calibrate: measured ceilings of this machine as a profile."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.kept_lists import listed
from ledger.cli.open_ledger import find_root, open_ledger
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, StateError

_ASKED = ("seal", "cell", "state", "hardware")


def calibrate(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About 20 s, with a larger error.")] = False,
    hw: Annotated[str | None, typer.Option("--hw", help="Shipped profile of the CUDA device.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a profile that open seals name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine's ceilings. They are written as a profile with a dated copy."""
    from ledger.workflow.calibrate import write_calibration

    root = find_root()
    if root is None:
        raise InputError("not in a git repository; expected one that holds a ledger: ledger init")
    waiting = (lambda _: []) if force else _open_cells
    written = write_calibration(root, device=device, quick=quick, hw=hw, waiting=waiting, on_progress=say)
    for warning in written.warnings:
        say(f"warning: {warning}")
    paths = [str(path.relative_to(root)) for path in written.paths]
    if as_json:
        emit({"paths": paths, "warnings": list(written.warnings)})
    else:
        for path in paths:
            out().print(f"wrote {path}", markup=False)


def _open_cells(profile: str) -> list[str]:
    """Return the names of open cells of a profile; none where there is no commit yet."""
    from ledger.analysis.book import short_name
    from ledger.git.commit import Repository

    if Repository(FilePath.cwd()).head() is None:
        return []
    ledger = open_ledger(uncommitted_is_refused=False)
    try:
        kept = listed(ledger, "cells", lambda *_: _ASKED)
    except StateError:
        # A shallow clone, which holds no history to ask.
        return []
    rows = zip(*(kept.columns[name] for name in _ASKED), strict=True)
    return [short_name(seal, cell) for seal, cell, state, hardware in rows if (state, hardware) == ("open", profile)]
