"""Tells which clock state a percent speaks of, where the steady state and the boost state differ. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.analysis.steady_timing import STEADY, rounds_clock_mhz
from ledger.records import MAX_INTEGER, Forecast, Measurement
from ledger.roofline import percent_of_roof

_DIFFERENT = 0.02
_POWER_CAP = "power-cap"


@dataclass(frozen=True)
class BoostState:
    """Hold the boost state of a call whose record is of its steady state. Units: percent of the roof, ps, MHz.

    power_limited: the driver named the power limit at the end of the timing.
    """

    percent: float
    time_ps: int
    clock_mhz: int | None
    steady_clock_mhz: float | None
    power_limited: bool

    @property
    def name(self) -> str:
        """Return the name of the state that the record's own percent is of."""
        return "steady, power-limited" if self.power_limited else "steady"

    @property
    def sentence(self) -> str:
        """Return both states in one sentence."""
        steady = f" at {self.steady_clock_mhz:.0f} MHz" if self.steady_clock_mhz else ""
        boost = f" at {self.clock_mhz} MHz" if self.clock_mhz else ""
        limited = ", limited by power" if self.power_limited else ""
        state = f"The percent is of the steady state{steady}{limited}"
        return f"{state}; in the boost state{boost} it was {self.percent:.1f}%."


def boost_state(forecast: Forecast, measurement: Measurement) -> BoostState | None:
    """Return the boost state of a timing by cold-graph/2 that differs from its steady state by more than 2%.

    None where the two do not differ, or the record does not tell.
    """
    timing, found = measurement.timing, measurement.extensions.get(STEADY)
    if timing is None or not isinstance(found, dict) or not (forecast.work.flops or forecast.work.bytes):
        return None
    time_ps = _positive(found.get("boost_ps"))
    if time_ps is None or abs(timing.median_ps - time_ps) <= _DIFFERENT * min(timing.median_ps, time_ps):
        return None
    return BoostState(
        percent=percent_of_roof(forecast.work, forecast.roof, time_ps * 1e-12),
        time_ps=time_ps,
        clock_mhz=_positive(found.get("boost_clock_mhz")),
        steady_clock_mhz=rounds_clock_mhz(timing),
        power_limited=measurement.after is not None and _POWER_CAP in measurement.after.throttle,
    )


def _positive(value: object) -> int | None:
    """Return a stored value that is a positive integer; an extension may hold anything."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= MAX_INTEGER else None
