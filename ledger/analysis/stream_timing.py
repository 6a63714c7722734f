"""Names the timing of calls that no CUDA graph can capture: on a stream, launches by the host included. Pure."""

from __future__ import annotations

from typing import Literal

from ledger.analysis.formatting import duration, harmless
from ledger.records import Measurement

STREAM = "stream_timing/1"
"""The extension of a measurement whose calls were timed on a stream: why a CUDA graph could not capture them."""
Method = Literal["graph", "stream", "loop"]
_REASON_LENGTH = 160


def timing_method(measurement: Measurement) -> Method | None:
    """Return how calls were timed, None where they were not: in a CUDA graph, on a stream, in a loop on a CPU."""
    if measurement.timing is None:
        return None
    if measurement.protocol.name.startswith("cold-cpu/"):
        return "loop"
    return "stream" if STREAM in measurement.extensions else "graph"


def stream_text(measurement: Measurement) -> str | None:
    """Return why calls were timed on a stream and what that includes, None where they were not."""
    timing, found = measurement.timing, measurement.extensions.get(STREAM)
    if timing is None or timing_method(measurement) != "stream":
        return None
    reason = str(found.get("reason")) if isinstance(found, dict) else "no reason was recorded"
    kernels = measurement.counters.kernels if measurement.counters else ()
    launches = f"{len(kernels)} launches" if len(kernels) > 1 else "the launch"
    empty = "" if timing.launch_ps is None else f" (an empty one alone takes {duration(timing.launch_ps)})"
    return (
        f"Timed on a stream: the time, and so the percent, includes {launches} by the host{empty}; a CUDA graph cannot "
        f"capture the call ({harmless(reason, _REASON_LENGTH)})."
    )
