"""Measures an order on a cluster: sends each cell to a node that fits, takes its result in, sends lost cells elsewhere.

A cell whose node dies, is preempted or takes too long is lost there; it runs again, the same run, on another node, and
its record holds the attempts that gave no measurement. A failed kernel is a result, as elsewhere. Results are written
as they come: the same call resumes what was interrupted. What a node refuses by name it gets no more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Any

from filelock import FileLock, Timeout

from ledger.analysis.revealing import masked_text
from ledger.canonical import encode, record_id
from ledger.device.machine_names import machine_names
from ledger.errors import EvidenceRefused, InputError
from ledger.fleet.attempts import MAX_ATTEMPTS, Attempts, Key, key_of
from ledger.fleet.node import LOST, MEASURED, REFUSED, STARTED
from ledger.fleet.placement import Need, Node, choose, group, need, wanted
from ledger.fleet.ray_cluster import Cluster
from ledger.fleet.received import take
from ledger.measure.order_checks import order_of
from ledger.measure.run_order import RunSummary, complete
from ledger.records import Digest, Hardware, Order, OrderedCell

_TICK_S = 0.5
_GRACE_S = 30.0
"""How much later than its node the driver ends a cell."""
_MOST_LOSSES = 5
"""After so many losses in one call a cell is left open."""
_NODE_LOSSES = 2
"""After so many losses one after the other a node gets no more cells."""
_REPLACED_S = 60.0
"""How long to wait for a node where all that fitted have gone."""


@dataclass(frozen=True)
class FleetOptions:
    """Hold how cells are measured. Units: seconds; node_limit_s: of any cell, time_limit_s: of a callable."""

    counters: str = "auto"
    full_cells: frozenset[str] = frozenset()
    time_limit_s: float | None = None
    node_limit_s: float = 3600.0


@dataclass(frozen=True)
class NodeCount:
    """Count what a node did: cells measured and failed, and attempts that gave nothing."""

    measured: int = 0
    failed: int = 0
    lost: int = 0
    refused: int = 0


@dataclass(frozen=True)
class FleetSummary(RunSummary):
    """Count the cells of a run on a cluster, in all and by the name of the node. device_seconds: of all nodes."""

    nodes: dict[str, NodeCount] = field(default_factory=dict)


@dataclass
class _Running:
    cell: OrderedCell
    node: Node
    need: Need
    began: float | None = None


@dataclass(frozen=True)
class FleetProgress:
    """Hold the progress of an order: what is done, and what each node measures now."""

    done: int
    total: int
    running: dict[str, list[str]]


def run_fleet(
    order: Order,
    cluster: Cluster,
    *,
    out: FilePath,
    options: FleetOptions,
    on_progress: Callable[[FleetProgress], None] = lambda _progress: None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> FleetSummary:
    """Measure the cells of an order that are not yet complete in `out` on a cluster, and write each there.

    Raises: InputError where another driver writes into the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".fleet.lock", timeout=0):
            return _Driver(order, cluster, out, options, on_progress, on_note).run()
    except Timeout as error:
        raise InputError(f"{out}: another driver measures into this folder; expected one at a time") from error


