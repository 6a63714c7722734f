"""Tests what a report says of calls that were timed on a stream, and that nothing is said of others."""

from __future__ import annotations

import pytest
from samples import MS, make_forecast, make_measurement, make_timing

from ledger.analysis.protocols import COLD_CPU
from ledger.analysis.stream_timing import STREAM, stream_text, timing_method
from ledger.records import Counters, ProfiledKernel

FORECAST = make_forecast()


def measured(**changes):
    given = {"timing": make_timing(MS, launch_ps=3_030_000), "counters": None, "counters_missing": "none", **changes}
    return make_measurement(FORECAST, **given)


def test_a_stream_is_said_with_its_reason_and_what_the_time_includes():
    found = measured(extensions={STREAM: {"reason": "the host\nwaits"}})
    assert timing_method(found) == "stream"
    assert stream_text(found) == (
        "Timed on a stream: the time, and so the percent, includes the launch by the host (an empty one alone takes "
        "3.03 µs); a CUDA graph cannot capture the call (the host waits)."
    )


def test_every_launch_that_was_counted_is_said():
    kernel = ProfiledKernel(name="k", metrics={})
    two = Counters(tool="t", command="c", cache_control="all", clock_control="none", kernels=(kernel, kernel))
    found = measured(counters=two, counters_missing=None, extensions={STREAM: {"reason": "r"}})
    assert "includes 2 launches by the host" in str(stream_text(found))


@pytest.mark.parametrize("extension", [7, None, {"other": 1}])
def test_an_extension_of_another_form_is_still_a_stream(extension):
    assert "Timed on a stream" in str(stream_text(measured(extensions={STREAM: extension})))


def test_nothing_is_said_of_a_graph_a_loop_or_a_failure():
    graph = measured()
    assert (timing_method(graph), stream_text(graph)) == ("graph", None)
    loop = graph.model_copy(update={"protocol": COLD_CPU, "extensions": {STREAM: {"reason": "r"}}})
    assert (timing_method(loop), stream_text(loop)) == ("loop", None)
    failed = graph.model_copy(update={"timing": None})
    assert (timing_method(failed), stream_text(failed)) == (None, None)
