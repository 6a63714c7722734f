"""Collects hardware counters with Nsight Compute: finds it, runs it on measuring.profiled, reads its report.

One run of ncu serves many cells: between their calls the profiled process launches a marker kernel, so that the report
tells which kernel belongs to which cell. Whatever goes wrong is a reason in words, never an exception and never silent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.analysis.metrics import Capability, capability_of, metric_names
from ledger.canonical import object_id
from ledger.device.facts import cuda_facts
from ledger.device.ncu_csv import parse_raw
from ledger.errors import LedgerError, MachineError, ParseError, shortened
from ledger.kernel_files import KernelFile
from ledger.records import Counters, OrderedCell, ProfiledKernel

MARKER = "ledger_marker"
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*")
# The first release of Nsight Compute that knows a chip.
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
    """Hold what to profile: a cell and the kernel file that runs it."""

    ordered: OrderedCell
    file: KernelFile


@dataclass(frozen=True)
class Profiled:
    """Hold what the profiler gave for a cell: counters, or why there are none; the report where it was wanted."""

    counters: Counters | None
    missing: str | None
    report: bytes | None = None


def find_ncu() -> Ncu:
    """Return the Nsight Compute on the PATH, or else the newest in its usual places. Raises: MachineError."""
    found = shutil.which("ncu")
    candidates = [found] if found else sorted(_installed(), reverse=True)
    if not candidates:
        raise MachineError(
            "ncu (Nsight Compute) is not installed or not on the PATH; expected it beside CUDA: without it there are "
            "no hardware counters"
        )
    said = _run([candidates[0], "--version"], timeout_s=60, folder=None).output
    version = re.search(r"Version (\d{4}\.\d+\S*)", said)
    if version is None:
        raise MachineError(f"ncu --version answered {said.strip()[:200]!r}; expected a line with its version")
    return Ncu(candidates[0], version.group(1))


def _installed() -> list[str]:
    folders = [folder for place in _PLACES for folder in Path("/").glob(place.lstrip("/"))]
    return [str(folder / "ncu") for folder in folders if os.access(folder / "ncu", os.X_OK)]


def profile(requests: Sequence[ProfileRequest], *, full: bool) -> list[Profiled]:
    """Return the counters of one steady call of each cell; a failure is a reason, never an exception.

    full: collect every section, and return the report.
    """
    try:
        ncu = find_ncu()
        capability = capability_of(cuda_facts().target)
        if ncu.release < _MIN_VERSION[capability]:
            expected = ".".join(map(str, _MIN_VERSION[capability]))
            raise MachineError(f"ncu is {ncu.version}; a device of {capability} needs {expected} or newer")
        results = _profile_together(requests, ncu, capability, full=full)
    except (LedgerError, OSError) as error:
        return [Profiled(None, shortened(f"no counters: {error}", 2000)) for _ in requests]
    return results


def _profile_together(
    requests: Sequence[ProfileRequest], ncu: Ncu, capability: Capability, *, full: bool
) -> list[Profiled]:
    with tempfile.TemporaryDirectory(prefix="ledger-ncu-") as name:
        folder = Path(name)
        job, report, status = folder / "job.json", folder / "report.ncu-rep", folder / "status.jsonl"
        job.write_text(json.dumps([_job(request) for request in requests]), encoding="utf-8")
        command = _command(ncu, capability, full=full, report=report, job=job, status=status)
        done = _run(command, timeout_s=_STARTUP_S + _CELL_S[full] * len(requests), folder=folder)
        said = _statuses(status, len(requests))
        if not report.is_file():
            reason = f"no counters: {_explain(done)}"
            return [Profiled(None, one or reason) for one in said]
        kernels = read_report(report, ncu=ncu, capability=capability)
        groups = _split(kernels, len(requests))
        words = _portable(command, folder)
        results = []
        for request, problem, group in zip(requests, said, groups, strict=True):
            reason = problem or _why_not(request, group) or ("" if group else f"no counters: {_explain(done)}")
            if reason:
                results.append(Profiled(None, reason))
                continue
            counters = Counters(
                tool=f"Nsight Compute {ncu.version}",
                command=words,
                cache_control="all",
                clock_control="none",
                kernels=group,
            )
            results.append(Profiled(counters, None, report.read_bytes() if full else None))
        return results


def _job(request: ProfileRequest) -> dict[str, object]:
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
        *(sys.executable, "-m", "ledger.measure.ncu_target", str(job), str(status)),
    ]


def _portable(command: list[str], folder: Path) -> str:
    """Return a command without the paths of this machine."""
    words = [word.removeprefix(f"{folder}/") for word in command]
    return " ".join(["ncu", *words[1:]]).replace(sys.executable, "python")


def read_report(report: Path, *, ncu: Ncu, capability: Capability) -> tuple[ProfiledKernel, ...]:
    """Return the kernels of a report with the table's metrics. Raises: ParseError for a report that is not one."""
    command = [ncu.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    done = _run(command, timeout_s=300, folder=report.parent)
    if done.code != 0:
        raise ParseError(f"{report.name}: ncu cannot read it: {_explain(done)}")
    return parse_raw(done.output, wanted=metric_names(capability), what=report.name)


def _split(kernels: Sequence[ProfiledKernel], cells: int) -> list[tuple[ProfiledKernel, ...]]:
    """Return the kernels of each cell: what stands between its marker and the next; one cell has no marker."""
    if cells == 1:
        return [tuple(kernels)]
    groups: list[list[ProfiledKernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            groups.append([])
        elif not groups:
            raise ParseError(f"report: kernel {kernel.name[:80]} stands before the first marker; expected none")
        else:
            groups[-1].append(kernel)
    if len(groups) > cells:
        raise ParseError(f"report: {len(groups)} markers; expected at most {cells}")
    return [tuple(group) for group in groups + [[]] * (cells - len(groups))]


def _why_not(request: ProfileRequest, group: Sequence[ProfiledKernel]) -> str:
    """Return why a group of kernels cannot be this cell's call, or nothing."""
    launched = request.file.kernel.launched
    foreign = [kernel.name for kernel in group if not re.search(launched, kernel.name)]
    if foreign:
        name = request.file.kernel.name
        return f"no counters: the profile holds kernel {foreign[0][:120]!r}; expected what {name} launches ({launched})"
    return ""


def _statuses(path: Path, cells: int) -> list[str | None]:
    """Return what the profiled process said of each cell: None for a cell that went well or was not reached."""
    problems: list[str | None] = [None] * cells
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["error"] is not None:
                problems[entry["cell"]] = shortened(f"no counters: {entry['error']}", 2000)
    return problems


# Running ncu


@dataclass(frozen=True)
class _Done:
    code: int
    output: str
    timed_out_s: int | None = None


def _run(command: Sequence[str], *, timeout_s: int, folder: Path | None) -> _Done:
    """Run a command in a process group of its own, with a private TMPDIR and plain numbers, and take its output."""
    package = Path(__file__).resolve().parent.parent.parent
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": path}
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    with subprocess.Popen(
        list(command),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return _Done(-1, output, timed_out_s=timeout_s)
    return _Done(process.returncode, output)


def _explain(done: _Done) -> str:
    """Return in one line why a run of ncu gave nothing."""
    if done.timed_out_s is not None:
        return f"ncu did not end within {done.timed_out_s} s"
    if "ERR_NVGPUCTRPERM" in done.output:
        return (
            "hardware counters are closed to this user (ERR_NVGPUCTRPERM): the driver lets only an administrator of "
            "the host read them; ask for NVreg_RestrictProfilingToAdminUsers=0"
        )
    if "InterprocessLockFailed" in done.output or "LibraryNotLoaded" in done.output:
        return f"ncu could not start its profiler: {_last_error(done.output)}"
    return f"ncu ended with {done.code}: {_last_error(done.output)}"


def _last_error(output: str) -> str:
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or ["it said nothing"])[-1][:400]
