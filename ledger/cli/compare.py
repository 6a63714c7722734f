"""The command compare: the kernels and callables of two commits, timed in turn on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import DeviceOption, JsonOption, parse_dtype, parse_shape
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, MachineError, ThresholdMissed

if TYPE_CHECKING:
    from ledger.analysis.book import ClaimView
    from ledger.records import Hardware
    from ledger.workflow.compare_plan import Wanted


def compare(
    base: Annotated[str, typer.Argument(help="Commit to compare with, as main or HEAD~1.")],
    head: Annotated[str, typer.Argument(help="Commit that is judged.")] = "HEAD",
    subject: Annotated[
        list[str] | None, typer.Argument(help="Kernels or module:name (default: the repository's kernels).")
    ] = None,
    suite: Annotated[FilePath | None, typer.Option(help="Campaign file whose cells are compared.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape, as B=8,H=4096; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Data type; may be repeated (default: all).")] = None,
    args: Annotated[str | None, typer.Option(help="Arguments of a callable, as ledger predict takes them.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    device: DeviceOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Time unchanged subjects too.")] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only say what would be timed; needs no device.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a comment.")] = False,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="Markdown file to write.")] = None,
    fail_on_regress: Annotated[
        bool, typer.Option("--fail-on-regress", help="Exit 1 for a case that is slower, wrong or failed.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU; calls of several wait for the slowest.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Time two commits and call what exceeds the noise. Exit 2 where the base of a case fails: no verdict."""
    from ledger.device.gpu_selection import select_device
    from ledger.workflow.compare import failing, without_verdict
    from ledger.workflow.revisions import check_named

    check_named(FilePath.cwd(), base, head)
    select_device(device)
    wanted = partial(_wanted, subject, suite, shape, dtype, args, everything=everything, threads=threads)
    document = _compared(base, head, hw, wanted, plan_only=plan_only)
    _show(document, output, markdown=markdown, as_json=as_json)
    if fail_on_regress and (worse := failing(document)):
        raise ThresholdMissed(f"{len(worse)} of {len(document['rows'])} cases failed the gate: {'; '.join(worse)}")
    if failed := without_verdict(document):
        raise MachineError(
            f"no verdict on {len(failed)} of {len(document['rows'])} cases: {'; '.join(failed)}; expected a base that "
            "runs here: compare with another commit, or name the subjects to compare"
        )


def _compared(
    base: str, head: str, hw: str | None, wanted: Callable[[Hardware], Wanted], *, plan_only: bool
) -> dict[str, Any]:
    from ledger.device.local_profile import profile_of_comparison
    from ledger.workflow.compare import compare as run
    from ledger.workflow.compare import document_of
    from ledger.workflow.compare_plan import plan
    from ledger.workflow.revisions import two_sides

    with two_sides(FilePath.cwd(), base, head) as (first, second):
        for text in filter(None, (first.missing_text, second.missing_text)):
            say(text)
        hardware = profile_of_comparison(first.root, find_root(), hw)
        planned = plan(first, second, hardware, wanted(hardware), on_progress=_stage("plan"))
        if plan_only:
            return document_of(planned, first, second, hardware)
        return run(planned, first, second, hardware, claims=_sealed_claims(), on_progress=_stage("time"))


def _sealed_claims() -> Sequence[ClaimView]:
    """Return the claims of the ledger at HEAD; none where there is no ledger, or one that cannot be read."""
    from contextlib import suppress

    from ledger.cli.open_ledger import open_ledger
    from ledger.errors import LedgerError

    with suppress(LedgerError):
        return open_ledger(uncommitted_is_refused=False).book.claims
    return ()


def _stage(name: str) -> Callable[[str], None]:
    return lambda text: say(f"{name}: {text}")


def _wanted(
    subjects: list[str] | None,
    suite: FilePath | None,
    shapes: list[str] | None,
    dtypes: list[str] | None,
    args: str | None,
    hardware: Hardware,
    *,
    everything: bool,
    threads: int,
) -> Wanted:
    from ledger.records import is_gpu
    from ledger.workflow.compare_plan import Wanted
    from ledger.workflow.compare_suite import suite_requests

    if suite is not None and (subjects or shapes or dtypes or args):
        raise InputError("--suite: given with subjects, --shape, --dtype or --args; expected the file alone")
    if (shapes or args) and len(subjects or ()) != 1:
        raise InputError("--shape and --args: are of one subject; expected its name after the two commits")
    return Wanted(
        names=tuple(subjects or ()),
        shapes=tuple(parse_shape(one) for one in shapes or ()),
        dtypes=tuple(parse_dtype(one) for one in dtypes or ()),
        args=args,
        requests=() if suite is None else suite_requests(suite, hardware.name),
        everything=everything,
        threads=None if is_gpu(hardware.target) else threads,
    )


def _show(document: dict[str, Any], output: FilePath | None, *, markdown: bool, as_json: bool) -> None:
    from ledger.record_files import write_atomically
    from ledger.render.comparison_text import FOLDING, HEADINGS, render_markdown, summary_lines, table_rows
    from ledger.render.tables import print_rows

    if output is not None:
        write_atomically(output, render_markdown(document).encode())
    if as_json:
        emit(document)
    elif markdown:
        out().print(render_markdown(document), markup=False, soft_wrap=True, end="")
    else:
        if rows := table_rows(document):
            print_rows(out(), HEADINGS, rows, folding=FOLDING)
        for line in summary_lines(document):
            out().print(line, markup=False, soft_wrap=True)
