"""Measures a CPU's arithmetic and memory ceilings with torch on all processors. Imports torch, only when called.

Bandwidths count the bytes that the operation names. A store to memory outside the cache first reads the cache line,
unless the library bypasses the cache; that read is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ledger.device.facts import cpu_cores, cpu_state, import_torch
from ledger.measure.run_cell import threads_set
from ledger.records import Ceilings, DeviceFacts, Path, Peak, Quantity

_LLC_MULTIPLE = 4
_MIN_BUFFER_BYTES = 64 * 2**20
_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Best:
    """Hold the best of several timings and how many there were. Units: seconds."""

    seconds: float
    rounds: int


def best_time(call: Callable[[], object], *, budget_s: float) -> Best:
    """Return the shortest time of a call over at least three rounds, more within the budget."""
    call()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - started < budget_s:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return Best(min(times), len(times))


def measure_ceilings(facts: DeviceFacts, *, quick: bool, on_step: Callable[[str], None]) -> Ceilings:
    """Return this CPU's burst ceilings."""
    torch = import_torch()
    source = f"ledger calibrate, torch {torch.__version__}, {cpu_cores()} threads"
    budget_s = 0.4 if quick else 2.0
    with threads_set(None):
        peaks: dict[Path, Peak | None] = {
            "fp32": _peak("float32", source, quick=quick, budget_s=budget_s, on_step=on_step),
            "fp64": _peak("float64", source, quick=quick, budget_s=budget_s, on_step=on_step),
        }
        bandwidths = _bandwidths(facts, source, budget_s=budget_s, on_step=on_step)
        on_step("launch of one small operation")
        launch = _launch(source)
    return Ceilings(
        peaks=peaks,
        dram_bandwidth=bandwidths["read"],
        dram_read_bandwidth=bandwidths["read"],
        dram_write_bandwidth=bandwidths["write"],
        dram_copy_bandwidth=bandwidths["copy"],
        launch_stream=launch,
    )


def _clock() -> str:
    clock = cpu_state().sm_clock_mhz
    return "clock unknown" if clock is None else f"{clock} MHz"


def _peak(name: str, source: str, *, quick: bool, budget_s: float, on_step: Callable[[str], None]) -> Peak:
    torch = import_torch()
    best = (0.0, "")
    for size in (1024, 2048) if quick else (1024, 2048, 3072, 4096):
        on_step(f"{name} matrix product of {size}")
        a, b = (torch.randn(size, size, dtype=getattr(torch, name)) for _ in range(2))
        out = torch.empty_like(a)
        found = best_time(lambda a=a, b=b, out=out: torch.matmul(a, b, out=out), budget_s=budget_s)  # type: ignore[misc]
        condition = f"matrix product {size}x{size}x{size}, best of {found.rounds}, {_clock()}"
        best = max(best, (2 * size**3 / found.seconds, condition))
    return Peak(value=_digits(best[0] / 1e12), unit="TFLOP/s", kind="measured", condition=best[1], source=source)


def _bandwidths(
    facts: DeviceFacts, source: str, *, budget_s: float, on_step: Callable[[str], None]
) -> dict[str, Quantity]:
    """Return the best bandwidth of each kind; triad counts among the copies: it reads two arrays and writes one."""
    torch = import_torch()
    wanted = max(_LLC_MULTIPLE * (facts.l2_bytes or 0), _MIN_BUFFER_BYTES)
    size = min(wanted, facts.memory_bytes // 16) // (_ELEMENT_BYTES * 1024) * 1024
    a, b, c = (torch.ones(size) for _ in range(3))
    rows = a.view(-1, 1024)
    vector = torch.ones(1024)
    one_array = _ELEMENT_BYTES * size
    ways: tuple[tuple[str, str, int, Callable[[], object]], ...] = (
        ("read", "sum of one array", one_array, lambda: torch.sum(a)),
        ("read", "dot product of two arrays", 2 * one_array, lambda: torch.dot(a, b)),
        ("read", "matrix times a vector", one_array, lambda: torch.mv(rows, vector)),
        ("write", "fill of one array", one_array, lambda: c.fill_(2.0)),
        ("copy", "copy, bytes read and written", 2 * one_array, lambda: c.copy_(a)),
        ("copy", "triad, bytes read and written", 3 * one_array, lambda: torch.add(a, b, alpha=3.0, out=c)),
    )
    best: dict[str, tuple[float, str]] = {}
    for kind, what, moved, call in ways:
        on_step(f"memory {kind}: {what}")
        found = best_time(call, budget_s=budget_s)
        condition = f"{what}, {one_array / 2**20:.0f} MiB an array, best of {found.rounds}, {_clock()}"
        best[kind] = max(best.get(kind, (0.0, "")), (moved / found.seconds, condition))
    return {
        kind: Quantity(value=_digits(rate / 1e9), unit="GB/s", kind="measured", condition=condition, source=source)
        for kind, (rate, condition) in best.items()
    }


def _launch(source: str) -> Quantity:
    torch = import_torch()
    a, out = torch.ones(1), torch.ones(1)
    calls = 2000

    def run() -> None:
        for _ in range(calls):
            torch.add(a, a, out=out)

    found = best_time(run, budget_s=0.2)
    return Quantity(
        value=_digits(1e6 * found.seconds / calls),
        unit="us",
        kind="measured",
        condition=f"torch.add of one element, best of {found.rounds} runs of {calls}, {_clock()}",
        source=source,
    )


def _digits(value: float) -> float:
    """Return a value rounded to four significant digits."""
    return float(f"{value:.4g}")
