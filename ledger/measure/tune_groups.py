"""Times the candidate launch configurations of one cell in groups and logs each. Imports torch, only when called.

Each candidate is compared with float64 first; one that is wrong or cannot be launched is logged and never timed. The
others of a group are timed in turns on the same cold input sets, with the kernel's own configuration. Copies of the
sets fill the last cache more often, as far as the workspaces of a group leave memory.
"""

from __future__ import annotations

import contextlib
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


class _TooManyCopies(Exception):
    """Report that memory does not suffice for launches on the copies of input sets."""


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
        self.cold = cold_sets(kernel, case, facts, self.parameters, device="cuda")
        self.reference = kernel.reference(self.cold[0].inputs)
        self.sets = self.cold
        if configs:
            self.sets = [*self.cold, *self._copies(case, facts, configs)]

    def time(self, configs: Sequence[Config], parameters: Parameters, *, final: bool = False) -> None:
        """Time the correct configurations interleaved with the kernel's own, and log every one.

        Where memory does not suffice for launches on the copies too, they are timed without these.
        """
        left = self._timed(configs, self.sets, parameters, final=final)
        release("cuda")
        if left:
            self._timed(left, self.cold, parameters, final=final)
            release("cuda")

    def _timed(
        self, configs: Sequence[Config], sets: Sequence[InputSet], parameters: Parameters, *, final: bool
    ) -> list[Config]:
        """Time and log configurations; return those of which nothing is logged for lack of memory for the copies."""
        left = list(configs)
        ready: list[tuple[Config, Contestant]] = []
        try:
            ours = self._ours(sets)
            for config in configs:
                made = self._contestant(config, sets)
                if isinstance(made, Entry):
                    self._append(made)
                    left.remove(config)
                else:
                    ready.append((config, made))
        except _TooManyCopies:
            return left
        interleave([ours, *(contestant for _, contestant in ready)], parameters)
        for config, contestant in ready:
            median, own = contestant.interval.median, ours.interval.median
            self._append(Entry(self.cell, dict(config), "timed", median_ps=median, own_ps=own, final=final))
        return []

    def _copies(self, case: Case, facts: DeviceFacts, configs: Sequence[Config]) -> list[InputSet]:
        """Return copies of the input sets: as many as the group with the largest workspaces leaves memory for."""
        workspaces = sorted(map(self._workspace_bytes, configs))
        return further_sets(
            self.cold,
            self._ours(self.cold).rounds.launches,
            COPIES,
            set_bytes=bytes_per_set(self.kernel.operation, case.shape, case.dtype),
            launch_bytes=self._workspace_bytes(self.own) + sum(workspaces[-GROUP_SIZE:]),
            cache_bytes=facts.l2_bytes,
        )

    def _workspace_bytes(self, config: Config) -> int:
        """Return what a launch of a configuration allocates; 0 where it fails, which its turn will log."""

        def launch_of(one: InputSet) -> Launch:
            return self.prepare(one.inputs, one.out, config)

        # As in _contestant.
        with contextlib.suppress(Exception):
            return bytes_of_launch(launch_of, self.cold[0])
        return 0

    def _ours(self, sets: Sequence[InputSet]) -> Contestant:
        """Return the kernel's own configuration ready to be timed. Raises: MachineError where it is wrong or fails."""
        ours = self._contestant(self.own, sets)
        if isinstance(ours, Entry):
            raise MachineError(f"{self.kernel.name}: its own configuration {ours.status} here: {ours.why}")
        return ours

    def _contestant(self, config: Config, sets: Sequence[InputSet]) -> Contestant | Entry:
        """Return a configuration ready to be timed, or the log entry that says why it is not.

        Raises: _TooManyCopies where memory does not suffice for its launches on copies.
        """
        prepare = self.prepare
        first = sets[0]
        try:
            launches = [prepare(one.inputs, one.out, config) for one in sets]
            first.out.fill_(float("nan"))
            launches[0]()
            found = compare(first.out, self.reference, self.tolerance, name="float64")
            if not found.passed:
                return Entry(self.cell, dict(config), "wrong", why=explain_failure(found))
            return Contestant(config_key(config), GraphRounds(launches, watch=False), found.passed, "back-to-back")
        # Triton and its tools raise errors of any type for a configuration that they cannot build or launch.
        except Exception as error:
            entry = Entry(self.cell, dict(config), "failed", why=explained(error, 400))
            if "out of memory" in str(error) and len(sets) > len(self.cold):
                raise _TooManyCopies from error
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
