"""Computes the time of a tiled product's launch from its tiles and a chip's rates, term by term. Pure.

A kernel describes a launch (`Launch`), a device gives rates (`Rates`), and `cost` returns each term in seconds. A
launch rule takes the configuration with the least total. The terms:

    request    bytes of a K step that an SM requests from L2: multicast within a cluster divides them
    tensor     arithmetic of a K step, padding included, at the tensor peak
    warps      clocks of the warps that load, scale and issue a K step: those that co-resident CTAs hide, and those that
               they do not; and clocks a step that nothing overlaps with
    fixed      clocks of a CTA beside its K steps: pipeline fill, reduction of partial sums, stores; and clocks that
               every SM spends once a launch before its first step
    l2         all requested bytes at the bandwidth of L2
    dram       compulsory bytes at the DRAM bandwidth
    launch     what a launch takes beside its CTAs, in the state in which it is launched

The three step terms overlap within an SM: the largest counts, times the steps and the waves. SM, L2 and DRAM time
overlap too, but near equality they slow each other, which a norm of exponent `overlap` models. Left out: the order of
tiles in L2, bank conflicts, the number of stages, clocks that change during the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Hold what a device does in a second or a clock.

    request_bytes: bytes a clock and SM. l2_bytes: bytes a clock of the chip. tensor_flops: operations a clock and SM.
    slots: CTAs of a cluster -> CTAs that are resident at one CTA an SM; clusters lie within a GPC, so large ones leave
    SMs idle. resident_share: how much of the fixed clocks counts of a CTA that is co-resident. launch_s: state ->
    seconds. overlap: exponent of the norm that joins SM, L2 and DRAM time; infinity would be their maximum.
    """

    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes: float
    request_bytes: float
    tensor_flops: float
    slots: Mapping[int, int]
    resident_share: float
    launch_s: Mapping[str, float]
    overlap: float


class Launch(NamedTuple):
    """Hold a launch as its equal CTAs' work.

    ctas: split-K counted. cluster: CTAs of a cluster. resident: CTAs that fit on an SM. steps: K steps of a CTA. Of one
    step: step_flops, padding included; request_bytes; hidden_clocks, exposed_clocks and serial_clocks of the warps.
    fixed_clocks: beside the steps. dram_bytes: compulsory, of the launch. once_clocks: of an SM before its first step.
    """

    ctas: int
    cluster: int
    resident: int
    steps: int
    step_flops: int
    request_bytes: float
    hidden_clocks: float
    exposed_clocks: float
    serial_clocks: float
    fixed_clocks: float
    dram_bytes: float
    once_clocks: float = 0.0


class Cost(NamedTuple):
    """Hold the terms of a launch's time, in seconds; each step term as if it alone limited all steps."""

    request_s: float
    tensor_s: float
    warps_s: float
    fixed_s: float
    l2_s: float
    dram_s: float
    launch_s: float
    waves: int
    total_s: float

    @property
    def limiter(self) -> str:
        """Return the name of the largest term that overlaps with the others."""
        terms = ("request", "tensor", "warps", "l2", "dram")
        return max(terms, key=lambda name: float(getattr(self, f"{name}_s")))


def cost(launch: Launch, rates: Rates, *, state: str) -> Cost:
    """Return the terms of a launch's time. state: a key of rates.launch_s, such as chain."""
    slots = rates.slots[launch.cluster]
    waves = -(-launch.ctas // slots)
    # Co-resident CTAs begin together: their fixed clocks and those of their warps overlap.
    rounds = -(-launch.ctas // (slots * launch.resident))
    steps_s = waves * launch.steps / rates.clock_hz
    request_s = steps_s * launch.request_bytes / rates.request_bytes
    tensor_s = steps_s * launch.step_flops / rates.tensor_flops
    warps_s = steps_s * (launch.exposed_clocks + launch.hidden_clocks * rounds / waves)
    fixed = (rounds + rates.resident_share * (waves - rounds)) * launch.fixed_clocks
    fixed_s = (fixed + launch.once_clocks) / rates.clock_hz
    l2_s = launch.ctas * launch.steps * launch.request_bytes / (rates.l2_bytes * rates.clock_hz)
    dram_s = launch.dram_bytes / rates.dram_bytes_per_s
    sm_s = max(request_s, tensor_s, warps_s) + steps_s * launch.serial_clocks + fixed_s
    power = rates.overlap
    longest = max(sm_s, l2_s, dram_s)
    norm = (sm_s / longest) ** power + (l2_s / longest) ** power + (dram_s / longest) ** power
    joined = longest * norm ** (1 / power)
    launch_s = rates.launch_s[state]
    return Cost(request_s, tensor_s, warps_s, fixed_s, l2_s, dram_s, launch_s, waves, launch_s + joined)
