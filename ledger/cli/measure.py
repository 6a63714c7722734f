"""The commands around measuring: order, measure, verify, calibrate and bench."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ledger.cli.open_ledger import Place, emit, find_root, open_place, out, progress_bar, refuse_if_refused, say, settle
from ledger.cli.read import check_miss
from ledger.cli.witness import ChallengeOption, TsaOption, anchor, stamp_records
from ledger.errors import EvidenceRefused, InputError

if TYPE_CHECKING:
    from ledger.measure.run_order import Progress, RunSummary
    from ledger.records import Order
    from ledger.workflow.ingest import Incoming, Ingested

Ids = Annotated[list[str] | None, typer.Argument(help="Seals or SEAL#CELL names; none: every open cell.")]
CountersOption = Annotated[str, typer.Option(help="Hardware counters: auto, off, or full (keeps the report).")]
FullOption = Annotated[list[str] | None, typer.Option("--full", help="Cells whose full report is kept.")]
PriceOption = Annotated[float | None, typer.Option("--price-per-hour", min=0, help="Price of the device, per hour.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def order(
    ids: Ids = None,
    challenge: ChallengeOption = None,
    output: Annotated[FilePath, typer.Option("-o", "--output", help="File to write.")] = FilePath("order.json"),
    as_json: JsonOption = False,
) -> None:
    """Write what to measure, for a machine that has no copy of the repository."""
    from ledger.analysis.formatting import count_words
    from ledger.record_files import write_record
    from ledger.workflow.select import carried_names, select, write_order

    place = open_place()
    refuse_if_refused(place.book)
    _name_stale(place)
    record = write_order(select(place.book, ids or []), root=place.root, anchor=anchor(challenge))
    write_record(output, record)
    carried = carried_names(record)
    if as_json:
        emit({"path": str(output), "cells": len(record.cells), "carried_sources": carried})
        return
    out().print(f"{output}: {count_words(len(record.cells), 'cell')}", markup=False)
    if carried:
        say(f"the order contains the source of {', '.join(carried)}: the measuring machine will execute it")


def measure(
    order_file: Annotated[FilePath, typer.Argument(metavar="ORDER", help="File written by: ledger order.")],
    output: Annotated[FilePath, typer.Option("-o", "--output", help="Folder for the measurements.")],
    counters: CountersOption = "auto",
    full: FullOption = None,
    price_per_hour: PriceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure an order on this machine; needs the package and the device, not git. Resumes where it stopped."""
    from ledger.record_files import read_record
    from ledger.records import Order

    summary = _run(read_record(Order, order_file), output, counters, full, None)
    _tell_summary(summary, price_per_hour, as_json=as_json)


