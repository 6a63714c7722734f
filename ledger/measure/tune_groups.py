"""Times the candidate launch configurations of one cell in groups and logs each. Imports torch, only when called.

Each candidate is compared with float64 first; one that is wrong or cannot be launched is logged and never timed. The
others of a group are timed in turns on the same cold input sets, with the kernel's own configuration. Copies of the
sets fill the last cache more often, as far as the workspaces of a group leave memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath

from ledger.analysis.protocols import interleaved_protocol_for
from ledger.analysis.tuning import Entry, config_key, log_line
from ledger.device.facts import import_torch
from ledger.errors import MachineError, explained
from ledger.kernel import Config, Kernel, Launch
from ledger.measure.contestants import Contestant, cold_sets, interleave
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.input_copies import COPIES, bytes_of_launch, further_sets
from ledger.measure.inputs import InputSet, bytes_per_set
from ledger.measure.run_cell import release
from ledger.measure.timer import Parameters, parameters_of
from ledger.records import Case, DeviceFacts

GROUP_SIZE = 6
"""Candidates that are timed together, beside the kernel's own configuration."""


class CellRun:
    """Time configurations of one cell on the same input sets."""

    def __init__(
        self, kernel: Kernel, case: Case, cell: str, log: FilePath, facts: DeviceFacts, configs: Sequence[Config]
    ) -> None:
        """Make the input sets and the reference. configs: all that will be timed."""
        self.kernel, self.own, self.cell, self.log = kernel, case.config, cell, log
        self.prepare = kernel.implementations[case.implementation]
        self.tolerance = kernel.tolerances[case.dtype]
        self.parameters = parameters_of(interleaved_protocol_for(case.implementation))
        # A short first timing; only the fastest are timed by the whole protocol.
        self.quick = replace(self.parameters, min_rounds=10, max_rounds=20, budget_ms=100)
        self.sets = cold_sets(kernel, case, facts, self.parameters, device="cuda")
        self.reference = kernel.reference(self.sets[0].inputs)
        if configs:
            self.sets += self._copies(case, facts, configs)

    def time(self, configs: Sequence[Config], parameters: Parameters, *, final: bool = False) -> None:
        """Time the correct configurations interleaved with the kernel's own, and log every one."""
        ours = self._contestant(self.own)
        if isinstance(ours, Entry):
            raise self._own_failure(ours)
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

    def _copies(self, case: Case, facts: DeviceFacts, configs: Sequence[Config]) -> list[InputSet]:
        """Return copies of the input sets: as many as the group with the largest workspaces leaves memory for."""
        own = self._launches(self.own)
        if isinstance(own, Entry):
            raise self._own_failure(own)
        workspaces = sorted(map(self._workspace_bytes, configs))
        return further_sets(
            self.sets,
            own,
            COPIES,
            set_bytes=bytes_per_set(self.kernel.operation, case.shape, case.dtype),
            launch_bytes=self._workspace_bytes(self.own) + sum(workspaces[-GROUP_SIZE:]),
            cache_bytes=facts.l2_bytes,
        )

    def _workspace_bytes(self, config: Config) -> int:
        """Return what a launch of a configuration allocates; 0 where it fails, which its turn will log."""

        def launch_of(one: InputSet) -> Launch:
            return self.prepare(one.inputs, one.out, config)

        try:
            return bytes_of_launch(launch_of, self.sets[0])
        # As in _launches.
        except Exception as error:  # noqa: BLE001
            self._failed(config, error)
            return 0

    def _contestant(self, config: Config) -> Contestant | Entry:
        """Return a configuration ready to be timed, or the log entry that says why it is not."""
        made = self._launches(config)
        if isinstance(made, Entry):
            return made
        try:
            return Contestant(config_key(config), GraphRounds(made, watch=False), True, "back-to-back")
        # As in _launches.
        except Exception as error:  # noqa: BLE001
            return self._failed(config, error)

    def _launches(self, config: Config) -> list[Launch] | Entry:
        """Return a configuration's launches, or the log entry that says why there are none."""
        first = self.sets[0]
        try:
            launches = [self.prepare(one.inputs, one.out, config) for one in self.sets]
            first.out.fill_(float("nan"))
            launches[0]()
            found = compare(first.out, self.reference, self.tolerance, name="float64")
        # Triton and its tools raise errors of any type for a configuration that they cannot build or launch.
        except Exception as error:  # noqa: BLE001
            return self._failed(config, error)
        return launches if found.passed else Entry(self.cell, dict(config), "wrong", why=explain_failure(found))

    def _own_failure(self, entry: Entry) -> MachineError:
        return MachineError(f"{self.kernel.name}: its own configuration {entry.status} here: {entry.why}")

    def _failed(self, config: Config, error: Exception) -> Entry:
        """Return the log entry of a configuration that raised an error. Raises: MachineError for an unusable device."""
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
