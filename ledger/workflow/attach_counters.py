"""Adds counters from a report that the user made to a measurement that is not ingested yet. Reads the report's file.

A record already in the ledger is never changed: counters belong to one run, and a run is one record. All checks run
before anything is changed, and the folder of the measurement stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path as FilePath

from ledger.analysis.amdgcn import is_amd
from ledger.analysis.book import CellView
from ledger.analysis.metric_readings import readings
from ledger.analysis.metrics import capability_of
from ledger.canonical import object_id, object_path
from ledger.device.ncu_report import HandMade, check_device, read_hand_made
from ledger.device.rocprof import read_rocprof
from ledger.errors import EvidenceRefused, InputError
from ledger.records import Attachment, Counters, Hardware, Measurement, RatioMeasurement
from ledger.workflow.ingest import Incoming, incoming_of

MOST_APART = 2.0
"""Largest ratio between the times of the profiled and of the timed call."""


def attach(
    incoming: Sequence[Incoming], path: FilePath, *, view: CellView, launched: str, keep: bool
) -> list[Incoming]:
    """Return the measurements with the counters of a report in that of one cell.

    launched: Kernel.launched of the cell's kernel. keep: attach the report too. Raises: InputError, ParseError,
    RecordError for a report that is not one, is of another kernel, device or unit, or of another call; EvidenceRefused
    where counters are there already.
    """
    hardware = view.hardware
    assert hardware is not None
    indices = [n for n, item in enumerate(incoming) if _is_of(item.measurement, view)]
    measurement = incoming[indices[-1]].measurement if indices else None
    if not isinstance(measurement, Measurement):
        raise InputError(f"{view.short_name}: no measurement of it in the folder given by --from; expected one")
    if measurement.counters is not None:
        raise EvidenceRefused(f"{view.short_name}: its measurement has counters already; expected one without")
    if measurement.timing is None:
        raise InputError(f"{view.short_name}: its measurement failed; expected one that was timed")
    report = _read(path, hardware)
    _check_kernels(report, launched, path)
    counters = _counters(report, path)
    _check_call(counters, hardware.target, measurement.timing.median_ps, path)
    filled, kept = _filled(measurement, counters, report, path, keep=keep)
    items = list(incoming)
    items[indices[-1]] = incoming_of(filled, {**incoming[indices[-1]].attachments, **kept})
    return items


def _read(path: FilePath, hardware: Hardware) -> HandMade:
    """Return a report of the profile's device: of rocprofv3 for AMD's, else of Nsight Compute."""
    if is_amd(hardware.target):
        report = read_rocprof(path)
        if report.device is not None and report.device not in hardware.device_names:
            expected = ", ".join(hardware.device_names)
            raise InputError(f"{path}: device is {report.device!r}; expected the profile's: {expected}")
        return report
    report = read_hand_made(path, capability_of(hardware.target))
    check_device(report, capability=capability_of(hardware.target), names=hardware.device_names, what=str(path))
    return report


def _is_of(measurement: Measurement | RatioMeasurement, view: CellView) -> bool:
    return (measurement.seal, measurement.cell) == (view.sealed.id, view.forecast.cell)


def _check_kernels(report: HandMade, launched: str, path: FilePath) -> None:
    others = [kernel.name for kernel in report.kernels if not re.search(launched, kernel.name)]
    if others:
        raise InputError(f"{path}: holds kernel {others[0][:120]!r}; expected only what the cell launches ({launched})")


def _counters(report: HandMade, path: FilePath) -> Counters:
    return Counters(
        tool=report.tool,
        command=f"made by hand: {path.name}",
        cache_control=report.cache_control,
        clock_control=report.clock_control,
        kernels=report.kernels,
    )


def _check_call(counters: Counters, target: str, timed_ps: int, path: FilePath) -> None:
    """Check that the counters are of one call of about the timed length; this reads every unit as well."""
    seen = readings(counters, target)
    profiled_ns = seen.values["duration"]
    if not 1 / MOST_APART <= profiled_ns * 1000 / timed_ps <= MOST_APART:
        raise InputError(
            f"{path}: its {seen.kernels} kernels took {profiled_ns / 1e3:.2f} µs, the timed call {timed_ps / 1e6:.2f} "
            "µs; expected the kernels of one steady call of this very shape: ncu --launch-skip N --launch-count 1, or "
            "rocprofv3 --kernel-iteration-range"
        )


def _filled(
    measurement: Measurement, counters: Counters, report: HandMade, path: FilePath, *, keep: bool
) -> tuple[Measurement, dict[str, bytes]]:
    if not keep:
        return measurement.model_copy(update={"counters": counters, "counters_missing": None}), {}
    digest = object_id(report.data)
    suffix = {".ncu-rep": "ncu-rep", ".json": "json"}.get(path.suffix, "csv")
    attachment = Attachment(name=f"{measurement.cell}.{suffix}", sha256=digest, bytes=len(report.data))
    value = measurement.model_copy(
        update={
            "counters": counters,
            "counters_missing": None,
            "attachments": (*measurement.attachments, attachment),
        }
    )
    return value, {object_path("verifications", digest): report.data}
