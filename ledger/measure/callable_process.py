"""Runs in a process of its own and measures one cell of an order, a callable, for measure.apart.

Usage: python -m ledger.measure.callable_process JOB, where JOB is the JSON that measure.apart wrote. It imports what
measures and waits for a line of JSON on standard input, the rest of the job, which gives the cell its turn: no device
is used before. Standard output receives one line of JSON a message: stages, then the outcome, or why the callable
cannot be loaded here. What the callable prints goes to standard error. Imports torch, only when called.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger.analysis.refusals import REFUSED, STOPPED
from ledger.canonical import validate
from ledger.device.facts import import_torch
from ledger.device.gpu_selection import select_device
from ledger.device.parent_process import end_with_parent
from ledger.errors import LedgerError, SubjectRefused, explained
from ledger.launches import watch_loads
from ledger.measure.guard import Guard
from ledger.measure.ordered_kernels import kernels_of
from ledger.measure.run_cell import Outcome, device_of, run_cell
from ledger.records import Correctness, DeviceFactsV2, DeviceState, Order, OrderedCell, Record, Samples, TimingV2
from ledger.sources.distributions import distributions_of

Say = Callable[[dict[str, Any]], None]
PARTS: dict[str, type[Record]] = {
    "correctness": Correctness, "samples": Samples, "timing": TimingV2, "before": DeviceState, "after": DeviceState,
}  # fmt: skip
"""The records in an outcome, by field."""
_LATER = ("torch._dynamo", "triton.knobs", "ledger.device.probe_kernels")
"""Modules that every cell on a GPU imports: torch's, where a reference is made to run eagerly."""


def document_of(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain JSON types."""
    parts = {name: getattr(outcome, name) for name in PARTS}
    return {
        "failure": outcome.failure,
        **{name: None if part is None else part.model_dump(mode="json", by_alias=True) for name, part in parts.items()},
        "extensions": outcome.extensions,
        "interventions": outcome.interventions,
        "ran": [one.model_dump(mode="json", by_alias=True) for one in outcome.ran],
    }


def main(job: Path, turn: Callable[[], dict[str, Any] | None] = dict) -> int:
    """Measure the cell of a job, once it is its turn. turn: waits for the rest of the job, None where it fails."""
    end_with_parent(os.getppid())
    say = _messages()
    asked = json.loads(job.read_text(encoding="utf-8"))
    order = validate(Order, asked["order"], what="job")
    cell = validate(OrderedCell, asked["cell"], what="job")
    _import(cell)
    given = turn()
    if given is None:
        return 0
    asked |= given
    _prepare(cell, asked)
    guard = Guard(cell.case.dtype)
    try:
        kernel = kernels_of(order, folder=Path(asked["folder"]), now=True)(cell).kernel
        guard.check("while it was imported")
    except SubjectRefused as error:
        say({"outcome": document_of(Outcome(failure=REFUSED + str(error)))})
        return 0
    except LedgerError as error:
        say({"cannot": str(error)})
        return 0
    try:
        outcome = run_cell(
            cell,
            kernel,
            facts=validate(DeviceFactsV2, asked["facts"], what="job"),
            launch_ps=asked["launch_ps"],
            vary=asked["vary"],
            on_stage=lambda stage: say({"stage": stage}),
            guard=guard,
        )
    # A callable may raise what ends a process; this one measures nothing else.
    except BaseException as error:  # noqa: BLE001
        outcome = Outcome(failure=f"{STOPPED}it raised {explained(error, 200)}; expected a call that returns")
    say({"outcome": document_of(_explained_memory(outcome, asked["memory_bytes"]))})
    return 0


def wait_for_turn() -> dict[str, Any] | None:
    """Wait for a line of JSON on standard input, which is empty from then on; return it, None where none came."""
    with os.fdopen(os.dup(0), encoding="utf-8") as stream:
        line = stream.readline()
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return dict(json.loads(line)) if line.endswith("\n") else None


def _messages() -> Say:
    """Return what writes a message to standard output, which from now on leads to standard error for all others."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    dumps, write, flush = json.dumps, stream.write, stream.flush

    def say(message: dict[str, Any]) -> None:
        write(dumps(message) + "\n")
        flush()

    return say


def _import(cell: OrderedCell) -> None:
    """Import what measures, without using a device; what every callable on a GPU needs later as well."""
    import_torch()
    if device_of(cell) == "cuda":
        for name in _LATER:
            with suppress(ImportError):
                importlib.import_module(name)
        distributions_of("torch")


def _prepare(cell: OrderedCell, asked: dict[str, Any]) -> None:
    """Choose the device and limit memory, before the callable is imported."""
    torch = import_torch()
    select_device(asked["device"])
    if device_of(cell) == "cuda":
        torch.cuda.init()
    else:
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (_memory() + asked["memory_bytes"], most))
    watch_loads()


def _memory() -> int:
    """Return the bytes of data that this process has already."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


def _explained_memory(outcome: Outcome, limit: int) -> Outcome:
    text = outcome.failure or ""
    if "MemoryError" in text or "can't allocate memory" in text:
        return replace(outcome, failure=f"{STOPPED}it asked for more memory than {limit / 1e9:.1f} GB; {text}"[:4000])
    return outcome


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), wait_for_turn))
