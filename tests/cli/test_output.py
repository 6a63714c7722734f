"""Tests what a terminal shows while a command is at work, and what an interruption ends with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import honest

pty = pytest.importorskip("pty", reason="a terminal of its own needs Unix")

ROOT = Path(__file__).parents[2]
SLOW = """
import sys, time
from ledger.cli.output import say, working

with working("judging the ledger"):
    time.sleep(float(sys.argv[1]))
say("done")
"""
STOPPED = """
import os, signal, sys
from ledger.cli import main

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv[1]
sys.meta_path.insert(0, Interrupted())
sys.argv = ["ledger", "hardware", "list"]
main()
"""


def on_a_terminal(code: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code of a program on a terminal of its own, and what it shows there without control sequences."""
    child, terminal = pty.fork()
    if child == 0:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
        # A test run in the background may ignore it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, "-c", code, *arguments], environment)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux reports that the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def test_a_long_step_is_shown_on_a_terminal_and_a_short_one_is_not():
    code, shown = on_a_terminal(SLOW, "1.6")
    assert code == 0 and re.search(r"judging the ledger 0:00:01", shown), shown
    code, shown = on_a_terminal(SLOW, "0.1")
    assert code == 0 and shown.strip() == "done"


def test_a_long_step_leaves_no_trace_in_a_pipe(capfd: pytest.CaptureFixture[str]):
    from ledger.cli.output import working

    with working("judging the ledger"):
        time.sleep(1.2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("module", ["ledger.cli.app", "ledger.render.hardware_card"])
def test_an_interruption_ends_with_130_and_no_traceback_even_before_the_command_begins(module: str):
    code, shown = on_a_terminal(STOPPED, module)
    # -2: the signal came while Python compiled text; a shell reports 130 then, too.
    assert code in (130, -2), shown
    assert "ledger: interrupted; what was finished is kept" in shown and "Traceback" not in shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hardware list >&-", 0),
        ("hardware list --json >&-", 0),
        ("hardware show nothing 2>&-", 2),
        ("drill --json --from nothing <&-", 2),
        ("hardware list | :", 141),
        ("hardware list --json | :", 141),
    ],
)
def test_streams_that_are_closed_or_read_by_nobody_keep_the_exit_codes(tmp_path: Path, line: str, expected: int):
    command = f"set -o pipefail; '{sys.executable}' -m ledger {line}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == expected, done.stderr
    assert "internal error" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("stderr", ["full", "closed-pipe", "closed"])
@pytest.mark.parametrize(("state", "code"), [("refused", 3), ("nowhere", 2)])
def test_the_exit_code_is_the_same_where_stderr_cannot_be_written(tmp_path: Path, stderr: str, state: str, code: int):
    where = tmp_path / "ledger"
    if state == "refused":
        ledger, sealed = honest(where)
        ledger.write(sealed.path, b"{}")
        ledger.commit()
    reading, writing = os.pipe()
    os.close(reading)
    target = {"full": "2>/dev/full", "closed-pipe": f"2>&{writing}", "closed": "2>&-"}[stderr]
    done = subprocess.run(
        ["bash", "-c", f'"$@" >/dev/null {target}', "bash", sys.executable, "-m", "ledger", "audit", str(where)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        pass_fds=(writing,),
        check=False,
    )
    os.close(writing)
    assert done.returncode == code
