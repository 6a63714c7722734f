"""The command claim: seals what a change does to the time of kernels, before it is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import JsonOption, parse_dtype, parse_shape, parse_sight
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.git.commit import Repository
    from ledger.records import Hardware
    from ledger.workflow.claim import Claimed, Subject
    from ledger.workflow.seal import ClaimDraft


def claim(
    subject: Annotated[str | None, typer.Argument(help="Kernel or module:name whose time changes.")] = None,
    base: Annotated[str, typer.Option(help="Commit before the change.")] = "main",
    head: Annotated[str, typer.Option(help="Commit with the change.")] = "HEAD",
    shape: Annotated[str | None, typer.Option(help="Shape, as B=8,H=4096.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type.")] = None,
    args: Annotated[str | None, typer.Option(help="Arguments of a callable, as ledger predict takes them.")] = None,
    ratio: Annotated[float | None, typer.Option(help="Time at base ÷ time at head: above 1 is faster.")] = None,
    low: Annotated[float | None, typer.Option(help="Lowest ratio with which the claim holds.")] = None,
    high: Annotated[float | None, typer.Option(help="Highest ratio with which the claim holds.")] = None,
    unchanged: Annotated[
        str | None, typer.Option(help="Claim that every other case of kernels/ changes by at most this, as 2%.")
    ] = None,
    suite: Annotated[FilePath | None, typer.Option(help="Campaign file whose cells --unchanged is of.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU; calls of several wait for the slowest.")] = 1,
    why: Annotated[str, typer.Option(help="The reason in words.")] = "",
    sight: Annotated[str | None, typer.Option(help="What was timed before: blind, near or informed.")] = None,
    known: Annotated[str, typer.Option(help="What was timed before, in words.")] = "",
    pin: Annotated[list[str] | None, typer.Option(help="Version to seal of torch, triton, …: torch==2.11.*")] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commit with git's signing key.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the claims and seal nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Seal what a change does to the time of kernels. `ledger verify` measures it."""
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.git.commit import Repository
    from ledger.records import is_gpu
    from ledger.sources.platform import parse_pin
    from ledger.workflow.claim import draft_claims
    from ledger.workflow.claim import unchanged as same_time
    from ledger.workflow.compare_suite import suite_requests
    from ledger.workflow.revisions import check_named

    say_nothing = ratio is None and unchanged is None
    if say_nothing or (ratio is None) != (subject is None):
        raise InputError("claim: expected SUBJECT with --ratio, --low and --high, or --unchanged 2%, or both")
    if suite is not None and unchanged is None:
        raise InputError("--suite: names the cells of --unchanged; expected both")
    told = replace(_claimed(1.0, 1.0, 1.0, why, sight, known), pins=dict(parse_pin(text) for text in pin or ()))
    named = _named(subject, shape, dtype, args, ratio, low, high, told)
    others = None if unchanged is None else same_time(_percent(unchanged), told)
    repository = Repository(FilePath.cwd())
    repository.recover()
    check_named(repository.root, base, head)
    hardware = profile_of_this_machine(repository.root, hw)
    with working("resolving both commits"):
        drafts, left_out = draft_claims(
            repository,
            hardware,
            base=base,
            head=head,
            named=named,
            others=others,
            suite=() if suite is None else suite_requests(suite, hardware.name),
            threads=None if is_gpu(hardware.target) else threads,
        )
    for line in (*left_out, *_narrow(drafts)):
        say(line)
    _seal(repository, drafts, hardware, why, sign=sign, dry_run=dry_run, as_json=as_json)


def _narrow(drafts: Sequence[ClaimDraft]) -> list[str]:
    """Return what is to be told of intervals that are narrower than a measurement's; the first says it for all."""
    from ledger.analysis.claims import seldom_holds

    found = (seldom_holds(one.claim.protocol, one.claim.low_ppm / 1e6, one.claim.high_ppm / 1e6) for one in drafts)
    return list(dict.fromkeys(filter(None, found)))


def _percent(text: str) -> float:
    """Return 0.02 for 2% or 2. Raises: InputError."""
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError as error:
        raise InputError(f"--unchanged: got {text!r}; expected a percentage, as 2%") from error


def _claimed(ratio: float, low: float, high: float, why: str, sight: str | None, known: str) -> Claimed:
    from ledger.workflow.claim import Claimed

    return Claimed(ratio, low, high, why, parse_sight(sight), known)


def _named(
    name: str | None,
    shape: str | None,
    dtype: str | None,
    args: str | None,
    ratio: float | None,
    low: float | None,
    high: float | None,
    told: Claimed,
) -> tuple[Subject, Claimed] | None:
    """Return the case of which a ratio is claimed, with the claim. told: what else it says. Raises: InputError."""
    from ledger.workflow.claim import Subject

    if name is None or ratio is None:
        return None
    if low is None or high is None:
        raise InputError(f"--ratio {ratio:g}: without an interval nothing can fail; expected --low and --high")
    subject = Subject(
        name,
        None if shape is None else parse_shape(shape),
        None if dtype is None else parse_dtype(dtype),
        args,
    )
    return subject, replace(told, ratio=ratio, low=low, high=high)


def _seal(
    repository: Repository,
    drafts: Sequence[ClaimDraft],
    hardware: Hardware,
    why: str,
    *,
    sign: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from ledger.render.claim_text import case_words, claimed_text
    from ledger.render.tables import print_rows
    from ledger.workflow.seal import seal

    if not as_json:
        rows = [
            (case_words(one.claim.case), one.claim.base.commit[:7], one.claim.head.commit[:7], claimed_text(one.claim))
            for one in drafts
        ]
        print_rows(out(), ("case", "base", "head", "claimed"), rows, folding=("case",))
    if dry_run:
        say("dry run: nothing is sealed")
        return
    with working("sealing"):
        sealed = seal(repository, (), why=why, sign=sign, claims=drafts)
    if sealed.note:
        say(sealed.note)
    if as_json:
        emit([{"id": sealed.id, "path": sealed.path, "commit": sealed.commit}])
        return
    out().print(f"sealed {sealed.id}\n  file   {sealed.path}\n  commit {sealed.commit}", soft_wrap=True)
    say(f"measure it where {hardware.title} is: ledger verify")
