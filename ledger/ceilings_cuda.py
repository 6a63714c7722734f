"""Measures a GPU's ceilings: GEMMs of each dtype, DRAM, L2, shared memory, launches. Imports torch, only when called.

Calls are nodes of CUDA graphs, so launch gaps do not count. Data are random: zeros run faster. Burst is the best short
round; sustained is the rate at the end of seconds of unbroken load, when power has set the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ledger.cell import release
from ledger.device import cuda_state, import_torch
from ledger.errors import MachineError
from ledger.graphs import capture, empty_node_ps, replay_ps, state_under, warm_up
from ledger.kernel import Launch
from ledger.records import Ceilings, DeviceFacts, DeviceState, Hardware, Path, Peak, Quantity

OnStep = Callable[[str], None]
Shape = tuple[int, int, int]

NAMED_SHAPE: Shape = (4096, 4096, 4096)
_SHAPES: tuple[Shape, ...] = (NAMED_SHAPE, (8192, 8192, 8192), (6144, 6144, 6144), (8192, 4096, 16384))
_SUSTAINED_SHAPE: Shape = (8192, 8192, 8192)
_SUSTAINED_S = 5.0
_DRAM_BYTES = 2 * 2**30
_L2_MIB = (4, 8, 16, 24, 32, 48)


@dataclass(frozen=True)
class Rate:
    """Hold the rate of one kind of call and the state it was read in. Units: operations or bytes per second."""

    per_s: float
    condition: str
    state: DeviceState


def words(state: DeviceState) -> str:
    """Return a device's state as the words of a condition."""
    clock = "clock unknown" if state.sm_clock_mhz is None else f"SM {state.sm_clock_mhz} MHz"
    power = "power unknown" if state.power_mw is None else f"{state.power_mw / 1000:.0f} W"
    heat = "temperature unknown" if state.temperature_c is None else f"{state.temperature_c} C"
    return ", ".join([clock, power, heat, *state.throttle])


def burst(launch: Launch, amount: float, what: str, *, calls: int = 4, rounds: int = 8) -> Rate:
    """Return the rate of the best of several short rounds; `amount` is what one call does."""
    warm_up([launch])
    graph = capture([launch] * calls)
    best = min(replay_ps(graph, rounds, calls=calls))
    state = state_under(graph)
    return Rate(amount / (best * 1e-12), f"{what}, best of {rounds} rounds of {calls}, {words(state)}", state)


