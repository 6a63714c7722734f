"""Times the launch configurations of a kernel that are worth it, and logs each. Imports torch, only when called.

Each candidate is compared with float64 first; one that is wrong or cannot be launched is logged and never timed. The
others take turns in small groups, round by round on the same cold input sets, and the kernel's own configuration is in
every group: a candidate's time is told as a multiple of it, so that a clock that drifts over the minutes between two
groups favours nobody. At the end the fastest take turns once more, because the best of many is partly luck.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.protocols import protocol_for
from ledger.analysis.tuning import (
    Choice,
    Entry,
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
from ledger.kernel import AheadCuda, CudaProgram, Kernel
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.bench import Contestant, cold_sets, interleave
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.run_cell import release
from ledger.measure.timer import Parameters, parameters_of
from ledger.operations import Shape
from ledger.record_files import write_atomically
from ledger.records import Case, DeviceFacts, Dtype, Hardware, is_gpu

TOGETHER = 6
FINALISTS = 4
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Tuned:
    """Hold what tuning one cell gave: the row for the reviewed file, and how many candidates fell out on the way."""

    row: dict[str, Any]
    choice: Choice
    wrong: int
    failed: int
    resumed: int


def conditions_of(facts: DeviceFacts, file: KernelFile) -> dict[str, Any]:
    """Return what a tuned configuration is known to hold for: device, versions and the kernel's source."""
    return {
        "device": facts.name,
        "driver": facts.driver,
        "software": dict(facts.software),
        "kernel_sha256": file.sha256,
    }


def tune(
    file: KernelFile,
    *,
    hardware: Hardware,
    shape: Shape,
    dtype: Dtype,
    log: FilePath,
    most: int | None = None,
    on_progress: OnProgress = lambda _done, _total, _words: None,
) -> Tuned:
    """Time a kernel's candidates for one cell; what the log already has is not timed again.

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
    conditions = conditions_of(facts, file)
    cell = cell_of(conditions, shape, dtype)
    _cut_short_line(log)
    wanted = choice.kept[:most]
    left = left_to_time(wanted, _read(log), cell)
    compile_together(file.kernel, [one.config for one in left], case, hardware.target)
    run = _Run(file.kernel, case, cell, log, facts)
    for first in range(0, len(left), TOGETHER):
        group = left[first : first + TOGETHER]
        on_progress(len(wanted) - len(left) + first, len(wanted), _words(group[0].config, case.config))
        run.time([one.config for one in group], run.quick)
    fastest = ranked(_read(log), cell)[:FINALISTS]
    if left and fastest:
        on_progress(len(wanted), len(wanted), "the fastest once more")
        run.time([entry.config for entry in fastest], run.parameters, final=True)
    on_progress(len(wanted), len(wanted), "done")
    release("cuda")
    entries = [entry for entry in _read(log) if entry.cell == cell]
    return Tuned(
        row=row_of(ranked(entries, cell), shape=shape, dtype=dtype, own=case.config, conditions=conditions),
        choice=choice,
        wrong=sum(entry.status == "wrong" for entry in entries),
        failed=sum(entry.status == "failed" for entry in entries),
        resumed=len(wanted) - len(left),
    )


def compile_together(kernel: Kernel, configs: Sequence[Mapping[str, int | str]], case: Case, target: str) -> int:
    """Compile what is CUDA C++ among configurations, several at a time, and return how many sources there were.

    A launch finds them compiled. One that does not compile is met again, and logged, when it is launched.
    """
    if kernel.ahead is None:
        return 0
    made = [kernel.ahead(config, case.shape, case.dtype, target) for config in configs]
    sources = {one.source for one in made if isinstance(one, AheadCuda)}

    def compiled(source: CudaProgram) -> None:
        with contextlib.suppress(InputError):
            source.cubin(target)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compiled, sources))
    return len(sources)


def _words(config: Mapping[str, int | str], own: Mapping[str, int | str]) -> str:
    """Return in which values a configuration differs from the kernel's own."""
    return ", ".join(f"{key} {value}" for key, value in config.items() if own.get(key) != value) or "unchanged"


def _read(log: FilePath) -> list[Entry]:
    return read_log(log.read_text(encoding="utf-8"), name=str(log)) if log.exists() else []


def _cut_short_line(log: FilePath) -> None:
    """Cut off a last line that a crash left unfinished, which the next one would run into."""
    if log.exists():
        whole, newline, rest = log.read_text(encoding="utf-8").rpartition("\n")
        if rest:
            write_atomically(log, (whole + newline).encode())


class _Run:
    """Time configurations of one cell on input sets that are made once."""

    def __init__(self, kernel: Kernel, case: Case, cell: str, log: FilePath, facts: DeviceFacts) -> None:
        """Make the input sets and the reference."""
        self.kernel, self.own, self.cell, self.log = kernel, case.config, cell, log
        self.tolerance = kernel.tolerances[case.dtype]
        self.parameters = parameters_of(protocol_for("triton"))
        # A first look; only the fastest are timed by the whole protocol.
        self.quick = replace(self.parameters, min_rounds=5, max_rounds=15, budget_ms=100)
        self.sets = cold_sets(kernel, case, facts, self.parameters, device="cuda")
        self.reference = kernel.reference(self.sets[0].inputs)

    def time(self, configs: Sequence[Mapping[str, int | str]], parameters: Parameters, *, final: bool = False) -> None:
        """Let the configurations that are right take turns with the kernel's own, and log every one."""
        ours = self._contestant(self.own)
        if isinstance(ours, Entry):
            raise MachineError(f"{self.kernel.name}: its own configuration {ours.status} here: {ours.why}")
        ready: list[tuple[Mapping[str, int | str], Contestant]] = []
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

    def _contestant(self, config: Mapping[str, int | str]) -> Contestant | Entry:
        """Return a configuration ready to be timed, or the log entry that says why it is not."""
        prepare = self.kernel.implementations["triton"]
        first = self.sets[0]
        try:
            launches = [prepare(one.inputs, one.out, config) for one in self.sets]
            first.out.fill_(float("nan"))
            launches[0]()
            found = compare(first.out, self.reference, self.tolerance, name="float64")
            if not found.passed:
                return Entry(self.cell, dict(config), "wrong", why=explain_failure(found))
            return Contestant(config_key(config), GraphRounds(launches, watch=False), found.passed)
        # Triton and its tools raise whatever they like for a configuration that they cannot build or launch.
        except Exception as error:  # noqa: BLE001
            entry = Entry(self.cell, dict(config), "failed", why=explained(error, 400))
        self._require_device(entry)
        return entry

    def _require_device(self, entry: Entry) -> None:
        """Check that the device still answers after a failure; a sticky error would fail all that follow."""
        try:
            import_torch().cuda.synchronize()
        except RuntimeError as error:
            self._append(entry)
            raise MachineError(
                f"{self.kernel.name}: {dict(entry.config)} left the device unusable ({entry.why}); it is logged as "
                "failed: the same command goes on after it"
            ) from error

    def _append(self, entry: Entry) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(log_line(entry))
            file.flush()
            os.fsync(file.fileno())
