"""The command measure: runs an order on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ledger.cli.fleet import NodeLimitOption, RayOption, check_ray, node_document, run_on_fleet, say_nodes
from ledger.cli.options import CountersOption, DeviceOption, FullOption, JsonOption, PriceOption, TimeLimitOption
from ledger.cli.output import emit, progress_bar, say
from ledger.errors import InputError, ParseError, RecordError

if TYPE_CHECKING:
    from ledger.measure.run_order import Progress, RunSummary
    from ledger.records import Order


def measure(
    order_file: Annotated[FilePath, typer.Argument(metavar="ORDER", help="File written by: ledger order.")],
    output: Annotated[FilePath, typer.Option("-o", "--output", help="Folder for the measurements.")],
    counters: CountersOption = "auto",
    full: FullOption = None,
    device: DeviceOption = None,
    ray: RayOption = None,
    node_limit: NodeLimitOption = None,
    time_limit: TimeLimitOption = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", min=1, help="Seconds after which no cell is begun; the same command does the rest."),
    ] = None,
    price_per_hour: PriceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure an order where there is no repository. Here or on a cluster; resumes an interrupted run."""
    from ledger.analysis.refusals import check_failures
    from ledger.device.gpu_selection import select_device
    from ledger.record_files import read_record
    from ledger.records import Order

    check_ray(ray, node_limit, device)
    if ray is not None and budget is not None:
        raise InputError("--budget: expected without --ray")
    select_device(device)
    try:
        record = read_record(Order, order_file)
    except (ParseError, RecordError) as error:
        raise type(error)(f"{error}, in an order written by: ledger order") from error
    if ray is None:
        summary = run_locally(record, output, counters, full, None, time_limit, budget)
    else:
        summary = run_on_fleet(
            record,
            output,
            ray,
            counters=counters,
            full=full,
            time_limit_s=time_limit,
            node_limit_s=node_limit,
            root=None,
        )
    show_summary(summary, price_per_hour, as_json=as_json)
    if summary.interrupted:
        raise KeyboardInterrupt
    check_failures(summary.failures)
    summary.check_loaded()


def run_locally(
    record: Order,
    folder: FilePath,
    counters: str,
    full: list[str] | None,
    root: FilePath | None,
    time_limit_s: float | None = None,
    budget_s: float | None = None,
) -> RunSummary:
    """Run an order with a progress bar. root: the repository, None away from it. Raises: InputError."""
    from ledger.canonical import encode, record_id
    from ledger.measure.apart import Limits
    from ledger.measure.ordered_kernels import carried_names, kernels_of
    from ledger.measure.run_order import run_order

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
            limits=None if time_limit_s is None else Limits(time_s=time_limit_s),
            budget_s=budget_s,
            on_progress=on_progress,
        )


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    with progress_bar("measuring", limit=70) as show:
        yield lambda progress: show(progress.done, progress.total, f"{progress.cell} {progress.stage}")


def show_summary(summary: RunSummary, price: float | None, *, as_json: bool) -> None:
    """Print how many cells were measured and what the device time cost, at a price per hour."""
    nodes = getattr(summary, "nodes", {})
    cost = None if price is None else price * summary.device_seconds / 3600
    if as_json:
        document: dict[str, Any] = {
            "measured": summary.measured,
            "failed": summary.failed,
            "skipped": summary.skipped,
            "device_seconds": round(summary.device_seconds, 3),
            "cost": cost,
            "stages_s": {stage: round(seconds, 3) for stage, seconds in summary.stages.items()},
            "nodes": node_document(nodes),
        }
        emit(document)
        return
    say_nodes(nodes)
    counts = f"{summary.measured} measured, {summary.failed} failed, {summary.skipped} already there"
    spent = f"{summary.device_seconds:.1f} s on the device" + ("" if cost is None else f", cost {cost:.2f}")
    say(f"{counts}; {spent}")
