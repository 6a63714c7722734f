"""Recomputes the recorded output samples of a measurement from its seal, in float64, with NumPy. Pure, no GPU.

The auditor's own definition of the operation is used, never the kernel's code. The inputs are made from the seal's
id, so samples that agree were computed after the seal was fixed; they prove nothing about the timings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger.analysis.book import Book, CellView
from ledger.operations import OPERATIONS, SAMPLE_TOLERANCES, Operation, Shape
from ledger.philox_inputs import derive_key, element_integers
from ledger.records import Dtype, Finding, Forecast, Measurement

MAX_EXTENT = 1 << 24
MAX_SAMPLES = 4096


@dataclass(frozen=True)
class Recomputed:
    """Hold what a recomputation found: elements recomputed, paths of the measurements whose samples agree with them,
    measurements that could not be recomputed, and findings.
    """

    measurements: int
    elements: int
    not_provided: int
    agreed: frozenset[str]
    findings: tuple[Finding, ...]


def recompute(book: Book) -> Recomputed:
    """Recompute the samples of every finished measurement of a book."""
    measurements = elements = not_provided = 0
    findings: list[Finding] = []
    agreed: set[str] = set()
    for cell in book.cells:
        for run in cell.runs:
            measurement = run.recorded.measurement
            if measurement.samples is None:
                continue
            if not _can(cell.forecast, measurement):
                not_provided += 1
                continue
            measurements += 1
            elements += len(measurement.samples.positions)
            message = disagreement(cell.forecast, measurement)
            path = run.recorded.path
            if message is None:
                agreed.add(path)
            else:
                findings.append(Finding(code="samples-disagree", severity="refused", path=path, message=message))
    return Recomputed(measurements, elements, not_provided, frozenset(agreed), tuple(findings))


def _can(forecast: Forecast, measurement: Measurement) -> bool:
    """Tell whether samples can be recomputed here, in bounded time and memory."""
    operation, shape, samples = OPERATIONS.get(forecast.operation), forecast.case.shape, measurement.samples
    return (
        operation is not None
        and samples is not None
        and set(shape) == set(operation.shape_keys)
        and max(shape.values()) <= MAX_EXTENT
        and len(samples.positions) <= MAX_SAMPLES
        and operation.output_dtype(measurement.case.dtype) in SAMPLE_TOLERANCES
    )


def disagreeing(book: Book, findings: tuple[Finding, ...]) -> tuple[CellView, ...]:
    """Return the cells that have a run with a finding."""
    paths = {finding.path for finding in findings}
    return tuple(cell for cell in book.cells if any(run.recorded.path in paths for run in cell.runs))


def disagreement(forecast: Forecast, measurement: Measurement) -> str | None:
    """Return a message about the first sample that is not what the seal's inputs give, or None when all agree."""
    samples = measurement.samples
    assert samples is not None
    operation = OPERATIONS[forecast.operation]
    shape = forecast.case.shape
    size = math.prod(operation.output_dims(shape))
    dtype = operation.output_dtype(measurement.case.dtype)
    atol, rtol = SAMPLE_TOLERANCES[dtype]
    atol *= operation.spread(shape)
    read = Inputs(operation, shape, measurement)
    for position, bits in zip(samples.positions, samples.bits, strict=True):
        if position >= size:
            return f"a sample is at {position}; the output has {size} elements"
        recorded = value_of(bits, dtype)
        expected = operation.element(shape, position, read)
        if recorded is None or not abs(recorded - expected) <= atol + rtol * abs(expected):
            return f"element {position} is recorded as {recorded}; the seal's inputs give {expected:.6g}"
    return None


class Inputs:
    """Return input elements of one measurement as float64."""

    def __init__(self, operation: Operation, shape: Shape, measurement: Measurement) -> None:
        """Derive the key of the measurement's run."""
        specs = enumerate(operation.inputs(shape))
        self._specs = {spec.name: (number, spec) for number, spec in specs}
        self._key = derive_key(
            seal=measurement.seal, cell=measurement.cell, run=measurement.run, anchor=measurement.anchor
        )

    def __call__(self, name: str, index: Any) -> Any:
        """Return elements of a named input at flat positions."""
        number, spec = self._specs[name]
        how, exponent = spec.generated.distribution, spec.generated.exponent
        integers = element_integers(index, key=self._key, tensor=number, input_set=0, how=how)
        return integers * 2.0**exponent


def value_of(bits: str, dtype: Dtype) -> float | None:
    """Return the number that hexadecimal digits stand for in a dtype, or None when they do not fit it."""
    import numpy as np

    digits = {"fp64": 16, "fp32": 8, "tf32": 8, "fp16": 4, "bf16": 4}.get(dtype)
    if digits != len(bits):
        return None
    word = int(bits, 16)
    if dtype == "fp64":
        return float(np.uint64(word).view(np.float64))
    if dtype == "fp16":
        return float(np.uint16(word).view(np.float16))
    return float(np.uint32(word << 16 if dtype == "bf16" else word).view(np.float32))


def recompute_notes(result: Recomputed) -> Iterator[str]:
    """Yield what an auditor must know about a recomputation."""
    yield f"recomputed {result.elements} output samples of {result.measurements} measurements in float64"
    if result.not_provided:
        reason = "not recomputed (not provided): their operation or dtype is not known here, or they are too large"
        yield f"{result.not_provided} measurements are {reason}"
