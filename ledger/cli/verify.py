"""The command verify: measures open cells or ingests results, then reconciles and commits them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.challenge import ChallengeOption, anchor
from ledger.cli.fleet import NodeLimitOption, RayOption, check_ray, run_on_fleet
from ledger.cli.measure import run_locally, show_summary
from ledger.cli.open_ledger import OpenLedger, freeze_records, open_ledger, refuse_if_refused
from ledger.cli.options import (
    AgainOption,
    CountersOption,
    DeviceOption,
    FullOption,
    Ids,
    JsonOption,
    OnceOption,
    PriceOption,
    TimeLimitOption,
)
from ledger.cli.order import report_stale
from ledger.cli.output import emit, out, say, working
from ledger.cli.report import check_miss
from ledger.cli.witness import LogOption, TsaOption, log_records, stamp_records
from ledger.errors import EvidenceRefused, InputError, MachineError

if TYPE_CHECKING:
    from ledger.analysis.book import CellView, ClaimView
    from ledger.measure.run_order import RunSummary
    from ledger.records import Order
    from ledger.workflow.ingest import Incoming, Ingested


def verify(
    ids: Ids = None,
    source: Annotated[FilePath | None, typer.Option("--from", help="Folder written by: ledger measure.")] = None,
    again: AgainOption = False,
    once: OnceOption = False,
    counters: CountersOption = "auto",
    full: FullOption = None,
    device: DeviceOption = None,
    challenge: ChallengeOption = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commits with git's signing key.")] = False,
    tsa: TsaOption = None,
    log: LogOption = False,
    ncu_report: Annotated[
        FilePath | None,
        typer.Option(help="Counters of --cell in --from: ncu's report or raw-page CSV, rocprofv3's CSV or JSON."),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="SEAL#CELL that --ncu-report is of.")] = None,
    keep_report: Annotated[
        bool, typer.Option("--keep-report", help="Commit that report too; it may hold paths and names.")
    ] = False,
    ray: RayOption = None,
    node_limit: NodeLimitOption = None,
    time_limit: TimeLimitOption = None,
    price_per_hour: PriceOption = None,
    fail_on_miss: Annotated[
        float | None, typer.Option(min=0, help="Exit 1 when a gap is larger than this many points.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure open cells, commit and reconcile them. With --from, take in what was measured elsewhere."""
    from ledger.analysis.refusals import check_failures
    from ledger.device.gpu_selection import select_device
    from ledger.workflow.ingest import Ingested, read_folder

    select_device(device)
    _check_options(source, challenge, ncu_report, cell, again=again, once=once, ray=ray)
    check_ray(ray, node_limit, device)
    with _alone() as waited:
        opened = open_ledger()
        folder = source or opened.repository.git_dir / "ledger" / "measuring"
        summary, elsewhere, stopped = None, "", None
        if source is None:
            claims, names = _claims(opened, ids, again=again, ray=ray)
            if waited and not ids and not again and not (claims or _open_cells(opened)):
                _show_ingested(Ingested((), opened.book), as_json=as_json)
                return
            if not claims or names or (_open_cells(opened) and not ids):
                run = partial(_run, opened.root, folder, counters, full, time_limit, ray, node_limit)
                summary, elsewhere = _measure(
                    opened, names, folder, run, challenge, price_per_hour,
                    again=again, once=once, ray=ray, beside_claims=bool(claims),
                )  # fmt: skip
        measured = source is not None or summary is not None
        incoming = read_folder(folder, say, opened.history.tree) if measured else []
        if source is None:
            settled, stopped = _settle(opened, claims, required=bool(ids) or summary is None)
            incoming += settled
            if stopped is not None and not incoming:
                raise stopped
        if ncu_report is not None and cell is not None:
            incoming = _with_counters(opened, incoming, ncu_report, cell, keep=keep_report)
        if source is not None and ids:
            incoming = _only_named(opened, incoming, ids)
        _show_revealed(opened, incoming)
        done = _ingest(opened, incoming, tsa, sign=sign, log=log)
        # The attempts at what no node could measure stay for its record.
        over = summary is not None and not summary.interrupted and (ray is None or not summary.unloaded)
        if over and not any(item.refused for item in done.taken):
            shutil.rmtree(folder)
    _show_ingested(done, as_json=as_json, kept=folder if source is None else None)
    if stopped is not None:
        raise stopped
    if summary is not None and summary.interrupted:
        raise KeyboardInterrupt
    taken = {item.cell for item in done.taken}
    check_failures((item.short_name, item.measurement.failure) for item in incoming if item.short_name in taken)
    if summary is not None:
        summary.check_loaded()
    if elsewhere:
        raise MachineError(elsewhere)
    if fail_on_miss is not None:
        check_miss(done.book, fail_on_miss, taken)


def _open_cells(opened: OpenLedger) -> bool:
    return any(view.state == "open" for view in opened.book.cells)


