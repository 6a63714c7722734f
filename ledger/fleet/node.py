"""Measures one cell on a node: starts its process, ends it at a limit, and returns the files that it wrote.

Runs in a worker of Ray and knows nothing of Ray. What it takes and yields are plain JSON types and bytes, so that the
driver may be of another Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import Any

from ledger.child_environment import child_environment

STARTED, MEASURED, REFUSED, LOST = "started", "measured", "refused", "lost"


def measure_on_node(order: bytes, asked: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield when the cell of an order starts here, and then what came of it.

    asked: order_sha256, counters, full_cells, time_limit_s, node, attempts, and node_limit_s, after which the process
    is ended. Yields: (STARTED, moment), then (MEASURED, files by path), (REFUSED, reason) where this node cannot
    measure the cell, or (LOST, reason) where its process ended without a result.
    """
    yield STARTED, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with TemporaryDirectory(prefix="ledger-cell-") as name:
        folder = FilePath(name)
        paths = {"order": folder / "order.json", "out": folder / "out", "reason": folder / "reason"}
        paths["order"].write_bytes(order)
        paths["out"].mkdir()
        job = {**asked, **{key: str(path) for key, path in paths.items()}, "parent": os.getpid()}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        ended = _run(folder / "job.json", asked["node_limit_s"])
        if list(paths["out"].glob("*.json")):
            yield MEASURED, _files(paths["out"])
        elif paths["reason"].is_file():
            yield REFUSED, paths["reason"].read_text(encoding="utf-8")
        else:
            yield LOST, ended


def _run(job: FilePath, limit_s: float) -> str:
    """Run the process of a job in a session of its own and end all of that session; return how the process ended."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ledger.fleet.cell_process", str(job)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=job.parent,
        env=child_environment(), start_new_session=True,
    )  # fmt: skip
    try:
        _, told = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"the cell ran longer than {limit_s:g} s on the node"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = told.decode(errors="replace").strip().splitlines()
    last = f" ({lines[-1][:300]})" if lines else ""
    if process.returncode < 0:
        return f"the process of the cell was ended by {signal.Signals(-process.returncode).name}{last}"
    return f"the process of the cell ended with exit code {process.returncode} and no result{last}"


def _files(out: FilePath) -> dict[str, bytes]:
    """Return the measurement and its attachments, by their path in the folder."""
    listed = [*out.glob("*.json"), *out.glob("objects/*")]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in listed if path.is_file()}
