"""Forecasts 90% of the datasheet's bandwidth, 70% of its arithmetic peak and 1 µs of launch, for GPUs. Pure.

Assumes: what one device showed holds for others. Source: measured on an NVIDIA H200 (copy 4.27 and read 4.30 of 4.8
TB/s; GEMM 698 and 735 of 989 TFLOP/s; an empty graph node 0.48 to 0.49 µs).
"""

from __future__ import annotations

from ledger.forecasters.answer import Answer, NoAnswer, Question, answer_of_time
from ledger.forecasters.resource_times import ResourceTimes
from ledger.records import is_gpu

NAME = "rule-of-thumb"
VERSION = "1"
BANDWIDTH_SHARE = 0.90
ARITHMETIC_SHARE = 0.70
LAUNCH_S = 1.0e-6


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast of a GPU with datasheet ceilings; of no other device."""
    roof = question.roof
    if roof.ceilings != "datasheet" or not is_gpu(question.hardware.target):
        return NoAnswer(NAME, VERSION, f"{question.hardware.name} is no GPU with datasheet ceilings")
    times = ResourceTimes(
        question.work,
        ARITHMETIC_SHARE * roof.peak_flop_per_s,
        BANDWIDTH_SHARE * roof.bandwidth_bytes_per_s,
        LAUNCH_S,
    )
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=times.overlapped_s,
        launch_s=LAUNCH_S,
        terms=times.terms,
        assumes=("90% of DRAM bandwidth", "70% of the arithmetic peak", "1 µs of launch", "perfect overlap"),
    )
