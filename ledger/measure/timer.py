"""Defines what the timing protocols share, and cold-cpu/1. Imports no torch.

A protocol rotates over input sets that together exceed the last cache several times, so that each call reads cold
data. A round is a number of calls timed together. Rounds are taken until the confidence interval of their median is
narrow enough, or the time budget or the number of rounds is used up. No round is dropped. docs/format.md defines the
protocols; cuda_graphs times cold-graph/1.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low
from typing import Any, Protocol

import numpy as np

from ledger.analysis.protocols import COLD_GRAPH, PROTOCOLS, STEADY_GRAPH
from ledger.device.facts import cpu_state
from ledger.errors import InputError
from ledger.kernel import Launch
from ledger.philox_inputs import philox
from ledger.records import DeviceState
from ledger.records import Protocol as ProtocolRecord

CONFIDENCE_PPM = 950_000
MAX_SETS = 4096
_RESAMPLES = 1000
_CPU_ROUND_NS = 1_000_000


@dataclass(frozen=True)
class Parameters:
    """Hold the parameters of a timing protocol; units are in the names."""

    footprint_l2_multiple: int
    footprint_min_bytes: int
    warmup_rounds: int
    min_rounds: int
    max_rounds: int
    ci_target_ppm: int
    budget_ms: int
    sample_elements: int
    clock_tolerance_ppm: int


@dataclass(frozen=True)
class SteadyParameters:
    """Hold the parameters of cold-graph/2 by name; the units stand in the names.

    batch_ms: length of a batch. settle_batches: how many last batches must agree within settle_ppm.
    """

    footprint_l2_multiple: int
    footprint_min_bytes: int
    warmup_rounds: int
    batch_ms: int
    settle_batches: int
    settle_ppm: int
    ci_target_ppm: int
    budget_ms: int
    sample_elements: int
    clock_tolerance_ppm: int


def parameters_of(protocol: ProtocolRecord) -> Parameters:
    """Return the parameters of a protocol of rounds. Raises: InputError for one that this version cannot follow."""
    check_protocol(protocol)
    if protocol.name == STEADY_GRAPH.name:
        raise InputError(f"timing protocol {protocol.name} has batches; expected one of rounds: {COLD_GRAPH.name}")
    return Parameters(**protocol.parameters)


def sealed_parameters_of(protocol: ProtocolRecord) -> Parameters | SteadyParameters:
    """Return the parameters of a sealed protocol. Raises: InputError for one that this version cannot follow."""
    check_protocol(protocol)
    if protocol.name == STEADY_GRAPH.name:
        return SteadyParameters(**protocol.parameters)
    return Parameters(**protocol.parameters)


def check_protocol(protocol: ProtocolRecord) -> None:
    """Check that this version knows a protocol and all its parameters. Raises: InputError."""
    known = PROTOCOLS.get(protocol.name)
    if known is None or set(known.parameters) != set(protocol.parameters):
        raise InputError(
            f"timing protocol {protocol.name} with {', '.join(sorted(protocol.parameters))} is not known; "
            f"expected one of: {', '.join(PROTOCOLS)}"
        )


def set_count(bytes_per_set: int, l2_bytes: int | None, parameters: Parameters | SteadyParameters) -> int:
    """Return how many input sets the rotation needs: enough bytes in all, at least 2 and at most MAX_SETS.

    If MAX_SETS sets still fit in the cache the case is measured warm, which input_sets × bytes_per_set of its record
    shows. Such a small case is launch-bound.
    """
    footprint = max(parameters.footprint_l2_multiple * (l2_bytes or 0), parameters.footprint_min_bytes)
    return min(max(2, -(-footprint // bytes_per_set)), MAX_SETS)


@dataclass(frozen=True)
class Interval:
    """Hold a median and its bootstrap confidence interval, in the unit of the samples."""

    median: int
    low: int
    high: int

    @property
    def half_width_ppm(self) -> float:
        """Return half the interval's width in millionths of the median."""
        return 1e6 * (self.high - self.low) / (2 * self.median)


