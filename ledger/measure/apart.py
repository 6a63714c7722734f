"""Measures a callable in a process of its own, with limits on time and memory; what it changes ends with that process.

While a cell is measured on a GPU, the processes of the next ones may already import torch; then they wait their turn.
That is no sandbox: the callable may do there whatever the user may. Imports no torch.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import IO, Any

from ledger.analysis.refusals import STOPPED
from ledger.budgets import CALLABLE_MEMORY_SHARE, CALLABLE_TIME_S
from ledger.canonical import validate
from ledger.child_environment import child_environment
from ledger.device.facts import cpu_cores
from ledger.device.gpu_selection import current_gpu
from ledger.errors import InputError, LedgerError
from ledger.measure.callable_process import PARTS
from ledger.measure.order_checks import Job, order_of
from ledger.measure.run_cell import Outcome, Stage
from ledger.records import Binary, Order

_CHILD = "ledger.measure.callable_process"
_END_S = 10
_LONGEST_LINE = 16 * 1024 * 1024
_MOST_LINES = 16
MOST_AHEAD, CORES_OF_ONE = 4, 4
"""Processes that import torch ahead of their turn, and cores of which each takes one."""


@dataclass(frozen=True)
class Limits:
    """Hold what one cell may use; memory is that of the CPU, None for a share of what is available."""

    time_s: float = CALLABLE_TIME_S
    memory_bytes: int | None = None


class CellProcess:
    """Hold the process of one callable's cell, in a session of its own. It imports torch, then waits for its turn."""

    def __init__(self, job: Job, order: Order, *, folder: FilePath, limits: Limits) -> None:
        """Start it. folder: of the sources."""
        asked = {
            "order": order_of(order, job.ordered).model_dump(mode="json", by_alias=True),
            "cell": job.ordered.model_dump(mode="json", by_alias=True),
            "facts": job.facts.model_dump(mode="json", by_alias=True),
            "folder": str(folder.resolve()),
            "device": f"cuda:{current_gpu()}" if job.on_gpu else "cpu",
            "memory_bytes": limits.memory_bytes or int(CALLABLE_MEMORY_SHARE * _available_bytes()),
        }
        self.job, self.limits = job, limits
        self._folder = TemporaryDirectory()
        path = FilePath(self._folder.name) / "job.json"
        path.write_text(json.dumps(asked), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _CHILD, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(), text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip

    @property
    def ended(self) -> bool:
        """Tell whether it has ended."""
        return self._process.poll() is not None

    def begin(self, *, launch_ps: int | None, vary: bool) -> None:
        """Give it its turn. launch_ps, vary: as for run_cell."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"launch_ps": launch_ps, "vary": vary}) + "\n")
            self._process.stdin.close()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield its messages until its output or its time ends."""
        return _messages(self._process, self.limits.time_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End all of its session."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        # Standard output is left to its reader: a process that left the session may hold it open.
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._folder.cleanup()

    def end(self) -> str | None:
        """Return how it ended, None where it still runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"its process ended with exit code {code}"
        names = {one.value: one.name for one in signal.Signals}
        return f"its process was ended by {names.get(-code, f'signal {-code}')}"


def run_apart(process: CellProcess, *, launch_ps: int | None, vary: bool, on_stage: Callable[[Stage], None]) -> Outcome:
    """Return the outcome of a callable's cell. launch_ps, vary: as for run_cell.

    Raises: InputError where it cannot be loaded here, and nothing was timed.
    """
    process.begin(launch_ps=launch_ps, vary=vary)
    for message in process.messages():
        if "stage" in message:
            on_stage(message["stage"])
        elif "cannot" in message:
            raise InputError(str(message["cannot"]))
        elif "outcome" in message:
            return _outcome(message["outcome"], process.job.ordered.case.kernel)
    end = process.end()
    if end is None:
        limit = f"{process.limits.time_s:g} s"
        return Outcome(failure=f"{STOPPED}it ran longer than {limit}; expected a call that returns")
    return Outcome(failure=f"{STOPPED}{end} before its result; expected a call that returns")


class Processes:
    """Start the processes of an order's callables, a few ahead of their turn, and end them. most: ahead."""

    def __init__(self, order: Order, *, folder: FilePath, limits: Limits) -> None:
        """Start none. folder: of the sources."""
        self._start = partial(CellProcess, order=order, folder=folder, limits=limits)
        self._ahead: list[CellProcess] = []
        self.most = max(1, min(MOST_AHEAD, cpu_cores() // CORES_OF_ONE))

    def close(self) -> None:
        """End the processes that wait."""
        waiting, self._ahead = self._ahead, []
        for one in waiting:
            one.close()

    @contextmanager
    def of(self, job: Job) -> Iterator[CellProcess]:
        """Yield the process of a cell, the one that waits where there is one; end it afterwards."""
        process = next((one for one in self._ahead if one.job is job), None)
        if process is not None:
            self._ahead.remove(process)
        if process is not None and process.ended:
            process.close()
            process = None
        process = process or self._start(job)
        try:
            yield process
        finally:
            process.close()

    def start_ahead(self, jobs: Iterable[Job]) -> None:
        """Start the processes of the next cells, as many as may wait; those of other cells end."""
        wanted = list(islice(jobs, self.most))
        for one in [one for one in self._ahead if not any(one.job is job for job in wanted)]:
            self._ahead.remove(one)
            one.close()
        waiting = [one.job for one in self._ahead]
        self._ahead += [self._start(job) for job in wanted if not any(job is other for other in waiting)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop the processes that wait inside the block: they take time of the processors."""
        held = list(self._ahead)
        for one in held:
            one.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for one in held:
                one.signal(signal.SIGCONT)


def _messages(process: subprocess.Popen[str], time_s: float) -> Iterator[dict[str, Any]]:
    """Yield the messages of a process until its output or its time ends."""
    lines: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    deadline = time.monotonic() + time_s
    # A process that never stops writing always has a line ready.
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left_s)
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
