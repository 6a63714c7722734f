"""Forecasts that the roof is reached. Pure.

Assumes: arithmetic and traffic overlap perfectly, each at its full ceiling; compulsory traffic only; a launch costs
nothing. Source: Williams, Waterman, Patterson, CACM 52(4), 2009. Expect it to be off by a third on average, after the
tables of NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025) for inference on an H100.
"""

from __future__ import annotations

from ledger.forecasters.answer import Answer, Question, answer_of_time
from ledger.forecasters.resource_times import ResourceTimes

NAME = "naive-roofline"
VERSION = "1"


def forecast(question: Question) -> Answer:
    """Return the time lower bound as the forecast."""
    roof = question.roof
    times = ResourceTimes(question.work, roof.peak_flop_per_s, roof.bandwidth_bytes_per_s, launch_s=0.0)
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=times.overlapped_s,
        launch_s=0.0,
        terms=times.terms,
        assumes=(f"{roof.ceilings} ceilings are reached", "perfect overlap", "a launch costs nothing"),
    )
