"""Reads how much of the processors' time other processes use. Linux only: elsewhere nothing is known.

What a virtual machine cannot see, such as another guest that uses the same memory, is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
# Columns of /proc/stat after the name, in ticks; guest time is part of user time. Source: man 5 proc_stat.
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)
_BUSY = (_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL)


@dataclass(frozen=True)
class CpuTimes:
    """Hold the time that processors have spent since they started. Units: seconds, all processors together.

    all_s: of every kind. busy_s: by any process, and taken by the hypervisor. own_s: by this process.
    """

    all_s: float
    busy_s: float
    own_s: float


def parse_stat(text: str, processors: Collection[int], *, ticks_per_s: int, own_s: float) -> CpuTimes | None:
    """Return the times of some processors from the text of /proc/stat, None where it does not list them all."""
    total = busy = found = 0
    for line in text.splitlines():
        name, *columns = line.split()
        number = name.removeprefix("cpu")
        if not (name.startswith("cpu") and number.isdecimal() and int(number) in processors):
            continue
        if len(columns) <= _STEAL or not all(column.isdecimal() for column in columns):
            return None
        ticks = [int(column) for column in columns]
        found += 1
        busy += sum(ticks[column] for column in _BUSY)
        total += sum(ticks[: _STEAL + 1])
    if not found or found < len(processors):
        return None
    return CpuTimes(total / ticks_per_s, busy / ticks_per_s, own_s)


def cpu_times() -> CpuTimes | None:
    """Return the times of the processors that this process may use, None where the kernel does not tell."""
    try:
        text = _STAT.read_text()
        processors = os.sched_getaffinity(0)
        ticks_per_s = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    return parse_stat(text, processors, ticks_per_s=ticks_per_s, own_s=time.process_time())


def others_percent(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Return the share of the processors' time between two readings that other processes used, from 0 to 100.

    None where a reading is missing, or no tick passed in between.
    """
    if before is None or after is None or after.all_s <= before.all_s:
        return None
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(100.0, max(0.0, 100 * others_s / (after.all_s - before.all_s)))


def load_average() -> float | None:
    """Return the number of runnable processes over the last minute, None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None
