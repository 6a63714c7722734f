"""Defines the options of a cluster, and runs an order there for the commands measure and verify."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.output import progress_bar, say
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.fleet.run_fleet import FleetProgress, FleetSummary, NodeCount
    from ledger.records import Order

RayOption = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Measure on a Ray cluster: local, auto or HOST:PORT."),
]
NodeLimitOption = Annotated[
    float | None,
    typer.Option("--node-limit", min=1, help="With --ray: seconds until a cell goes to another node (3600)."),
]


def check_ray(ray: str | None, node_limit: float | None, device: str | None) -> None:
    """Check that options fit a cluster. Raises: InputError."""
    if ray is None and node_limit is not None:
        raise InputError("--node-limit: expected together with --ray")
    if ray is not None and device is not None:
        raise InputError("--device: expected without --ray, which gives each cell the device of its profile")
    if ray is not None and not ray.strip():
        raise InputError("--ray: got no address; expected local, auto or HOST:PORT")


def run_on_fleet(
    record: Order,
    folder: FilePath,
    address: str,
    *,
    counters: str,
    full: list[str] | None,
    time_limit_s: float | None,
    node_limit_s: float | None,
    root: FilePath | None,
) -> FleetSummary:
    """Run an order on a Ray cluster with a progress bar. root: the repository, None away from it."""
    from ledger.fleet.placement import local_resources
    from ledger.fleet.ray_cluster import cluster
    from ledger.fleet.run_fleet import FleetOptions, run_fleet
    from ledger.measure.ordered_kernels import carried_names

    if counters not in ("auto", "off", "full"):
        raise InputError(f"--counters: got {counters!r}; expected auto, off or full")
    if root is None and (carried := carried_names(record)):
        say(f"the nodes execute source that came with the order: {', '.join(carried)}")
    options = FleetOptions(counters, frozenset(full or ()), time_limit_s)
    if node_limit_s is not None:
        options = FleetOptions(counters, options.full_cells, time_limit_s, node_limit_s)
    with cluster(address, local_resources(record.hardware.values())) as opened, _progress() as on_progress:
        return run_fleet(record, opened, out=folder, options=options, on_progress=on_progress, on_note=say)


@contextmanager
def _progress() -> Iterator[Callable[[FleetProgress], None]]:
    with progress_bar("measuring", limit=70) as show:

        def update(progress: FleetProgress) -> None:
            busy = ", ".join(f"{node}: {' '.join(cells)}" for node, cells in sorted(progress.running.items()))
            show(progress.done, progress.total, busy or "measuring")

        yield update


def node_document(nodes: Mapping[str, NodeCount]) -> list[dict[str, Any]]:
    """Return what each node did as JSON values."""
    from dataclasses import asdict

    return [{"node": name, **asdict(count)} for name, count in nodes.items()]


def say_nodes(nodes: Mapping[str, NodeCount]) -> None:
    """Print what each node measured."""
    for name, count in nodes.items():
        lost = f", {count.lost} lost" if count.lost else ""
        refused = f", {count.refused} refused" if count.refused else ""
        say(f"{name}: {count.measured} measured, {count.failed} failed{lost}{refused}")