def _claims(
    opened: OpenLedger, ids: list[str] | None, *, again: bool, ray: str | None
) -> tuple[list[ClaimView], list[str]]:
    """Return the claims that are to be settled, and the names that are of cells. Raises: InputError."""
    from ledger.workflow.select import select_claims

    claims, names = ([], ids or []) if again else select_claims(opened.book, ids or [])
    if ray is None:
        return claims, names
    if claims and ids:
        raise InputError(f"{claims[0].short_name}: is a claim; expected cells with --ray: settle it without")
    for view in claims:
        say(f"skipped {view.short_name}: a claim is settled without --ray")
    return [], names


def _settle(
    opened: OpenLedger, claims: Sequence[ClaimView], *, required: bool
) -> tuple[list[Incoming], BaseException | None]:
    """Time the claims whose device is here, naming the others; return the records, and what ended it early.

    required: it is an error when there is none to time here.
    """
    from ledger.workflow.ingest import incoming_of
    from ledger.workflow.local_cells import split_claims_by_device
    from ledger.workflow.settle import settle

    made: list[Incoming] = []
    if not claims:
        return made, None
    refuse_if_refused(opened.book)
    here, elsewhere = split_claims_by_device(claims)
    for view, reason in elsewhere:
        say(f"skipped {view.short_name}: {reason}")
    try:
        for record in settle(here, opened.root, on_progress=lambda text: say(f"claim {text}")):
            made.append(incoming_of(record, {}))
    # What was timed is kept, whatever comes after it.
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001
        return made, error
    if required and not made:
        return made, MachineError("none of the claims can be settled here, for the reasons above")
    return made, None


@contextmanager
def _alone() -> Iterator[bool]:
    """Let one verify at a time measure and ingest in a repository; yield whether another one was waited for."""
    from ledger.git.commit import Repository

    def told() -> None:
        say("waiting: another ledger verify is at work in this repository")

    with Repository(FilePath.cwd()).locked("verify", told) as waited:
        yield waited


def _ingest(opened: OpenLedger, incoming: list[Incoming], tsa: str | None, *, sign: bool, log: bool) -> Ingested:
    """Commit measurements, their time tokens and log entries. Raises: EvidenceRefused for a ledger that is refused."""
    from ledger.workflow.ingest import ingest

    with working("judging and committing the measurements"):
        done = ingest(
            opened.repository, opened.reader, incoming, history=opened.history, current=opened.current, sign=sign
        )
    freeze_records()
    refuse_if_refused(done.book)
    refused = {item.path for item in done.taken if item.refused}
    held = [item.path for item in incoming if item.path not in refused]
    stamp_records(opened.repository, held, tsa)
    log_records(opened.repository, held, tsa, wanted=log)
    return done


def _check_options(
    source: FilePath | None,
    challenge: str | None,
    ncu_report: FilePath | None,
    cell: str | None,
    *,
    again: bool,
    once: bool,
    ray: str | None,
) -> None:
    if ray is not None and source is not None:
        raise InputError("--ray: expected without --from, which was measured already")
    for name, given in (("--again", again), ("--once", once)):
        if given and source is not None:
            raise InputError(f"{name}: expected without --from, which was measured already: give it to ledger order")
    if (ncu_report is None) != (cell is None) or (ncu_report is not None and source is None):
        raise InputError("--ncu-report: expected together with --cell SEAL#CELL and --from DIR, where it was measured")
    if challenge is not None and source is not None:
        raise InputError("--challenge: expected without --from, which was measured already: give it to ledger order")


def _run(
    root: FilePath,
    folder: FilePath,
    counters: str,
    full: list[str] | None,
    time_limit: float | None,
    ray: str | None,
    node_limit: float | None,
    record: Order,
) -> RunSummary:
    """Run an order of this repository here, or on a cluster."""
    if ray is None:
        return run_locally(record, folder, counters, full, root, time_limit)
    return run_on_fleet(
        record, folder, ray, counters=counters, full=full, time_limit_s=time_limit, node_limit_s=node_limit, root=root
    )


