"""The commands that seal: predict and void."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import (
    check_percent,
    parse_ceilings,
    parse_dtype,
    parse_probabilities,
    parse_regime,
    parse_shape,
)
from ledger.cli.output import emit, out, say
from ledger.cli.witness import TsaOption, stamp_records
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from ledger.analysis.campaign import Request
    from ledger.git.commit import Repository
    from ledger.records import CeilingKind
    from ledger.workflow.seal import Draft, SealedCommit

    T = TypeVar("T")


def predict(
    kernel: Annotated[str | None, typer.Argument(help="Kernel to forecast; see: ledger kernels list.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Hardware profile; see: ledger hardware list.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type: fp16, bf16, fp32, ….")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as B=32,H=4096,O=4096.")] = None,
    regime: Annotated[str | None, typer.Option(help="What binds: hbm-bound, compute-bound, ….")] = None,
    pct: Annotated[float | None, typer.Option(help="Percent of the roof that will be reached.")] = None,
    low: Annotated[float | None, typer.Option(help="Lower end of an interval for the percent.")] = None,
    high: Annotated[float | None, typer.Option(help="Upper end of an interval for the percent.")] = None,
    prob: Annotated[str | None, typer.Option(help="Probabilities: hbm-bound=0.8,latency-bound=0.2.")] = None,
    why: Annotated[str, typer.Option(help="The reasoning, in words; sealed with the forecast.")] = "",
    ceilings: Annotated[str | None, typer.Option(help="Roof: datasheet, burst or sustained.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on a CPU (default: all).")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Version to seal of torch, triton, …: torch==2.11.*")] = None,
    source: Annotated[FilePath | None, typer.Option("--from", help="Campaign file: many cells in one seal.")] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commit with git's signing key.")] = False,
    tsa: TsaOption = None,
    check: Annotated[bool, typer.Option("--check", help="Compile before sealing; warn of a wrong roof.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the roof and the forecast; seal nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Seal a forecast before anything is measured; asks, one question at a time, when given nothing."""
    from ledger.analysis.campaign import Request
    from ledger.canonical import record_errors
    from ledger.cli.prompts import ask
    from ledger.git.commit import Repository

    repository = Repository(FilePath.cwd())
    if source is not None:
        if kernel or hw or dtype or shape or regime or pct is not None:
            raise InputError("--from: given together with a single forecast; expected one or the other")
        pins = pin or ()
        paths = _seal_campaign(repository, source, pins=pins, check=check, sign=sign, dry_run=dry_run, as_json=as_json)
        stamp_records(repository, paths, tsa)
        return
    kind = parse_ceilings(ceilings)
    if kernel is None and hw is None and shape is None and sys.stdin.isatty():
        request, kind = ask(repository.root)
    else:
        with record_errors("forecast"):
            request = Request(
                kernel=_given(kernel, "KERNEL"),
                hardware=_given(hw, "--hw"),
                dtype=parse_dtype(_given(dtype, "--dtype")),
                shape=parse_shape(_given(shape, "--shape")),
                regime=parse_regime(_given(regime, "--regime")),
                pct=check_percent(_given(pct, "--pct")),
                low=low,
                high=high,
                prob=None if prob is None else parse_probabilities(prob),
                why=why,
                threads=threads,
            )
    drafts = _drafts(repository, [request], kind, pins=pin or (), check=check)
    paths = _seal(repository, drafts, campaign=None, why="", sign=sign, dry_run=dry_run, as_json=as_json)
    stamp_records(repository, paths, tsa)


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise InputError(f"{name}: not given; expected it (or nothing at all on a terminal, to be asked)")
    return value


def _drafts(
    repository: Repository, requests: Sequence[Request], kind: CeilingKind | None, *, pins: Sequence[str], check: bool
) -> list[Draft]:
    from ledger.cli.inspect import warn_of_other_paths
    from ledger.sources.platform import parse_pin
    from ledger.workflow.seal import check_distinct, draft

    pinned = dict(parse_pin(text) for text in pins)
    drafts = [draft(request, root=repository.root, ceilings=kind, pins=pinned) for request in requests]
    check_distinct(drafts)
    if check:
        warn_of_other_paths(drafts, repository.root)
    return drafts


def _seal_campaign(
    repository: Repository,
    source: FilePath,
    *,
    pins: Sequence[str],
    check: bool,
    sign: bool,
    dry_run: bool,
    as_json: bool,
) -> list[str]:
    from ledger.analysis.campaign import parse_campaign
    from ledger.record_files import parse_yaml, read_bytes
    from ledger.workflow.seal import check_new

    campaign, requests = parse_campaign(parse_yaml(read_bytes(source), what=str(source)), what=str(source))
    check_new(repository, campaign.campaign, repository.head())
    drafts = _drafts(repository, requests, campaign.ceilings, pins=(*campaign.pins, *pins), check=check)
    return _seal(
        repository, drafts, campaign=campaign.campaign, why=campaign.why, sign=sign, dry_run=dry_run, as_json=as_json
    )


def _seal(
    repository: Repository,
    drafts: Sequence[Draft],
    *,
    campaign: str | None,
    why: str,
    sign: bool,
    dry_run: bool,
    as_json: bool,
) -> list[str]:
    from ledger.render.forecast_table import drafts_table
    from ledger.workflow.seal import seal

    if not as_json:
        out().print(drafts_table([item.forecast for item in drafts]))
    if dry_run:
        say("dry run: nothing is sealed")
        return []
    sealed = seal(repository, drafts, campaign=campaign, why=why, sign=sign)
    if sealed.note:
        say(sealed.note)
    _tell(sealed, as_json=as_json)
    return [sealed.path]


def _tell(sealed: SealedCommit, *, as_json: bool) -> None:
    if as_json:
        emit([{"id": sealed.id, "path": sealed.path, "commit": sealed.commit}])
        return
    out().print(f"sealed {sealed.id}", soft_wrap=True)
    out().print(
        f"  file   {sealed.path}\n  commit {sealed.commit}\n  number {sealed.prediction.sequence}", soft_wrap=True
    )
