"""Runs Nsight Compute as a subprocess and explains its failures."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.child_environment import child_environment

_LOOK_S = 1.0


@dataclass(frozen=True)
class Done:
    """Hold the end of a command: exit code, output and, where it ran too long, the limit in seconds."""

    code: int
    output: str
    timed_out_s: int | None = None


def run_command(command: Sequence[str], *, timeout_s: int, folder: Path | None, grows: Path | None = None) -> Done:
    """Run a command in its own process group, with a private TMPDIR and the C locale, and return its output.

    grows: a file to which it writes how far it is; its time then begins again.
    """
    environment = {**child_environment(), "LC_ALL": "C"}
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    with subprocess.Popen(
        list(command),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output = _output(process, timeout_s, grows)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return Done(-1, output, timed_out_s=timeout_s)
    return Done(process.returncode, output)


def _output(process: subprocess.Popen[str], timeout_s: float, grows: Path | None) -> str:
    """Return what a process writes until it ends. Raises: TimeoutExpired."""
    size, deadline = 0, time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=min(_LOOK_S, max(deadline - time.monotonic(), 0)))[0]
        except subprocess.TimeoutExpired:
            if grows is not None and grows.is_file() and grows.stat().st_size > size:
                size, deadline = grows.stat().st_size, time.monotonic() + timeout_s
            elif time.monotonic() >= deadline:
                raise


def explain(done: Done) -> str:
    """Return in one line why a run of ncu gave no report."""
    if done.timed_out_s is not None:
        return f"ncu did not end within {done.timed_out_s} s"
    if "ERR_NVGPUCTRPERM" in done.output:
        return (
            "hardware counters are not available to this user (ERR_NVGPUCTRPERM): the driver lets only an "
            "administrator of the host read them; ask for NVreg_RestrictProfilingToAdminUsers=0"
        )
    if "InterprocessLockFailed" in done.output or "LibraryNotLoaded" in done.output:
        return f"ncu could not start its profiler: {_last_error(done.output)}"
    return f"ncu ended with {done.code}: {_last_error(done.output)}"


def _last_error(output: str) -> str:
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or ["it printed nothing"])[-1][:400]
