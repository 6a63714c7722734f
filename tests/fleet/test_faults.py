"""Measures cells on four real nodes while one is killed, one hangs and the driver is killed: every cell once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from ray_nodes import cell_processes, done_in, drive, merged, ray_cluster, stop_one, tiny_order, wait_until

from ledger.canonical import encode
from ledger.record_files import read_measurement

pytest.importorskip("torch", reason="measuring on a CPU needs torch")


@pytest.mark.parametrize(
    "cells", [pytest.param(60, marks=pytest.mark.exhaustive), pytest.param(200, marks=pytest.mark.stress)]
)
def test_every_cell_is_measured_once_though_a_node_and_the_driver_die_and_a_node_hangs(tmp_path: Path, cells: int):
    # Two profiles of this CPU, that different nodes declare.
    half = cells // 2
    order = merged(tiny_order(*range(1, half + 1)), tiny_order(*range(half + 1, cells + 1), name="cpu_other"))
    (tmp_path / "order.json").write_bytes(encode(order))
    first, second = {"ledger_cpu": 1}, {"ledger_cpu_other": 1}
    with ray_cluster(alpha=first, beta=first, gamma=second, delta=second) as nodes:
        driver = drive(tmp_path, nodes.address, "--node-limit", "40")
        wait_until(lambda: done_in(tmp_path) >= cells // 8 and cell_processes("beta"), 1500, "an eighth is measured")
        nodes.kill("beta")
        # The node stands still for longer than a cell may take.
        wait_until(lambda: stop_one("delta"), 60, "a cell runs on delta")
        written = tmp_path / "out" / "attempts.jsonl"
        wait_until(lambda: "longer than 40 s" in written.read_text(), 120, "the cell on delta is lost")
        wait_until(lambda: done_in(tmp_path) >= cells // 2, 1500, "half is measured")
        wait_until(cell_processes, 60, "a cell runs")
        driver.kill()
        driver.communicate()
        wait_until(lambda: not cell_processes(), 60, "the processes of a driver that was killed end")

        done = done_in(tmp_path)
        driver = drive(tmp_path, nodes.address, "--node-limit", "40")
        told, errors = driver.communicate(timeout=2400)
    assert driver.returncode == 0, errors
    summary = json.loads(told)
    assert (summary["measured"], summary["failed"], summary["skipped"]) == (cells - done, 0, done)
    assert {one["node"] for one in summary["nodes"]} == {"alpha", "gamma", "delta"}

    records = [read_measurement(path) for path in (tmp_path / "out").glob("*.json")]
    assert sorted(one.cell for one in records) == sorted(cell.cell for cell in order.cells)
    assert {one.status for one in records} == {"measured"}
    where = {"cpu": {"alpha", "beta"}, "cpu_other": {"gamma", "delta"}}
    assert all(one.node in where[one.case.hardware] for one in records)
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    ended = Counter(line["end"][1] for line in lines if "end" in line and line["reason"] is None)
    assert set(ended.values()) == {1}
    assert len(ended) == cells

    # What was lost is in the record that came of it: on beta, on delta, and with the driver.
    attempts = [(one, attempt) for one in records for attempt in one.attempts]
    assert all(one.node != attempt.node for one, attempt in attempts if attempt.node == "beta")
    reasons = {attempt.node: attempt.reason for _, attempt in attempts if "driver" not in attempt.reason}
    assert set(reasons) == {"beta", "delta"}
    assert "longer than 40 s" in reasons["delta"]
    assert "the driver ended before the result" in {attempt.reason for _, attempt in attempts}
