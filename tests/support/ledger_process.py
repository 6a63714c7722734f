"""Runs the command line in a process of its own, forked from one that has imported the package once.

A command that reads spends most of its processor time on imports. A forked command is a process as any other, with an
environment, folder, output and exit code of its own. A test of the start itself (what is imported, how fast) must use
subprocess.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from launch_server import SCRIPT, read_message, write_message

# A command that measures loads torch in any case; a server that has it forks those.
_WITH_TORCH = {"verify", "measure", "calibrate", "check", "compare", "bench", "tune"}
# Read when the interpreter or a library starts, so a fork would not see a change.
_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "TRITON_", "CUDA_", "GIT_PYTHON_")
_HANDLED = {"PYTHONIOENCODING", "PYTHONUTF8", "PYTHONPATH"}
_PATH = str(Path(__file__).parents[2])
_servers: dict[bool, Server] = {}


def run_ledger(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300, safe_path: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `python -m ledger` with arguments as subprocess.run does, capturing text. safe_path: as python -P."""
    done = run_ledger_bytes(*arguments, cwd=cwd, env=env, timeout=timeout, safe_path=safe_path)
    return subprocess.CompletedProcess(done.args, done.returncode, _text(done.stdout), _text(done.stderr))


def run_ledger_bytes(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300, safe_path: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m ledger` as run_ledger does; return its output as bytes."""
    command = [sys.executable, *(["-P"] if safe_path else []), "-m", "ledger", *arguments]
    environment = dict(os.environ if env is None else env)
    if not hasattr(os, "fork") or _asks_another_start(environment):
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    # A callable, `module:name`, loads it when it is forecast.
    with_torch = not _WITH_TORCH.isdisjoint(arguments[:1]) or ":" in "".join(arguments[1:2])
    if with_torch not in _servers:
        _servers[with_torch] = Server([sys.executable, "-P", str(SCRIPT)], *(["torch"] if with_torch else []))
    return _servers[with_torch].run(arguments, cwd=cwd, env=environment, timeout=timeout, safe_path=safe_path)


def run_command(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run any command as subprocess.run does and capture its text; this Python's `-m ledger` is forked."""
    rest = list(command)
    safe = rest[1:2] == ["-P"]
    if rest[0] == sys.executable and rest[1 + safe : 3 + safe] == ["-m", "ledger"]:
        done = run_ledger(*rest[3 + safe :], cwd=cwd, env=env, timeout=timeout, safe_path=safe)
    else:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    if check:
        done.check_returncode()
    return done


@cache
def repository_report() -> dict[str, Any]:
    """Return what `ledger report --json` says of this repository. Not to be changed."""
    done = run_ledger("report", "--json", cwd=Path(_PATH))
    done.check_returncode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows_of_version_1() -> list[dict[str, Any]]:
    """Return the rows of that report whose seal is of version 1: the 248 cells that the pages speak of."""
    first = {
        path.stem for path in Path(_PATH, "predictions").glob("??/*.json") if b"ledger/seal/1" in path.read_bytes()
    }
    return [row for row in repository_report()["rows"] if row["seal"] in first]


def _text(output: bytes) -> str:
    return output.decode("utf-8").replace("\r\n", "\n")


def _started_with(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name not in _HANDLED}


_at_first = _started_with(os.environ)


def _asks_another_start(environment: Mapping[str, str]) -> bool:
    """Tell whether a variable of the start is neither as this process began nor as a library has set it here since."""
    asked, here = _started_with(environment), _started_with(os.environ)
    return any(asked.get(name) not in (_at_first.get(name), here.get(name)) for name in {*asked, *_at_first, *here})


class Server:
    """A process that forks a command for each connection to its socket; it ends when its standard input closes."""

    def __init__(self, start: Sequence[str], *options: str) -> None:
        """Start it. start: the command that runs launch_server."""
        self._folder = tempfile.TemporaryDirectory(prefix="ledger-launch-")
        self._address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [*start, self._address, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": _PATH},
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the server that forks commands did not start")

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float = 300,
        safe_path: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command. Its exit code is negative for a signal, as subprocess has it."""
        command = ["ledger", *arguments]
        request = {"arguments": [*arguments], "cwd": str(cwd), "environment": {**env}, "safe_path": safe_path}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self._address)
                descriptors = array.array("i", [out.fileno(), err.fileno()])
                connection.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                write_message(connection, request)
                process = read_message(connection)
                connection.settimeout(timeout)
                try:
                    code = int(read_message(connection))
                except TimeoutError:
                    os.kill(process, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(command, timeout) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())

    def close(self) -> None:
        """End the server."""
        self._process.communicate()
        self._folder.cleanup()


@atexit.register
def _close() -> None:
    for server in _servers.values():
        server.close()
