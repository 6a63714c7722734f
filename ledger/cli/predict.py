"""The command predict: seals a forecast, or a campaign of forecasts."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ledger.cli.options import (
    JsonOption,
    check_interval,
    check_percent,
    parse_ceilings,
    parse_dtype,
    parse_probabilities,
    parse_regime,
    parse_shape,
    parse_sight,
)
from ledger.cli.output import emit, out, say, working
from ledger.cli.witness import LogOption, TsaOption, log_records, stamp_records
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.campaign import Request
    from ledger.git.commit import Repository
    from ledger.records import CeilingKind
    from ledger.workflow.seal import Draft, SealedCommit


T = TypeVar("T")


def predict(
    kernel: Annotated[
        str | None, typer.Argument(help="Kernel to forecast, see: ledger kernels list; or a callable, module:name.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Hardware profile; see: ledger hardware list.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type: fp16, bf16, fp32, ….")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as B=32,H=4096,O=4096.")] = None,
    regime: Annotated[str | None, typer.Option(help="What binds: hbm-bound, compute-bound, ….")] = None,
    pct: Annotated[float | None, typer.Option(help="Percent of the roof that will be reached.")] = None,
    low: Annotated[float | None, typer.Option(help="Lower end of an interval for the percent.")] = None,
    high: Annotated[float | None, typer.Option(help="Upper end of an interval for the percent.")] = None,
    prob: Annotated[str | None, typer.Option(help="Probabilities: hbm-bound=0.8,latency-bound=0.2.")] = None,
    why: Annotated[str, typer.Option(help="The reasoning; sealed with the forecast.")] = "",
    sight: Annotated[str | None, typer.Option(help="What had been timed before: blind, near or informed.")] = None,
    known: Annotated[str, typer.Option(help="What had been timed, in a sentence; sealed with the sight.")] = "",
    ceilings: Annotated[str | None, typer.Option(help="Roof: datasheet, burst or sustained.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on a CPU (default: all).")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Version to seal of torch, triton, …: torch==2.11.*")] = None,
    args: Annotated[
        str | None, typer.Option(help="Arguments of a callable: 'x=fp16[B,2*H] ids=i64[B]<32000 eps=1e-6'.")
    ] = None,
    run: Annotated[str | None, typer.Option("--pass", help="Of a callable: forward, backward or both.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="What a callable is compared with in float64, module:name (default: itself).")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Of a callable: error allowed, as a share of each result's root mean square.")
    ] = None,
    flops: Annotated[int | None, typer.Option(min=0, help="Operations of one call of a callable.")] = None,
    moved: Annotated[int | None, typer.Option("--bytes", min=1, help="Bytes that one call must move.")] = None,
    source: Annotated[FilePath | None, typer.Option("--from", help="Campaign file: many cells in one seal.")] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commit with git's signing key.")] = False,
    tsa: TsaOption = None,
    log: LogOption = False,
    check: Annotated[bool, typer.Option("--check", help="Compile before sealing; warn of a wrong roof.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the roof and the forecast; seal nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Seal a forecast before anything is measured; asks, one question at a time, when given nothing."""
    from ledger.analysis.campaign import Request
    from ledger.canonical import record_errors
    from ledger.cli.prompts import ask
    from ledger.git.commit import Repository

    repository = Repository(FilePath.cwd())
    sealing = _Sealing(
        repository, pins=pin or (), tsa=tsa, log=log, sign=sign, check=check, dry_run=dry_run, as_json=as_json
    )
    if source is not None:
        if kernel or hw or dtype or shape or regime or sight or known or args or pct is not None:
            raise InputError("--from: given together with a single forecast; expected one or the other")
        sealing.campaign(source)
        return
    kind = parse_ceilings(ceilings)
    if kernel is None and hw is None and shape is None and sys.stdin.isatty():
        request, kind = ask(repository.root)
        sealing = replace(sealing, confirm=True)
    else:
        if pct is not None:
            check_interval(pct, low, high)
        with record_errors("forecast"):
            request = Request(
                kernel=_given(kernel, "KERNEL"),
                hardware=_given(hw, "--hw"),
                **_subject(kernel, dtype, shape, args, run, reference, tolerance, flops, moved),
                regime=parse_regime(_given(regime, "--regime")),
                pct=check_percent(_given(pct, "--pct")),
                low=low,
                high=high,
                prob=None if prob is None else parse_probabilities(prob),
                why=why,
                sight=parse_sight(sight),
                known=known,
                threads=threads,
            )
    sealing.forecasts([request], kind)