def verify(
    ids: Ids = None,
    source: Annotated[FilePath | None, typer.Option("--from", help="Folder written by: ledger measure.")] = None,
    counters: CountersOption = "auto",
    full: FullOption = None,
    challenge: ChallengeOption = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the commits with git's signing key.")] = False,
    tsa: TsaOption = None,
    ncu_report: Annotated[
        FilePath | None, typer.Option(help="Report or raw-page CSV that you made: the counters of --cell in --from.")
    ] = None,
    cell: Annotated[str | None, typer.Option(help="SEAL#CELL that --ncu-report is of.")] = None,
    price_per_hour: PriceOption = None,
    fail_on_miss: Annotated[
        float | None, typer.Option(min=0, help="Exit 1 when a gap is larger than this many points.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure open cells here, or take in what was measured elsewhere; record, commit and reconcile."""
    from ledger.workflow.ingest import ingest, read_folder
    from ledger.workflow.select import select

    if (ncu_report is None) != (cell is None) or (ncu_report is not None and source is None):
        raise InputError("--ncu-report: expected together with --cell SEAL#CELL and --from DIR, where it was measured")
    if challenge is not None and source is not None:
        raise InputError("--challenge: expected without --from, which was measured already: give it to ledger order")
    place = open_place()
    folder = source or place.repository.git_dir / "ledger" / "measuring"
    if source is None:
        _measure_here(place, ids or [], folder, counters, full, challenge, price_per_hour)
    incoming = read_folder(folder)
    if ncu_report is not None:
        incoming = _with_counters(place, incoming, ncu_report, cell)
    if source is not None and ids:
        refuse_if_refused(place.book)
        wanted = {(cell.sealed.id, cell.forecast.cell) for cell in select(place.book, ids)}
        incoming = [item for item in incoming if (item.measurement.seal, item.measurement.cell) in wanted]
    done = ingest(place.repository, place.reader, incoming, history=place.history, current=place.current, sign=sign)
    settle()
    refuse_if_refused(done.book)
    refused = {item.path for item in done.taken if item.refused}
    stamp_records(place.repository, [item.path for item in incoming if item.path not in refused], tsa)
    if source is None and not refused:
        shutil.rmtree(folder)
    _tell_ingested(done, as_json=as_json)
    if fail_on_miss is not None:
        check_miss(done.book, fail_on_miss, {item.cell for item in done.taken})


def _measure_here(
    place: Place,
    ids: Sequence[str],
    folder: FilePath,
    counters: str,
    full: list[str] | None,
    challenge: str | None,
    price: float | None,
) -> None:
    from ledger.workflow.select import select, write_order

    refuse_if_refused(place.book)
    _name_stale(place)
    record = write_order(select(place.book, ids), root=place.root, anchor=anchor(challenge))
    _tell_summary(_run(record, folder, counters, full, place.root), price, as_json=False)


def _with_counters(place: Place, incoming: list[Incoming], report: FilePath, cell: str | None) -> list[Incoming]:
    from ledger.kernel import load_kernel
    from ledger.workflow.attach_counters import attach
    from ledger.workflow.select import named

    refuse_if_refused(place.book)
    (view, *more) = named(place.book, cell or "")
    if more:
        raise InputError(f"--cell: {cell!r} names {1 + len(more)} cells; expected SEAL#CELL")
    assert view.hardware is not None
    kernel = load_kernel(view.forecast.case.kernel, place.root).kernel
    filled = attach(incoming, report, view=view, launched=kernel.launched)
    say(f"counters of {view.short_name} are from {report.name}")
    return filled


def _name_stale(place: Place) -> None:
    from ledger.records import ForecastV2
    from ledger.workflow.select import other_format

    for cell in place.book.cells:
        if cell.state == "stale":
            old = not isinstance(cell.forecast, ForecastV2)
            why = other_format(cell) if old else "its kernel or profile has changed since it was sealed"
            say(f"skipped {cell.short_name}: stale, {why}")


def _run(record: Order, folder: FilePath, counters: str, full: list[str] | None, root: FilePath | None) -> RunSummary:
    from ledger.canonical import encode, record_id
    from ledger.measure.run_order import run_order
    from ledger.workflow.select import carried_names, kernels_of

    if counters not in ("auto", "off", "full"):
        raise InputError(f"--counters: got {counters!r}; expected auto, off or full")
    mode: Literal["auto", "off", "full"] = counters  # type: ignore[assignment]
    if root is None and (carried := carried_names(record)):
        say(f"this executes source that came with the order: {', '.join(carried)}")
    folder.mkdir(parents=True, exist_ok=True)
    with _progress() as on_progress:
        return run_order(
            record,
            order_sha256=record_id(type(record), encode(record)),
            out=folder,
            kernels=kernels_of(record, folder=folder),
            counters=mode,
            full_cells=frozenset(full or ()),
            only=None,
            on_progress=on_progress,
        )


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    with progress_bar("measuring", limit=70) as show:
        yield lambda progress: show(progress.done, progress.total, f"{progress.cell} {progress.stage}")


def _tell_summary(summary: RunSummary, price: float | None, *, as_json: bool) -> None:
    cost = None if price is None else price * summary.device_seconds / 3600
    if as_json:
        document: dict[str, Any] = {
            "measured": summary.measured,
            "failed": summary.failed,
            "skipped": summary.skipped,
            "device_seconds": round(summary.device_seconds, 3),
            "cost": cost,
        }
        emit(document)
        return
    words = f"{summary.measured} measured, {summary.failed} failed, {summary.skipped} already there"
    spent = f"{summary.device_seconds:.1f} s on the device" + ("" if cost is None else f", cost {cost:.2f}")
    say(f"{words}; {spent}")


def _tell_ingested(done: Ingested, *, as_json: bool) -> None:
    from ledger.render.report import document, render

    names = {item.cell for item in done.taken}
    if as_json:
        rows = [row for row in document(done.book)["rows"] if f"{row['seal'][:10]}#{row['cell']}" in names]
        emit({"taken": [{"cell": item.cell, "commit": item.commit} for item in done.taken], "rows": rows})
    else:
        render(done.book, out(), only=names)
    for item in done.taken:
        if item.note:
            say(item.note)
    refused = [item for item in done.taken if item.refused]
    if refused:
        words = "; ".join(f"{item.cell}: {item.refused[0].code}: {item.refused[0].message}" for item in refused)
        raise EvidenceRefused(
            f"{len(refused)} of {len(done.taken)} measurements are refused and not committed: {words}"
        )
    if not done.taken:
        say("nothing new to take in: every measurement there is already in the ledger")


def calibrate(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About 20 s, with wider error.")] = False,
    hw: Annotated[str | None, typer.Option("--hw", help="Shipped profile of the CUDA device.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a profile that open seals name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the ceilings of this machine and write them as a profile with a dated copy."""
    from ledger.workflow.calibrate import write_calibration

    root = find_root()
    if root is None:
        raise InputError("not in a git repository; expected one that holds a ledger: ledger init")
    paths = write_calibration(root, device=device, quick=quick, hw=hw, force=force, on_progress=say)
    if as_json:
        emit({"paths": [str(path.relative_to(root)) for path in paths]})
    else:
        for path in paths:
            out().print(f"wrote {path.relative_to(root)}", markup=False)
