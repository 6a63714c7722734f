"""Measures a CPU's arithmetic and memory ceilings with torch on all processors. Imports torch, only when called.

Other work on the machine, and other guests of its host, can only lower a rate, and they come and go in seconds. So
every ceiling is measured once a round, and the best round is the ceiling; its rounds are kept. Bandwidths count the
bytes that the operation names. A store to memory outside the cache first reads the cache line, unless the library
bypasses the cache; that read is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ledger.calibrate.cpu_rounds import FULL, QUICK, Plan, Probe, Rounds, take_rounds
from ledger.device.facts import cpu_cores, cpu_state, import_torch
from ledger.measure.run_cell import threads_set
from ledger.records import Calibration, Ceilings, DeviceFacts, Path, Peak, Quantity

_LLC_MULTIPLE = 4
_MIN_BUFFER_BYTES = 64 * 2**20
_ELEMENT_BYTES = 4
# Sizes of matrix products. A product of 512 takes a millisecond or two, so that it can end before another process gets
# one of the processors.
_QUICK_SIZES = (512, 1024, 2048)
_SIZES = (*_QUICK_SIZES, 3072, 4096)
_LAUNCHES = 2000
_SCALE = {"TFLOP/s": 1e12, "GB/s": 1e9}
Q = TypeVar("Q", bound=Quantity)


@dataclass(frozen=True)
class CpuCeilings:
    """Hold the burst ceilings of a CPU and how busy it was meanwhile."""

    burst: Ceilings
    calibration: Calibration


def measure_ceilings(facts: DeviceFacts, *, quick: bool, on_step: Callable[[str], None]) -> CpuCeilings:
    """Return this CPU's burst ceilings, each the best of rounds that are spread over the calibration."""
    torch = import_torch()
    source = f"ledger calibrate, torch {torch.__version__}, {cpu_cores()} threads"
    with threads_set(None):
        on_step("preparing matrices and arrays")
        plan: Plan = QUICK if quick else FULL
        probes = [*_products(facts, quick=quick), *_transfers(facts), _launch()]
        rounds = take_rounds(probes, plan, on_step=on_step)
    peaks: dict[Path, Peak | None] = {
        "fp32": _best(Peak, rounds, ("fp32",), "TFLOP/s", source),
        "fp64": _best(Peak, rounds, ("fp64",), "TFLOP/s", source),
    }
    burst = Ceilings(
        peaks=peaks,
        # Whatever moved bytes fastest is the ceiling of moving bytes.
        dram_bandwidth=_best(Quantity, rounds, ("read", "write", "copy"), "GB/s", source),
        dram_read_bandwidth=_best(Quantity, rounds, ("read",), "GB/s", source),
        dram_write_bandwidth=_best(Quantity, rounds, ("write",), "GB/s", source),
        dram_copy_bandwidth=_best(Quantity, rounds, ("copy",), "GB/s", source),
        launch_stream=_launch_time(rounds, source),
    )
    return CpuCeilings(burst, rounds.calibration)


def _products(facts: DeviceFacts, *, quick: bool) -> list[Probe]:
    """Return matrix products of several sizes, which share three buffers a dtype."""
    torch = import_torch()
    wanted = _QUICK_SIZES if quick else _SIZES
    sizes = [size for size in wanted if 3 * (4 + 8) * size**2 <= facts.memory_bytes // 16] or wanted[:1]
    probes = []
    for ceiling, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        buffers = [torch.randn(max(sizes) ** 2, dtype=dtype) for _ in range(3)]
        for size in sizes:
            a, b, out = (buffer[: size**2].view(size, size) for buffer in buffers)

            def call(a=a, b=b, out=out):  # type: ignore[no-untyped-def]  # noqa: ANN001
                torch.matmul(a, b, out=out)

            probes.append(Probe(ceiling, f"matrix product {size}x{size}x{size}", 2.0 * size**3, call))
    return probes


def _transfers(facts: DeviceFacts) -> list[Probe]:
    """Return reads, writes and copies of arrays; triad is among the copies: it reads two arrays and writes one."""
    torch = import_torch()
    wanted = max(_LLC_MULTIPLE * (facts.l2_bytes or 0), _MIN_BUFFER_BYTES)
    size = min(wanted, facts.memory_bytes // 16) // (_ELEMENT_BYTES * 1024) * 1024
    a, b, c = (torch.ones(size) for _ in range(3))
    rows = a.view(-1, 1024)
    vector = torch.ones(1024)
    one_array = float(_ELEMENT_BYTES * size)
    ways: tuple[tuple[str, str, float, Callable[[], object]], ...] = (
        ("read", "sum of one array", one_array, lambda: torch.sum(a)),
        ("read", "dot product of two arrays", 2 * one_array, lambda: torch.dot(a, b)),
        ("read", "matrix times a vector", one_array, lambda: torch.mv(rows, vector)),
        ("write", "fill of one array", one_array, lambda: c.fill_(2.0)),
        ("copy", "copy, bytes read and written", 2 * one_array, lambda: c.copy_(a)),
        ("copy", "triad, bytes read and written", 3 * one_array, lambda: torch.add(a, b, alpha=3.0, out=c)),
    )
    array = f"{one_array / 2**20:.0f} MiB an array"
    return [Probe(ceiling, f"{what}, {array}", moved, call) for ceiling, what, moved, call in ways]


def _launch() -> Probe:
    torch = import_torch()
    a, out = torch.ones(1), torch.ones(1)

    def call() -> None:
        for _ in range(_LAUNCHES):
            torch.add(a, a, out=out)

    return Probe("launch", f"torch.add of one element, {_LAUNCHES} in a row", float(_LAUNCHES), call)


def _best(kind: type[Q], rounds: Rounds, ceilings: tuple[str, ...], unit: str, source: str) -> Q:
    """Return the best rate over some ceilings, with the best of each round and how it was reached."""
    values = tuple(_digits(rate / _SCALE[unit]) for rate in rounds.best_rates(ceilings))
    condition = _condition(rounds, ceilings)
    return kind(value=max(values), unit=unit, kind="measured", condition=condition, source=source, rounds=values)


def _launch_time(rounds: Rounds, source: str) -> Quantity:
    times_us = tuple(_digits(1e6 / rate) for rate in rounds.best_rates(("launch",)))
    condition = _condition(rounds, ("launch",))
    return Quantity(
        value=min(times_us), unit="us", kind="measured", condition=condition, source=source, rounds=times_us
    )


def _condition(rounds: Rounds, ceilings: tuple[str, ...]) -> str:
    clock = cpu_state().sm_clock_mhz
    clock_text = "clock unknown" if clock is None else f"{clock} MHz"
    taken = f"best of {rounds.count} rounds over {rounds.calibration.duration_s:.0f} s"
    return f"{rounds.best_probe(ceilings).what}, {taken}, {clock_text}"[:400]


def _digits(value: float) -> float:
    """Return a value rounded to four significant digits."""
    return float(f"{value:.4g}")