def _subject(
    kernel: str | None,
    dtype: str | None,
    shape: str | None,
    args: str | None,
    run: str | None,
    reference: str | None,
    tolerance: float | None,
    flops: int | None,
    moved: int | None,
) -> dict[str, Any]:
    """Return what says what is called; a kernel needs a dtype and a shape, a callable may do without."""
    from ledger.callables.subject import is_callable

    if kernel is None or not is_callable(kernel):
        dtype, shape = _given(dtype, "--dtype"), _given(shape, "--shape")
    return {
        "dtype": None if dtype is None else parse_dtype(dtype),
        "shape": {} if shape is None else parse_shape(shape),
        "args": args,
        "pass": run,
        "reference": reference,
        "tolerance": tolerance,
        "flops": flops,
        "bytes": moved,
    }


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise InputError(f"{name}: not given; expected it (or nothing at all on a terminal, to be asked)")
    return value


@dataclass(frozen=True, kw_only=True)
class _Sealing:
    """Seal forecasts with the options that a single forecast and a campaign share."""

    repository: Repository = field(kw_only=False)
    pins: Sequence[str]
    tsa: str | None
    log: bool
    sign: bool
    check: bool
    dry_run: bool
    as_json: bool
    confirm: bool = False

    def campaign(self, source: FilePath) -> None:
        """Seal the campaign of a file."""
        from ledger.analysis.campaign import parse_campaign
        from ledger.record_files import parse_yaml, read_bytes
        from ledger.workflow.seal import check_new

        campaign, requests = parse_campaign(parse_yaml(read_bytes(source), what=str(source)), what=str(source))
        check_new(self.repository, campaign.campaign, self.repository.head())
        drafts = self._drafts(requests, campaign.ceilings, pins=(*campaign.pins, *self.pins))
        self._seal(drafts, campaign=campaign.campaign, why=campaign.why)

    def forecasts(self, requests: Sequence[Request], ceilings: CeilingKind | None) -> None:
        """Seal forecasts that are no campaign."""
        self._seal(self._drafts(requests, ceilings, pins=self.pins), campaign=None, why="")

    def _drafts(self, requests: Sequence[Request], kind: CeilingKind | None, *, pins: Sequence[str]) -> list[Draft]:
        from ledger.sources.platform import parse_pin
        from ledger.workflow.path_check import check_paths
        from ledger.workflow.seal import check_distinct, draft
        from ledger.workflow.sight import with_sights

        pinned = dict(parse_pin(text) for text in pins)
        with working("resolving"):
            drafts = [draft(request, root=self.repository.root, ceilings=kind, pins=pinned) for request in requests]
            check_distinct(drafts)
        with working("looking for what was timed before"):
            drafts, told = with_sights(self.repository, drafts)
        with working("compiling"):
            told += check_paths(drafts, self.repository.root) if self.check else ()
        for line in told:
            say(line)
        return drafts

    def _seal(self, drafts: Sequence[Draft], *, campaign: str | None, why: str) -> None:
        from ledger.cli.prompts import confirmed
        from ledger.render.forecast_table import drafts_table
        from ledger.workflow.seal import seal

        if not self.as_json:
            out().print(drafts_table([item.forecast for item in drafts]))
        if self.dry_run:
            say("dry run: nothing is sealed")
            return
        if self.confirm and not confirmed("Seal this forecast? It cannot be changed later"):
            say("nothing is sealed")
            return
        with working("sealing"):
            sealed = seal(self.repository, drafts, campaign=campaign, why=why, sign=self.sign)
        if sealed.note:
            say(sealed.note)
        _show(sealed, as_json=self.as_json)
        stamp_records(self.repository, [sealed.path], self.tsa)
        log_records(self.repository, [sealed.path], self.tsa, wanted=self.log)


def _show(sealed: SealedCommit, *, as_json: bool) -> None:
    if as_json:
        emit([{"id": sealed.id, "path": sealed.path, "commit": sealed.commit}])
        return
    out().print(f"sealed {sealed.id}", soft_wrap=True)
    out().print(
        f"  file   {sealed.path}\n  commit {sealed.commit}\n  number {sealed.prediction.sequence}", soft_wrap=True
    )
