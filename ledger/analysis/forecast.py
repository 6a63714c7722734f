"""Forecasts regime and percent from work, roof and profile alone, by named models with their assumptions. Pure.

These are baselines for other forecasters. They use the chip's ceilings, no measurement of the kernel and nothing of its
code. Each model is a time; the regime then follows from rule regime/1, applied to the loads that this time implies, so
that the rule that judges a model also makes its regime (L2 and shared memory are not modelled and count as idle).

Accuracy to expect of the naive roofline: off by a third on average, after the tables of NeuSight (Lee, Phanishayee,
Mahajan, ASPLOS 2025) for inference on an H100.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledger.analysis.regime import ResourceLoads, decide
from ledger.records import Hardware, Regime, Roof, Work, is_gpu
from ledger.roofline import base_units, memory_side, percent_of_roof, seconds, time_lower_bound_s

THUMB_BANDWIDTH = 0.90
THUMB_ARITHMETIC = 0.70
THUMB_LAUNCH_S = 1.0e-6


@dataclass(frozen=True)
class AnalyticForecast:
    """Hold what a model forecasts. Units: seconds; percent of the given roof."""

    model: str
    regime: Regime
    percent: float
    time_s: float
    assumptions: tuple[str, ...]


Forecaster = Callable[[Work, Roof, Hardware], AnalyticForecast | None]
"""Return a forecast, or None when the profile lacks what the model needs."""


def naive(work: Work, roof: Roof, hardware: Hardware) -> AnalyticForecast | None:  # noqa: ARG001
    """Forecast that the roof is reached.

    Assumes: arithmetic and traffic overlap perfectly, each at its full ceiling; compulsory traffic only; a launch
    costs nothing. Source: Williams, Waterman, Patterson, CACM 52(4), 2009.
    """
    words = ("arithmetic and traffic overlap perfectly", "both ceilings are reached", "a launch costs nothing")
    return _forecast("naive roofline", work, roof, time_s=time_lower_bound_s(work, roof), launch_s=0.0, words=words)


def thumb(work: Work, roof: Roof, hardware: Hardware) -> AnalyticForecast | None:
    """Forecast 90% of the datasheet's bandwidth, 70% of its arithmetic and 1 µs of launch, for GPUs.

    Assumes: what one device showed holds for others. Source: measured on an NVIDIA H200 (copy 4.27 and read 4.30 of
    4.8 TB/s; GEMM 698 and 735 of 989 TFLOP/s; an empty graph node 0.48 to 0.49 µs).
    """
    if roof.ceilings != "datasheet" or not is_gpu(hardware.target):
        return None
    busy = max(
        work.flops / (THUMB_ARITHMETIC * roof.peak_flop_per_s),
        work.bytes / (THUMB_BANDWIDTH * roof.bandwidth_bytes_per_s),
    )
    words = ("90% of DRAM bandwidth", "70% of the arithmetic peak", "1 µs of launch", "perfect overlap")
    time_s = THUMB_LAUNCH_S + busy
    return _forecast("rule of thumb", work, roof, time_s=time_s, launch_s=THUMB_LAUNCH_S, words=words)


def reached(work: Work, roof: Roof, hardware: Hardware) -> AnalyticForecast | None:
    """Forecast that the ceilings measured in bursts on this device are reached, after one launch.

    Assumes: perfect overlap; the kernel is as good as the benchmark that measured the ceilings.
    """
    parts = _measured_parts(work, roof, hardware)
    if parts is None:
        return None
    arithmetic_s, traffic_s, launch_s = parts
    words = ("ceilings as measured in bursts", _launch_text(launch_s), "perfect overlap")
    time_s = launch_s + max(arithmetic_s, traffic_s)
    return _forecast("measured ceilings", work, roof, time_s=time_s, launch_s=launch_s, words=words)


def serial(work: Work, roof: Roof, hardware: Hardware) -> AnalyticForecast | None:
    """Forecast that traffic and arithmetic follow each other, at the measured ceilings, after one launch.

    Assumes: no overlap at all. At most twice the time of `reached`; a kernel that overlaps partly is between the two.
    """
    parts = _measured_parts(work, roof, hardware)
    if parts is None:
        return None
    arithmetic_s, traffic_s, launch_s = parts
    words = ("ceilings as measured in bursts", _launch_text(launch_s), "no overlap of traffic and arithmetic")
    time_s = launch_s + arithmetic_s + traffic_s
    return _forecast("measured ceilings, no overlap", work, roof, time_s=time_s, launch_s=launch_s, words=words)


FORECASTERS: tuple[Forecaster, ...] = (naive, thumb, reached, serial)


def analytic_forecasts(work: Work, roof: Roof, hardware: Hardware) -> tuple[AnalyticForecast, ...]:
    """Return what every model says that the profile is good for; none for empty work."""
    if not (work.flops or work.bytes):
        return ()
    made = (forecaster(work, roof, hardware) for forecaster in FORECASTERS)
    return tuple(forecast for forecast in made if forecast is not None)


def _measured_parts(work: Work, roof: Roof, hardware: Hardware) -> tuple[float, float, float] | None:
    """Return the seconds of arithmetic, of traffic and of a launch at burst ceilings; None without them."""
    ceilings = hardware.ceilings.get("burst")
    peak = ceilings.peaks.get(roof.path) if ceilings else None
    if ceilings is None or peak is None:
        return None
    node = ceilings.launch_graph_node
    launch_s = 0.0 if node is None else seconds(node)
    return work.flops / base_units(peak), work.bytes / base_units(ceilings.dram_bandwidth), launch_s


def _launch_text(launch_s: float) -> str:
    return f"{launch_s * 1e6:.2f} µs of launch" if launch_s else "a launch costs nothing (none was measured)"


def _forecast(
    model: str, work: Work, roof: Roof, *, time_s: float, launch_s: float, words: tuple[str, ...]
) -> AnalyticForecast:
    loads = ResourceLoads(
        dram_milli=round(1e5 * work.bytes / roof.bandwidth_bytes_per_s / time_s),
        l2_milli=0,
        smem_milli=0,
        arithmetic_milli=round(1e5 * work.flops / roof.peak_flop_per_s / time_s),
    )
    regime, _, _ = decide(
        loads,
        call_ps=max(1, round(time_s * 1e12)),
        launch_ps=round(launch_s * 1e12),
        left_of_ridge=memory_side(work, roof),
    )
    assert regime is not None, "all four loads are given"
    percent = percent_of_roof(work, roof, time_s)
    return AnalyticForecast(model=model, regime=regime, percent=percent, time_s=time_s, assumptions=words)
