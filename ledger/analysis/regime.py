"""Names the measured regime by rule regime/1, a total decision table. Pure; imports records, roofline, counters.

docs/regimes.md is the same table for people. A sealed prediction names the rule that judges it, so this one never
changes; a better rule gets a new name.

Source: the 60% threshold is that of NVIDIA Nsight Compute's own speed-of-light rule, which calls a kernel that reaches
60% of neither compute nor memory throughput latency-bound. The levels apart, the tie-break by the ridge point and the
launch row are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.analysis.counters import CounterTotals
from ledger.records import Forecast, Grade, Path, Regime
from ledger.roofline import memory_side

THRESHOLD_MILLI = 60_000
TIE_MILLI = 5_000

# The order of a tie on the memory-bound side: of two memory levels the outer one, whose traffic passes the inner one.
_MEMORY_ORDER: tuple[Regime, ...] = ("hbm-bound", "l2-bound", "smem-bound", "compute-bound")
_COMPUTE_ORDER: tuple[Regime, ...] = ("compute-bound", "hbm-bound", "l2-bound", "smem-bound")

RESOURCE_NAMES: dict[Regime, str] = {
    "hbm-bound": "DRAM",
    "l2-bound": "L2",
    "smem-bound": "SMEM",
    "compute-bound": "arithmetic pipe",
}


@dataclass(frozen=True)
class ResourceLoads:
    """Hold the four speed-of-light readings that the rule compares. Units: thousandths of a percent of peak."""

    dram_milli: int | None
    l2_milli: int | None
    smem_milli: int | None
    arithmetic_milli: int | None

    def by_regime(self) -> dict[Regime, int | None]:
        """Return the readings under the regime that each would name."""
        return {
            "hbm-bound": self.dram_milli,
            "l2-bound": self.l2_milli,
            "smem-bound": self.smem_milli,
            "compute-bound": self.arithmetic_milli,
        }


def _milli(percent: float | None) -> int | None:
    return None if percent is None else round(percent * 1000)


def loads_of(totals: CounterTotals, path: Path) -> ResourceLoads:
    """Return the readings of a call; the arithmetic pipe is the busiest, unknown while the sealed path's is unknown.

    Integer (ALU) work counts as arithmetic: a kernel that waits for its own address arithmetic is bound by a pipe.
    """
    pipes = (totals.tensor_pct, totals.fma_pct, totals.alu_pct, totals.fp64_pct)
    own = totals.tensor_pct if path.endswith("_tensor") else totals.fp64_pct if path == "fp64" else totals.fma_pct
    known = [pipe for pipe in pipes if pipe is not None]
    return ResourceLoads(
        dram_milli=_milli(totals.dram_pct),
        l2_milli=_milli(totals.l2_pct),
        smem_milli=_milli(totals.smem_pct),
        arithmetic_milli=None if own is None else _milli(max(known)),
    )


def loads_text(loads: ResourceLoads) -> str:
    """Return the readings in words: DRAM 66%, L2 41%, SMEM 20%, arithmetic pipe 8%."""
    return ", ".join(
        f"{RESOURCE_NAMES[regime]} {'unknown' if milli is None else f'{milli / 1000:.0f}%'}"
        for regime, milli in loads.by_regime().items()
    )


def decide(
    loads: ResourceLoads | None, *, call_ps: int, launch_ps: int | None, left_of_ridge: bool
) -> tuple[Regime | None, Grade, str]:
    """Apply rule regime/1: return the regime (None: not determined), the grade of the evidence, and the reason.

    Units: `call_ps` the measured time of a call, `launch_ps` that of an empty graph node (None: not measured).
    """
    if loads is None:
        return None, "C", "no counters"
    if launch_ps is not None and 2 * launch_ps >= call_ps:
        share = 100 * launch_ps / call_ps
        return "launch-bound", "A", f"an empty launch takes {share:.0f}% of the call"
    readings = loads.by_regime()
    lacking = [RESOURCE_NAMES[regime] for regime, milli in readings.items() if milli is None]
    if lacking:
        return None, "C", f"the counters do not tell {' or '.join(lacking)}"
    known = {regime: milli for regime, milli in readings.items() if milli is not None}
    highest = max(known.values())
    if highest < THRESHOLD_MILLI:
        return "latency-bound", "A", f"nothing reaches 60% of its peak ({loads_text(loads)})"
    # A reading just under the threshold still ties: DRAM traffic loads L2 too, and by a little more than itself.
    tied = {regime for regime, milli in known.items() if milli >= highest - TIE_MILLI}
    order = _MEMORY_ORDER if left_of_ridge else _COMPUTE_ORDER
    chosen = next(regime for regime in order if regime in tied)
    subject = f"{'the ' if chosen == 'compute-bound' else ''}{RESOURCE_NAMES[chosen]}"
    if known[chosen] == highest:
        return chosen, "A", f"{subject} is the busiest ({loads_text(loads)})"
    side = "memory" if left_of_ridge else "compute"
    return chosen, "A", f"{subject} by the tie-break on the {side}-bound side ({loads_text(loads)})"


def regime_of(
    forecast: Forecast, totals: CounterTotals | None, *, call_ps: int, launch_ps: int | None
) -> tuple[Regime | None, Grade, str]:
    """Name the regime of a measured call of a sealed case."""
    return decide(
        None if totals is None else loads_of(totals, forecast.roof.path),
        call_ps=call_ps,
        launch_ps=launch_ps,
        left_of_ridge=memory_side(forecast.work, forecast.roof),
    )
