"""Records a timeline of one cell, ours and the library's, as a trace that Perfetto opens. Imports torch, when called.

torch's profiler takes it: on an NVIDIA GPU from CUPTI, which times every kernel without stopping the others. A device
that is being traced is a little slower than one that is timed, so a timeline explains a time and never replaces it.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.chrome_trace import Slice, read_slices
from ledger.device.facts import facts_for, import_torch, require_profile
from ledger.errors import MachineError
from ledger.kernel import Launch
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.bench import Cell, line_up, overlap_words
from ledger.measure.cuda_graphs import capture, warm_up
from ledger.measure.run_cell import release, threads_set
from ledger.record_files import write_atomically
from ledger.records import Hardware, is_gpu

MOST_CALLS = 64


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
) -> dict[str, Any]:
    """Write the timeline of a cell to `path` and return what it shows: device, cell and one entry a slice.

    Each contestant calls each of its input sets once, up to 64 of them, one after the other; on a GPU once on a stream,
    as a program would, and once as the graph that the timer replays.
    only: names of baselines as baseline_names gives them; None takes all.
    Units: microseconds a call. Raises: as bench.
    """
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    shape, dtype = cell
    case = build_case(file.kernel, hardware, shape=shape, dtype=dtype)
    device = "cuda" if is_gpu(hardware.target) else "cpu"
    with threads_set(None), awake(device):
        on_progress("inputs, comparison with float64")
        lined = line_up(file.kernel, case, facts, device=device, only=only)
        ways = {one.name: one.rounds.launches[:MOST_CALLS] for one in lined.contestants}
        on_progress("tracing")
        data, slices = trace(ways, device=device)
    release(device)
    write_atomically(path, gzip.compress(data) if path.suffix == ".gz" else data)
    return {
        "path": str(path),
        "device": facts.name,
        "kernel": file.kernel.name,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        "overlap": overlap_words(case),
        "slices": [asdict(one) for one in slices],
        "missing": lined.missing,
    }


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
    """Trace stretches one after the other, each waited for, and return the trace with one slice for each.

    Raises: MachineError when the profiler gives no trace.
    """
    torch = import_torch()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    _hush_profiler()
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
    # What is this machine's own business: its name, and where the file first lay.
    for private in ("host_name", "traceName"):
        document.pop(private, None)
    slices = read_slices(document, {stretch.name: stretch.calls for stretch in stretches})
    return (json.dumps(document) + "\n").encode(), slices


def _hush_profiler() -> None:
    """Keep kineto from writing a `USDT:` line at each start and stop: torch 2.13 ranks them above errors.

    Its environment is read when it first starts. What goes wrong shows in the trace: no file, or slices that it lacks.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def _one_by_one(launches: Sequence[Launch]) -> None:
    torch = import_torch()
    for number, launch in enumerate(launches):
        with torch.profiler.record_function(f"call on input set {number}"):
            launch()


@contextmanager
def _slice(name: str, device: str) -> Iterator[None]:
    """Name what runs inside, and wait for the device before and after, so that it all lies inside."""
    torch = import_torch()
    if device == "cuda":
        torch.cuda.synchronize()
    with torch.profiler.record_function(name):
        yield
        if device == "cuda":
            torch.cuda.synchronize()


@contextmanager
def awake(device: str) -> Iterator[None]:
    """Start the device's tracing before any graph is captured: a graph made earlier may be traced as one piece."""
    torch = import_torch()
    _hush_profiler()
    if device == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True):
            torch.zeros(1, device="cuda").add_(1)
            torch.cuda.synchronize()
    yield
