"""The command predict: seals a forecast, or a campaign of forecasts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ledger.cli.options import (
    ArgsOption,
    BytesOption,
    FlopsOption,
    JsonOption,
    PassOption,
    PercentOption,
    ProgramOption,
    ReferenceOption,
    check_interval,
    check_percent,
    check_sight,
    parse_ceilings,
    parse_dtype,
    parse_pass,
    parse_probabilities,
    parse_regime,
    parse_shape,
    parse_sight,
)
from ledger.cli.witness import LogOption, TsaOption
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.workflow.seal import Draft


T = TypeVar("T")


def predict(
    kernel: Annotated[
        str | None, typer.Argument(help="Kernel to forecast, see: ledger kernels list; or a callable, module:name.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Hardware profile; see: ledger hardware list.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type: fp16, bf16, fp32, ….")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as B=32,H=4096,O=4096.")] = None,
    regime: Annotated[str | None, typer.Option(help="What binds: hbm-bound, compute-bound, ….")] = None,
    pct: Annotated[float | None, PercentOption(help="Percent of the roof that will be reached.")] = None,
    low: Annotated[float | None, PercentOption(help="Lower end of an interval for the percent.")] = None,
    high: Annotated[float | None, PercentOption(help="Upper end of an interval for the percent.")] = None,
    prob: Annotated[str | None, typer.Option(help="Probabilities: hbm-bound=0.8,latency-bound=0.2.")] = None,
    why: Annotated[str, typer.Option(help="The reasoning; sealed with the forecast.")] = "",
    sight: Annotated[str | None, typer.Option(help="What had been timed before: blind, near or informed.")] = None,
    known: Annotated[str, typer.Option(help="What had been timed, in a sentence; sealed with the sight.")] = "",
    ceilings: Annotated[str | None, typer.Option(help="Roof: datasheet, burst or sustained.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on a CPU (default: all).")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Version to seal of torch, triton, …: torch==2.11.*")] = None,
    args: ArgsOption = None,
    run: PassOption = None,
    reference: ReferenceOption = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Of a callable: error allowed, as a share of each result's root mean square.")
    ] = None,
    flops: FlopsOption = None,
    moved: BytesOption = None,
    source: Annotated[FilePath | None, typer.Option("--from", help="Campaign file: many cells in one seal.")] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Forecasters, comma-separated: a seal each; see: ledger forecast.")
    ] = None,
    program: ProgramOption = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Seal a salted digest; ledger reveal opens it, unrevealed is missing.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what the built-in forecasters say, once the forecast is sealed.")
    ] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commit with git's signing key.")] = False,
    tsa: TsaOption = None,
    log: LogOption = False,
    check: Annotated[bool, typer.Option("--check", help="Compile before sealing; warn of a wrong roof.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the roof and the forecast; seal nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Seal a forecast before anything is measured. Asks, one question at a time, when given nothing."""
    from ledger.analysis.campaign import CellRequest, Request
    from ledger.canonical import record_errors
    from ledger.cli.named import sealed_by
    from ledger.cli.prompts import ask
    from ledger.cli.sealing import Sealing
    from ledger.git.commit import Repository

    repository = Repository(FilePath.cwd())
    sealing = Sealing(
        repository,
        pins=pin or (),
        tsa=tsa,
        log=log,
        sign=sign,
        check=check,
        dry_run=dry_run,
        as_json=as_json,
        hidden=hidden,
    )
    if compare and (source is not None or by is not None or program):
        raise InputError("--compare: expected with a single forecast of your own; for others see ledger forecast")
    if hidden and (by is not None or program):
        raise InputError(
            "--hidden: given together with --by, whose answers are sealed in the open; expected one of them"
        )
    if source is not None:
        if kernel or hw or dtype or shape or regime or sight or known or args or pct is not None:
            raise InputError("--from: given together with a single forecast; expected one or the other")
        if by is None and not program:
            sealing.campaign(source)
        else:
            sealed_by(by, sealing, programs=program or (), source=source)
        return
    kind = parse_ceilings(ceilings)
    seen = parse_sight(sight)
    check_sight(seen, known)
    cell: dict[str, Any] = {"why": why, "sight": seen, "known": known, "threads": threads}
    called = (args, run, reference, tolerance, flops, moved)
    if by is not None or program:
        if regime or prob or why or pct is not None or low is not None or high is not None:
            raise InputError("--by: given together with a forecast of your own; expected one or the other")
        with record_errors("cell"):
            asked = CellRequest(
                kernel=_given(kernel, "KERNEL"),
                hardware=_given(hw, "--hw"),
                **_subject(kernel, dtype, shape, *called),
                **cell,
            )
        sealed_by(by, sealing, programs=program or (), cells=[asked], ceilings=kind)
        return
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
                **_subject(kernel, dtype, shape, *called),
                regime=parse_regime(_given(regime, "--regime")),
                pct=check_percent(_given(pct, "--pct")),
                low=low,
                high=high,
                prob=None if prob is None else parse_probabilities(prob),
                **cell,
            )
    drafts = sealing.forecasts([request], kind)
    if compare:
        _compare(drafts)


def _compare(drafts: Sequence[Draft]) -> None:
    """Print, on stderr, what the built-in forecasters say of cells that are sealed already."""
    from ledger.cli.named import known_now
    from ledger.cli.output import err
    from ledger.forecasters.answer import Question
    from ledger.forecasters.registry import answers, forecasters_named
    from ledger.render.answers_text import render_answers

    earlier = known_now().runs
    for item in drafts:
        forecast = item.forecast
        question = Question(forecast.case, forecast.work, forecast.roof, item.hardware, earlier)
        render_answers([(question, answers(question, forecasters_named(None)))], err())


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
        if kernel is not None and (dtype is None or shape is None):
            _check_kernel(kernel)
        dtype, shape = _given(dtype, "--dtype"), _given(shape, "--shape")
    return {
        "dtype": None if dtype is None else parse_dtype(dtype),
        "shape": {} if shape is None else parse_shape(shape),
        "args": args,
        "pass": parse_pass(run),
        "reference": reference,
        "tolerance": tolerance,
        "flops": flops,
        "bytes": moved,
    }


def _check_kernel(name: str) -> None:
    """Check that a kernel has this name, where neither dtype nor shape is given. Raises: UnknownName."""
    from ledger.cli.open_ledger import find_root
    from ledger.errors import UnknownName
    from ledger.kernel_files import kernel_names
    from ledger.suggestions import did_you_mean

    known = kernel_names(find_root())
    if name not in known:
        near = did_you_mean(name, known)
        raise UnknownName(
            f"kernel {name[:80]!r} is not known{near}; expected one of ledger kernels list, or a callable: module:name"
        )


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise InputError(f"{name}: not given; expected it (or nothing at all on a terminal, to be asked)")
    return value
