"""Checks binding, what a seal says of itself, and what runs say of each other: checks 10, 13, 14 of judge. Pure.

The sealed roof must be the one that the sealed profile gives. What is unusual and yet possible (other bytes than the
operation's tensors hold, an interval that excludes next to nothing, a repeated run) is flagged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ledger.binding import derive_key, sample_words
from ledger.errors import InputError
from ledger.model.book import Recorded
from ledger.model.wording import si
from ledger.operations import OPERATIONS
from ledger.records import Finding, Forecast, Hardware, Measurement
from ledger.repository.ancestry import Ancestry
from ledger.roofline import DTYPE_BYTES, roof_of
from ledger.seal import cell_key

VACUOUS_MILLI = 75_000
_TOGETHER = 4096
COMPARED_ROUNDS = 9
"""Rounds from which on two equal series of picoseconds are no coincidence."""


def _refuse(code: str, message: str) -> Finding:
    return Finding(code=code, severity="refused", path="", message=message)


def _flag(code: str, message: str, path: str = "") -> Finding:
    return Finding(code=code, severity="flag", path=path, message=message)


# 10 binding


def bound_to_their_seals(pairs: Sequence[tuple[Forecast, Measurement]]) -> set[int]:
    """Return which of some measurements have samples of the output's dtype at the positions that the seal's key draws.

    A measurement of an operation that is not known here, or without samples, counts as following. All positions are
    drawn at once: the generator takes arrays of keys as it takes arrays of counters.
    """
    import numpy as np

    follows: set[int] = set()
    wanted: dict[int, list[tuple[int, tuple[int, int], int]]] = {}
    for place, (forecast, measurement) in enumerate(pairs):
        operation, samples = OPERATIONS.get(forecast.operation), measurement.samples
        if samples is None or operation is None or set(forecast.case.shape) != set(operation.shape_keys):
            follows.add(place)
            continue
        written = operation.output_dtype(forecast.case.dtype)
        width = 2 * DTYPE_BYTES[written]
        count = forecast.protocol.parameters.get("sample_elements", 0)
        if samples.dtype != written or any(len(bits) != width for bits in samples.bits):
            continue
        # Their number is checked first, so that no sealed parameter makes this long.
        if len(samples.positions) == count:
            key = derive_key(
                seal=measurement.seal, cell=measurement.cell, run=measurement.run, anchor=measurement.anchor
            )
            wanted.setdefault(count, []).append((place, key, math.prod(operation.output_dims(forecast.case.shape))))
    for count, group in wanted.items():
        for part in (group[start : start + _TOGETHER] for start in range(0, len(group), _TOGETHER)):
            keys = tuple(np.array([[key[half]] for _, key, _ in part], dtype=np.int64) for half in (0, 1))
            drawn = sample_words(np.arange(count, dtype=np.int64)[None, :], key=(keys[0], keys[1])).tolist()
            for (place, _, size), words in zip(part, drawn, strict=True):
                samples = pairs[place][1].samples
                assert samples is not None
                if samples.positions == tuple(word * size >> 32 for word in words):
                    follows.add(place)
    return follows


# 13 claims


def claims(forecast: Forecast, hardware: Hardware | None) -> Iterator[Finding]:
    """Yield what is wrong or odd in one sealed forecast; the caller adds the path."""
    case, name = forecast.case, forecast.cell
    if not name.startswith(cell_key(case)):
        yield _flag("cell-misnamed", f"cell {name} is {cell_key(case)} by its case")
    if hardware is not None:
        yield from _roof(forecast, hardware)
    yield from _work(forecast)
    low, high = forecast.low_milli, forecast.high_milli
    if low is not None and high is not None and high - low >= VACUOUS_MILLI:
        yield _flag("vacuous-interval", f"{name}: {low / 1000:g} to {high / 1000:g} percent excludes next to nothing")


def _roof(forecast: Forecast, hardware: Hardware) -> Iterator[Finding]:
    roof = forecast.roof
    if hardware.name != forecast.case.hardware:
        yield _refuse("profile-misnamed", f"the sealed profile is {hardware.name}; the case says another")
    try:
        expected = roof_of(hardware, roof.path, roof.ceilings)
    except InputError as error:
        yield _refuse("roof-contradicted", f"{forecast.cell}: {error}")
        return
    if roof != expected:
        yield _refuse(
            "roof-contradicted",
            f"{forecast.cell}: sealed {si(roof.peak_flop_per_s, 'FLOP/s')} and "
            f"{si(roof.bandwidth_bytes_per_s, 'B/s')}; the sealed profile gives "
            f"{si(expected.peak_flop_per_s, 'FLOP/s')} and {si(expected.bandwidth_bytes_per_s, 'B/s')}",
        )


def _work(forecast: Forecast) -> Iterator[Finding]:
    operation = OPERATIONS.get(forecast.operation)
    shape = forecast.case.shape
    if operation is None or set(shape) != set(operation.shape_keys):
        yield _flag("operation-unknown", f"{forecast.operation} is not known here: its samples are not checked")
        return
    dtype = forecast.case.dtype
    read = DTYPE_BYTES[dtype] * sum(math.prod(spec.dims) for spec in operation.inputs(shape))
    written = DTYPE_BYTES[operation.output_dtype(dtype)] * math.prod(operation.output_dims(shape))
    if (forecast.work.bytes_read, forecast.work.bytes_written) != (read, written):
        yield _flag(
            "work-unlike-operation",
            f"{forecast.cell}: sealed {si(forecast.work.bytes_read, 'B')} read and "
            f"{si(forecast.work.bytes_written, 'B')} written; the tensors of {operation.name} hold "
            f"{si(read, 'B')} and {si(written, 'B')}",
        )


# 14 repeats


def check_repeats(cells: Sequence[Sequence[Recorded]], ancestry: Ancestry) -> Iterator[Finding]:
    """Yield what several runs of one cell, or of several, disclose about each other."""
    for runs in cells:
        yield from _numbers(runs)
        yield from _first(runs, ancestry)
    yield from _copies([recorded for runs in cells for recorded in runs])


def _numbers(runs: Sequence[Recorded]) -> Iterator[Finding]:
    seen: set[int] = set()
    for recorded in runs:
        run = recorded.measurement.run
        if run in seen:
            yield _flag("run-repeated", f"run {run} of its cell is recorded more than once", recorded.path)
        elif run > 0 and run - 1 not in seen:
            yield _flag("run-missing", f"is run {run}; run {run - 1} is not recorded before it", recorded.path)
        seen.add(run)


def _first(runs: Sequence[Recorded], ancestry: Ancestry) -> Iterator[Finding]:
    """Flag a first finished run that follows failures, or whose place in time another one shares."""
    finished = [recorded for recorded in runs if recorded.measurement.status == "measured"]
    if not finished:
        return
    failures = runs.index(finished[0])
    if failures:
        yield _flag("failed-first", f"{failures} failed runs of its cell come before it", finished[0].path)
    for other in finished[1:]:
        if not ancestry.precedes(finished[0].path, [other.commit.position]):
            words = "is parallel to the first finished run of its cell: the history does not tell which came first"
            yield _flag("runs-parallel", words, other.path)


def _copies(recorded: Sequence[Recorded]) -> Iterator[Finding]:
    """Flag timings, counters or attachments that two measurements share to the last digit."""
    seen: dict[tuple[str, object], str] = {}
    for item in recorded:
        measurement = item.measurement
        evidence: list[tuple[str, object]] = [("attachment", a.sha256) for a in measurement.attachments if a.bytes]
        if measurement.timing is not None and len(measurement.timing.rounds_ps) >= COMPARED_ROUNDS:
            evidence.append(("series of timings", hash(measurement.timing.rounds_ps)))
        if measurement.counters is not None:
            evidence.append(("set of counters", measurement.counters.model_dump_json(include={"kernels"})))
        for what, value in evidence:
            other = seen.setdefault((what, value), item.path)
            if other != item.path:
                yield _flag("evidence-copied", f"has the very same {what} as {other}", item.path)
