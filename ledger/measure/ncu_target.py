"""Runs in the process that Nsight Compute watches: one steady call of each cell between start and stop.

Usage: python -P -m ledger.measure.ncu_target JOB STATUS, where JOB is the JSON that device.ncu wrote and STATUS
receives lines of JSON: a cell that begins, and how it ended. Imports torch, only when called.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ledger.callables.subject_files import execute_case
from ledger.canonical import validate
from ledger.device.facts import gpu_digest
from ledger.device.gpu_selection import select_device
from ledger.errors import InputError, MachineError
from ledger.kernel_files import shipped_folder
from ledger.measure.run_cell import release, sets_of
from ledger.records import KernelSource, OrderedCell
from ledger.sources.rebuild import rebuild

_WARM_UP_CALLS = 3


def main(job: Path, status: Path) -> int:
    """Profile the cells of a job in order; a failed cell is reported and the next one follows, if the device works."""
    asked = json.loads(job.read_text(encoding="utf-8"))
    entries = asked["cells"]
    for number, entry in enumerate(entries):
        problem: str | None = None
        _write(status, {"cell": number})
        try:
            _select(**asked["gpu"])
            _profile(entry, folder=job.parent / "sources", mark=len(entries) > 1)
        # A kernel file may raise any error; the parent process records it.
        except Exception as error:  # noqa: BLE001
            problem = f"{type(error).__name__}: {error}"
        _write(status, {"cell": number, "error": problem})
        release("cuda")
        if problem is not None and not _works():
            return 1
    return 0


def _write(status: Path, line: dict[str, Any]) -> None:
    with status.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def _works() -> bool:
    """Tell whether the device still works; a fault ends its use by this process."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _select(index: int, uuid: str | None) -> None:
    """Use the GPU that the parent process uses: the same number in the same environment, checked by its UUID."""
    select_device(f"cuda:{index}")
    if gpu_digest() != uuid:
        raise MachineError(f"cuda:{index} of the profiled process is another GPU than that of the timing")


def _profile(entry: dict[str, Any], *, folder: Path, mark: bool) -> None:
    import torch

    from ledger.device.probe_kernels import marker_launch

    marker = marker_launch()
    if mark:
        # The marker is launched first, so that the report has one for every cell, also for a failed one.
        torch.cuda.profiler.start()
        marker()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    cell = validate(OrderedCell, entry["cell"], what="job")
    manifest = validate(KernelSource, entry["manifest"], what="job")
    texts = {digest: text.encode() for digest, text in entry["files"].items()}
    closure = rebuild(manifest, texts, folder=folder / cell.kernel_sha256[:16], shipped=shipped_folder("kernels"))
    if closure.sha256 != cell.kernel_sha256:
        raise InputError(
            f"kernel {cell.case.kernel}: digest is {closure.sha256[:10]}; expected {cell.kernel_sha256[:10]}"
        )
    file = execute_case(closure, cell.case, shipped=not closure.carried)
    one = next(sets_of(cell, file.kernel, count=1))
    launch = file.kernel.implementations[cell.case.implementation](one.inputs, one.out, cell.case.config)
    for _ in range(_WARM_UP_CALLS):
        launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
