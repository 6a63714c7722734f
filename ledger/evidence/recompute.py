"""Recomputes the recorded output samples of a measurement from its seal, in float64, with NumPy. Pure, no GPU.

The auditor's own definition of the operation is used, never the kernel's code. The inputs are made from the seal's
id, so samples that agree were computed after the seal was fixed; they prove nothing about the timings.

Only samples that were recomputed and agreed give level 1 or answer a challenge: at least MIN_SAMPLES of them, or all
elements of a smaller output, of an output that other inputs would change. Whatever was not is named with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.analysis.formatting import count_text
from ledger.callables.subject import is_callable
from ledger.evidence.claim_checks import samples_of
from ledger.evidence.recompute_budget import OTHER_INPUTS, recompute_budget
from ledger.evidence.seal_checks import MIN_SAMPLES, Sampled, Subject, binds_enough
from ledger.evidence.seal_inputs import SealInputs, fp8_values
from ledger.operations import OPERATIONS, SAMPLE_TOLERANCES, Operation
from ledger.records import Dtype, Finding

MAX_EXTENT = 1 << 24
MAX_SAMPLES = 4096
MAX_NAMED = 20

Progress = Callable[[int, int, str], None]
"""Take how many measurements are done, of how many, and the name of the one in progress."""


@dataclass(frozen=True)
class Skipped:
    """Name a measurement whose samples give no level 1, with the reason."""

    name: str
    path: str
    reason: str


@dataclass(frozen=True)
class Recomputed:
    """Hold what a recomputation found: measurements and elements recomputed, and findings.

    agreed: paths of the measurements whose samples agree and say enough for level 1. skipped: the others that do not
    disagree: not recomputed, or too few, or of an output that does not depend on its inputs.
    """

    measurements: int
    elements: int
    agreed: frozenset[str]
    skipped: tuple[Skipped, ...]
    findings: tuple[Finding, ...]


def recompute(book: Book, *, only: Iterable[str] | None = None, progress: Progress | None = None) -> Recomputed:
    """Recompute the samples of the measurements of a book.

    only: paths of the measurements to recompute; None: of all that are finished.
    """
    runs = _sampled(book, only)
    budget = recompute_budget((run.subject, run.sampled, run.path) for run in runs)
    measurements = elements = 0
    findings: list[Finding] = []
    agreed = {run.path for run in runs}
    skipped: list[Skipped] = []
    for done, run in enumerate(runs):
        subject, sampled, path = run.subject, run.sampled, run.path
        name = run.name if sampled.run == 0 else f"{run.name} run {sampled.run}"
        if progress is not None:
            progress(done, len(runs), name)
        reason = not_recomputable(subject, sampled) or budget.refusal(path)
        if reason is None:
            assert sampled.samples is not None
            measurements += 1
            elements += len(sampled.samples.positions)
            message = disagreement(subject, sampled)
            if message is not None:
                findings.append(Finding(code="samples-disagree", severity="refused", path=path, message=message))
                agreed.discard(path)
                continue
            reason = says_too_little(subject, sampled)
        if reason is not None:
            agreed.discard(path)
            skipped.append(Skipped(name, path, reason))
    if progress is not None and runs:
        progress(len(runs), len(runs), "recomputed")
    return Recomputed(measurements, elements, frozenset(agreed), tuple(skipped), tuple(findings))


class _SampledRun(NamedTuple):
    """Hold what was measured of a cell, or of one side of a claim."""

    name: str
    path: str
    subject: Subject
    sampled: Sampled


def _sampled(book: Book, only: Iterable[str] | None) -> list[_SampledRun]:
    """Return the measurements of a book that have samples, of claims both sides."""
    chosen = None if only is None else frozenset(only)
    found = [
        _SampledRun(cell.short_name, run.recorded.path, cell.forecast, run.recorded.measurement)
        for cell in book.cells
        for run in cell.runs
    ]
    found += [
        _SampledRun(view.short_name, run.path, view.claim, samples_of(run.measurement, side))
        for view in book.claims
        for run in view.runs
        for side in (run.measurement.base, run.measurement.head)
    ]
    return [one for one in found if one.sampled.samples is not None and (chosen is None or one.path in chosen)]


def not_recomputable(forecast: Subject, measurement: Sampled) -> str | None:
    """Return why samples cannot be recomputed here in bounded time and memory, or None where they can."""
    operation, shape, samples = OPERATIONS.get(forecast.operation), forecast.case.shape, measurement.samples
    if is_callable(forecast.case.kernel):
        return "a callable, whose samples only its own code computes (audit --recompute --run-code)"
    if operation is None:
        return f"operation {forecast.operation} is not known here"
    if set(shape) != set(operation.shape_keys):
        return f"shape keys are not those of {operation.name}"
    if samples is None:
        return "no samples"
    if max(shape.values()) > MAX_EXTENT:
        return f"an axis of {max(shape.values())} elements; at most {MAX_EXTENT}"
    if len(samples.positions) > MAX_SAMPLES:
        return f"{len(samples.positions)} samples; at most {MAX_SAMPLES}"
    return None


def says_too_little(forecast: Subject, measurement: Sampled) -> str | None:
    """Return why samples that agree show nothing of when they were computed, or None where they do."""
    operation, samples = OPERATIONS[forecast.operation], measurement.samples
    assert samples is not None
    shape = forecast.case.shape
    size = math.prod(operation.output_dims(shape))
    if not binds_enough(samples.positions, size):
        held = f"{count_text(len(samples.positions), 'sample')} of {count_text(size, 'element')}"
        return f"{held}; expected {MIN_SAMPLES}, or all elements of a smaller output"
    return None if _depends_on_inputs(operation, forecast, measurement) else "the output does not depend on its inputs"


def _depends_on_inputs(operation: Operation, forecast: Subject, measurement: Sampled) -> bool:
    """Tell whether other inputs give other values at a quarter of some positions, at one at least."""
    assert measurement.samples is not None
    shape = forecast.case.shape
    distinct = sorted(set(measurement.samples.positions))
    chosen = distinct[:: -(-len(distinct) // OTHER_INPUTS)]
    these = SealInputs(operation, shape, measurement)
    others = SealInputs(operation, shape, measurement, input_set=1)
    close = _closeness(operation, forecast, measurement)
    # A quarter: half of the outputs of matmul_bias_relu are zero whatever its inputs.
    needed = max(1, len(chosen) // 4)
    changed = (
        position
        for position in chosen
        if not close(operation.element(shape, position, others), operation.element(shape, position, these))
    )
    return sum(1 for _ in islice(changed, needed)) == needed


def _closeness(operation: Operation, forecast: Subject, measurement: Sampled) -> Callable[[float, float], bool]:
    """Return a function (recorded, expected) that tells whether a sample has its value within the tolerance."""
    atol, rtol = SAMPLE_TOLERANCES[operation.output_dtype(measurement.case.dtype)]
    atol *= operation.spread(forecast.case.shape)
    return lambda recorded, expected: abs(recorded - expected) <= atol + rtol * abs(expected)


def disagreement(forecast: Subject, measurement: Sampled) -> str | None:
    """Return a message about the first sample that is not what the seal's inputs give, or None when all agree."""
    samples = measurement.samples
    assert samples is not None
    operation = OPERATIONS[forecast.operation]
    shape = forecast.case.shape
    size = math.prod(operation.output_dims(shape))
    dtype = operation.output_dtype(measurement.case.dtype)
    close = _closeness(operation, forecast, measurement)
    read = SealInputs(operation, shape, measurement)
    for position, bits in zip(samples.positions, samples.bits, strict=True):
        if position >= size:
            return f"a sample is at {position}; the output has {size} elements"
        recorded = value_of(bits, dtype)
        expected = operation.element(shape, position, read)
        if recorded is None or not close(recorded, expected):
            return f"element {position} is recorded as {recorded}; the seal's inputs give {expected:.6g}"
    return None


