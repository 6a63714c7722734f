"""Reads from a profile the rates at which the analytic forecaster takes a GPU to work. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ledger.forecasters.analytic_constants import CONSTANTS, Constants
from ledger.forecasters.answer import Question
from ledger.roofline import base_units, seconds

_H200_CLOCK_MHZ = 1980.0
_GRAPH_NODE_S = 0.67e-6
"""An empty node of a CUDA graph on an H200 (hardware/measured/h200.yaml), for profiles without one."""


@dataclass(frozen=True)
class Rates:
    """Hold a device as the model sees it, at its light-load clock. Units: Hz, FLOP/s, bytes/s, seconds.

    burst, sustained: of tensor cores on the question's path, or of CUDA cores. l2: bytes/s of all SMs together.
    assumed: what was not measured there, in words.
    """

    sms: int
    clock_hz: float
    burst: float
    sustained: float
    read: float
    write: float
    l2: float
    l2_bytes: float
    launch_s: float
    assumed: tuple[str, ...]


def rates_of(question: Question, k: Constants = CONSTANTS) -> Rates:
    """Return the rates of a GPU profile for the question's instruction path."""
    hardware, path = question.hardware, question.roof.path
    sheet = hardware.ceilings.get("datasheet")
    measured = hardware.ceilings.get("burst")
    peak, bandwidth = question.roof.peak_flop_per_s, question.roof.bandwidth_bytes_per_s
    if sheet is not None:
        bandwidth = base_units(sheet.dram_bandwidth)
        found = sheet.peaks.get(path)
        peak = peak if found is None else base_units(found)
    assumed = []
    tensor = "_tensor" in path
    burst, sustained = peak * k.tensor if tensor else peak * k.cuda, peak * (k.sustained if tensor else k.cuda)
    if measured is None:
        assumed.append("the H200's shares of the datasheet")
    clock = (hardware.limits.max_clock_mhz or _H200_CLOCK_MHZ) * 1e6 * k.clock
    l2 = hardware.limits.sms * k.l2 * clock
    launch = _GRAPH_NODE_S
    if measured is not None and measured.launch_graph_node is not None:
        launch = seconds(measured.launch_graph_node)
    else:
        assumed.append(f"a launch as on an H200 ({_GRAPH_NODE_S * 1e6:.2f} µs)")
    held = hardware.memory.l2_capacity
    return Rates(
        sms=hardware.limits.sms,
        clock_hz=clock,
        burst=burst,
        sustained=sustained,
        read=bandwidth * k.read,
        write=bandwidth * k.write,
        l2=l2,
        l2_bytes=base_units(held) if held is not None else 0.0,
        launch_s=launch,
        assumed=tuple(assumed),
    )


def tensor_rate(flops: int, rates: Rates, k: Constants) -> float:
    """Return the tensor rate at the clock that power allows for a launch of so many operations."""
    least = max(flops / rates.burst, 1e-9)
    share = min(max(math.log(least / k.short_s) / math.log(k.long_s / k.short_s), 0.0), 1.0)
    return float(rates.burst ** (1 - share) * rates.sustained**share)
