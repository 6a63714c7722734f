"""Names the timing protocols and their sealed parameters. Pure; docs/format.md defines what each does."""

from __future__ import annotations

from ledger.callables.subject import work_of
from ledger.records import Forecast, Protocol, Timing

COLD_GRAPH = Protocol(
    name="cold-graph/1",
    parameters={
        "footprint_l2_multiple": 5,
        "footprint_min_bytes": 268_435_456,
        "warmup_rounds": 5,
        "min_rounds": 25,
        "max_rounds": 400,
        "ci_target_ppm": 10_000,
        "budget_ms": 2_000,
        "sample_elements": 32,
        "clock_tolerance_ppm": 50_000,
    },
)

STEADY_GRAPH = Protocol(
    name="cold-graph/2",
    parameters={
        "footprint_l2_multiple": 5,
        "footprint_min_bytes": 268_435_456,
        "warmup_rounds": 5,
        "batch_ms": 20,
        "settle_batches": 5,
        "settle_ppm": 10_000,
        "ci_target_ppm": 5_000,
        "budget_ms": 4_000,
        "sample_elements": 32,
        "clock_tolerance_ppm": 50_000,
    },
)

COLD_CPU = Protocol(
    name="cold-cpu/1",
    parameters={
        "footprint_l2_multiple": 2,
        "footprint_min_bytes": 134_217_728,
        "warmup_rounds": 1,
        "min_rounds": 9,
        "max_rounds": 101,
        "ci_target_ppm": 20_000,
        "budget_ms": 4_000,
        "sample_elements": 32,
        "clock_tolerance_ppm": 50_000,
    },
)

PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in (COLD_GRAPH, STEADY_GRAPH, COLD_CPU)}


def rotation_bytes(forecast: Forecast, timing: Timing) -> int:
    """Return the bytes over which a rotation went, results of a callable included.

    Older records of a callable hold those of its inputs alone, and the timer made sets by the counted work.
    """
    counted = forecast.work.bytes if work_of(forecast.case) == "counted" else 0
    return timing.input_sets * max(timing.bytes_per_set, counted)


def protocol_for(implementation: str) -> Protocol:
    """Return the protocol by which a sealed cell of an implementation is timed."""
    return COLD_CPU if implementation == "torch-cpu" else STEADY_GRAPH


def interleaved_protocol_for(implementation: str) -> Protocol:
    """Return the protocol of contestants that are timed in turns."""
    return COLD_CPU if implementation == "torch-cpu" else COLD_GRAPH