def value_of(bits: str, dtype: Dtype) -> float | None:
    """Return the number that hexadecimal digits stand for in a dtype, or None when they do not fit it."""
    import numpy as np

    digits = {"fp64": 16, "fp32": 8, "tf32": 8, "fp16": 4, "bf16": 4, "fp8_e4m3": 2, "int8": 2}.get(dtype)
    if digits != len(bits):
        return None
    word = int(bits, 16)
    if dtype == "fp64":
        return float(np.uint64(word).view(np.float64))
    if dtype == "fp16":
        return float(np.uint16(word).view(np.float16))
    if dtype == "fp8_e4m3":
        return float(fp8_values()[word])
    if dtype == "int8":
        return float(np.uint8(word).view(np.int8))
    return float(np.uint32(word << 16 if dtype == "bf16" else word).view(np.float32))


def with_recomputed(book: Book, result: Recomputed) -> Book:
    """Return a book with level 1 where the counted run's samples agreed, and samples that disagree refused."""
    wrong = {finding.path for finding in result.findings}

    def judged(cell: CellView) -> CellView:
        if any(run.recorded.path in wrong for run in cell.runs):
            return replace(cell, state="refused", levels=(), binding="none")
        counted = cell.counted
        if cell.binding != "positions only" or counted is None or counted.recorded.path not in result.agreed:
            return cell
        return replace(cell, levels=tuple(sorted({*cell.levels, 1})), binding="recomputed")

    def settled(view: ClaimView) -> ClaimView:
        if any(run.path in wrong for run in view.runs):
            return replace(view, state="refused", levels=(), binding="none")
        counted = view.counted
        if view.binding != "positions only" or counted is None or counted.path not in result.agreed:
            return view
        return replace(view, levels=tuple(sorted({*view.levels, 1})), binding="recomputed")

    findings = (*book.findings, *result.findings)
    return replace(
        book, cells=tuple(map(judged, book.cells)), claims=tuple(map(settled, book.claims)), findings=findings
    )


def recompute_notes(result: Recomputed) -> Iterator[str]:
    """Yield what an auditor must know about a recomputation."""
    measured = count_text(result.measurements, "measurement")
    yield f"recomputed {count_text(result.elements, 'output sample')} of {measured} in float64"
    if result.skipped:
        yield f"positions only, no level 1: {count_text(len(result.skipped), 'measurement')}, not provided:"
    for item in result.skipped[:MAX_NAMED]:
        yield f"{item.name}: {item.reason}"
    if len(result.skipped) > MAX_NAMED:
        yield f"and {len(result.skipped) - MAX_NAMED} more measurements"