def sustained(launch: Launch, amount: float, what: str, *, seconds: float) -> Rate:
    """Return the median rate over the last third of `seconds` of unbroken load."""
    warm_up([launch])
    one_ps = min(replay_ps(capture([launch]), 3, calls=1))
    calls = max(1, round(0.05e12 / one_ps))
    graph = capture([launch] * calls)
    started = time.monotonic()
    times: list[tuple[float, int]] = []
    while (at := time.monotonic() - started) < seconds:
        times += [(at, ps) for ps in replay_ps(graph, 4, calls=calls)]
    state = state_under(graph)
    late = sorted(ps for at, ps in times if at > 2 * seconds / 3) or [times[-1][1]]
    return Rate(
        amount / (late[len(late) // 2] * 1e-12), f"{what}, after {seconds:.0f} s of load, {words(state)}", state
    )


# Matrix products


def gemm_launch(path: Path, shape: Shape) -> Launch:
    """Return the library's matrix product on an instruction path. Raises: MachineError for a path it has none for."""
    torch = import_torch()
    m, n, k = shape

    def random(rows: int, columns: int, dtype: Any) -> Any:
        return torch.randn(rows, columns, device="cuda", dtype=torch.float32).to(dtype)

    if path == "fp8_tensor":
        kind = torch.float8_e4m3fn
        a, b, one = random(m, k, kind), random(n, k, kind).t(), torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
    if path == "int8_tensor":
        a, b = (torch.randint(-128, 128, size, device="cuda", dtype=torch.int8) for size in ((m, k), (n, k)))
        b = b.t()
        return lambda: torch._int_mm(a, b)
    types = {
        "fp64": torch.float64,
        "fp64_tensor": torch.float64,
        "fp32": torch.float32,
        "tf32_tensor": torch.float32,
        "fp16_tensor": torch.float16,
        "bf16_tensor": torch.bfloat16,
    }
    if path not in types:
        raise MachineError(f"path {path} has no library product to calibrate with; expected one of: {', '.join(types)}")
    a, b = random(m, k, types[path]), random(k, n, types[path])
    out = torch.empty(m, n, device="cuda", dtype=types[path])
    wanted = path == "tf32_tensor"

    def launch() -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = wanted
        try:
            torch.matmul(a, b, out=out)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return launch


def _paths(hardware: Hardware) -> Iterator[Path]:
    """Yield the paths that the data sheet has and a library product takes there.

    Where fp64 tensor cores exist the library uses them, so the CUDA cores' fp64 is not calibrated; nor is fp16 outside
    tensor cores.
    """
    known = hardware.ceilings["datasheet"].peaks if "datasheet" in hardware.ceilings else {}
    have = {path for path, peak in known.items() if peak is not None}
    for path in (
        "fp64_tensor",
        "fp64",
        "fp32",
        "tf32_tensor",
        "fp16_tensor",
        "bf16_tensor",
        "fp8_tensor",
        "int8_tensor",
    ):
        if path in have and not (path == "fp64" and "fp64_tensor" in have):
            yield path


def _operations(shape: Shape) -> float:
    return 2.0 * shape[0] * shape[1] * shape[2]


def _said(shape: Shape) -> str:
    return "GEMM {}x{}x{}".format(*shape)


def _peak(path: Path, rate: Rate, source: str) -> Peak:
    return Peak(
        value=float(f"{rate.per_s / 1e12:.4g}"),
        unit="TOP/s" if path == "int8_tensor" else "TFLOP/s",
        kind="measured",
        condition=rate.condition[:400],
        source=source,
    )


def burst_peaks(
    hardware: Hardware, source: str, *, quick: bool, on_step: OnStep
) -> tuple[dict[Path, Peak | None], list[str]]:
    """Return the best product of each path over several shapes, and a line about each at NAMED_SHAPE."""
    peaks: dict[Path, Peak | None] = {}
    lines: list[str] = []
    for path in _paths(hardware):
        best: Rate | None = None
        for shape in _SHAPES[:2] if quick else _SHAPES:
            on_step(f"{path} {_said(shape)}")
            try:
                rate = burst(gemm_launch(path, shape), _operations(shape), _said(shape))
            except RuntimeError as error:
                lines.append(f"{path} {_said(shape)}: not measured: {str(error).splitlines()[0][:200]}")
                continue
            finally:
                release("cuda")
            if shape == NAMED_SHAPE:
                lines.append(f"{path} {rate.per_s / 1e12:.4g} T/s: {rate.condition}"[:400])
            if best is None or rate.per_s > best.per_s:
                best = rate
        if best is not None:
            peaks[path] = _peak(path, best, source)
    return peaks, lines


def sustained_peaks(hardware: Hardware, source: str, *, on_step: OnStep) -> dict[Path, Peak | None]:
    """Return fp16 and bf16 products under seconds of load."""
    peaks: dict[Path, Peak | None] = {}
    for path in _paths(hardware):
        if path in ("fp16_tensor", "bf16_tensor"):
            on_step(f"{path} sustained")
            launch = gemm_launch(path, _SUSTAINED_SHAPE)
            rate = sustained(launch, _operations(_SUSTAINED_SHAPE), _said(_SUSTAINED_SHAPE), seconds=_SUSTAINED_S)
            peaks[path] = _peak(path, rate, source)
            release("cuda")
    return peaks


# Memory


def _bandwidth(rate: Rate, source: str) -> Quantity:
    value = float(f"{rate.per_s / 1e9:.4g}")
    return Quantity(value=value, unit="GB/s", kind="measured", condition=rate.condition[:400], source=source)


def dram_ways(facts: DeviceFacts) -> dict[str, tuple[Launch, int]]:
    """Return ways to move DRAM, each with the bytes that it names: read, write, copy and triad."""
    torch = import_torch()
    from ledger.probes import READ_BLOCK, read_launch

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


def l2_rates(facts: DeviceFacts, *, on_step: OnStep) -> list[Rate]:
    """Return L2 read bandwidth for working sets up to the cache's size; each is read many times around L1."""
    torch = import_torch()
    from ledger.probes import READ_BLOCK, read_launch

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
    """Return shared-memory read bandwidth in bytes a clock and SM, all SMs at work."""
    torch = import_torch()
    from ledger.probes import SMEM_BYTES_PER_ROUND, SMEM_THREADS, smem_launch

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
        (sorted(times)[len(times) // 2], f"torch.cuda._sleep(0), median of 9 runs of {calls} in a row"),
        (empty_node_ps() / 1e6, "empty Triton kernel among 1000 in one graph, median of 25 replays"),
    )
    stream, node = (
        Quantity(
            value=float(f"{us:.4g}"),
            unit="us",
            kind="measured",
            condition=f"{what}, {words(cuda_state())}",
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
    rates = {}
    on_step("DRAM")
    ways = dram_ways(facts)
    for what, (launch, moved) in ways.items():
        rates[what] = burst(launch, moved, f"{what}, {moved / 2**30:.3g} GiB a call", calls=2)
    read = max((rate for what, rate in rates.items() if what.startswith("read")), key=lambda rate: rate.per_s)
    lines += [f"DRAM {what}: {rate.per_s / 1e9:.4g} GB/s, {rate.condition}"[:400] for what, rate in rates.items()]
    found: dict[str, Ceilings] = {}
    if not quick:
        on_step("DRAM sustained")
        launch, moved = ways["read by a loop of loads"]
        long = sustained(launch, moved, "read by a loop of loads", seconds=2.0)
    del ways, launch
    release("cuda")
    l2 = l2_rates(facts, on_step=on_step)
    lines += [f"L2 {rate.per_s / 1e9:.4g} GB/s: {rate.condition}"[:400] for rate in l2]
    on_step("shared memory and launches")
    smem = smem_quantity(facts, source)
    stream, node = launch_quantities(source)
    copies = (rates["copy, bytes read and written"], rates["triad, bytes read and written"])
    found["burst"] = Ceilings(
        peaks=peaks,
        dram_bandwidth=_bandwidth(read, source),
        dram_read_bandwidth=_bandwidth(read, source),
        dram_write_bandwidth=_bandwidth(rates["write by fill"], source),
        dram_copy_bandwidth=_bandwidth(max(copies, key=lambda rate: rate.per_s), source),
        l2_bandwidth=_bandwidth(max(l2, key=lambda rate: rate.per_s), source) if l2 else None,
        smem_bandwidth=smem,
        launch_stream=stream,
        launch_graph_node=node,
    )
    if not quick:
        found["sustained"] = Ceilings(
            peaks=sustained_peaks(hardware, source, on_step=on_step), dram_bandwidth=_bandwidth(long, source)
        )
    return found, lines
