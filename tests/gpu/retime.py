"""Times rows of a bench again, chosen by name, beside what the bench says; resumes, and ends within a time budget.

Usage where a GPU is: PYTHONPATH=. python tests/gpu/retime.py FILE --budget SECONDS [--bench BENCH] [PATTERN …]
BENCH is benchmarks/h200.json unless named. A row's name is its kernel, shape and dtype, such as "mla_decode
B=1,H=128,S=8192 bf16"; PATTERNs are substrings of it, default all rows. --baseline NAME, repeated, runs these alone.
FILE becomes a bench like those of `ledger bench`: it is written after each row, and rows that it has are not timed
again. Exits with 2 when rows are left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ledger.device.local_profile import profile_of_this_machine
from ledger.errors import LedgerError
from ledger.kernel_files import load_kernel
from ledger.measure.bench import bench
from ledger.record_files import write_atomically

ROOT = Path(__file__).parents[2]


def name_of(row: dict[str, Any]) -> str:
    """Return a row's name."""
    return f"{row['kernel']} {','.join(f'{key}={size}' for key, size in row['shape'].items())} {row['dtype']}"


def chosen(rows: list[dict[str, Any]], patterns: list[str]) -> list[dict[str, Any]]:
    """Return the rows whose names have one of the patterns."""
    return [row for row in rows if not patterns or any(pattern in name_of(row) for pattern in patterns)]


def joined(document: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return a bench with the rows of another of the same device; each kernel keeps its digest."""
    if document is None:
        return new
    digests = {**document["conditions"]["kernel_sha256"], **new["conditions"]["kernel_sha256"]}
    conditions = {**document["conditions"], "kernel_sha256": digests}
    return {**document, "conditions": conditions, "rows": [*document["rows"], *new["rows"]]}


def line(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return ours before and now in its headline context, and the ratio to the fastest of all, before and now."""
    ratios = " -> ".join(f"{ratio:.3f}" if (ratio := row.get("ratio_to_fastest")) else "-" for row in (before, now))
    moved = now["ours_us"] / before["ours_us"]
    words = f"{before['ours_us']:9.2f} -> {now['ours_us']:9.2f} us ({moved:.3f})"
    return f"{name_of(now):60}{words}  of the fastest ({now['fastest']}) {ratios}  {now['sm_clock_mhz']} MHz"


def main() -> int:
    """Time what is left and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--budget", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--bench", type=Path, default=ROOT / "benchmarks" / "h200.json")
    parser.add_argument("--baseline", action="append")
    given = parser.parse_intermixed_args()
    started = time.monotonic()
    wanted = chosen(json.loads(given.bench.read_text())["rows"], given.patterns)
    document = json.loads(given.output.read_text()) if given.output.exists() else None
    only = frozenset(given.baseline) if given.baseline else None
    hardware, longest, failed = profile_of_this_machine(ROOT), 0.0, dict[str, str]()
    for row in wanted:
        done = {name_of(one) for one in document["rows"]} if document else set()
        began = time.monotonic()
        if name_of(row) in done:
            continue
        # A row is not begun that may not end in time: none took longer than the longest so far.
        if began - started + longest > given.budget:
            break
        try:
            file = load_kernel(row["kernel"], ROOT, launch=True)
            new = bench(file, [(row["shape"], row["dtype"])], hardware=hardware, only=only).document()
        except LedgerError as error:
            failed[name_of(row)] = str(error)
            continue
        document = joined(document, new)
        write_atomically(given.output, (json.dumps(document, indent=1) + "\n").encode())
        longest = max(longest, time.monotonic() - began)
    timed = {name_of(one): one for one in document["rows"]} if document else {}
    for row in wanted:
        name = name_of(row)
        print(line(row, timed[name]) if name in timed else f"{name:60}{failed.get(name, 'not timed')}")
    return 0 if all(name_of(row) in timed for row in wanted) else 2


if __name__ == "__main__":
    sys.exit(main())
