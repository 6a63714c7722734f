"""Tests that reading, forecasting and drilling work where Unix or Linux features are missing, and on any terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from desk import ENVIRONMENT, ROOT, Desk

# What macOS and Windows lack, hidden before anything is imported.
HIDDEN = {
    "macOS": """
import os, resource
del os.sched_getaffinity
del resource.prlimit
""",
    "Windows": """
import os, signal, subprocess, sys
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["pwd"] = sys.modules["grp"] = None
sys.modules["termios"] = None
import filelock
for name in ("sched_getaffinity", "getloadavg", "O_NOFOLLOW", "O_CLOEXEC", "killpg", "getuid"):
    delattr(os, name)
for name in ("SIGXCPU", "SIGALRM"):
    delattr(signal, name)
""",
}
# filelock chooses by sys.platform; its own tests cover Windows, so its Unix lock stands in for both.
RUN = """
import fcntl, sys
import filelock
{hidden}
sys.argv = ["ledger", *sys.argv[1:]]
from ledger.cli import main
main()
"""
PREDICT = "predict vector_add --hw t4 --dtype fp32 --shape N=1000 --regime hbm-bound --pct 50"
READING = (
    "report", "report --html r.html", "status", "log", "score", "roofline --hw t4", "audit", "hardware show h200",
    "kernels show matmul", "doctor", f"drill --from {ROOT} --json", "challenge", "order -o o.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    made = Desk(tmp_path_factory.mktemp("other") / "ledger")
    made.ledger(*PREDICT.split())
    return made


def without(system: str, desk: Desk, command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", RUN.format(hidden=HIDDEN[system]), *command.split()],
        cwd=desk.root, env={**ENVIRONMENT, **environment}, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("system", HIDDEN)
@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_works(desk: Desk, system: str, command: str):
    done = without(system, desk, command)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout or done.stderr


@pytest.mark.parametrize("system", HIDDEN)
def test_a_forecast_is_sealed(desk: Desk, system: str):
    command = PREDICT.replace("1000", "2000" if system == "macOS" else "3000")
    done = without(system, desk, f"{command} --json")
    assert done.returncode == 0, done.stderr.decode()
    assert Path(desk.root, json.loads(done.stdout)[0]["path"]).is_file()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("command", READING)
def test_output_that_a_terminal_cannot_show_is_replaced(desk: Desk, encoding: str, command: str):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ledger", *command.split()],
        cwd=desk.root, env={**ENVIRONMENT, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done.stdout.decode(encoding)
