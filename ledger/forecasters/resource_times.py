"""Computes the time of a cell's arithmetic, traffic and launch at given rates: the terms of the rooflines. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.forecasters.answer import Term
from ledger.records import Work


@dataclass(frozen=True)
class ResourceTimes:
    """Hold the rates that a forecaster assumes, for one cell's work. Units: FLOP/s, bytes a second, seconds."""

    work: Work
    flop_per_s: float
    bytes_per_s: float
    launch_s: float

    @property
    def arithmetic_s(self) -> float:
        """Return the time of the arithmetic alone."""
        return self.work.flops / self.flop_per_s

    @property
    def traffic_s(self) -> float:
        """Return the time of the compulsory DRAM traffic alone."""
        return self.work.bytes / self.bytes_per_s

    @property
    def overlapped_s(self) -> float:
        """Return the time of a launch, then arithmetic and traffic in perfect overlap."""
        return self.launch_s + max(self.arithmetic_s, self.traffic_s)

    @property
    def serial_s(self) -> float:
        """Return the time of a launch, then arithmetic and traffic one after the other."""
        return self.launch_s + self.arithmetic_s + self.traffic_s

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the three times, and the two rates."""
        return (
            Term("arithmetic", self.arithmetic_s, "s"),
            Term("traffic", self.traffic_s, "s"),
            Term("launch", self.launch_s, "s"),
            Term("peak", self.flop_per_s, "FLOP/s"),
            Term("DRAM", self.bytes_per_s, "B/s"),
        )
