"""Times the candidate launch configurations of a kernel and logs each. Imports torch, only when called.

Each candidate is compared with float64 first; one that is wrong or cannot be launched is logged and never timed. The
others are timed in small groups, in turns on the same cold input sets. Every group contains the kernel's own
configuration, and a candidate's time is reported as a multiple of it: a clock that drifts between two groups favours no
candidate. At the end the fastest are timed again, because the best of many is partly noise.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.protocols import interleaved_protocol_for
from ledger.analysis.tuning import (
    Choice,
    Entry,
    Kept,
    cell_of,
    choose,
    config_key,
    left_to_time,
    log_line,
    ranked,
    read_log,
    row_of,
)
from ledger.device.facts import facts_for, import_torch, require_profile
from ledger.errors import InputError, MachineError, explained
from ledger.kernel import AheadCuda, Config, CudaProgram, Kernel
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.contestants import Contestant, cold_sets, interleave
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.run_cell import release
from ledger.measure.timer import Parameters, parameters_of
from ledger.operations import Shape
from ledger.record_files import read_bytes, write_atomically
from ledger.records import Case, DeviceFacts, Dtype, Hardware, is_gpu

GROUP_SIZE = 6
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
    """Hold what a tuned configuration is valid for: device, versions and the kernel's source."""

    device: str
    driver: str | None
    software: Mapping[str, str]
    kernel_sha256: str

    def document(self) -> dict[str, Any]:
        """Return the conditions as the log's digest and the reviewed file hold them."""
        return {
            "device": self.device,
            "driver": self.driver,
            "software": dict(self.software),
            "kernel_sha256": self.kernel_sha256,
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
    conditions = Conditions(facts.name, facts.driver, facts.software, file.sha256).document()
    cell = cell_of(conditions, shape, dtype)
    _cut_unfinished_line(log)
    wanted = choice.kept[:most]
    left = left_to_time(wanted, _read(log), cell)
    compile_together(file.kernel, [one.config for one in left], case, hardware.chip)
    _time_all(_Run(file.kernel, case, cell, log, facts), left, len(wanted), on_progress)
    release("cuda")
    entries = [entry for entry in _read(log) if entry.cell == cell]
    return Tuned(
        row=row_of(ranked(entries, cell), shape=shape, dtype=dtype, own=case.config, conditions=conditions),
        choice=choice,
        wrong=sum(entry.status == "wrong" for entry in entries),
        failed=sum(entry.status == "failed" for entry in entries),
        resumed=len(wanted) - len(left),
    )


def _time_all(run: _Run, left: Sequence[Kept], total: int, on_progress: OnProgress) -> None:
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


class _Run:
    """Time configurations of one cell on the same input sets."""

    def __init__(self, kernel: Kernel, case: Case, cell: str, log: FilePath, facts: DeviceFacts) -> None:
        """Make the input sets and the reference."""
        self.kernel, self.own, self.cell, self.log = kernel, case.config, cell, log
        self.prepare = kernel.implementations[case.implementation]
        self.tolerance = kernel.tolerances[case.dtype]
        self.parameters = parameters_of(interleaved_protocol_for(case.implementation))
        # A short first timing; only the fastest are timed by the whole protocol.
        self.quick = replace(self.parameters, min_rounds=10, max_rounds=20, budget_ms=100)
        self.sets = cold_sets(kernel, case, facts, self.parameters, device="cuda")
        self.reference = kernel.reference(self.sets[0].inputs)

    def time(self, configs: Sequence[Config], parameters: Parameters, *, final: bool = False) -> None:
        """Time the correct configurations interleaved with the kernel's own, and log every one."""
        ours = self._contestant(self.own)
        if isinstance(ours, Entry):
            raise MachineError(f"{self.kernel.name}: its own configuration {ours.status} here: {ours.why}")
        ready: list[tuple[Config, Contestant]] = []
        for config in configs:
            made = self._contestant(config)
            if isinstance(made, Entry):
                self._append(made)
            else:
                ready.append((config, made))
        interleave([ours, *(contestant for _, contestant in ready)], parameters)
        for config, contestant in ready:
            median, own = contestant.interval.median, ours.interval.median
            self._append(Entry(self.cell, dict(config), "timed", median_ps=median, own_ps=own, final=final))
        del ours, ready
        release("cuda")

    def _contestant(self, config: Config) -> Contestant | Entry:
        """Return a configuration ready to be timed, or the log entry that says why it is not."""
        prepare = self.prepare
        first = self.sets[0]
        try:
            launches = [prepare(one.inputs, one.out, config) for one in self.sets]
            first.out.fill_(float("nan"))
            launches[0]()
            found = compare(first.out, self.reference, self.tolerance, name="float64")
            if not found.passed:
                return Entry(self.cell, dict(config), "wrong", why=explain_failure(found))
            return Contestant(config_key(config), GraphRounds(launches, watch=False), found.passed, "back-to-back")
        # Triton and its tools raise errors of any type for a configuration that they cannot build or launch.
        except Exception as error:  # noqa: BLE001
            entry = Entry(self.cell, dict(config), "failed", why=explained(error, 400))
        self._require_device(entry)
        return entry

    def _require_device(self, entry: Entry) -> None:
        """Check that the device still answers after a failure; a sticky error would fail all later candidates."""
        try:
            import_torch().cuda.synchronize()
        except RuntimeError as error:
            self._append(entry)
            raise MachineError(
                f"{self.kernel.name}: {dict(entry.config)} left the device unusable ({entry.why}); it is logged as "
                "failed: run the same command again to continue after it"
            ) from error

    def _append(self, entry: Entry) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(log_line(entry))
            file.flush()
            os.fsync(file.fileno())
