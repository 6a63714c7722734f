"""Exit codes of commands that measure cheats, and of their honest twins, in a ledger on disk."""

import json
from pathlib import Path

import pytest
from desk import Desk
from measuring import quantity, this_cpu

from ledger.record_files import hardware_yaml
from ledger.records import Ceilings, Peak

OPS = """
import os
import time


def honest(x):
    return x * 2


def patched(x):
    if not x.is_meta:
        time.perf_counter_ns = lambda: 0
    return x * 2


def leaves(x):
    if not x.is_meta:
        raise SystemExit(3)
    return x * 2


def hangs(x):
    while not x.is_meta:
        pass
    return x * 2
"""
GUESS = ("--args", "x=fp32[N]", "--shape", "N=262144", "--hw", "cpu", "--regime", "hbm-bound", "--pct", "30")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "book")
    peak = Peak(value=2.0, unit="TFLOP/s", kind="datasheet", condition="a test", source="a test")
    rated = quantity(1000.0, "GB/s").model_copy(update={"kind": "datasheet"})
    ceilings = {**this_cpu().ceilings, "datasheet": Ceilings(peaks={"fp32": peak}, dram_bandwidth=rated)}
    (made.root / "hardware" / "cpu.yaml").write_bytes(hardware_yaml(this_cpu(ceilings=ceilings)))
    (made.root / "ops.py").write_text(OPS)
    return made


def states(desk: Desk) -> dict[str, str]:
    return {row["cell"]: row["state"] for row in json.loads(desk.ledger("report", "--json"))["rows"]}


@pytest.mark.exhaustive
def test_a_refused_callable_ends_with_3_a_stopped_one_with_2_and_an_honest_one_with_0(desk):
    desk.ledger("predict", "ops:honest", *GUESS)
    desk.ledger("verify")
    desk.ledger("predict", "ops:patched", *GUESS)
    said = desk.refused(3, "verify")
    assert "time.perf_counter_ns was replaced" in said
    assert "recorded as failed" in said
    desk.ledger("predict", "ops:leaves", *GUESS)
    assert "it raised SystemExit" in desk.refused(2, "verify")
    desk.ledger("predict", "ops:hangs", *GUESS)
    assert "it ran longer than 30 s" in desk.refused(2, "verify", "--time-limit", "30")
    assert list(states(desk).values()) == ["measured", "failed", "failed", "failed"]
    assert json.loads(desk.ledger("audit", ".", "--json"))["verdict"] == "holds"


@pytest.mark.exhaustive
def test_a_callable_faster_than_the_physical_floor_is_refused_and_not_committed(desk):
    desk.ledger("predict", "ops:honest", *GUESS, "--flops", "262144", "--bytes", str(2 * 2**20))
    desk.ledger("verify")
    desk.ledger("predict", "ops:honest", *GUESS, "--flops", "262144", "--bytes", str(2**50))
    assert "of what the datasheet of cpu allows at any clock" in desk.refused(3, "verify")
    rows = json.loads(desk.ledger("report", "--json"))["rows"]
    assert sorted(row["state"] for row in rows) == ["measured", "open"]
