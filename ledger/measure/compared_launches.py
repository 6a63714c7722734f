"""Prepares the launches of two versions of one subject on the same input sets and checks the first result of each.

An error is named as the failure of one side. On a GPU both sides also get launches on copies of the sets, where a CUDA
graph can capture both. Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ledger.callables.calls import Call
from ledger.callables.subject import is_callable
from ledger.errors import LedgerError, explained
from ledger.kernel import Kernel, Launch
from ledger.kernel_files import KernelFile
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.input_copies import NO_COPIES, CopyLimits, bytes_of_launch, further_sets
from ledger.measure.inputs import InputSet, bytes_per_set, copied
from ledger.measure.result_check import compare_results
from ledger.measure.stream_rounds import capture_problem
from ledger.records import CaseV2, Correctness, DeviceFacts

SideName = Literal["base", "head"]


@dataclass(frozen=True)
class Version:
    """Hold one side of a comparison: a loaded subject and its case there."""

    file: KernelFile
    case: CaseV2

    @property
    def kernel(self) -> Kernel:
        """Return the kernel, or the callable in a kernel's form."""
        return self.file.kernel


class SideFailed(Exception):
    """Report that one side cannot be timed."""

    def __init__(self, side: SideName, kind: str, why: str) -> None:
        """Keep whose failure it is, and of which kind: wrong or failed."""
        super().__init__(why)
        self.side, self.kind = side, kind


@contextmanager
def failures_of(name: SideName) -> Iterator[None]:
    """Name whose failure an error is: a subject may raise anything."""
    try:
        yield
    except SideFailed:
        raise
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, LedgerError) else explained(error, 400)
        raise SideFailed(name, "failed", text) from error


@dataclass
class SideLaunches:
    """Hold the launches of one side, one an input set, and how far its first result was from the reference.

    on_stream: whether they are timed on a stream, because no CUDA graph can capture them.
    """

    name: SideName
    version: Version
    launches: list[Launch]
    correctness: Correctness
    on_stream: bool = False


@dataclass(frozen=True)
class BothSides:
    """Hold both sides, ready to be timed, and what their results are compared with."""

    base: SideLaunches
    head: SideLaunches
    first: InputSet
    reference: Any

    def check_again(self) -> None:
        """Compare a result of head with the reference again; that of a callable changes. Raises: SideFailed."""
        if not is_callable(self.head.version.case.kernel):
            _require_right(self.base.version, self.head.launches[0], self.first, self.reference, "head")


def prepare_both(
    base: Version, head: Version, sets: Sequence[InputSet], copies: CopyLimits, *, facts: DeviceFacts, device: str
) -> BothSides:
    """Return the launches of both sides on the input sets and, on a GPU, on copies of them. Raises: SideFailed."""
    with failures_of("base"):
        reference = base.kernel.reference(dict(sets[0].inputs))
        launches = _launches(base, sets)
        ours = SideLaunches("base", base, launches, _require_right(base, launches[0], sets[0], reference, "base"))
    with failures_of("head"):
        launches = _launches(head, sets)
        theirs = SideLaunches("head", head, launches, _require_right(base, launches[0], sets[0], reference, "head"))
    both = BothSides(ours, theirs, sets[0], reference)
    if device == "cuda":
        for one in (ours, theirs):
            with failures_of(one.name):
                one.on_stream = is_callable(one.version.case.kernel) and capture_problem(one.launches) is not None
        _add_copies(both, sets, copies, facts)
    return both


def _add_copies(both: BothSides, sets: Sequence[InputSet], limits: CopyLimits, facts: DeviceFacts) -> None:
    """Give both sides launches on copies of the sets, counted by the launches of base, where graphs capture both."""
    sides = (both.base, both.head)
    if limits == NO_COPIES or any(one.on_stream for one in sides):
        return
    held = []
    for side in sides:
        with failures_of(side.name):
            # Called on a copy: a callable may change its inputs.
            held.append(bytes_of_launch(partial(_called, side.version), copied(both.first)))
    base = both.base.version
    with failures_of("base"):
        copies = further_sets(
            sets,
            both.base.launches,
            limits,
            set_bytes=bytes_per_set(base.kernel.operation, base.case.shape, base.case.dtype),
            # Base is timed twice, and each CUDA graph keeps results of its own of a callable.
            launch_bytes=2 * held[0] + held[1],
            cache_bytes=facts.l2_bytes,
        )
    for side in sides:
        with failures_of(side.name):
            side.launches += _launches(side.version, copies)


def _launches(side: Version, sets: Sequence[InputSet]) -> list[Launch]:
    prepare = side.kernel.implementations[side.case.implementation]
    return [prepare(one.inputs, one.out, side.case.config) for one in sets]


def _called(side: Version, one: InputSet) -> Launch:
    """Return a launch on an input set; that of a callable holds the result of a call."""
    (launch,) = _launches(side, [one])
    if isinstance(launch, Call):
        launch()
    return launch


def _require_right(base: Version, launch: Launch, first: InputSet, reference: Any, side: SideName) -> Correctness:
    """Call once and compare with the reference and the tolerance of the base. Raises: SideFailed."""
    tolerance = base.kernel.tolerances[base.case.dtype]
    name = f"{base.kernel.operation.name} in float64, of the base"
    if isinstance(launch, Call):
        launch()
        found = compare_results(launch.results(), reference, tolerance, name=name)
    else:
        first.out.fill_(float("nan"))
        launch()
        found = compare(first.out, reference, tolerance, name=name)
    if not found.passed:
        raise SideFailed(side, "wrong", explain_failure(found))
    return found
