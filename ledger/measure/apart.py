"""Measures a callable in a process of its own, with limits on time and memory; what it changes ends with that process.

That is no sandbox: the callable may do there whatever the user may. Imports no torch.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import IO, Any

import ledger
from ledger.analysis.refusals import STOPPED
from ledger.budgets import CALLABLE_MEMORY_SHARE, CALLABLE_TIME_S
from ledger.canonical import validate
from ledger.device.gpu_selection import current_gpu
from ledger.errors import InputError, LedgerError
from ledger.measure.callable_process import PARTS
from ledger.measure.order_checks import Job
from ledger.measure.run_cell import Outcome, Stage, device_of
from ledger.records import Binary, Order

_CHILD = "ledger.measure.callable_process"
_END_S = 10
_LONGEST_LINE = 16 * 1024 * 1024
_MOST_LINES = 16


@dataclass(frozen=True)
class Limits:
    """Hold what one cell may use; memory is that of the CPU, None for a share of what is available."""

    time_s: float = CALLABLE_TIME_S
    memory_bytes: int | None = None


def run_apart(
    job: Job,
    order: Order,
    *,
    folder: FilePath,
    launch_ps: int | None,
    vary: bool,
    limits: Limits,
    on_stage: Callable[[Stage], None],
) -> Outcome:
    """Return the outcome of a callable's cell. folder: of the sources.

    Raises: InputError where it cannot be loaded here, and nothing was timed.
    """
    on_gpu = device_of(job.ordered) == "cuda"
    asked = {
        "order": order.model_dump(mode="json", by_alias=True),
        "cell": job.ordered.model_dump(mode="json", by_alias=True),
        "facts": job.facts.model_dump(mode="json", by_alias=True),
        "folder": str(folder.resolve()),
        "device": f"cuda:{current_gpu()}" if on_gpu else "cpu",
        "launch_ps": launch_ps,
        "vary": vary,
        "memory_bytes": limits.memory_bytes or int(CALLABLE_MEMORY_SHARE * _available_bytes()),
    }
    with TemporaryDirectory() as name, _process(FilePath(name), asked) as process:
        for message in _messages(process, limits.time_s):
            if "stage" in message:
                on_stage(message["stage"])
            elif "cannot" in message:
                raise InputError(str(message["cannot"]))
            elif "outcome" in message:
                return _outcome(message["outcome"], job.ordered.case.kernel)
        if process.poll() is None:
            return Outcome(failure=f"{STOPPED}it ran longer than {limits.time_s:g} s; expected a call that returns")
        return Outcome(failure=f"{STOPPED}{_end(process)} before its result; expected a call that returns")


def _end(process: subprocess.Popen[str]) -> str:
    code = process.returncode
    if code is None or code >= 0:
        return f"its process ended with exit code {code}"
    names = {one.value: one.name for one in signal.Signals}
    return f"its process was ended by {names.get(-code, f'signal {-code}')}"


@contextmanager
def _process(folder: FilePath, asked: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Run the child process in a session of its own, and end all of that session afterwards."""
    job = folder / "job.json"
    job.write_text(json.dumps(asked), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _CHILD, str(job)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=child_environment(), text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def child_environment() -> dict[str, str]:
    """Return an environment in which the child process finds this package, installed or not."""
    root = FilePath(ledger.__file__).resolve().parents[1]
    if str(root) in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        return dict(os.environ)
    found = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root), found]))}


def _messages(process: subprocess.Popen[str], time_s: float) -> Iterator[dict[str, Any]]:
    """Yield the messages of a process until its output or its time ends."""
    lines: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    deadline = time.monotonic() + time_s
    while True:
        try:
            line = lines.get(timeout=max(deadline - time.monotonic(), 0))
        except queue.Empty:
            return
        if line is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            return
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    """Pass on what a process writes; a longer line comes in pieces, which are no messages."""
    while line := stream.readline(_LONGEST_LINE):
        lines.put(line)
    lines.put(None)


def _outcome(found: dict[str, Any], name: str) -> Outcome:
    """Return the outcome that a process wrote; one of another form is a failure."""
    try:
        parts: dict[str, Any] = {
            part: None if found[part] is None else validate(kind, found[part], what=name)
            for part, kind in PARTS.items()
        }
        return Outcome(
            failure=None if found["failure"] is None else str(found["failure"]),
            **parts,
            extensions=dict(found["extensions"]),
            interventions={str(key): int(value) for key, value in found["interventions"].items()},
            ran=tuple(validate(Binary, one, what=name) for one in found["ran"]),
        )
    except (LedgerError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Outcome(failure=f"{STOPPED}its process left no outcome that can be read ({error})"[:4000])


def _available_bytes() -> int:
    """Return the memory that this machine has available."""
    for line in FilePath("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
