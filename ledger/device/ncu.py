"""Collects hardware counters with Nsight Compute: finds it, runs it on measure.ncu_target, reads its report.

One run of ncu serves many cells: the profiled process launches a marker kernel before each cell, so that the report
shows which kernels belong to which cell. A failure becomes the recorded reason, never an exception and never silent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.analysis.metrics import Capability, capability_of, metric_names
from ledger.analysis.revealing import MachineNames, masked_report
from ledger.canonical import object_id
from ledger.device.facts import cuda_facts
from ledger.device.gpu_selection import current_gpu
from ledger.device.machine_names import machine_names
from ledger.device.ncu_csv import parse_raw
from ledger.device.ncu_process import explain, run_command
from ledger.errors import LedgerError, MachineError, ParseError, shortened
from ledger.kernel_files import KernelFile
from ledger.records import Counters, OrderedCell, ProfiledKernel

MARKER = "ledger_marker"
_FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*")
# The first release of Nsight Compute that supports a compute capability.
_MIN_VERSION: dict[Capability, tuple[int, int]] = {
    "7.5": (2021, 1),
    "8.0": (2021, 1),
    "8.6": (2021, 1),
    "8.9": (2022, 3),
    "9.0": (2022, 3),
    "10.0": (2025, 1),
}
_STARTUP_S = 240
_CELL_S = {False: 60, True: 180}


@dataclass(frozen=True)
class Ncu:
    """Hold an installed Nsight Compute."""

    path: str
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """Return year and number of the release."""
        year, number = self.version.split(".")[:2]
        return int(year), int(number)


@dataclass(frozen=True)
class ProfileRequest:
    """Hold a cell to profile and its kernel file."""

    ordered: OrderedCell
    file: KernelFile


@dataclass(frozen=True)
class Profiled:
    """Hold the counters of a cell, or the reason why there are none; the report where it was requested."""

    counters: Counters | None
    missing: str | None
    report: bytes | None = None


def find_ncu() -> Ncu:
    """Return the Nsight Compute on the PATH, or else the newest in its usual folders. Raises: MachineError."""
    found = shutil.which("ncu")
    candidates = [found] if found else _installed()
    if not candidates:
        raise MachineError(
            "ncu (Nsight Compute) is not installed or not on the PATH; expected it with CUDA: without it there are "
            "no hardware counters"
        )
    answered, printed = list[Ncu](), ""
    for path in candidates:
        printed = run_command([path, "--version"], timeout_s=60, folder=None).output
        if (version := re.search(r"Version (\d{4}\.\d+\S*)", printed)) is not None:
            answered.append(Ncu(path, version.group(1)))
    if not answered:
        raise MachineError(f"ncu --version answered {printed.strip()[:200]!r}; expected a line with its version")
    return max(answered, key=lambda ncu: ncu.release)


def _installed() -> list[str]:
    folders = [folder for pattern in _FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    return [str(folder / "ncu") for folder in folders if os.access(folder / "ncu", os.X_OK)]


def profile(requests: Sequence[ProfileRequest], *, full: bool) -> list[Profiled]:
    """Return the counters of one steady call of each cell; a failure is a reason, never an exception.

    Cells that lose their counters by another one, which ends the profiled process, are profiled again without it.
    full: collect every section, and return the report.
    """
    found: dict[int, Profiled] = {}
    left = list(range(len(requests)))
    try:
        ncu = find_ncu()
        capability = capability_of(cuda_facts().target)
        if ncu.release < _MIN_VERSION[capability]:
            expected = ".".join(map(str, _MIN_VERSION[capability]))
            raise MachineError(f"ncu is {ncu.version}; a device of {capability} needs {expected} or newer")
        while left:
            results, again = _profile_together([requests[number] for number in left], ncu, capability, full=full)
            found |= zip(left, results, strict=True)
            left = [left[number] for number in again]
    except (LedgerError, OSError) as error:
        found |= dict.fromkeys(left, Profiled(None, shortened(f"no counters: {error}", 2000)))
    return [found[number] for number in range(len(requests))]


def _profile_together(
    requests: Sequence[ProfileRequest], ncu: Ncu, capability: Capability, *, full: bool
) -> tuple[list[Profiled], list[int]]:
    """Return what one run of the profiler gave of each cell, and which cells lost their counters by another one."""
    with tempfile.TemporaryDirectory(prefix="ledger-ncu-") as name:
        folder = Path(name)
        job, report, status = folder / "job.json", folder / "report.ncu-rep", folder / "status.jsonl"
        job.write_text(json.dumps(_job(requests)), encoding="utf-8")
        command = _command(ncu, capability, full=full, report=report, job=job, status=status)
        limit_s = _STARTUP_S + _CELL_S[full]
        done = run_command(command, timeout_s=limit_s, folder=folder, grows=status)
        cells = _cells(status, len(requests))
        nothing = f"no counters: {explain(done)}"
        groups: list[tuple[ProfiledKernel, ...]] = [() for _ in requests]
        if report.is_file():
            groups = _split(read_report(report, ncu=ncu, capability=capability), len(requests))
        portable = _portable(command, folder)
        kept = masked_report(report.read_bytes(), _private(ncu, folder)) if full and report.is_file() else None
    results = [
        Profiled(None, reason) if reason else Profiled(_counters(ncu, portable, group), None, kept)
        for request, cell, group in zip(requests, cells, groups, strict=True)
        for reason in [cell.problem or _mismatch(request, group) or ("" if group else nothing)]
    ]
    return results, _lost(cells, groups)


def _private(ncu: Ncu, folder: Path) -> MachineNames:
    return machine_names(str(folder), ncu.path, str(Path(ncu.path).resolve().parent))


def _counters(ncu: Ncu, command: str, kernels: tuple[ProfiledKernel, ...]) -> Counters:
    return Counters(
        tool=f"Nsight Compute {ncu.version}",
        command=command,
        cache_control="all",
        clock_control="none",
        kernels=kernels,
    )


def _job(requests: Sequence[ProfileRequest]) -> dict[str, object]:
    """Return what the profiled process needs: the GPU, by number and by digest of its UUID, and the cells."""
    gpu = {"index": current_gpu(), "uuid": cuda_facts().uuid}
    return {"gpu": gpu, "cells": [_entry(request) for request in requests]}


def _entry(request: ProfileRequest) -> dict[str, object]:
    closure = request.file.closure
    return {
        "cell": request.ordered.model_dump(mode="json", by_alias=True),
        "manifest": closure.manifest.model_dump(mode="json", by_alias=True),
        "files": {object_id(source.data): source.data.decode() for source in closure.files},
    }


def _command(ncu: Ncu, capability: Capability, *, full: bool, report: Path, job: Path, status: Path) -> list[str]:
    return [
        ncu.path,
        *("--target-processes", "application-only"),
        *("--profile-from-start", "off"),
        *("--clock-control", "none"),
        *("--cache-control", "all"),
        *(("--set", "full") if full else ()),
        *("--metrics", ",".join(metric_names(capability))),
        *("-o", str(report)),
        "--force-overwrite",
        *(sys.executable, "-P", "-m", "ledger.measure.ncu_target", str(job), str(status)),
    ]


def _portable(command: list[str], folder: Path) -> str:
    """Return a command without the paths of this machine."""
    arguments = [argument.removeprefix(f"{folder}/") for argument in command[1:]]
    return " ".join(["ncu", *arguments]).replace(sys.executable, "python")


def read_report(report: Path, *, ncu: Ncu, capability: Capability) -> tuple[ProfiledKernel, ...]:
    """Return the kernels of a report with the table's metrics. Raises: ParseError for a report that is not one."""
    command = [ncu.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    done = run_command(command, timeout_s=300, folder=report.parent)
    if done.code != 0:
        raise ParseError(f"{report.name}: ncu cannot read it: {explain(done)}")
    return parse_raw(done.output, wanted=metric_names(capability), what=report.name)


def _split(kernels: Sequence[ProfiledKernel], cells: int) -> list[tuple[ProfiledKernel, ...]]:
    """Return the kernels of each cell: those between its marker and the next; a single cell has no marker."""
    if cells == 1:
        return [tuple(kernels)]
    groups: list[list[ProfiledKernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            groups.append([])
        elif not groups:
            raise ParseError(f"report: kernel {kernel.name[:80]} is before the first marker; expected none")
        else:
            groups[-1].append(kernel)
    if len(groups) > cells:
        raise ParseError(f"report: {len(groups)} markers; expected at most {cells}")
    return [tuple(group) for group in groups + [[]] * (cells - len(groups))]


def _mismatch(request: ProfileRequest, group: Sequence[ProfiledKernel]) -> str:
    """Return why a group of kernels cannot be this cell's call, or an empty text."""
    launched = request.file.kernel.launched
    foreign = [kernel.name for kernel in group if not re.search(launched, kernel.name)]
    if foreign:
        name = request.file.kernel.name
        return f"no counters: the profile holds kernel {foreign[0][:120]!r}; expected what {name} launches ({launched})"
    return ""


@dataclass
class _Cell:
    """Hold how far the profiled process came with a cell, and the error that it reported."""

    begun: bool = False
    ended: bool = False
    problem: str | None = None


def _cells(path: Path, count: int) -> list[_Cell]:
    """Return what the profiled process reported of each cell."""
    cells = [_Cell() for _ in range(count)]
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            cell = cells[entry["cell"]]
            cell.begun, cell.ended = True, "error" in entry
            if entry.get("error") is not None:
                cell.problem = shortened(f"no counters: {entry['error']}", 2000)
    return cells


def _lost(cells: Sequence[_Cell], groups: Sequence[Sequence[ProfiledKernel]]) -> list[int]:
    """Return the cells without counters and without a fault of theirs, where another one had a fault."""
    lost = [
        number
        for number, (cell, group) in enumerate(zip(cells, groups, strict=True))
        if not cell.begun or (cell.ended and cell.problem is None and not group)
    ]
    faults = any(cell.begun and (cell.problem is not None or not cell.ended) for cell in cells)
    return lost if faults else []
