"""The command export: a repository's problems and measured cells in the form of a benchmark."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError


def export(
    to: Annotated[FilePath, typer.Option("--out", "-o", help="Folder that is written.")],
    format: Annotated[str, typer.Option("--format", help="flashinfer-trace.")] = "flashinfer-trace",
    problems: Annotated[str, typer.Option(help="Folder that problems were imported into.")] = "problems",
    as_json: JsonOption = False,
) -> None:
    """Write definitions, workloads, solutions and traces. Imported documents keep their bytes."""
    from ledger.workflow.export_traces import FORMAT, export_traces

    if format != FORMAT:
        raise InputError(f"--format: got {format!r}; expected {FORMAT}")
    opened = open_ledger()
    refuse_if_refused(opened.book)
    with working("writing traces"):
        done = export_traces(opened.root, opened.book, to, problems=problems)
    for one in done.skipped:
        say(f"left out: {one.what}: {one.reason}")
    counts = {name: getattr(done, name) for name in ("definitions", "solutions", "workloads", "traces")}
    if as_json:
        emit({"format": FORMAT, "folder": str(to), **counts, "skipped": [vars(one) for one in done.skipped]})
    else:
        out().print(f"{to}: " + ", ".join(f"{count} {name}" for name, count in counts.items()), soft_wrap=True)
