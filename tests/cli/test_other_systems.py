"""Tests that reading, forecasting and drilling work where Unix or Linux features are missing, and on any terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from covering import one_in
from desk import ENVIRONMENT, Desk
from launch_server import SCRIPT
from ledger_process import Server, run_ledger_bytes

from ledger.workflow.drill_files import write_drill
from ledger.workflow.drills import shipped_drill

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
# filelock chooses by sys.platform; its own tests cover Windows, so its Unix lock stands in for both. The commands are
# forked from one process without these features: the imports of the package run once.
SERVE = """
import fcntl, runpy, sys
import filelock
{hidden}
sys.argv = [{script!r}, *sys.argv[1:]]
runpy.run_path({script!r}, run_name="__main__")
"""
PREDICT = "predict vector_add --hw t4 --dtype fp32 --shape N=1000 --regime hbm-bound --pct 50"
READING = (
    "report", "report --html r.html", "status", "log", "score", "roofline --hw t4", "audit", "hardware show h200",
    "kernels show matmul", "doctor", "drill --from d.json --json", "challenge", "order -o o.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    made = Desk(tmp_path_factory.mktemp("other") / "ledger")
    made.ledger(*PREDICT.split())
    shipped = shipped_drill()
    write_drill(made.root / "d.json", shipped.model_copy(update={"questions": shipped.questions[:2]}))
    return made


@pytest.fixture(scope="module", params=HIDDEN)
def system(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Start a process that lacks what another system lacks, and forks commands."""
    start = SERVE.format(hidden=HIDDEN[request.param], script=str(SCRIPT))
    server = Server([sys.executable, "-P", "-c", start])
    yield server
    server.close()


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_works(desk: Desk, system: Server, command: str):
    done = system.run(command.split(), cwd=desk.root, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout or done.stderr


def test_a_forecast_is_sealed(desk: Desk, system: Server):
    done = system.run([*PREDICT.replace("1000", "2000").split(), "--json"], cwd=desk.root, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr.decode()
    assert Path(desk.root, json.loads(done.stdout)[0]["path"]).is_file()


@pytest.mark.parametrize("encoding", one_in(3, ["ascii", "latin-1", "cp1252"], str))
@pytest.mark.parametrize("command", READING)
def test_output_that_a_terminal_cannot_show_is_replaced(desk: Desk, encoding: str, command: str):
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = run_ledger_bytes(*command.split(), cwd=desk.root, env=environment, safe_path=True)
    assert done.returncode == 0, done.stderr
    done.stdout.decode(encoding)
