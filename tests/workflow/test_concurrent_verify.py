"""Runs several `ledger verify` at once, as real processes: each measurement is recorded once, and none fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import EMPTY_GIT, Ledger, forecast, measurement, timing
from desk import ROOT, Desk

from ledger.canonical import encode

LEDGER = (sys.executable, "-P", "-m", "ledger")
ENVIRONMENT = {**os.environ, **EMPTY_GIT, "PYTHONPATH": str(ROOT)}
HOLD = """
import sys, time
from pathlib import Path
from ledger.git.commit import Repository
with Repository(Path.cwd()).locked("verify"):
    print("held", flush=True)
    time.sleep(600)
"""


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(*jobs: subprocess.Popen[str]) -> list[str]:
    """Wait for processes that must end well; return what each said."""
    said = [job.communicate(timeout=300) for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs), said
    return [message for _, message in said]


@pytest.fixture
def measured(tmp_path: Path) -> tuple[Ledger, Path]:
    """Return a ledger of four open cells, and a folder with their measurements."""
    ledger = Ledger(tmp_path / "ledger")
    sealed = ledger.seal(*(forecast(B=size) for size in (1, 2, 3, 4)))
    results = tmp_path / "results"
    results.mkdir()
    for number, cell in enumerate(sealed.prediction.cells):
        record = measurement(cell, seal=sealed.id, timing=timing(2_000_000 + 10_000 * number))
        (results / f"{number}.json").write_bytes(encode(record))
    return ledger, results


def test_verifies_at_once_record_each_result_once(measured: tuple[Ledger, Path]):
    ledger, results = measured
    ended(*(start(ledger.root, *LEDGER, "verify", "--from", str(results)) for _ in range(4)))
    book = ledger.book()
    assert [cell.state for cell in book.cells] == ["measured"] * 4
    assert len(book.records) == 4 and book.findings == ()
    assert ledger.git("status", "--porcelain") == ""


def test_a_verify_and_seals_at_once_hold(measured: tuple[Ledger, Path]):
    """Let other writers move the branch between the judging and the commits."""
    ledger, results = measured
    shape = "predict rmsnorm_matmul --hw h200 --dtype fp16 --regime hbm-bound --pct 60 --shape B=8,H=4096,O=".split()
    seals = [start(ledger.root, *LEDGER, *shape[:-1], f"{shape[-1]}{1024 * n}") for n in (1, 2, 3)]
    ended(start(ledger.root, *LEDGER, "verify", "--from", str(results)), *seals)
    book = ledger.book()
    assert len(book.records) == 4 and len(book.seals) == 4 and book.findings == ()


def test_a_killed_verify_leaves_no_lock(measured: tuple[Ledger, Path]):
    ledger, results = measured
    holder = start(ledger.root, sys.executable, "-c", HOLD)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    waiting = start(ledger.root, *LEDGER, "verify", "--from", str(results))
    assert waiting.stderr is not None and "waiting: another ledger verify" in waiting.stderr.readline()
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    ended(waiting)
    assert len(ledger.book().records) == 4


@pytest.mark.slow
def test_verifies_at_once_measure_a_cell_once(tmp_path: Path):
    pytest.importorskip("torch", reason="measuring on a CPU needs torch")
    desk = Desk(tmp_path / "ledger")
    desk.ledger(
        *"predict vector_add --hw cpu --dtype fp32 --shape N=1000000 --regime hbm-bound --pct 50 --json".split()
    )
    ended(*(start(desk.root, *LEDGER, "verify") for _ in range(2)))
    audited = json.loads(desk.ledger("audit", "--recompute", "--json"))
    (cell,) = audited["predictions"]
    assert ([run["run"] for run in cell["measured"]], cell["levels"]) == ([0], [0, 1])
    assert "run-repeated" not in {finding["code"] for finding in audited["findings"]}
