"""Measures 24 cells on two GPUs of one host and on one of them: the time on the wall, and equal medians on one chip.

Most of both times is the start of processes: a cell takes seconds for its imports and milliseconds for its calls. Two
cells are measured before, so that what a first run caches is there for both.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median

import pytest
from measuring import cell_of, order_of, this_gpu

from ledger.analysis.protocols import STEADY_GRAPH
from ledger.canonical import encode, record_id
from ledger.fleet.ray_cluster import cluster
from ledger.fleet.run_fleet import FleetOptions, run_fleet
from ledger.measure.bench_self_test import THRESHOLD
from ledger.record_files import read_measurement
from ledger.records import Hardware, Measurement, Order

CELLS = 24


@pytest.mark.gpu
def test_two_gpus_of_a_host_take_at_most_0_6_of_the_time_of_one_and_measure_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray", reason="needs ray: pip install 'roofline-ledger[fleet]'")
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs; this host has {torch.cuda.device_count()}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    measured(order_for(2), tmp_path / "before")
    both_s, both = measured(order_for(CELLS), tmp_path / "both")
    # A cluster with one GPU, the first, and workers of its own as the other has.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    one_s, one = measured(order_for(CELLS), tmp_path / "one")
    (chip,) = {record.device.uuid for record in one.values()}
    shared = {name: record for name, record in both.items() if record.device.uuid == chip}
    # The same cell on the same chip, alone on its host and beside another: in the median of those cells.
    ratios = {name: time_of(record) / time_of(one[name]) for name, record in shared.items()}
    found = {
        "seconds": {"both": both_s, "one": one_s, "ratio": both_s / one_s},
        "cells": {"first chip": len(shared), "second chip": len(both) - len(shared)},
        "beside / alone": {"median": median(ratios.values()), "all": sorted(ratios.values())},
    }
    print(json.dumps(found))
    assert len({record.device.uuid for record in both.values()}) == 2
    assert min(len(shared), len(both) - len(shared)) >= CELLS // 3, found
    assert both_s <= 0.6 * one_s, found
    assert abs(median(ratios.values()) - 1) <= THRESHOLD, found


def order_for(count: int) -> Order:
    profile = this_gpu()
    digest = record_id(Hardware, encode(profile))
    cells = []
    for number in range(count):
        size, name = 4096 * (1 + number % 4), f"cell-{number}"
        cell = cell_of(profile, m=size, implementation="torch-cuda", cell=name, hardware_sha256=digest)
        case = cell.case.model_copy(update={"threads": None})
        cells.append(cell.model_copy(update={"protocol": STEADY_GRAPH, "case": case}))
    return order_of(*cells, hardware=profile)


def measured(order: Order, out: Path) -> tuple[float, dict[str, Measurement]]:
    with cluster("local", {"ledger_gpu": 2.0}) as opened:
        began = time.monotonic()
        found = run_fleet(order, opened, out=out, options=FleetOptions("off"))
        seconds = time.monotonic() - began
    assert (found.measured, found.failed) == (len(order.cells), 0), found
    return seconds, {one.cell: one for one in map(read_measurement, out.glob("*.json"))}


def time_of(record: Measurement) -> int:
    assert record.timing is not None
    return record.timing.median_ps
