"""Checks binding, what a seal declares, and how runs relate to each other: checks 10, 13, 14 of judge. Pure.

The sealed roof must be the one that the sealed profile gives, the sealed work no more than the operation can be, and
no two runs come to the same counters or series of timings. What is unusual and yet possible (other bytes than the
tensors hold, an interval that excludes next to nothing, a repeated run) is flagged. docs/findings.md says why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from typing import Protocol as Structure

from ledger.analysis.book import Recorded, RecordedRatio
from ledger.analysis.formatting import si
from ledger.analysis.work_model import elements, excess, usual_flops
from ledger.callables.argument_list import dims_of
from ledger.callables.subject import is_callable, subject_of, work_of
from ledger.canonical import cell_key
from ledger.errors import InputError
from ledger.operations import OPERATIONS
from ledger.philox_inputs import derive_key, sample_words
from ledger.records import (
    Case,
    Correctness,
    Dtype,
    Finding,
    Forecast,
    ForecastV2,
    Hardware,
    KernelSource,
    Measurement,
    Prediction,
    PredictionV2,
    Protocol,
    Samples,
)
from ledger.roofline import DTYPE_BYTES, roof_of
from ledger.sources.platform import unreadable_pins

VACUOUS_MILLI = 75_000
_TOGETHER = 1 << 15
"""Positions that are drawn at once."""
_FEW = 1 << 10
"""Positions that are drawn sooner than numpy is loaded."""
_WIDE = 2**31
MIN_SAMPLES = 16
"""Output samples below which a measurement counts as not bound to its seal; a smaller output needs all elements."""
COMPARED_ROUNDS = 9
"""Rounds, each unlike the others, from which on two equal series of picoseconds are no coincidence."""
COMPARED_METRICS = 20
"""Metrics from which on two equal sets of counters are no coincidence: times, clocks and rates are among them."""


class Subject(Structure):
    """Stand for what is sealed of a cell, forecast or claim, that says where its samples lie."""

    @property
    def operation(self) -> str:
        """Return what is computed."""

    @property
    def case(self) -> Case:
        """Return what is run."""

    @property
    def protocol(self) -> Protocol:
        """Return how it is timed."""


class Sampled(Structure):
    """Stand for what was measured, of a cell or of one side of a claim, with its output samples."""

    @property
    def seal(self) -> str:
        """Return the id of its seal."""

    @property
    def cell(self) -> str:
        """Return the name of its cell."""

    @property
    def run(self) -> int:
        """Return its number."""

    @property
    def anchor(self) -> str | None:
        """Return the trusted-time anchor of its inputs."""

    @property
    def case(self) -> Case:
        """Return what was run."""

    @property
    def samples(self) -> Samples | None:
        """Return the output samples."""

    @property
    def correctness(self) -> Correctness | None:
        """Return the comparison with the reference."""


def _refuse(code: str, message: str, path: str = "") -> Finding:
    return Finding(code=code, severity="refused", path=path, message=message)


def _flag(code: str, message: str, path: str = "") -> Finding:
    return Finding(code=code, severity="flag", path=path, message=message)


# 10 binding


def bound_to_their_seals(pairs: Sequence[tuple[Subject, Sampled]]) -> set[int]:
    """Return which of some measurements have samples of the output's dtype at the positions that the seal's key draws.

    A measurement of an operation that is not known here, or without samples, counts as following. All positions are
    drawn at once: the generator takes arrays of keys as it takes arrays of counters.
    """
    follows: set[int] = set()
    wanted: dict[int, list[_Drawn]] = {}
    for index, (forecast, measurement) in enumerate(pairs):
        samples, output = measurement.samples, _output(forecast, measurement)
        if samples is None or output is None:
            follows.add(index)
            continue
        size, written = output
        width = 2 * DTYPE_BYTES[written]
        count = forecast.protocol.parameters.get("sample_elements", 0)
        if samples.dtype != written or set(map(len, samples.bits)) - {width}:
            continue
        # Their number is checked first, so that no sealed parameter makes this long.
        if len(samples.positions) == count:
            key = derive_key(
                seal=measurement.seal, cell=measurement.cell, run=measurement.run, anchor=measurement.anchor
            )
            wanted.setdefault(count, []).append(_Drawn(index, key, size, samples.positions))
    for count, group in wanted.items():
        together = max(1, _TOGETHER // max(count, 1))
        for start in range(0, len(group), together):
            follows |= _following(group[start : start + together], count)
    return follows


def binds(forecast: Subject, measurement: Sampled) -> bool:
    """Tell whether a measurement has enough samples, of a known operation, for their positions to bind it."""
    samples, output = measurement.samples, _output(forecast, measurement)
    return samples is not None and output is not None and binds_enough(samples.positions, output[0])


def _output(forecast: Subject, measurement: Sampled) -> tuple[int, Dtype] | None:
    """Return the elements and the dtype of an output; None for an operation or a shape that is not known here.

    How many elements a callable returns is what its record says was compared.
    """
    operation, shape = OPERATIONS.get(forecast.operation), forecast.case.shape
    if is_callable(forecast.case.kernel):
        compared = measurement.correctness
        return None if compared is None or not compared.elements else (compared.elements, "fp64")
    if operation is None or set(shape) != set(operation.shape_keys):
        return None
    return math.prod(operation.output_dims(shape)), operation.output_dtype(forecast.case.dtype)


def binds_enough(positions: Sequence[int], size: int) -> bool:
    """Tell whether positions are MIN_SAMPLES at least, or all elements of a smaller output."""
    return len(set(positions)) == size if size < MIN_SAMPLES else len(positions) >= MIN_SAMPLES


class _Drawn(NamedTuple):
    """Hold the recorded positions of a measurement, with the key and the output size that they are drawn from."""

    number: int
    key: tuple[int, int]
    size: int
    positions: tuple[int, ...]


def _following(group: Sequence[_Drawn], count: int) -> set[int]:
    """Return the numbers of those whose positions, `count` each, are the ones that their key draws."""
    if len(group) * count <= _FEW:
        rows = [[sample_words(number, key=item.key) for number in range(count)] for item in group]
    else:
        import numpy as np

        keys = np.array([item.key for item in group], dtype=np.int64)
        words = sample_words(np.arange(count, dtype=np.int64)[None, :], key=(keys[:, :1], keys[:, 1:]))
        if all(item.size < _WIDE for item in group):
            drawn = words * np.array([[item.size] for item in group], dtype=np.int64) >> 32
            same = (drawn == np.array([item.positions for item in group], dtype=np.int64)).all(axis=1).tolist()
            return {item.number for item, follows in zip(group, same, strict=True) if follows}
        # The product of a word and such a size does not fit 64 bits.
        rows = words.tolist()
    pairs = zip(group, rows, strict=True)
    return {item.number for item, row in pairs if item.positions == tuple(word * item.size >> 32 for word in row)}


# 13 claims


def unknown_features(prediction: Prediction, *hidden: ForecastV2) -> Iterator[Finding]:
    """Yield what a seal of version 2 uses that this version cannot judge; what is not understood is refused.

    hidden: the public part of its hidden forecasts.
    """
    if not isinstance(prediction, PredictionV2):
        return
    used: list[str] = []
    cells = (*prediction.cells, *hidden)
    for forecast in cells:
        try:
            used += (
                [] if forecast.case.arguments is None and not is_callable(forecast.case.kernel) else _misused(forecast)
            )
        except InputError as error:
            yield _refuse("callable-unreadable", f"{forecast.cell}: {error}")
    for name in sorted(set(used)):
        yield _refuse("place-unknown", f"{name} cannot be judged by this version; expected none: use a newer ledger")
    for forecast in cells:
        for problem in unreadable_pins(forecast.pins):
            yield _refuse("pin-unreadable", f"{forecast.cell}: {problem}")


def _misused(forecast: ForecastV2) -> list[str]:
    """Return ["arguments"] where they are not those of a callable, whose operation has its own name.

    Raises: InputError.
    """
    if not is_callable(forecast.case.kernel):
        return ["arguments"]
    subject = subject_of(forecast.case)
    for argument in subject.arguments:
        dims_of(argument, forecast.case.shape)
    return [] if forecast.operation == subject.operation else ["arguments"]


def claims(forecast: Forecast, hardware: Hardware | None, source: KernelSource | None = None) -> Iterator[Finding]:
    """Yield what is wrong or odd in one sealed forecast; the caller adds the path.

    source: the manifest of the kernel's sources, in version 2.
    """
    case, name = forecast.case, forecast.cell
    if source is not None and not is_entry(case.kernel, source.entry):
        yield _refuse("source-misnamed", f"the sealed sources are of {source.entry}; the case says {case.kernel}")
    if not name.startswith(cell_key(case)):
        yield _flag("cell-misnamed", f"cell {name} is {cell_key(case)} by its case")
    if hardware is not None:
        yield from _roof(forecast, hardware)
    yield from _work(forecast)
    low, high = forecast.low_milli, forecast.high_milli
    if low is not None and high is not None and high - low >= VACUOUS_MILLI:
        yield _flag("vacuous-interval", f"{name}: {low / 1000:g} to {high / 1000:g} percent excludes next to nothing")


def is_entry(subject: str, entry: str) -> bool:
    """Tell whether a module is that of a kernel, by its last name, or of a callable, module:name."""
    module, colon, _ = subject.partition(":")
    return entry == module if colon else entry.rpartition(".")[2] == subject


def _roof(forecast: Forecast, hardware: Hardware) -> Iterator[Finding]:
    roof = forecast.roof
    if hardware.name != forecast.case.hardware:
        yield _refuse("profile-misnamed", f"the sealed profile is {hardware.name}; the case says another")
    try:
        expected = roof_of(hardware, roof.path, roof.ceilings)
    except InputError as error:
        yield _refuse("roof-contradicted", f"{forecast.cell}: {error}")
        return
    if roof.model_dump() != expected.model_dump():
        yield _refuse(
            "roof-contradicted",
            f"{forecast.cell}: sealed {si(roof.peak_flop_per_s, 'FLOP/s')} and "
            f"{si(roof.bandwidth_bytes_per_s, 'B/s')}; the sealed profile gives "
            f"{si(expected.peak_flop_per_s, 'FLOP/s')} and {si(expected.bandwidth_bytes_per_s, 'B/s')}",
        )


def _work(forecast: Forecast) -> Iterator[Finding]:
    operation = OPERATIONS.get(forecast.operation)
    shape = forecast.case.shape
    if is_callable(forecast.case.kernel):
        told = "as its author gave it" if work_of(forecast.case) == "given" else "as torch counted it"
        yield _flag("callable", f"{forecast.cell}: the work of a callable is {told}; its samples are not recomputed")
        return
    if operation is None:
        yield _flag("operation-unknown", f"{forecast.operation} is not known here: its samples are not checked")
        return
    if set(shape) != set(operation.shape_keys):
        keys = f"{forecast.cell}: shape keys are {','.join(sorted(shape))}"
        yield _refuse("shape-unlike-operation", f"{keys}; {operation.name} has {','.join(operation.shape_keys)}")
        return
    excessive = excess(operation, shape, forecast.work)
    if excessive is not None:
        yield _refuse("work-contradicted", f"{forecast.cell}: sealed {excessive}")
        return
    dtype, (inputs, outputs) = forecast.case.dtype, elements(operation, shape)
    read, written = DTYPE_BYTES[dtype] * inputs, DTYPE_BYTES[operation.output_dtype(dtype)] * outputs
    if (forecast.work.bytes_read, forecast.work.bytes_written) != (read, written):
        yield _flag(
            "work-unlike-operation",
            f"{forecast.cell}: sealed {si(forecast.work.bytes_read, 'B')} read and "
            f"{si(forecast.work.bytes_written, 'B')} written; the tensors of {operation.name} hold "
            f"{si(read, 'B')} and {si(written, 'B')}",
        )
    usual = usual_flops(operation, shape)
    if forecast.work.flops > usual:
        got = f"{si(forecast.work.flops, 'FLOP')}; {operation.name} of this shape is usually {si(usual, 'FLOP')}"
        yield _flag("work-unlike-operation", f"{forecast.cell}: sealed {got} at most")


# 14 repeats


Precedes = Callable[[Sequence[tuple[str, int]]], list[bool]]
"""Tell of pairs of a path and a commit whether the file was introduced in a proper ancestor of it."""


def check_repeats(cells: Sequence[Sequence[Recorded]], precedes: Precedes) -> Iterator[Finding]:
    """Yield what several runs of one cell, or of several, disclose about each other."""
    yield from numbers_and_failures(cells)
    yield from _parallel(cells, precedes)
    yield from _copies([recorded for runs in cells for recorded in runs])


def numbers_and_failures(cells: Sequence[Sequence[Recorded | RecordedRatio]]) -> Iterator[Finding]:
    """Yield which runs of cells, or of claims, were left out, repeated, or failed before the first finished one."""
    for runs in cells:
        yield from _numbers(runs)
        yield from _failed_first(runs)


def _numbers(runs: Sequence[Recorded | RecordedRatio]) -> Iterator[Finding]:
    seen: set[int] = set()
    for recorded in runs:
        run = recorded.measurement.run
        if run >= len(runs):
            # A run is numbered by those recorded before it, so a merge may leave a gap in numbers, never too few runs.
            message = f"is run {run} of its cell, of which {len(runs)} are recorded: runs were left out"
            yield _refuse("run-missing", message, recorded.path)
        elif run in seen:
            yield _flag("run-repeated", f"run {run} of its cell is recorded more than once", recorded.path)
        elif run > 0 and run - 1 not in seen:
            yield _flag("run-missing", f"is run {run}; run {run - 1} is not recorded before it", recorded.path)
        seen.add(run)


def _failed_first(runs: Sequence[Recorded | RecordedRatio]) -> Iterator[Finding]:
    """Flag a first finished run that follows failures."""
    finished = next((index for index, one in enumerate(runs) if one.measurement.status == "measured"), 0)
    if finished:
        yield _flag("failed-first", f"{finished} failed runs of its cell come before it", runs[finished].path)


def _parallel(cells: Sequence[Sequence[Recorded]], precedes: Precedes) -> Iterator[Finding]:
    """Flag a finished run that the first finished run of its cell is parallel to."""
    finished = ([one for one in runs if one.measurement.status == "measured"] for runs in cells)
    pairs = [(runs[0], other) for runs in finished for other in runs[1:]]
    answers = precedes([(first.path, other.commit.position) for first, other in pairs])
    for (_, other), answer in zip(pairs, answers, strict=True):
        if not answer:
            message = "is parallel to the first finished run of its cell: the history does not tell which came first"
            yield _flag("runs-parallel", message, other.path)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def evidence_digests(measurement: Measurement) -> set[bytes]:
    """Return digests of what two measurements may share to the last digit."""
    return {_digest(f"{what} {value!r}") for what, value, _ in _evidence(measurement)}


def _evidence(measurement: Measurement) -> Iterator[tuple[str, object, bool]]:
    """Yield what two measurements may share to the last digit, and whether that is no coincidence."""
    yield from (("attachment", a.sha256, False) for a in measurement.attachments if a.bytes)
    if measurement.timing is not None and len(measurement.timing.rounds_ps) >= COMPARED_ROUNDS:
        rounds = measurement.timing.rounds_ps
        yield "series of timings", _digest(repr(rounds)), len(set(rounds)) >= COMPARED_ROUNDS
    if measurement.counters is not None:
        kernels = measurement.counters.kernels
        unlike = sum(len(kernel.metrics) for kernel in kernels) >= COMPARED_METRICS
        counted = measurement.counters.model_dump_json(include={"kernels"})
        yield "set of counters", _digest(counted), unlike


def _copies(recorded: Sequence[Recorded]) -> Iterator[Finding]:
    """Yield timings and counters that two measurements share to the last digit, and attachments that they share."""
    seen: dict[tuple[str, object], str] = {}
    for item in recorded:
        for what, value, certain in _evidence(item.measurement):
            other = seen.setdefault((what, value), item.path)
            if other != item.path:
                found = _refuse if certain else _flag
                yield found("evidence-copied", f"has the very same {what} as {other}", item.path)
