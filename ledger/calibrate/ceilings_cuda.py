"""Measures a GPU's ceilings: DRAM, L2, shared memory and launches. Imports torch, only when called.

Every bandwidth counts the bytes that its operation names, and is the best of the ways that are known: probes, library
calls and kernels of this package. The arithmetic ceilings are in peaks_cuda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from ledger.calibrate.kernel_candidates import kernel_candidates
from ledger.calibrate.peaks_cuda import burst_peaks, sustained_peaks
from ledger.calibrate.rates import Rate, burst, state_text, sustained
from ledger.device.facts import cuda_state, import_torch
from ledger.errors import MachineError, explained
from ledger.kernel import Launch
from ledger.measure.cuda_graphs import empty_node_ps
from ledger.measure.run_cell import release
from ledger.records import Ceilings, DeviceFacts, Dtype, Hardware, Quantity

OnStep = Callable[[str], None]

_DRAM_BYTES = 2 * 2**30
# From 8 MiB on: in smaller sets an SM has the same block in flight twice, and it is fetched once.
_L2_MIB = (8, 16, 24, 32, 48)
# Probes of DRAM reads: programs an SM, and whether each reads a stream of its own.
_READERS = ((8, False), (2, True), (4, True), (8, True))
# Kernels that move more than an L2 can keep from one input set to the next, by what they move.
_MOVERS: tuple[tuple[str, str, dict[str, int], Dtype], ...] = (
    ("read", "decode_attention", {"B": 64, "HQ": 32, "HKV": 8, "S": 8192, "D": 128}, "fp16"),
    ("read", "gemv", {"N": 57344, "K": 16384}, "fp16"),
    ("triad", "vector_add", {"N": 268435456}, "fp32"),
)


def _bandwidth(rate: Rate, source: str) -> Quantity:
    value = float(f"{rate.per_s / 1e9:.4g}")
    return Quantity(value=value, unit="GB/s", kind="measured", condition=rate.condition[:400], source=source)


def dram_ways(facts: DeviceFacts) -> dict[str, tuple[Launch, int]]:
    """Return ways to move DRAM, each with the bytes that it names: read, write, copy and triad."""
    torch = import_torch()
    from ledger.device.probe_kernels import READ_BLOCK, read_launch

    most = max(programs for programs, _ in _READERS) * facts.sms
    size = min(max(_DRAM_BYTES, 8 * (facts.l2_bytes or 0)), facts.memory_bytes // 16) // 4
    size -= size % (READ_BLOCK * most)
    a, b, c = (torch.randn(size, device="cuda") for _ in range(3))
    out = torch.empty(most * READ_BLOCK, device="cuda")
    one = 4 * size
    reads = {}
    for each, streams in _READERS:
        programs = each * facts.sms
        launch = read_launch(a, out, programs=programs, rounds=size // (READ_BLOCK * programs), streams=streams)
        what = f"read by {'a stream a program' if streams else 'a loop of loads'}, {each} programs an SM"
        reads[what] = (launch, one)
    return {
        **reads,
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


def dram_rates(hardware: Hardware, facts: DeviceFacts, *, quick: bool, on_step: OnStep) -> tuple[DramRates, list[str]]:
    """Return DRAM bandwidth in bursts and, unless quick, under load, with a line about each; frees its buffers."""
    on_step("DRAM")
    ways = dram_ways(facts)
    rates = {
        what: burst([launch], moved, f"{what}, {moved / 2**30:.3g} GiB a call")
        for what, (launch, moved) in ways.items()
    }
    sustained_read = None
    if not quick:
        on_step("DRAM sustained")
        best = max((what for what in rates if what.startswith("read")), key=lambda what: rates[what].per_s)
        launch, moved = ways[best]
        sustained_read = sustained([launch], moved, best, seconds=2.0)
        del launch
    del ways
    release("cuda")
    failed = [] if quick else _move(hardware, facts, rates)
    lines = [f"DRAM {_line(rate, ':')}"[:400] for rate in rates.values()] + failed
    for line in lines:
        on_step(line)
    return DramRates(rates, sustained_read), lines


def _move(hardware: Hardware, facts: DeviceFacts, rates: dict[str, Rate]) -> list[str]:
    """Add the rates of this package's kernels, and return why some were not measured."""
    failed = []
    for kind, name, shape, dtype in _MOVERS:
        try:
            (one,) = kernel_candidates(name, shape, dtype, hardware=hardware, facts=facts, baselines=False)
            rates[f"{kind} by {name}"] = burst(one.launches, one.work.bytes, f"{kind} by {one.name}")
            del one
        # Compilers and drivers raise errors of any type; the profile's notes say which.
        except Exception as error:  # noqa: BLE001
            failed.append(f"DRAM {kind} by {name}: not measured: {explained(error, 200)}"[:400])
        release("cuda")
    return failed


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
        rates.append(burst([read_launch(x, out, programs=programs, rounds=rounds)], moved, f"read of {mib} MiB in L2"))
    return rates


def smem_quantity(facts: DeviceFacts, source: str) -> Quantity:
    """Return shared-memory read bandwidth in bytes per clock and SM, with all SMs active."""
    torch = import_torch()
    from ledger.device.probe_kernels import SMEM_BYTES_PER_ROUND, SMEM_THREADS, smem_launch

    programs, rounds = 4 * facts.sms, 2000
    out = torch.empty(programs * SMEM_THREADS, device="cuda", dtype=torch.int32)
    moved = programs * SMEM_THREADS * SMEM_BYTES_PER_ROUND * rounds
    rate = burst([smem_launch(out, programs=programs, rounds=rounds)], moved, "conflict-free 16-byte loads")
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
    peaks, lines = burst_peaks(hardware, facts, source, quick=quick, on_step=on_step)
    dram, said = dram_rates(hardware, facts, quick=quick, on_step=on_step)
    l2 = l2_rates(facts, on_step=on_step)
    lines += [*said, *(f"L2 {_line(rate, ':')}"[:400] for rate in l2)]
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
        long_peaks = sustained_peaks(hardware, facts, source, on_step=on_step)
        found["sustained"] = Ceilings(peaks=long_peaks, dram_bandwidth=_bandwidth(dram.sustained_read, source))
    return found, lines


def _line(rate: Rate, separator: str) -> str:
    return f"{rate.per_s / 1e9:.4g} GB/s{separator} {rate.condition}"