class _Driver:
    """Drive the cells of one order until each is measured or no node can measure it."""

    def __init__(
        self,
        order: Order,
        cluster: Cluster,
        out: FilePath,
        options: FleetOptions,
        on_progress: Callable[[FleetProgress], None],
        on_note: Callable[[str], None],
    ) -> None:
        self.order, self.cluster, self.out, self.options = order, cluster, out, options
        self.on_progress, self.on_note = on_progress, on_note
        self.order_sha256: Digest = record_id(Order, encode(order))
        self.attempts = Attempts(out)
        self.pending = [cell for cell in order.cells if not complete(out, cell)]
        self.running: dict[Any, _Running] = {}
        self.skipped = len(order.cells) - len(self.pending)
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[tuple[str, str]] = []
        self.unmeasured: list[tuple[str, str]] = []
        self.barred: dict[tuple[str, tuple[object, ...]], str] = {}
        self.losses: Counter[Key] = Counter()
        self.lost_on: set[tuple[Key, str]] = set()
        self.node_losses: Counter[str] = Counter()
        self.seen: set[Digest] = set()
        self.without_node = time.monotonic()
        self.seconds = 0.0

    def run(self) -> FleetSummary:
        """Run until nothing is left; what is interrupted stays open."""
        interrupted = False
        try:
            while self.pending or self.running:
                self._place(self.cluster.nodes())
                self._report()
                for handle, word, value in self.cluster.wait(list(self.running), _TICK_S):
                    self._hear(handle, word, value)
                self._end_overdue()
        except KeyboardInterrupt:
            interrupted = True
            for handle in list(self.running):
                self._lose(handle, "interrupted by the user")
        self._report()
        total: Counter[str] = sum(self.counts.values(), Counter())
        return FleetSummary(
            measured=total["measured"],
            failed=total["failed"],
            skipped=self.skipped,
            device_seconds=self.seconds,
            interrupted=interrupted,
            failures=tuple(self.failures),
            unloaded=tuple(self.unmeasured),
            nodes={name: NodeCount(**count) for name, count in sorted(self.counts.items())},
        )

    # Placing

    def _place(self, nodes: list[Node]) -> None:
        """Send cells to the nodes that have room; leave out those that no node can measure."""
        working = [node for node in nodes if self.node_losses[node.id] < _NODE_LOSSES]
        taken: dict[str, list[Need]] = {}
        for one in self.running.values():
            taken.setdefault(one.node.id, []).append(one.need)
        full: set[tuple[object, ...]] = set()
        for cell in list(self.pending):
            hardware, kind = self.order.hardware[cell.hardware_sha256], group(cell)
            fresh = not self.losses[key_of(cell)]
            if kind in full and fresh:
                continue
            allowed = [node for node in working if (node.id, kind) not in self.barred]
            tried = {node.id for node in allowed if (key_of(cell), node.id) in self.lost_on}
            found = choose(hardware, allowed, tried=tried, taken=taken)
            if found is not None:
                self._start(cell, *found)
                taken.setdefault(found[0].id, []).append(found[1])
            elif not self._can_wait(cell, hardware, working):
                self.pending.remove(cell)
                self.unmeasured.append((cell.cell, self._why_not(cell, hardware, nodes)))
            elif fresh:
                full.add(kind)

    def _can_wait(self, cell: OrderedCell, hardware: Hardware, working: list[Node]) -> bool:
        """Tell whether a node may yet measure a cell: a busy one, or one that comes back after all have gone."""
        fitting = [node for node in working if need(hardware, node) is not None]
        if any((node.id, group(cell)) not in self.barred for node in fitting):
            self.seen.add(cell.hardware_sha256)
            self.without_node = time.monotonic()
            return True
        gone = cell.hardware_sha256 in self.seen and not fitting
        return gone and time.monotonic() - self.without_node < _REPLACED_S

    def _why_not(self, cell: OrderedCell, hardware: Hardware, nodes: list[Node]) -> str:
        kind = group(cell)
        names = {node.id: node.name for node in nodes}
        refusals = {
            f"{names.get(node, 'a node that has gone')}: {why}" for (node, of), why in self.barred.items() if of == kind
        }
        lost = [node.name for node in nodes if self.node_losses[node.id] >= _NODE_LOSSES]
        if refusals:
            return f"no node can measure it: {'; '.join(sorted(refusals))}"
        if lost:
            return f"its nodes lose their cells: {', '.join(lost)}"
        have = ", ".join(node.name for node in nodes) or "none"
        return f"no node declares profile {hardware.name}; expected {wanted(hardware)}; nodes: {have}"

    def _start(self, cell: OrderedCell, node: Node, need: Need) -> None:
        self.pending.remove(cell)
        self.seen.add(cell.hardware_sha256)
        names = {cell.cell, f"{cell.seal}#{cell.cell}"}
        asked = {
            "order_sha256": self.order_sha256,
            "counters": self.options.counters,
            "full_cells": sorted(self.options.full_cells & names),
            "time_limit_s": self.options.time_limit_s,
            "node_limit_s": self.options.node_limit_s,
            "node": node.name,
            "attempts": [one.model_dump(mode="json", by_alias=True) for one in self.attempts.of(cell)],
        }
        handle = self.cluster.start(node, need, encode(order_of(self.order, cell)), asked)
        self.running[handle] = _Running(cell, node, need)

    # Hearing

    def _hear(self, handle: Any, word: str, value: Any) -> None:
        one = self.running.get(handle)
        if one is None:
            return
        if word == STARTED:
            one.began = time.monotonic()
            self.attempts.begin(one.cell, one.node.name, str(value))
        elif word == MEASURED:
            self._take(handle, one, value)
        elif word == REFUSED:
            self._refuse(handle, one, str(value))
        else:
            assert word == LOST, word
            self._lose(handle, str(value))

    def _take(self, handle: Any, one: _Running, files: dict[str, bytes]) -> None:
        try:
            record = take(files, cell=one.cell, order_sha256=self.order_sha256, node=one.node.name, out=self.out)
        except EvidenceRefused as error:
            self._lose(handle, str(error))
            return
        self._leave(handle, one, None)
        self.node_losses[one.node.id] = 0
        self._count(one, "measured" if record.failure is None else "failed")
        if record.failure is not None:
            self.failures.append((one.cell.cell, record.failure))

    def _refuse(self, handle: Any, one: _Running, why: str) -> None:
        """Bar a node from the cells like one that it cannot measure; the cell goes elsewhere."""
        why = _masked(why)
        self._leave(handle, one, f"refused: {why}")
        self.barred[one.node.id, group(one.cell)] = why
        self._count(one, "refused")
        self.on_note(f"{one.node.name} refused {one.cell.cell}: {why}")
        self._again(one)

    def _lose(self, handle: Any, why: str) -> None:
        one, why = self.running[handle], _masked(why)
        self.cluster.cancel(handle)
        if one.began is None:
            # What is not known to have begun is written down too.
            self.attempts.begin(one.cell, one.node.name, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._leave(handle, one, why)
        self.losses[key_of(one.cell)] += 1
        self.lost_on.add((key_of(one.cell), one.node.id))
        self.node_losses[one.node.id] += 1
        self._count(one, "lost")
        self.on_note(f"{one.node.name} lost {one.cell.cell}: {why}")
        self._again(one)

    def _again(self, one: _Running) -> None:
        if self.losses[key_of(one.cell)] >= _MOST_LOSSES or len(self.attempts.of(one.cell)) >= MAX_ATTEMPTS:
            self.unmeasured.append((one.cell.cell, f"it was lost {self.losses[key_of(one.cell)]} times"))
        else:
            self.pending.insert(0, one.cell)

    def _leave(self, handle: Any, one: _Running, reason: str | None) -> None:
        del self.running[handle]
        self.attempts.end(one.cell, reason)
        if one.began is not None:
            self.seconds += time.monotonic() - one.began

    def _end_overdue(self) -> None:
        limit = self.options.node_limit_s + _GRACE_S
        for handle, one in list(self.running.items()):
            if one.began is not None and time.monotonic() - one.began > limit:
                self._lose(handle, f"the node gave no answer within {limit:g} s")

    def _count(self, one: _Running, what: str) -> None:
        self.counts.setdefault(one.node.name, Counter())[what] += 1

    def _report(self) -> None:
        busy: dict[str, list[str]] = {}
        for one in self.running.values():
            busy.setdefault(one.node.name, []).append(one.cell.cell)
        done = self.skipped + sum(count["measured"] + count["failed"] for count in self.counts.values())
        self.on_progress(FleetProgress(done, len(self.order.cells), busy))


def _masked(text: str) -> str:
    return masked_text(text, machine_names())
