"""Times a kernel beside what its library offers, round by round in one run on the same cold inputs.

Ours is compared with float64 first. The contestants take turns: one round of each, then the next round of each, so
that a clock that drifts drifts for all. Imports torch, only when called.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ledger.analysis.formatting import usual_order
from ledger.analysis.protocols import protocol_for
from ledger.analysis.stability import steadiness
from ledger.device.facts import cpu_cores, cpu_state, facts_for, import_torch, require_profile
from ledger.errors import MachineError, explained
from ledger.kernel import Kernel, Launch
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.run_cell import release, threads_set
from ledger.measure.timer import CpuRounds, Interval, Parameters, median_interval, parameters_of, set_count
from ledger.records import Case, CeilingKind, Correctness, DeviceFacts, Dtype, Hardware, is_gpu
from ledger.roofline import roof_of, time_lower_bound_s

OURS = "ours"
SEED = hashlib.sha256(b"ledger/bench/1").hexdigest()
Cell = tuple[Mapping[str, int], Dtype]


@dataclass
class Contestant:
    """Hold one way to compute the result, its rounds, and whether it gave the kernel's result (None: cannot tell)."""

    name: str
    rounds: GraphRounds | CpuRounds
    agrees: bool | None
    samples: list[int] = field(default_factory=list)

    @property
    def interval(self) -> Interval:
        """Return the median and its interval, in picoseconds."""
        return median_interval(self.samples)


def bench(
    file: KernelFile,
    cells: Sequence[Cell],
    *,
    hardware: Hardware,
    ceilings: CeilingKind | None = None,
    only: frozenset[str] | None = None,
    on_progress: Callable[[str], None] = lambda _step: None,
) -> dict[str, Any]:
    """Return the bench of a kernel: device, conditions and one row a cell.

    only: names of baselines to run, as rows name them (baseline_names); None runs all of them.
    Units: `_us` in microseconds a call, `floor_us` the time lower bound under the named ceilings.
    Raises: MachineError when this device is not the profile's or the kernel's result is wrong; InputError for a cell
    that the kernel does not offer.
    """
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    cases = [build_case(file.kernel, hardware, shape=shape, dtype=dtype) for shape, dtype in cells]
    rows = []
    with threads_set(None):
        for case in cases:
            on_progress(f"{case.kernel} {_shape_words(case)} {case.dtype}")
            rows.append(_row(file.kernel, case, hardware, facts, ceilings, only))
            release("cuda" if is_gpu(hardware.target) else "cpu")
    return {"device": facts.name, "conditions": _conditions(facts, hardware, file, cases[0]), "rows": rows}


def baseline_names(kernel: Kernel) -> frozenset[str]:
    """Return a kernel's baselines as rows name them: with underscores."""
    return frozenset(name.replace("-", "_") for name in kernel.baselines)


def overlap_words(case: Case) -> str | None:
    """Say that a kernel's calls overlap one another, where its configuration makes them; None where they do not."""
    if not case.config.get("pdl"):
        return None
    return (
        f"{case.kernel} asks for programmatic dependent launch: a call begins while the call before it ends; "
        "the library's kernels do not"
    )


def _shape_words(case: Case) -> str:
    return ",".join(f"{key}={size}" for key, size in usual_order(case.shape))


def _conditions(facts: DeviceFacts, hardware: Hardware, file: KernelFile, case: Case) -> dict[str, Any]:
    protocol = protocol_for(case.implementation)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "driver": facts.driver,
        "kernel_sha256": {file.kernel.name: file.sha256},
        "order": "contestants interleaved round by round in one run on the same input sets",
        "inputs": f"cold: rotation over input sets that exceed the last cache, as {protocol.name}",
        "outputs": "cold: one result for each input set; a baseline that returns its own keeps it until its next call",
        "overlap": overlap_words(case),
        "statistic": "median of rounds, 95% bootstrap interval",
        "fp32_products": _fp32_products(),
        "software": dict(facts.software),
        "threads": None if is_gpu(hardware.target) else cpu_cores(),
    }


def _fp32_products() -> str:
    """Return what the library's fp32 products may use; torch rounds their operands to tf32 only when told to."""
    precision = import_torch().get_float32_matmul_precision()
    return f"torch's precision {precision}: {'tf32 off' if precision == 'highest' else 'tf32 or bf16 allowed'}"


def _row(
    kernel: Kernel,
    case: Case,
    hardware: Hardware,
    facts: DeviceFacts,
    ceilings: CeilingKind | None,
    only: frozenset[str] | None,
) -> dict[str, Any]:
    lined = line_up(kernel, case, facts, device="cuda" if is_gpu(hardware.target) else "cpu", only=only)
    contestants = lined.contestants
    interleave(contestants, lined.parameters)
    times = {one.name: one.interval.median / 1e6 for one in contestants}
    roof = roof_of(hardware, kernel.path(case.dtype, hardware.target, case.implementation), ceilings)
    floor_us = 1e6 * time_lower_bound_s(kernel.work(case.shape, case.dtype), roof)
    compiled = [us for name, us in times.items() if name.startswith("torch_compile")]
    same = {one.name: times[one.name] for one in contestants if one.name != OURS and one.agrees is not False}
    baseline = min(same, key=lambda name: same[name], default=None)
    ours = next(one for one in contestants if one.name == OURS)
    steady = steadiness(ours.samples)
    return {
        "kernel": kernel.name,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        "ours_us": _digits(times[OURS]),
        "ours_low_us": _digits(ours.interval.low / 1e6),
        "ours_high_us": _digits(ours.interval.high / 1e6),
        "torch_compile_us": _digits(min(compiled, default=None)),
        "torch_eager_us": _digits(times.get("torch_eager")),
        "torch_matmul_us": _digits(times.get("torch_matmul")),
        "baseline": baseline,
        "baseline_us": None if baseline is None else _digits(same[baseline]),
        "floor_us": _digits(floor_us),
        "ceilings": roof.ceilings,
        "pct_of_roof": _digits(100 * floor_us / times[OURS]),
        "rel_error": float(lined.correctness.relative_error),
        "input_sets": lined.input_sets,
        "sm_clock_mhz": _clock(ours),
        "outliers": len(steady.outliers),
        "drift_pct": round(100 * steady.drift, 2),
        "all_us": {name: _digits(us) for name, us in times.items()},
        "missing": lined.missing,
    }


