"""Forecasts that the ceilings measured on a device are reached, after one launch. Pure.

Burst ceilings where the profile has them for the instruction path, else sustained ones. Where it has both, the time at
sustained ceilings is a term. Assumes: perfect overlap; the kernel is as good as the benchmark of the ceilings.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.forecasters.answer import Answer, NoAnswer, Question, Term, answer_of_time
from ledger.forecasters.resource_times import ResourceTimes
from ledger.records import CeilingKind
from ledger.roofline import base_units, seconds

NAME = "measured-roofline"
VERSION = "1"
KINDS: tuple[CeilingKind, ...] = ("burst", "sustained")


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast; none where no ceiling of the path was measured."""
    found = measured_times(question)
    if not found:
        return NoAnswer(NAME, VERSION, no_ceilings(question))
    (kind, times), *others = found.items()
    # A launch is timed among the bursts alone.
    others_s = {name: replace(at, launch_s=times.launch_s).overlapped_s for name, at in others}
    slower = (Term(f"at {name} ceilings", time_s, "s") for name, time_s in others_s.items())
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=times.overlapped_s,
        launch_s=times.launch_s,
        terms=(*times.terms, *slower),
        assumes=(f"{kind} ceilings as measured", launch_text(times.launch_s), "perfect overlap"),
    )


def measured_times(question: Question) -> dict[CeilingKind, ResourceTimes]:
    """Return the times at each set of ceilings in which the question's instruction path was measured, burst first."""
    found: dict[CeilingKind, ResourceTimes] = {}
    for kind in KINDS:
        ceilings = question.hardware.ceilings.get(kind)
        peak = ceilings.peaks.get(question.roof.path) if ceilings else None
        if ceilings is not None and peak is not None:
            node = ceilings.launch_graph_node
            launch_s = 0.0 if node is None else seconds(node)
            rates = base_units(peak), base_units(ceilings.dram_bandwidth)
            found[kind] = ResourceTimes(question.work, *rates, launch_s)
    return found


def no_ceilings(question: Question) -> str:
    """Return why a question has no measured ceilings, and the remedy."""
    name, path = question.hardware.name, question.roof.path
    return f"profile {name} has no measured {path} peak; on that device run: ledger calibrate"


def launch_text(launch_s: float) -> str:
    """Return what is assumed of a launch."""
    return f"{launch_s * 1e6:.2f} µs of launch" if launch_s else "a launch costs nothing (none was measured)"
