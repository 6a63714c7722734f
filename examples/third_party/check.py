"""Runs each third-party subject on this GPU and compares it with its reference in float64; times nothing.

    python -m examples.third_party.check [NAME …] [-o FILE.json] [--jobs N] [--list]

Each subject runs in a process of its own, on two input sets; the first one is called a second time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Literal

from examples.third_party.table import Entry, entries
from ledger.callables.subject_files import CPU, GPU, TOLERANCES, closure_named, load_subject
from ledger.errors import LedgerError, explained
from ledger.measure.inputs import input_sets
from ledger.measure.result_check import compare_results

ROOT = Path(__file__).parents[2]
SEAL = "3d" * 32
LIMIT_S = 400


def check(entry: Entry, *, device: Literal["cpu", "cuda"] = "cuda") -> dict[str, Any]:
    """Return how far the results of a subject are from its reference, as plain types. Raises: whatever it raises."""
    subject = entry.subject
    named = f"{subject.name} {subject.reference}" if ":" in subject.reference else subject.name
    kernel = load_subject(subject, closure_named(named, ROOT)[0]).kernel
    sets = input_sets(
        kernel.operation, entry.shape, entry.dtype, seal=SEAL, cell="check", run=0, anchor=None, count=2, device=device
    )
    found = []
    for one in sets:
        first = {name: tensor.clone() for name, tensor in one.inputs.items()}
        expected = kernel.reference(one.inputs)
        call = kernel.implementations[CPU if device == "cpu" else GPU](one.inputs, one.out, {})
        for _ in range(1 if found else 2):
            call.restore(first)
            call()
            call.note_written(call.differing(first))
            found.append(compare_results(call.results(), expected, TOLERANCES[entry.dtype], name=subject.reference))
    worst = max(found, key=lambda one: (not one.passed, float(one.max_abs_error)))
    return {**worst.model_dump(mode="json"), "calls": len(found)}


def row_of(entry: Entry, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return an outcome with what identifies its subject."""
    facts = {"name": entry.name, "package": f"{entry.package.distribution} {entry.package.version}"}
    return {**facts, "licence": entry.package.licence, "shape": entry.shape, "dtype": entry.dtype, **outcome}


def _platform() -> dict[str, str]:
    """Return the device and the versions that a subject ran on."""
    import torch
    import triton

    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}


def _child(index: int, pipe: Any) -> None:
    try:
        pipe.send({**check(entries()[index]), **_platform()})
    # A package may raise anything; what it raised is the outcome.
    except BaseException as error:  # noqa: BLE001
        pipe.send({"passed": False, "error": explained(error, 600)})


def run_apart(index: int) -> dict[str, Any]:
    """Return the outcome of one subject, run in a process of its own, killed after a limit."""
    entry = entries()[index]
    if (missing := entry.package.missing()) is not None:
        return row_of(entry, {"passed": False, "error": missing})
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "examples.third_party.check"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(index, sender))
    process.start()
    sender.close()
    try:
        outcome = receiver.recv() if receiver.poll(LIMIT_S) else {"passed": False, "error": f"over {LIMIT_S} s"}
    except EOFError:
        outcome = {"passed": False, "error": "the process ended without a result"}
    process.join(5)
    process.kill()
    return row_of(entry, outcome)


def line_of(row: Mapping[str, Any]) -> str:
    """Return one line of the table."""
    if "error" in row:
        return f"FAIL  {row['name']:42} {row['error'][:300]!r}"
    size = f"error {float(row['max_abs_error']):.1e} of {row['atol']} + {row['rtol']} × |reference|"
    return f"{'ok  ' if row['passed'] else 'WRONG'}  {row['name']:42} {row['dtype']:9} {size}"


def merged(file: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a file and new ones, which replace those of the same subject, in the order of the table."""
    old = json.loads(file.read_text()) if file.exists() else []
    found = {_key(row): row for row in (*old, *rows)}
    keys = [_key(row_of(entry, {})) for entry in entries()]
    return [found[key] for key in keys if key in found]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["name"], tuple(row["shape"].items()), row["dtype"]


def main(arguments: Iterable[str]) -> int:
    """Check the named subjects, or all; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="start of module:function; default: all")
    parser.add_argument("-o", "--out", type=Path, help="JSON file, brought up to date as results come")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="print the options of `ledger predict` and stop")
    given = parser.parse_args(list(arguments))
    chosen = [i for i, one in enumerate(entries()) if not given.names or one.name.startswith(tuple(given.names))]
    if given.list:
        print("\n".join(f"ledger predict {entries()[i].options()}" for i in chosen))
        return 0
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(run_apart, index) for index in chosen]):
            rows.append(row := done.result())
            print(line_of(row), flush=True)
            if given.out:
                given.out.write_text(json.dumps(merged(given.out, rows), indent=1) + "\n")
    good = sum(row["passed"] for row in rows)
    print(f"{good} of {len(rows)} subjects agree with their references")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LedgerError as problem:
        sys.exit(f"error: {problem}")
