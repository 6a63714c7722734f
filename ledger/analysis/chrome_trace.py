"""Reads named slices and what the device ran in them from a Chrome trace, as torch's profiler writes it. Pure.

The device's times are those of its own tracing interface (CUPTI on an NVIDIA GPU); the host's are the profiler's.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ledger.errors import ParseError

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Ran:
    """Hold what the device ran under one name within a slice: how often, and its median duration in microseconds."""

    name: str
    count: int
    median_us: float


@dataclass(frozen=True)
class Slice:
    """Hold one named stretch of a trace, `calls` calls long. Units: microseconds.

    host_us: the stretch ÷ calls, as the host saw it. device_us: from the device's first start to its last end, ÷ calls;
    None where no device ran anything. busy_us: the sum over names of the median duration times how often a call runs
    it. gap_us: the median time from one end to the next start; negative where they overlap, None for a single run.
    """

    name: str
    calls: int
    host_us: float
    device_us: float | None
    busy_us: float | None
    gap_us: float | None
    ran: tuple[Ran, ...]


def read_slices(trace: Any, calls: Mapping[str, int]) -> list[Slice]:
    """Return the slices of these names; `calls` says how many calls each of them holds.

    Raises: ParseError for a document that is no trace or lacks a slice.
    """
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise ParseError("trace: no traceEvents; expected a Chrome trace, as torch's profiler writes it")
    complete = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    marks = {event["name"]: event for event in complete if event.get("cat") == "user_annotation"}
    if lacking := sorted(set(calls) - set(marks)):
        raise ParseError(f"trace: no slice {lacking[0]!r}; expected one for each contestant")
    runs = sorted((event for event in complete if event.get("cat") in _ON_DEVICE), key=lambda event: event["ts"])
    return [_slice(marks[name], runs, count) for name, count in calls.items()]


def _slice(mark: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], calls: int) -> Slice:
    started, ended = mark["ts"], mark["ts"] + mark["dur"]
    inside = [run for run in runs if started <= run["ts"] and run["ts"] + run["dur"] <= ended]
    by_name: dict[str, list[float]] = {}
    for run in inside:
        by_name.setdefault(run["name"], []).append(run["dur"])
    ran = tuple(Ran(name, len(times), statistics.median(times)) for name, times in by_name.items())
    gaps = [after["ts"] - before["ts"] - before["dur"] for before, after in pairwise(inside)]
    last = max((run["ts"] + run["dur"] for run in inside), default=0.0)
    return Slice(
        name=mark["name"],
        calls=calls,
        host_us=mark["dur"] / calls,
        device_us=(last - inside[0]["ts"]) / calls if inside else None,
        busy_us=sum(one.median_us * one.count for one in ran) / calls if ran else None,
        gap_us=statistics.median(gaps) if gaps else None,
        ran=ran,
    )
