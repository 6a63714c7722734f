"""Times a kernel, its library baselines and installed peers, interleaved in one run on the same cold inputs.

Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ledger.analysis.protocols import interleaved_protocol_for
from ledger.analysis.stability import steadiness
from ledger.device.facts import cpu_cores, facts_for, import_torch, require_profile
from ledger.kernel import Kernel
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.contestants import (
    OURS,
    SETTLE_MS,
    Cell,
    Context,
    LineUp,
    contexts_on,
    interleave,
    line_up,
    shape_list,
)
from ledger.measure.input_copies import COPIES
from ledger.measure.launch_contexts import BETWEEN_ELEMENTS
from ledger.measure.peers import Peer, peers_of
from ledger.measure.run_cell import release, threads_set
from ledger.measure.timer import Interval
from ledger.records import Case, CeilingKind, DeviceFacts, Hardware, is_gpu
from ledger.roofline import roof_of, time_lower_bound_s

CONTEXTS: Mapping[Context, str] = {
    "chain": f"between elementwise additions of {BETWEEN_ELEMENTS} fp32, whose own time is subtracted",
    "back-to-back": "after the same kernel on the next inputs",
    "idle": "one call on an idle stream, launch by the host included",
}


@dataclass(frozen=True)
class Row:
    """Hold the times of one cell. Units: microseconds a call; the interval of ours in picoseconds.

    context: the headline. contexts_us: by context and contestant. comparable: the baselines whose result is not known
    to differ from the reference's. releases: of the peers, whose results are known not to differ.
    floor_us: the time lower bound under the named ceilings. drift: of ours over the run, as a share.
    """

    case: Case
    context: Context
    contexts_us: Mapping[Context, Mapping[str, float]]
    ours: Interval
    comparable: tuple[str, ...]
    floor_us: float
    ceilings: CeilingKind
    relative_error: float
    input_sets: int
    sm_clock_mhz: int | None
    outliers: int
    drift: float
    missing: Mapping[str, str]
    releases: Mapping[str, str]

    @property
    def times_us(self) -> Mapping[str, float]:
        """Return the times of the headline context."""
        return self.contexts_us[self.context]

    @property
    def baseline(self) -> str | None:
        """Return the fastest comparable baseline, None without one."""
        return min(self.comparable, key=lambda name: self.times_us[name], default=None)

    @property
    def fastest(self) -> str:
        """Return the fastest of ours, the comparable baselines and the peers; ours where two are equal."""
        return min((OURS, *self.comparable, *self.releases), key=lambda name: self.times_us[name])

    def document(self) -> dict[str, Any]:
        """Return the row as it is written, to five significant digits."""
        ours_us, baseline = self.times_us[OURS], self.baseline
        compiled = [us for name, us in self.times_us.items() if name.startswith("torch_compile")]
        return {
            "kernel": self.case.kernel,
            "shape": dict(self.case.shape),
            "dtype": self.case.dtype,
            "context": self.context,
            "ours_us": _digits(ours_us),
            "ours_low_us": _digits(self.ours.low / 1e6),
            "ours_high_us": _digits(self.ours.high / 1e6),
            "torch_compile_us": _digits(min(compiled, default=None)),
            "torch_eager_us": _digits(self.times_us.get("torch_eager")),
            "torch_matmul_us": _digits(self.times_us.get("torch_matmul")),
            "baseline": baseline,
            "baseline_us": None if baseline is None else _digits(self.times_us[baseline]),
            "fastest": self.fastest,
            "ratio_to_fastest": _digits(self.times_us[self.fastest] / ours_us),
            "floor_us": _digits(self.floor_us),
            "ceilings": self.ceilings,
            "pct_of_roof": _digits(100 * self.floor_us / ours_us),
            "rel_error": self.relative_error,
            "input_sets": self.input_sets,
            "sm_clock_mhz": self.sm_clock_mhz,
            "outliers": self.outliers,
            "drift_pct": round(100 * self.drift, 2),
            "all_us": {name: _digits(us) for name, us in self.times_us.items()},
            "contexts_us": {
                context: {name: _digits(us) for name, us in times.items()}
                for context, times in self.contexts_us.items()
            },
            "missing": dict(self.missing),
            "peers": dict(self.releases),
        }


@dataclass(frozen=True)
class Conditions:
    """Hold the conditions of a bench. kernel_sha256: by kernel. threads: None on a GPU."""

    date: str
    driver: str | None
    kernel_sha256: Mapping[str, str]
    protocol: str
    overlap: str | None
    fp32_products: str
    software: Mapping[str, str]
    threads: int | None

    def document(self) -> dict[str, Any]:
        """Return the conditions as they are written."""
        copies = f"; {COPIES.text}" if self.threads is None else ""
        return {
            "date": self.date,
            "driver": self.driver,
            "kernel_sha256": dict(self.kernel_sha256),
            "contexts": CONTEXTS if self.threads is None else None,
            "order": (
                f"contestants take turns in one run on the same input sets; in a chain and back to back {SETTLE_MS} ms "
                "of each turn are not timed"
            ),
            "inputs": f"cold: rotation over input sets that exceed the last cache, as {self.protocol}{copies}",
            "outputs": (
                "cold: one result for each input set; a baseline that returns its own keeps it until its next call"
            ),
            "overlap": self.overlap,
            "statistic": "median of rounds, 95% bootstrap interval",
            "fp32_products": self.fp32_products,
            "software": dict(self.software),
            "threads": self.threads,
        }


@dataclass(frozen=True)
class Bench:
    """Hold the bench of one or more kernels on one device."""

    device: str
    conditions: Conditions
    rows: tuple[Row, ...]

    def document(self) -> dict[str, Any]:
        """Return the bench as the JSON document that ledger bench writes."""
        rows = [row.document() for row in self.rows]
        return {"device": self.device, "conditions": self.conditions.document(), "rows": rows}

    def joined(self, other: Bench) -> Bench:
        """Return two benches of one run as one; the digest and the overlap of each kernel are kept."""
        first, second = self.conditions, other.conditions
        conditions = replace(
            first,
            kernel_sha256={**first.kernel_sha256, **second.kernel_sha256},
            overlap="; ".join(note for note in (first.overlap, second.overlap) if note) or None,
        )
        return replace(self, conditions=conditions, rows=(*self.rows, *other.rows))


def bench(
    file: KernelFile,
    cells: Sequence[Cell],
    *,
    hardware: Hardware,
    ceilings: CeilingKind | None = None,
    only: frozenset[str] | None = None,
    peers: Sequence[Peer] | None = None,
    on_progress: Callable[[str], None] = lambda _step: None,
    on_row: Callable[[Bench], None] = lambda _so_far: None,
) -> Bench:
    """Return the bench of a kernel, one row a cell.

    only: names of baselines and peers to run, as rows name them (baseline_names); None runs all of them. peers: None
    takes those known of the operation, on a GPU. on_row: gets the rows so far, after each.
    Raises: MachineError when this device is not the profile's or the kernel's result is wrong; InputError for a cell
    that the kernel does not offer.
    """
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    cases = [build_case(file.kernel, hardware, shape=shape, dtype=dtype) for shape, dtype in cells]
    device = "cuda" if is_gpu(hardware.target) else "cpu"
    if peers is None:
        peers = peers_of(file.kernel.operation.name) if device == "cuda" else ()
    timed = Bench(facts.name, _conditions(facts, hardware, file, cases[0]), ())
    with threads_set(None):
        for case in cases:
            on_progress(f"{case.kernel} {shape_list(case)} {case.dtype}")
            contexts = contexts_on(device)
            lined = line_up(file.kernel, case, facts, device=device, only=only, contexts=contexts, peers=peers)
            interleave(lined.contestants, lined.parameters)
            timed = replace(timed, rows=(*timed.rows, _row(file.kernel, case, lined, hardware, ceilings)))
            on_row(timed)
            del lined
            release(device)
    return timed


def _row(kernel: Kernel, case: Case, lined: LineUp, hardware: Hardware, ceilings: CeilingKind | None) -> Row:
    roof = roof_of(hardware, kernel.path(case.dtype, hardware.target, case.implementation), ceilings)
    ours = lined.ours
    steady = steadiness(ours.samples)
    return Row(
        case=case,
        context=lined.contexts[0],
        contexts_us={
            context: {one.name: one.interval.median / 1e6 for one in lined.of(context)} for context in lined.contexts
        },
        ours=ours.interval,
        comparable=tuple(
            one.name
            for one in lined.headline
            if one.name != OURS and one.name not in lined.releases and one.agrees is not False
        ),
        floor_us=1e6 * time_lower_bound_s(kernel.work(case.shape, case.dtype), roof),
        ceilings=roof.ceilings,
        relative_error=float(lined.correctness.relative_error),
        input_sets=lined.input_sets,
        sm_clock_mhz=ours.sm_clock_mhz,
        outliers=len(steady.outliers),
        drift=steady.drift,
        missing=lined.missing,
        releases=lined.releases,
    )


def _conditions(facts: DeviceFacts, hardware: Hardware, file: KernelFile, case: Case) -> Conditions:
    return Conditions(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        driver=facts.driver,
        kernel_sha256={file.kernel.name: file.sha256},
        protocol=interleaved_protocol_for(case.implementation).name,
        overlap=overlap_note(case),
        fp32_products=_fp32_products(),
        software=facts.software,
        threads=None if is_gpu(hardware.target) else cpu_cores(),
    )


def overlap_note(case: Case) -> str | None:
    """Return a note where a kernel's configuration makes its calls overlap one another, None elsewhere."""
    if not case.config.get("pdl"):
        return None
    return (
        f"{case.kernel} asks for programmatic dependent launch: a call begins while the call before it ends; "
        "the library's kernels do not"
    )


def _fp32_products() -> str:
    """Return what the library's fp32 products may use; torch rounds their operands to tf32 only on request."""
    precision = import_torch().get_float32_matmul_precision()
    return f"torch's precision {precision}: {'tf32 off' if precision == 'highest' else 'tf32 or bf16 allowed'}"


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
