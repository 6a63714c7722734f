"""Records a timeline of one cell, ours and the library's, as a trace for Perfetto. Imports torch, only when called.

torch's profiler records it: on an NVIDIA GPU through CUPTI, which times every kernel without serialising them. Tracing
slows the device a little, so a timeline explains a measured time and never replaces it.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.chrome_trace import Slice, read_slices
from ledger.analysis.formatting import duration, si
from ledger.device.facts import facts_for, import_torch, require_profile
from ledger.errors import InputError, MachineError
from ledger.kernel import Kernel, Launch
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.bench import overlap_note
from ledger.measure.contestants import Cell, contexts_on, line_up, shape_list
from ledger.measure.cuda_graphs import capture, warm_up
from ledger.measure.run_cell import release, threads_set
from ledger.record_files import write_atomically
from ledger.records import Case, Hardware, is_gpu
from ledger.roofline import roof_of, time_lower_bound_s

MOST_CALLS = 64


@dataclass(frozen=True)
class Timeline:
    """Hold what a timeline shows. overlap: a note where the kernel's calls overlap. missing: why, by baseline."""

    path: FilePath
    device: str
    case: Case
    overlap: str | None
    slices: tuple[Slice, ...]
    missing: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Return the timeline as ledger timeline prints it. Units: microseconds a call."""
        return {
            "path": str(self.path),
            "device": self.device,
            "kernel": self.case.kernel,
            "shape": dict(self.case.shape),
            "dtype": self.case.dtype,
            "overlap": self.overlap,
            "slices": [asdict(one) for one in self.slices],
            "missing": dict(self.missing),
        }


@dataclass(frozen=True)
class Stretch:
    """Hold what to run under one name, and how many calls it makes."""

    name: str
    calls: int
    run: Callable[[], object]


def record_timeline(
    file: KernelFile,
    cell: Cell,
    *,
    hardware: Hardware,
    path: FilePath,
    only: frozenset[str] | None = None,
    on_progress: Callable[[str], None] = lambda _step: None,
) -> Timeline:
    """Write the timeline of a cell to `path` and return what it shows.

    Each contestant is called once for each of its input sets, up to 64 of them. On a GPU the calls run twice: on a
    stream, as in a program, and as the CUDA graph that the timer replays.
    only: names of baselines as baseline_names gives them; None takes all.
    Raises: as bench.
    """
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    shape, dtype = cell
    case = build_case(file.kernel, hardware, shape=shape, dtype=dtype)
    device = "cuda" if is_gpu(hardware.target) else "cpu"
    with threads_set(None), awake(device):
        on_progress(_announcement(file.kernel, case, hardware))
        lined = line_up(
            file.kernel, case, facts, device=device, only=only, contexts=contexts_on(device)[:1], on_step=on_progress
        )
        ways = {one.name: one.rounds.launches[:MOST_CALLS] for one in lined.contestants}
        on_progress(f"tracing {', '.join(f'{1 + len(calls)} calls of {name}' for name, calls in ways.items())}")
        data, slices = trace(ways, device=device)
    release(device)
    write_atomically(path, gzip.compress(data) if path.suffix == ".gz" else data)
    return Timeline(path, facts.name, case, overlap_note(case), tuple(slices), lined.missing)


def _announcement(kernel: Kernel, case: Case, hardware: Hardware) -> str:
    """Return which cell is traced; on a CPU also how long a call takes at least, and what makes it shorter."""
    cell = f"{case.kernel} {shape_list(case)} {case.dtype} on {hardware.name}"
    if is_gpu(hardware.target):
        return cell
    work = kernel.work(case.shape, case.dtype)
    try:
        roof = roof_of(hardware, kernel.path(case.dtype, hardware.target, case.implementation))
        least = f"at least {duration(round(1e12 * time_lower_bound_s(work, roof)))} by the roof"
    # Calibration found no such peak: torch then emulates the dtype.
    except InputError:
        least = f"minutes perhaps: the profile has no peak for {case.dtype}"
    return f"{cell}: {si(work.flops, 'FLOP')} a call, {least}; for less: --shape, --dtype"


def trace(ways: dict[str, Sequence[Launch]], *, device: str) -> tuple[bytes, list[Slice]]:
    """Trace each way's launches, one after the other, and return the trace with its slices.

    Raises: MachineError when the profiler gives no trace.
    """
    stretches: list[Stretch] = []
    for name, launches in ways.items():
        stream = f"{name}, on a stream" if device == "cuda" else name
        stretches += [
            Stretch(f"{name}, warm-up", 1, launches[0]),
            Stretch(stream, len(launches), partial(_one_by_one, launches)),
        ]
        if device == "cuda":
            warm_up(launches)
            stretches.append(Stretch(f"{name}, as a graph", len(launches), capture(launches).replay))
    data, slices = trace_stretches(stretches, device=device)
    return data, [one for one in slices if not one.name.endswith(", warm-up")]


def trace_stretches(stretches: Sequence[Stretch], *, device: str) -> tuple[bytes, list[Slice]]:
    """Trace stretches one after the other, synchronised in between; return the trace with one slice for each.

    Raises: MachineError when the profiler gives no trace.
    """
    torch = import_torch()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    _silence_profiler()
    with torch.profiler.profile(activities=kinds, acc_events=True) as profiler:
        for stretch in stretches:
            with _slice(stretch.name, device):
                stretch.run()
    with tempfile.TemporaryDirectory(prefix="ledger-trace-") as folder:
        path = FilePath(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        if not path.is_file():
            raise MachineError("torch's profiler wrote no trace; expected one: is kineto part of this torch?")
        document = json.loads(path.read_bytes())
    # Private to this machine: its name and a temporary path.
    for private in ("host_name", "traceName"):
        document.pop(private, None)
    slices = read_slices(document, {stretch.name: stretch.calls for stretch in stretches})
    return (json.dumps(document) + "\n").encode(), slices


def _silence_profiler() -> None:
    """Keep kineto from writing a `USDT:` line at each start and stop: torch 2.13 logs them at a level above errors.

    Kineto reads its environment when it first starts. Its failures are found in the trace: no file, or missing slices.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def _one_by_one(launches: Sequence[Launch]) -> None:
    torch = import_torch()
    for number, launch in enumerate(launches):
        with torch.profiler.record_function(f"call on input set {number}"):
            launch()


@contextmanager
def _slice(name: str, device: str) -> Iterator[None]:
    """Name what runs inside, and synchronise the device before and after, so that the slice holds all of it."""
    torch = import_torch()
    if device == "cuda":
        torch.cuda.synchronize()
    with torch.profiler.record_function(name):
        yield
        if device == "cuda":
            torch.cuda.synchronize()


@contextmanager
def awake(device: str) -> Iterator[None]:
    """Start tracing the device before any graph is captured: an earlier graph may be traced as a single event."""
    torch = import_torch()
    _silence_profiler()
    if device == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True):
            torch.zeros(1, device="cuda").add_(1)
            torch.cuda.synchronize()
    yield
