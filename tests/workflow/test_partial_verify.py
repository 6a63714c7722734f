"""Tests a verify that cannot do everything: other devices' cells, an interruption, files that are no measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from desk import ENVIRONMENT, Desk

pytest.importorskip("torch", reason="measuring on a CPU needs torch")

PREDICT = "predict vector_add --dtype fp32 --shape N={} --regime hbm-bound --pct 50 --hw {}"
VERIFY = (sys.executable, "-P", "-m", "ledger", "verify")
STOP_AFTER = """
import sys
from ledger.cli import main
from ledger.measure import run_order

left, run_cell = int(sys.argv[1]), run_order.run_cell

def stopping(*arguments, **named):
    global left
    if left == 0:
        raise KeyboardInterrupt
    left -= 1
    return run_cell(*arguments, **named)

run_order.run_cell = stopping
sys.argv = ["ledger", "verify"]
main()
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ledger")


def seal(desk: Desk, size: int, profile: str = "cpu") -> None:
    desk.ledger(*PREDICT.format(size, profile).split())


def states(desk: Desk) -> list[str]:
    return [row["state"] for row in json.loads(desk.ledger("status", "--json"))["cells"]]


@pytest.mark.exhaustive
def test_cells_of_a_device_that_is_not_here_are_named_and_stay_open(desk: Desk):
    seal(desk, 1000, "t4")
    assert "device" in desk.refused(2, "verify")
    seal(desk, 100_000)
    done = desk.run(*VERIFY)
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stderr and "#vector_add-N1000-fp32: " in done.stderr
    assert states(desk) == ["open", "measured"]


@pytest.mark.exhaustive
def test_a_cell_named_by_the_user_that_is_not_measured_here_ends_with_2_after_the_others(desk: Desk):
    seal(desk, 1000, "t4")
    seal(desk, 100_000)
    names = [f"{row['seal'][:8]}#{row['cell']}" for row in json.loads(desk.ledger("status", "--json"))["cells"]]
    done = desk.run(*VERIFY, *names)
    assert done.returncode == 2, done.stderr
    told = done.stderr.splitlines()[-1]
    assert told.startswith("ledger: not measured, for the reasons above: ") and told.count("#") == 1
    assert "#vector_add-N1000-fp32; take" in told and "ledger order" in told
    assert states(desk) == ["open", "measured"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("finished", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_an_interrupted_verify_keeps_what_was_finished_and_ends_with_130(desk: Desk, finished: int):
    seal(desk, 1000)
    seal(desk, 2000)
    done = subprocess.run(
        [sys.executable, "-c", STOP_AFTER, str(finished)],
        cwd=desk.root, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    left = "1 cell" if finished else "2 cells"
    assert f"interrupted; still open: {left}\n" in done.stderr
    assert done.stderr.endswith("what was finished is kept: run the same command again to go on\n")
    assert sorted(states(desk)) == ["measured"] * finished + ["open"] * (2 - finished)
    desk.ledger("verify")
    assert states(desk) == ["measured"] * 2


@pytest.mark.slow
def test_a_stray_file_beside_measurements_is_named_and_left_out(desk: Desk):
    seal(desk, 1000)
    desk.ledger("order", "-o", "results/order.json")
    desk.ledger("measure", "results/order.json", "-o", "results")
    (measured,) = [path for path in (desk.root / "results").glob("*.json") if path.name != "order.json"]
    (desk.root / "results" / "notes.json").write_text('{"a": 1}')
    damaged = measured.read_bytes()
    measured.write_bytes(damaged[:-20])
    assert measured.name in desk.refused(2, "verify", "--from", "results")
    measured.write_bytes(damaged)
    done = desk.run(*VERIFY, "--from", "results")
    assert done.returncode == 0, done.stderr
    assert "left out notes.json" in done.stderr and "left out order.json" in done.stderr
    assert states(desk) == ["measured"]


@pytest.mark.exhaustive
def test_a_callable_that_cannot_be_loaded_keeps_no_other_cell_from_its_record(desk: Desk):
    (desk.root / "ops.py").write_text(
        "import sys\n\n\ndef add(x):\n    return x + 1\n\n\n"
        "if any('callable_process' in one for one in sys.orig_argv):\n    raise SystemExit(3)\n"
    )
    call = "predict ops:add --args x=fp32[N] --shape N=1000 --regime hbm-bound --pct 50 --hw cpu"
    desk.ledger(*call.split())
    seal(desk, 1000)
    assert "cannot be loaded" in desk.refused(2, "verify")
    assert sorted(states(desk)) == ["measured", "open"]
    assert "cannot be loaded" in desk.refused(2, "verify")
    assert sorted(states(desk)) == ["measured", "open"]
