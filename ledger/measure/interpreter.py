"""Runs trials of a Triton kernel under Triton's interpreter, which needs no GPU but a process of its own.

The interpreter must be asked for before triton is imported. Usage of the child: python -P -m
ledger.measure.interpreter JOB RESULT, where JOB is JSON that `interpreted` wrote and RESULT receives what is wrong
with each trial, or null.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ledger.child_environment import child_environment
from ledger.errors import MachineError, explained, shortened
from ledger.kernel_files import load_kernel
from ledger.measure.kernel_trials import Trial, described, problem_of

_TIMEOUT_S = 900


def interpreted(name: str, root: Path | None, trials: Sequence[Trial]) -> list[str | None]:
    """Return what is wrong with each trial of a Triton kernel, None where nothing is.

    Raises: MachineError when the interpreter cannot run or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="ledger-interpreter-") as folder:
        job, result = Path(folder) / "job.json", Path(folder) / "result.json"
        listed = [{**asdict(trial), "config": dict(trial.config), "shape": dict(trial.shape)} for trial in trials]
        job.write_text(json.dumps({"name": name, "root": str(root) if root else None, "trials": listed}))
        environment = {**child_environment(), "TRITON_INTERPRET": "1"}
        command = [sys.executable, "-P", "-m", "ledger.measure.interpreter", str(job), str(result)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise MachineError(
                f"{name}: the interpreter took more than {_TIMEOUT_S} s; expected smaller cases"
            ) from error
        if done.returncode != 0 or not result.is_file():
            said = shortened(done.stderr.strip() or "no message", 600)
            raise MachineError(f"{name}: the interpreter ended with exit status {done.returncode}: {said}")
        found: list[str | None] = json.loads(result.read_text())
        return found


def main(job: Path, result: Path) -> int:
    """Judge the trials of a job."""
    document = json.loads(job.read_text())
    root = Path(document["root"]) if document["root"] else None
    kernel = load_kernel(document["name"], root, launch=True).kernel
    found: list[str | None] = []
    for entry in document["trials"]:
        try:
            found.append(problem_of(kernel, described(entry), "cpu"))
        # A kernel may raise any error, SystemExit included; it is what is wrong with it.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            found.append(explained(error, 400))
    result.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
