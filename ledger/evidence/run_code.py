"""Recomputes the samples of callables by running their authors' sealed sources, only where the auditor asks for it.

Each runs in a child process, on the CPU, with a time limit. That is no sandbox: it may do whatever the auditor may.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import Any

from ledger.analysis.book import Book, CellView, Recorded
from ledger.budgets import MAX_RECORD_BYTES
from ledger.callables.subject import is_callable
from ledger.canonical import decode, object_path
from ledger.child_environment import child_environment
from ledger.errors import LedgerError, shortened
from ledger.evidence.recompute import Recomputed, Skipped, value_of
from ledger.evidence.record_checks import ReadBlob
from ledger.evidence.seal_checks import binds
from ledger.records import Finding, KernelSource
from ledger.sources.closure import MAX_SOURCE_BYTES

TIME_LIMIT_S = 300
_CHILD = "ledger.measure.recompute_callable"
_MOST_BRACKETS = 4
"""Of a result: an object with three lists of numbers."""


@dataclass(frozen=True)
class CodeJob:
    """Hold one measurement of a callable with its sealed sources. asked: what the child process is given."""

    name: str
    recorded: Recorded
    asked: Mapping[str, Any]


def code_jobs(book: Book, tree: Mapping[str, tuple[str, str]], read: ReadBlob) -> list[CodeJob]:
    """Return the measured runs of callables whose sources the ledger holds; runs nothing."""
    return [
        CodeJob(cell.short_name, run.recorded, asked)
        for cell in book.cells
        if is_callable(cell.forecast.case.kernel)
        for run in cell.runs
        if run.recorded.measurement.samples is not None and (asked := _asked(cell, run.recorded, tree, read))
    ]


def _asked(
    cell: CellView, recorded: Recorded, tree: Mapping[str, tuple[str, str]], read: ReadBlob
) -> dict[str, Any] | None:
    def held(digest: str, limit: int) -> bytes:
        blob = tree.get(object_path("predictions", digest))
        data = None if blob is None else read(blob[1], limit)
        if data is None:
            raise LedgerError(f"object {digest[:12]}: missing or too large")
        return data

    measurement = recorded.measurement
    try:
        manifest = decode(KernelSource, held(cell.forecast.kernel_sha256, MAX_RECORD_BYTES), what="manifest")
        files = {one.sha256: held(one.sha256, MAX_SOURCE_BYTES).decode() for one in manifest.files}
    except (LedgerError, UnicodeDecodeError):
        # The judge refuses such sources.
        return None
    assert measurement.samples is not None
    return {
        "case": cell.forecast.case.model_dump(mode="json"),
        "manifest": manifest.model_dump(mode="json", by_alias=True),
        "files": files,
        "seal": measurement.seal,
        "cell": measurement.cell,
        "run": measurement.run,
        "anchor": measurement.anchor,
        "positions": list(measurement.samples.positions),
    }


def run_code(jobs: Sequence[CodeJob], book: Book) -> Recomputed:
    """Return what running the sealed sources shows of the samples; a failure of the code shows nothing."""
    forecasts = {cell.short_name: cell.forecast for cell in book.cells}
    elements, agreed, skipped, findings = 0, set[str](), list[Skipped](), list[Finding]()
    for job in jobs:
        path, measurement = job.recorded.path, job.recorded.measurement
        found = _run(job)
        if isinstance(found, str):
            skipped.append(Skipped(job.name, path, found))
            continue
        elements += len(found["values"])
        if (message := _disagreement(job, found)) is not None:
            findings.append(Finding(code="samples-disagree", severity="refused", path=path, message=message))
        elif not binds(forecasts[job.name], measurement):
            skipped.append(Skipped(job.name, path, "too few samples"))
        elif not _depends_on_inputs(found):
            skipped.append(Skipped(job.name, path, "the output does not depend on its inputs"))
        else:
            agreed.add(path)
    return Recomputed(len(jobs), elements, frozenset(agreed), tuple(skipped), tuple(findings))


def _run(job: CodeJob) -> dict[str, Any] | str:
    """Return what the child process computed, or why it did not."""
    with TemporaryDirectory() as name:
        folder = FilePath(name)
        (folder / "job.json").write_text(json.dumps(job.asked), encoding="utf-8")
        command = [sys.executable, "-P", "-m", _CHILD, str(folder / "job.json"), str(folder / "result.json")]
        try:
            done = subprocess.run(
                command, cwd=folder, env=child_environment() | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True,
                text=True, errors="replace", timeout=TIME_LIMIT_S, check=False,
            )  # fmt: skip
            found = _result(folder / "result.json") if done.returncode == 0 else None
        except subprocess.TimeoutExpired:
            return f"its code ran longer than {TIME_LIMIT_S} s"
        except (OSError, ValueError):
            return "its code left no result"
    if found is None:
        lines = done.stderr.strip().splitlines() or ["no reason was given"]
        return f"its code fails here: {shortened(lines[-1], 300)}"
    return found if _is_whole(found, len(job.asked["positions"])) else "its code left a result of another form"


def _result(file: FilePath) -> Any:
    """Return what the child process left. Raises: OSError, ValueError."""
    text = file.read_text(encoding="utf-8")
    # Of deep JSON the parser may end this process where a library has raised Python's limit of recursion.
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise ValueError("nested")
    return json.loads(text)


def _is_whole(found: Any, count: int) -> bool:
    lists = [found.get(key) for key in ("values", "allowed", "others")] if isinstance(found, dict) else []
    return (
        len(lists) == 3
        and type(found.get("elements")) is int
        and all(
            isinstance(one, list) and len(one) == count and all(isinstance(value, float) for value in one)
            for one in lists
        )
    )


def _disagreement(job: CodeJob, found: Mapping[str, Any]) -> str | None:
    measurement = job.recorded.measurement
    samples = measurement.samples
    assert samples is not None
    if measurement.correctness is not None and measurement.correctness.elements != found["elements"]:
        return f"{measurement.correctness.elements} elements are recorded; its code gives {found['elements']}"
    for position, bits, expected, allowed in zip(
        samples.positions, samples.bits, found["values"], found["allowed"], strict=True
    ):
        recorded = value_of(bits, samples.dtype)
        if recorded is None or not abs(recorded - expected) <= allowed:
            return f"element {position} is recorded as {recorded}; its code gives {expected:.6g} for the seal's inputs"
    return None


def _depends_on_inputs(found: Mapping[str, Any]) -> bool:
    """Tell whether other inputs give other values at a quarter of the positions."""
    changed = sum(
        not abs(value - other) <= allowed
        for value, other, allowed in zip(found["values"], found["others"], found["allowed"], strict=True)
    )
    return changed >= max(1, math.ceil(len(found["values"]) / 4))


def code_notes(jobs: Sequence[CodeJob], result: Recomputed) -> Iterator[str]:
    """Yield what an auditor must know about code that ran."""
    yield f"ran the sealed sources of {len(jobs)} measurements of callables: samples of {len(result.agreed)} agree"
    yield from (f"{item.name}: {item.reason}" for item in result.skipped[:20])
