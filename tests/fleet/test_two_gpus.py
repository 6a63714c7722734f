"""Measures 24 cells on two GPUs of one host and on one of them: the time on the wall, and equal medians."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest
from measuring import QUICK_GRAPH, cell_of, order_of, this_gpu

from ledger.canonical import encode, record_id
from ledger.fleet.placement import Node
from ledger.fleet.ray_cluster import Cluster, cluster
from ledger.fleet.run_fleet import FleetOptions, run_fleet
from ledger.measure.bench_self_test import THRESHOLD
from ledger.record_files import read_measurement
from ledger.records import Hardware, Measurement, Order

CELLS = 24


class OneGpu(Cluster):
    """A cluster that uses one GPU of each node."""

    def nodes(self) -> list[Node]:
        return [Node(one.id, one.name, {**one.resources, "GPU": 1}) for one in super().nodes()]


@pytest.mark.gpu
def test_two_gpus_of_a_host_take_at_most_0_6_of_the_time_of_one_and_measure_the_same(tmp_path: Path):
    pytest.importorskip("ray", reason="needs ray: pip install 'roofline-ledger[fleet]'")
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs; this host has {torch.cuda.device_count()}")
    profile = this_gpu()
    digest = record_id(Hardware, encode(profile))
    sizes = [256 * (1 + number % 4) for number in range(CELLS)]
    order = order_of(
        *(
            cell_of(profile, m=size, implementation="torch-cuda", cell=f"cell-{number}", hardware_sha256=digest)
            .model_copy(update={"protocol": QUICK_GRAPH})
            for number, size in enumerate(sizes)
        ),
        hardware=profile,
    )  # fmt: skip
    resources = {"ledger_gpu": 2.0}
    seconds, records = {}, {}
    with cluster("local", resources) as both:
        for name, opened in (("both", both), ("one", OneGpu(both._ray))):
            began = time.monotonic()
            records[name] = measured(order, opened, tmp_path / name)
            seconds[name] = time.monotonic() - began
    chips = {one.device.uuid for one in records["both"].values()}
    assert len(chips) == 2
    assert seconds["both"] <= 0.6 * seconds["one"], seconds
    # The same cell alone on its host and beside another: in the median of all cells.
    ratios = [time_of(records["both"][cell]) / time_of(records["one"][cell]) for cell in records["one"]]
    assert abs(median(ratios) - 1) <= THRESHOLD, sorted(ratios)


def measured(order: Order, opened: Cluster, out: Path) -> dict[str, Measurement]:
    found = run_fleet(order, opened, out=out, options=FleetOptions("off"))
    assert (found.measured, found.failed) == (CELLS, 0), found
    return {one.cell: one for one in map(read_measurement, out.glob("*.json"))}


def time_of(record: Measurement) -> int:
    assert record.timing is not None
    return record.timing.median_ps