@dataclass(frozen=True)
class LineUp:
    """Hold what is ready to be timed for one cell, and why a baseline is not there; ours was compared with float64."""

    parameters: Parameters
    contestants: list[Contestant]
    missing: dict[str, str]
    correctness: Correctness
    input_sets: int


def line_up(kernel: Kernel, case: Case, facts: DeviceFacts, *, device: str, only: frozenset[str] | None) -> LineUp:
    """Make the inputs of a cell and prepare ours and the baselines in `only` (None: all) on them.

    Raises: MachineError when ours is wrong.
    """
    parameters = parameters_of(protocol_for(case.implementation))
    sets = cold_sets(kernel, case, facts, parameters, device=device)
    correctness, contestants, missing = _contestants(kernel, case, sets, device=device, only=only)
    return LineUp(parameters, contestants, missing, correctness, len(sets))


def cold_sets(kernel: Kernel, case: Case, facts: DeviceFacts, parameters: Parameters, *, device: str) -> list[InputSet]:
    """Return as many input sets of a case as its timing protocol rotates over."""
    count = set_count(bytes_per_set(kernel.operation, case.shape, case.dtype), facts.l2_bytes, parameters)
    return list(
        input_sets(
            kernel.operation,
            case.shape,
            case.dtype,
            seal=SEED,
            cell=f"{case.kernel}-{_shape_words(case)}-{case.dtype}",
            run=0,
            anchor=None,
            count=count,
            device=device,
        )
    )


def open_row(
    kernel: Kernel, case: Case, facts: DeviceFacts, *, device: str
) -> tuple[Parameters, tuple[Contestant, Contestant]]:
    """Return two contestants that are both ours, proved right, with the parameters that they are timed by."""
    lined = line_up(kernel, case, facts, device=device, only=frozenset())
    (ours,) = lined.contestants
    again = Contestant("ours again", _rounds(ours.rounds.launches, device), ours.agrees)
    return lined.parameters, (ours, again)


def _clock(contestant: Contestant) -> int | None:
    """Return the median clock under a contestant's load."""
    if isinstance(contestant.rounds, CpuRounds):
        return cpu_state().sm_clock_mhz
    clocks = sorted(state.sm_clock_mhz for state in contestant.rounds.states if state.sm_clock_mhz is not None)
    return clocks[len(clocks) // 2] if clocks else None


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _contestants(
    kernel: Kernel, case: Case, sets: Sequence[InputSet], *, device: str, only: frozenset[str] | None
) -> tuple[Correctness, list[Contestant], dict[str, str]]:
    """Return ours, proved right, with the baselines that run here, and why the others do not."""
    tolerance = kernel.tolerances[case.dtype]
    reference = kernel.reference(sets[0].inputs)
    ways = {OURS: kernel.implementations[case.implementation]}
    ways.update({name.replace("-", "_"): prepare for name, prepare in kernel.baselines.items()})
    contestants: list[Contestant] = []
    missing: dict[str, str] = {}
    ours: Correctness | None = None
    for name, prepare in ways.items():
        if name != OURS and only is not None and name not in only:
            continue
        try:
            launches = [prepare(one.inputs, one.out, case.config) for one in sets]
            sets[0].out.fill_(float("nan"))
            launches[0]()
            untouched = bool(sets[0].out.isnan().all())
            found = compare(sets[0].out, reference, tolerance, name=f"{kernel.operation.name} in float64")
            if name == OURS:
                ours = found
                if not found.passed:
                    raise MachineError(f"{kernel.name} {_shape_words(case)} {case.dtype}: {explain_failure(found)}")
            rounds = _rounds(launches, device)
        # A library may raise anything where it does not offer a baseline; the row says what it was.
        except Exception as error:
            if name == OURS:
                raise
            missing[name] = explained(error, 300)
            continue
        # A compiled baseline returns its result instead of writing it: there is nothing to compare.
        contestants.append(Contestant(name, rounds, None if untouched else found.passed))
    assert ours is not None
    return ours, contestants, missing


def _rounds(launches: Sequence[Launch], device: str) -> GraphRounds | CpuRounds:
    return GraphRounds(launches) if device == "cuda" else CpuRounds(launches)


def interleave(contestants: Sequence[Contestant], parameters: Parameters) -> None:
    """Take one round of each in turn until every interval is narrow enough, or the budget or the rounds end."""
    for one in contestants:
        one.rounds.take(parameters.warmup_rounds)
    started = time.monotonic()
    budget_s = parameters.budget_ms * len(contestants) / 1e3
    while True:
        for one in contestants:
            one.samples += one.rounds.take(1)
        done = len(contestants[0].samples)
        if done < parameters.min_rounds or done % 5:
            continue
        wide = any(one.interval.half_width_ppm > parameters.ci_target_ppm for one in contestants)
        if not wide or done >= parameters.max_rounds or time.monotonic() - started > budget_s:
            return