def _measure(
    opened: OpenLedger,
    ids: Sequence[str],
    folder: FilePath,
    run: Callable[[Order], RunSummary],
    challenge: str | None,
    price: float | None,
    *,
    again: bool,
    once: bool,
    ray: str | None,
    beside_claims: bool,
) -> tuple[RunSummary | None, str]:
    """Measure what can be measured, naming the rest; return also which cells that were asked for are elsewhere.

    beside_claims: claims are settled where no cell can be measured. Raises: MachineError where neither can be;
    KeyboardInterrupt or InputError where nothing was measured.
    """
    from ledger.analysis.formatting import count_text
    from ledger.workflow.local_cells import split_by_device
    from ledger.workflow.order import write_order
    from ledger.workflow.select import select

    refuse_if_refused(opened.book)
    report_stale(opened, ids)
    chosen = select(opened.book, ids, again=again, once=once)
    here, elsewhere = split_by_device(chosen) if ray is None else (list(chosen), [])
    if elsewhere and not here and not beside_claims:
        raise MachineError(_all_elsewhere(elsewhere))
    for cell, reason in elsewhere:
        say(f"skipped {cell.short_name}: {reason}")
    if elsewhere and not here:
        return None, _not_here([cell.short_name for cell, _ in elsewhere], ids)
    summary = run(write_order(here, root=opened.root, anchor=anchor(challenge)))
    show_summary(summary, price, as_json=False)
    if summary.interrupted:
        left = len(here) - summary.measured - summary.failed - summary.skipped
        say(f"interrupted; still open: {count_text(left, 'cell')}")
    if not any(folder.glob("*.json")):
        if summary.interrupted:
            raise KeyboardInterrupt
        summary.check_loaded()
    return summary, _not_here([cell.short_name for cell, _ in elsewhere], ids)


def _all_elsewhere(cells: Sequence[tuple[CellView, str]]) -> str:
    """Return the message where no cell can be measured here: which device they need, and how they get there."""
    from ledger.analysis.formatting import count_text

    devices = sorted({cell.forecast.case.hardware for cell, _ in cells})
    return (
        f"{count_text(len(cells), 'cell')} of {', '.join(devices)} and none for this machine ({cells[0][1]}); expected "
        "one; take them to their device with: ledger order -o order.json, there: ledger measure order.json"
    )


def _not_here(elsewhere: Sequence[str], ids: Sequence[str]) -> str:
    """Return the message about cells that a user named and that cannot be measured here, empty where none was named."""
    if not ids or not elsewhere:
        return ""
    return f"not measured, for the reasons above: {', '.join(elsewhere)}; take them to their device with: ledger order"


def _only_named(opened: OpenLedger, incoming: list[Incoming], names: Sequence[str]) -> list[Incoming]:
    """Return the measurements of the cells that the user named."""
    from ledger.workflow.select import select

    refuse_if_refused(opened.book)
    wanted = {(cell.sealed.id, cell.forecast.cell) for cell in select(opened.book, names)}
    return [item for item in incoming if (item.measurement.seal, item.measurement.cell) in wanted]


def _show_revealed(opened: OpenLedger, incoming: Sequence[Incoming]) -> None:
    from ledger.device.machine_names import machine_names
    from ledger.workflow.reveal_list import reveal_lines

    for line in reveal_lines((item for item in incoming if item.path not in opened.history.tree), machine_names()):
        say(line)


def _with_counters(
    opened: OpenLedger, incoming: list[Incoming], report: FilePath, cell: str, *, keep: bool
) -> list[Incoming]:
    from ledger.callables.subject_files import load_case
    from ledger.workflow.attach_counters import attach
    from ledger.workflow.select import named

    refuse_if_refused(opened.book)
    (view, *more) = named(opened.book, cell)
    if more:
        raise InputError(f"--cell: {cell!r} names {1 + len(more)} cells; expected SEAL#CELL")
    assert view.hardware is not None
    kernel = load_case(view.forecast.case, opened.root).kernel
    filled = attach(incoming, report, view=view, launched=kernel.launched, keep=keep)
    say(f"counters of {view.short_name} are from {report.name}")
    return filled


def _show_ingested(done: Ingested, *, as_json: bool, kept: FilePath | None = None) -> None:
    """Show what was ingested. kept: the folder in which refused measurements of this machine stay."""
    from ledger.analysis.book import short_name
    from ledger.render.claim_text import claim_row
    from ledger.render.report import document, render, render_claims

    names = {item.cell for item in done.taken}
    settled = [view for view in done.book.claims if view.short_name in names]
    if as_json:
        rows = [row for row in document(done.book)["rows"] if short_name(row["seal"], row["cell"]) in names]
        taken = [{"cell": item.cell, "commit": item.commit} for item in done.taken]
        emit({"taken": taken, "rows": rows, "claims": [claim_row(view) for view in settled]})
    else:
        if len(settled) < len(names) or not names:
            render(done.book, out(), only=names)
        render_claims(settled, out())
    noted: dict[str, list[str]] = {}
    for item in done.taken:
        if item.note:
            noted.setdefault(item.note, []).append(item.cell)
    for note, cells in noted.items():
        say(f"{cells[0] if len(cells) == 1 else f'{len(cells)} of {len(done.taken)} measurements'}: {note}")
    refused = [item for item in done.taken if item.refused]
    if refused:
        reasons = "; ".join(f"{item.cell}: {item.refused[0].code}: {item.refused[0].message}" for item in refused)
        remedy = "" if kept is None else f"; they stay in {kept}: remove it to measure again"
        raise EvidenceRefused(
            f"{len(refused)} of {len(done.taken)} measurements are refused and not committed: {reasons}{remedy}"
        )
    if not done.taken:
        say("nothing to ingest: every measurement there is already in the ledger")
