"""Forecasts that traffic and arithmetic follow each other, at the measured ceilings, after one launch. Pure.

At most twice the time of measured-roofline; a kernel that overlaps partly is between the two.
"""

from __future__ import annotations

from ledger.forecasters.answer import Answer, NoAnswer, Question, answer_of_time
from ledger.forecasters.measured_roofline import launch_text, measured_times, no_ceilings

NAME = "no-overlap"
VERSION = "1"


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast; none where no ceiling of the path was measured."""
    found = measured_times(question)
    if not found:
        return NoAnswer(NAME, VERSION, no_ceilings(question))
    kind, times = next(iter(found.items()))
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=times.serial_s,
        launch_s=times.launch_s,
        terms=times.terms,
        assumes=(f"{kind} ceilings as measured", launch_text(times.launch_s), "no overlap"),
    )
