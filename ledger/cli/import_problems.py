"""The command import: problems of benchmarks become subjects and a campaign file."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption, check_percent, parse_regime
from ledger.cli.output import emit, out, say, working

_SHOWN = ("kernel", "args", "shape", "reference", "definition", "solution", "uuid", "needs_gpu")


def import_problems(
    source: Annotated[FilePath, typer.Argument(help="Folder of problems, or one KernelBench file.")],
    into: Annotated[str, typer.Option(help="Folder of the repository that they are written into.")] = "problems",
    hw: Annotated[str | None, typer.Option("--hw", help="Hardware profile of the campaign.")] = None,
    regime: Annotated[str | None, typer.Option(help="Regime of every cell (default: left to be filled in).")] = None,
    pct: Annotated[float | None, typer.Option(help="Percent of the roof of every cell.")] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out files that cannot be read, instead of stopping.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make subjects of public benchmark problems. flashinfer-trace, SOL-ExecBench or KernelBench; nothing is run."""
    from ledger.errors import InputError
    from ledger.workflow.import_problems import ImportOptions, import_problems

    if (regime is None) != (pct is None):
        raise InputError("import: --regime or --pct is given alone; expected both or neither")
    options = ImportOptions(
        into=into,
        hardware=hw,
        regime=None if regime is None else parse_regime(regime),
        pct=None if pct is None else check_percent(pct),
        skip_invalid=skip_invalid,
    )
    with working("reading problems"):
        done = import_problems(source, find_root() or FilePath.cwd(), options)
    if as_json:
        emit(
            {
                "folder": done.folder,
                "campaigns": done.campaigns,
                "problems": done.problems,
                "cells": [{name: getattr(one, name) for name in _SHOWN} for one in done.cells],
                "skipped": [vars(one) for one in done.skipped],
            }
        )
        return
    for one in done.skipped:
        say(f"no subject: {one.what}: {one.reason}")
    own = sum(one.reference is None for one in done.cells)
    out().print(
        f"{done.problems} problems, {len(done.cells)} cells ({own} against their own reference: self-consistent only), "
        f"{len(done.skipped)} left out",
        soft_wrap=True,
    )
    for path in done.campaigns:
        out().print(f"  campaign {path}", soft_wrap=True)