def median_interval(samples: Sequence[int]) -> Interval:
    """Return the median of the samples and its 95% percentile-bootstrap interval.

    The same samples give the same interval on every machine: the resamples are drawn by Philox with key zero.
    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13.
    """
    values = np.asarray(samples, dtype=np.int64)
    size = len(values)
    blocks = np.arange(-(-size * _RESAMPLES // 4), dtype=np.int64)
    draws = np.stack(philox((blocks, blocks * 0, blocks * 0, blocks * 0), (0, 0)), axis=-1).reshape(-1)
    index = (draws[: size * _RESAMPLES] * size) >> 32
    resamples = np.sort(values[index].reshape(_RESAMPLES, size), axis=1)
    medians = np.sort((resamples[:, (size - 1) // 2] + resamples[:, size // 2]) // 2)
    tail = _RESAMPLES * (1_000_000 - CONFIDENCE_PPM) // 2_000_000
    median = (median_low(samples) + median_high(samples)) // 2
    return Interval(median, int(medians[tail - 1]), int(medians[_RESAMPLES - tail]))


@dataclass(frozen=True)
class Timed:
    """Hold one timing run. Units: rounds in picoseconds per call, clocks in MHz, one a round or none."""

    rounds_ps: tuple[int, ...]
    calls_per_round: int
    interval: Interval
    before: DeviceState
    after: DeviceState
    clocks_mhz: tuple[int | None, ...]
    steadiness: Mapping[str, int | bool | None] | None = None
    rounds: Any = None  # what took the rounds, which holds the graph that was timed


class Rounds(Protocol):
    """Take rounds of calls, a batch at a time, so that the device stays busy between them."""

    calls: int

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        ...


def enough_rounds(rounds: Rounds, parameters: Parameters) -> tuple[tuple[int, ...], Interval]:
    """Take rounds until the interval of their median is narrow enough, or the budget or their number is used up."""
    started = time.monotonic()
    rounds.take(parameters.warmup_rounds)
    samples = rounds.take(parameters.min_rounds)
    while True:
        interval = median_interval(samples)
        spent_ms = 1e3 * (time.monotonic() - started)
        left_ms = parameters.budget_ms - spent_ms
        more = min(max(len(samples) // 2, 1), parameters.max_rounds - len(samples))
        if interval.half_width_ppm <= parameters.ci_target_ppm or left_ms <= 0 or more <= 0:
            return tuple(samples), interval
        affordable = int(left_ms * len(samples) / spent_ms)
        samples += rounds.take(max(1, min(more, affordable)))


@dataclass
class CpuRounds:
    """Time calls with the process's monotonic clock; each round continues the rotation of the last."""

    launches: Sequence[Launch]
    calls: int = 1
    _next: int = 0
    stretch: int = 1  # rounds this many times as long

    def __post_init__(self) -> None:
        """Run each input set once, untimed, then time one rotation to size rounds of a millisecond."""
        for launch in self.launches:
            launch()
        rotation_ns = self._run(len(self.launches))
        self.calls = self.stretch * max(1, -(-_CPU_ROUND_NS * len(self.launches) // max(rotation_ns, 1)))

    def _run(self, calls: int, now: Callable[[], int] = time.perf_counter_ns) -> int:
        count = len(self.launches)
        order = [self.launches[(self._next + call) % count] for call in range(calls)]
        self._next = (self._next + calls) % count
        started = now()
        for launch in order:
            launch()
        return now() - started

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        return [max(1, round(1000 * self._run(self.calls) / self.calls)) for _ in range(count)]


def time_cpu(launches: Sequence[Launch], parameters: Parameters) -> Timed:
    """Time the launches, one an input set, by cold-cpu/1 with the threads that torch is set to."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        rounds = CpuRounds(launches)
        before = cpu_state()
        samples, interval = enough_rounds(rounds, parameters)
        return Timed(samples, rounds.calls, interval, before, cpu_state(), (), rounds=rounds)
    finally:
        if collecting:
            gc.enable()
