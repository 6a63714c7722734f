"""Times the candidate launch configurations of a kernel and logs each. Imports torch, only when called.

Every group of candidates is timed with the kernel's own configuration (tune_groups), and a candidate's time is reported
as a multiple of it: a clock that drifts between two groups favours no candidate. At the end the fastest are timed
again, because the best of many is partly noise.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.tuning import Choice, Entry, Kept, cell_of, choose, left_to_time, ranked, read_log, row_of
from ledger.device.facts import facts_for, require_profile
from ledger.errors import InputError, MachineError
from ledger.kernel import AheadCuda, Config, CudaProgram, Kernel
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.input_copies import COPIES
from ledger.measure.run_cell import release
from ledger.measure.tune_groups import GROUP_SIZE, CellRun
from ledger.operations import Shape
from ledger.record_files import read_bytes, write_atomically
from ledger.records import Case, Dtype, Hardware, is_gpu

FINALISTS = 4
MAX_LOG_BYTES = 64 * 1024 * 1024
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Tuned:
    """Hold the tuning of one cell: the row for the reviewed file, and how many candidates were not timed, and why.

    resumed: candidates that the log had already.
    """

    row: dict[str, Any]
    choice: Choice
    wrong: int
    failed: int
    resumed: int

    @property
    def summary(self) -> str:
        """Return the counts as text."""
        return (
            f"{self.row['timed']} timed, {self.wrong} wrong, {self.failed} failed, {len(self.choice.dropped)} "
            f"dropped untimed; {self.resumed} were in the log already"
        )


@dataclass(frozen=True)
class Conditions:
    """Hold what a tuned configuration is valid for: device, versions, the kernel's source and the rotation."""

    device: str
    driver: str | None
    software: Mapping[str, str]
    kernel_sha256: str
    inputs: str

    def document(self) -> dict[str, Any]:
        """Return the conditions as the log's digest and the reviewed file hold them."""
        return {
            "device": self.device,
            "driver": self.driver,
            "software": dict(self.software),
            "kernel_sha256": self.kernel_sha256,
            "inputs": self.inputs,
        }


def tune(
    file: KernelFile,
    *,
    hardware: Hardware,
    shape: Shape,
    dtype: Dtype,
    log: FilePath,
    most: int | None = None,
    on_progress: OnProgress = lambda _done, _total, _text: None,
) -> Tuned:
    """Time a kernel's candidates for one cell; a candidate that the log holds is not timed again.

    most: how many candidates to time at most, those with the lowest time lower bound.
    Raises: MachineError without the profile's GPU, when the kernel's own configuration is wrong here, or when a
    candidate leaves the device unusable; InputError for a cell or a kernel that cannot be tuned.
    """
    if not is_gpu(hardware.target):
        raise MachineError(f"ledger tune: {hardware.name} ({hardware.target}) is no GPU; expected a CUDA device")
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    choice = choose(file.kernel, hardware, shape=shape, dtype=dtype)
    case = build_case(file.kernel, hardware, shape=shape, dtype=dtype)
    conditions = Conditions(facts.name, facts.driver, facts.software, file.sha256, COPIES.text).document()
    cell = cell_of(conditions, shape, dtype)
    _cut_unfinished_line(log)
    wanted = choice.kept[:most]
    left = left_to_time(wanted, _read(log), cell)
    configs = [one.config for one in left]
    compile_together(file.kernel, configs, case, hardware.chip)
    _time_all(CellRun(file.kernel, case, cell, log, facts, configs), left, len(wanted), on_progress)
    release("cuda")
    entries = [entry for entry in _read(log) if entry.cell == cell]
    return Tuned(
        row=row_of(ranked(entries, cell), shape=shape, dtype=dtype, own=case.config, conditions=conditions),
        choice=choice,
        wrong=sum(entry.status == "wrong" for entry in entries),
        failed=sum(entry.status == "failed" for entry in entries),
        resumed=len(wanted) - len(left),
    )


def _time_all(run: CellRun, left: Sequence[Kept], total: int, on_progress: OnProgress) -> None:
    """Time the candidates in groups, then the fastest again."""
    for first in range(0, len(left), GROUP_SIZE):
        group = left[first : first + GROUP_SIZE]
        on_progress(total - len(left) + first, total, _differences(group[0].config, run.own))
        run.time([one.config for one in group], run.quick)
    fastest = ranked(_read(run.log), run.cell)[:FINALISTS]
    if left and fastest:
        on_progress(total, total, "the fastest once more")
        run.time([entry.config for entry in fastest], run.parameters, final=True)
    on_progress(total, total, "done")


def compile_together(kernel: Kernel, configs: Sequence[Config], case: Case, target: str) -> int:
    """Compile the CUDA C++ of configurations in parallel, and return how many sources there were.

    Their launches then find compiled code. A source that does not compile fails again, and is logged, at its launch.
    """
    if kernel.ahead is None:
        return 0
    ahead = [kernel.ahead(config, case.shape, case.dtype, target) for config in configs]
    sources = {one.source for one in ahead if isinstance(one, AheadCuda)}

    def compiled(source: CudaProgram) -> None:
        with contextlib.suppress(InputError):
            source.cubin(target)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compiled, sources))
    return len(sources)


def _differences(config: Config, own: Config) -> str:
    """Return the values in which a configuration differs from the kernel's own."""
    return ", ".join(f"{key} {value}" for key, value in config.items() if own.get(key) != value) or "unchanged"


def _read(log: FilePath) -> list[Entry]:
    return read_log(_text(log), name=str(log)) if log.exists() else []


def _text(log: FilePath) -> str:
    try:
        return read_bytes(log, limit=MAX_LOG_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{log}: not UTF-8 text; expected a log of ledger tune") from error


def _cut_unfinished_line(log: FilePath) -> None:
    """Cut off a last line that a crash left unfinished: the next entry would continue it."""
    if log.exists():
        whole, newline, rest = _text(log).rpartition("\n")
        if rest:
            write_atomically(log, (whole + newline).encode())
