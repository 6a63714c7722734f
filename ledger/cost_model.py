"""Computes the time of a tiled product's launch from its tiles and a chip's rates, term by term. Pure.

A kernel describes a launch (`Launch`), a device gives rates (`Rates`), and `cost` returns each term in seconds. A
launch rule takes the configuration with the least total. The terms:

    dram       compulsory bytes at the DRAM bandwidth, or at what the resident CTAs keep in flight a latency (Little's
               law), whichever is slower
    tensor     arithmetic of the K steps, padding included, at the rate that the tile's instruction reaches
    fill       bytes that come into shared memory, by TMA, multicast or another CTA
    request    bytes that an SM requests from L2: multicast within a cluster divides them
    operand    issue clocks of the warps that scale an operand on its way into registers
    tile       clocks of a tile beside its steps: pipeline fill, reduction of partial sums, stores
    launch     what a launch takes beside its tiles, in the state in which it is launched

An SM works through its tiles one after another: the four step terms overlap, so the largest counts, times the steps and
the waves. DRAM is shared by all SMs and overlaps with them; near equality both slow each other, which `overlap` models.
Left out: the order of tiles in L2, bank conflicts, clocks that change during the launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Hold what a device does in a second or a clock.

    fill_bytes, request_bytes: bytes a clock and SM; wave_request_bytes: the same where all CTAs are resident at once
    and request the same lines together. tensor_flops: operations a clock and SM. slots: CTAs of a cluster -> CTAs that
    are resident at one CTA an SM; clusters lie within a GPC, so large ones leave SMs idle. launch_s: state -> seconds.
    overlap: exponent of the norm that joins DRAM and SM time; infinity would be their maximum.
    """

    clock_hz: float
    dram_bytes_per_s: float
    dram_latency_s: float
    fill_bytes: float
    request_bytes: float
    wave_request_bytes: float
    tensor_flops: float
    slots: Mapping[int, int]
    launch_s: Mapping[str, float]
    overlap: float


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Hold a launch as its equal CTAs' work.

    ctas: pieces of work, split-K counted. cluster: CTAs of a cluster. steps: K steps of a CTA. Of one step: step_flops,
    padding included; tensor_rate: the share of the peak that its instructions reach; fill_bytes, request_bytes;
    operand_clocks. tile_clocks: beside the steps. in_flight_bytes: of DRAM, a CTA. even: whether work is divided evenly
    among the slots (stream-K), so that no wave is partly empty.
    """

    ctas: int
    cluster: int
    steps: int
    step_flops: int
    tensor_rate: float
    fill_bytes: int
    request_bytes: float
    operand_clocks: float
    tile_clocks: float
    dram_bytes: int
    in_flight_bytes: int
    even: bool = False


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Hold the terms of a launch's time, in seconds; each of the step terms as if it alone limited all steps."""

    dram_s: float
    tensor_s: float
    fill_s: float
    request_s: float
    operand_s: float
    tile_s: float
    launch_s: float
    waves: float
    total_s: float

    @property
    def limiter(self) -> str:
        """Return the name of the largest term that overlaps with the others."""
        terms = ("dram", "tensor", "fill", "request", "operand")
        return max(terms, key=lambda name: float(getattr(self, f"{name}_s")))


def waves_of(launch: Launch, rates: Rates) -> float:
    """Return how many CTAs the busiest slot works through: a whole number, or where they are divided evenly a share."""
    waves = launch.ctas / rates.slots[launch.cluster]
    return waves if launch.even else math.ceil(waves)


def cost(launch: Launch, rates: Rates, *, state: str) -> Cost:
    """Return the terms of a launch's time. state: a key of rates.launch_s, such as chain."""
    waves, slots = waves_of(launch, rates), rates.slots[launch.cluster]
    requested = rates.wave_request_bytes if launch.ctas <= slots else rates.request_bytes
    clocks = {
        "tensor_s": launch.step_flops / (rates.tensor_flops * launch.tensor_rate),
        "fill_s": launch.fill_bytes / rates.fill_bytes,
        "request_s": launch.request_bytes / requested,
        "operand_s": launch.operand_clocks,
    }
    steps = waves * launch.steps / rates.clock_hz
    terms = {name: one * steps for name, one in clocks.items()}
    in_flight = min(launch.ctas, slots) * launch.in_flight_bytes
    dram_s = launch.dram_bytes / min(rates.dram_bytes_per_s, in_flight / rates.dram_latency_s)
    tile_s = waves * launch.tile_clocks / rates.clock_hz
    launch_s = rates.launch_s[state]
    longer, shorter = sorted((dram_s, max(terms.values()) + tile_s), reverse=True)
    joined = longer * (1 + (shorter / longer) ** rates.overlap) ** (1 / rates.overlap)
    return Cost(dram_s=dram_s, **terms, tile_s=tile_s, launch_s=launch_s, waves=waves, total_s=launch_s + joined)
