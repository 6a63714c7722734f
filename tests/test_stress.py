"""Runs short versions of the scripts under tests/stress; their full figures stand in docs/findings.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parent / "stress"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(STRESS / script), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kill_loop_loses_nothing():
    assert "20 kills" in run("kill_loop.py", "20")


def test_a_small_crowd_lands_in_one_line():
    assert "16 of 16 present, linear True" in run("crowd.py", "4", "4")


def test_a_ledger_of_forty_holds():
    assert "holds (40 forecasts: 40 measured), 0 findings" in run("large_ledger.py", "40")


@pytest.mark.stress
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_some_faults_leave_the_seal_whole_or_absent():
    assert "0 bad" in run("faults.py", "--every", "211", "--seconds", "60")
