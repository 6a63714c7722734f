"""Measures a GPU's ceilings: DRAM, L2, shared memory and launches. Imports torch, only when called.

Every bandwidth counts the bytes that its operation names. The arithmetic ceilings are in peaks_cuda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from ledger.calibrate.peaks_cuda import burst_peaks, sustained_peaks
from ledger.calibrate.rates import Rate, burst, state_text, sustained
from ledger.device.facts import cuda_state, import_torch
from ledger.errors import MachineError
from ledger.kernel import Launch
from ledger.measure.cuda_graphs import empty_node_ps
from ledger.measure.run_cell import release
from ledger.records import Ceilings, DeviceFacts, Hardware, Quantity

OnStep = Callable[[str], None]

_DRAM_BYTES = 2 * 2**30
# From 8 MiB on: in smaller sets an SM has the same block in flight twice, and it is fetched once.
_L2_MIB = (8, 16, 24, 32, 48)


def _bandwidth(rate: Rate, source: str) -> Quantity:
    value = float(f"{rate.per_s / 1e9:.4g}")
    return Quantity(value=value, unit="GB/s", kind="measured", condition=rate.condition[:400], source=source)


def dram_ways(facts: DeviceFacts) -> dict[str, tuple[Launch, int]]:
    """Return ways to move DRAM, each with the bytes that it names: read, write, copy and triad."""
    torch = import_torch()
    from ledger.device.probe_kernels import READ_BLOCK, read_launch

    size = min(max(_DRAM_BYTES, 8 * (facts.l2_bytes or 0)), facts.memory_bytes // 16) // 4
    programs = 8 * facts.sms
    rounds = size // (READ_BLOCK * programs)
    size = rounds * READ_BLOCK * programs
    a, b, c = (torch.randn(size, device="cuda") for _ in range(3))
    out = torch.empty(programs * READ_BLOCK, device="cuda")
    one = 4 * size
    return {
        "read by a loop of loads": (read_launch(a, out, programs=programs, rounds=rounds), one),
        "read by sum": (lambda: torch.sum(a), one),
        "write by fill": (lambda: c.fill_(2.0), one),
        "copy, bytes read and written": (lambda: c.copy_(a), 2 * one),
        "triad, bytes read and written": (lambda: torch.add(a, b, alpha=3.0, out=c), 3 * one),
    }


@dataclass(frozen=True)
class DramRates:
    """Hold the DRAM bandwidths by what moved the bytes; sustained_read: None in a quick calibration."""

    burst: Mapping[str, Rate]
    sustained_read: Rate | None

    def best(self, *kinds: str) -> Rate:
        """Return the highest burst rate of the kinds: read, write, copy, triad."""
        return max((rate for what, rate in self.burst.items() if what.startswith(kinds)), key=lambda rate: rate.per_s)


def dram_rates(facts: DeviceFacts, *, quick: bool, on_step: OnStep) -> DramRates:
    """Return DRAM bandwidth in bursts and, unless quick, under load; frees its buffers."""
    on_step("DRAM")
    ways = dram_ways(facts)
    rates = {
        what: burst(launch, moved, f"{what}, {moved / 2**30:.3g} GiB a call", calls=2)
        for what, (launch, moved) in ways.items()
    }
    sustained_read = None
    if not quick:
        on_step("DRAM sustained")
        launch, moved = ways["read by a loop of loads"]
        sustained_read = sustained(launch, moved, "read by a loop of loads", seconds=2.0)
        del launch
    del ways
    release("cuda")
    return DramRates(rates, sustained_read)


def l2_rates(facts: DeviceFacts, *, on_step: OnStep) -> list[Rate]:
    """Return L2 read bandwidth for working sets up to the cache's size; each is read many times, bypassing L1.

    Bytes are those that the SMs request; Nsight Compute counted 5% fewer out of L2 at 16 MiB on an H200.
    """
    torch = import_torch()
    from ledger.device.probe_kernels import READ_BLOCK, read_launch

    programs, rounds = 8 * facts.sms, 512
    out = torch.empty(programs * READ_BLOCK, device="cuda")
    rates = []
    for mib in _L2_MIB:
        if mib * 2**20 > (facts.l2_bytes or 0):
            continue
        on_step(f"L2 read of {mib} MiB")
        x = torch.randn(mib * 2**18, device="cuda")
        moved = 4 * READ_BLOCK * programs * rounds
        rates.append(burst(read_launch(x, out, programs=programs, rounds=rounds), moved, f"read of {mib} MiB in L2"))
    return rates


def smem_quantity(facts: DeviceFacts, source: str) -> Quantity:
    """Return shared-memory read bandwidth in bytes per clock and SM, with all SMs active."""
    torch = import_torch()
    from ledger.device.probe_kernels import SMEM_BYTES_PER_ROUND, SMEM_THREADS, smem_launch

    programs, rounds = 4 * facts.sms, 2000
    out = torch.empty(programs * SMEM_THREADS, device="cuda", dtype=torch.int32)
    moved = programs * SMEM_THREADS * SMEM_BYTES_PER_ROUND * rounds
    rate = burst(smem_launch(out, programs=programs, rounds=rounds), moved, "conflict-free 16-byte loads")
    clock = rate.state.sm_clock_mhz
    if clock is None:
        raise MachineError("SM clock is unknown; expected it, to express shared-memory bandwidth in bytes a clock")
    per_clock = rate.per_s / (clock * 1e6 * facts.sms)
    return Quantity(
        value=float(f"{per_clock:.4g}"),
        unit="B/clk/SM",
        kind="measured",
        condition=f"{rate.condition}, {rate.per_s / 1e12:.4g} TB/s in all"[:400],
        source=source,
    )


# Launches


def launch_quantities(source: str) -> tuple[Quantity, Quantity]:
    """Return the cost of an empty kernel on a stream and as a graph node."""
    torch = import_torch()
    calls = 1000
    times = []
    for _ in range(9):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for _ in range(calls):
            torch.cuda._sleep(0)
        last.record()
        torch.cuda.synchronize()
        times.append(1e3 * first.elapsed_time(last) / calls)
    ways = (
        (median(times), f"torch.cuda._sleep(0), median of 9 runs of {calls} in a row"),
        (empty_node_ps() / 1e6, "empty Triton kernel among 1000 in one graph, median of 25 replays"),
    )
    stream, node = (
        Quantity(
            value=float(f"{us:.4g}"),
            unit="us",
            kind="measured",
            condition=f"{what}, {state_text(cuda_state())}",
            source=source,
        )
        for us, what in ways
    )
    return stream, node


def measure_ceilings(
    hardware: Hardware, facts: DeviceFacts, *, quick: bool, on_step: OnStep
) -> tuple[dict[str, Ceilings], list[str]]:
    """Return the burst ceilings, the sustained ones unless quick, and lines for the profile's notes."""
    torch = import_torch()
    source = f"ledger calibrate, torch {torch.__version__}, CUDA {torch.version.cuda}, driver {facts.driver}"
    peaks, lines = burst_peaks(hardware, source, quick=quick, on_step=on_step)
    dram = dram_rates(facts, quick=quick, on_step=on_step)
    l2 = l2_rates(facts, on_step=on_step)
    lines += [f"DRAM {what}: {_line(rate, ',')}"[:400] for what, rate in dram.burst.items()]
    lines += [f"L2 {_line(rate, ':')}"[:400] for rate in l2]
    on_step("shared memory and launches")
    smem = smem_quantity(facts, source)
    stream, node = launch_quantities(source)
    found = {
        "burst": Ceilings(
            peaks=peaks,
            dram_bandwidth=_bandwidth(dram.best("read"), source),
            dram_read_bandwidth=_bandwidth(dram.best("read"), source),
            dram_write_bandwidth=_bandwidth(dram.best("write"), source),
            dram_copy_bandwidth=_bandwidth(dram.best("copy", "triad"), source),
            l2_bandwidth=_bandwidth(max(l2, key=lambda rate: rate.per_s), source) if l2 else None,
            smem_bandwidth=smem,
            launch_stream=stream,
            launch_graph_node=node,
        )
    }
    if dram.sustained_read is not None:
        long_peaks = sustained_peaks(hardware, source, on_step=on_step)
        found["sustained"] = Ceilings(peaks=long_peaks, dram_bandwidth=_bandwidth(dram.sustained_read, source))
    return found, lines


def _line(rate: Rate, separator: str) -> str:
    return f"{rate.per_s / 1e9:.4g} GB/s{separator} {rate.condition}"
