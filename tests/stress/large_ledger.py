"""Builds a ledger of N seals and N measurements with git fast-import and times `ledger audit` against git fsck.

python tests/stress/large_ledger.py 1000 3000 10000
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parent.parent),
    str(Path(__file__).parent.parent / "support"),
    str(Path(__file__).parent.parent.parent),
]

from many_records import write_many
from spent import Spent, spend

ROUNDS = 3


def sound(*command: str) -> Spent:
    """Run a command that must succeed."""
    spent = spend(*command)
    assert spent.code == 0, f"{' '.join(command)}: exit {spent.code}"
    return spent


def measure(folder: Path, *options: str) -> tuple[str, float]:
    """Return a line about ROUNDS audits, each between two of git fsck, and the least processor time of an audit."""
    rounds = []
    for _ in range(ROUNDS):
        before = sound("git", "-C", str(folder), "fsck", "--full")
        audit = sound(sys.executable, "-m", "ledger", "audit", *options, str(folder))
        after = sound("git", "-C", str(folder), "fsck", "--full")
        rounds.append((audit, (before.wall_s + after.wall_s) / 2, (before.cpu_s + after.cpu_s) / 2))
    walls = ", ".join(f"{audit.wall_s:.1f}/{wall:.1f} s ({audit.wall_s / wall:.2f})" for audit, wall, _ in rounds)
    cpus = ", ".join(f"{audit.cpu_s:.1f}/{cpu:.1f} s ({audit.cpu_s / cpu:.2f})" for audit, _, cpu in rounds)
    memory = max(audit.memory_mib for audit, _, _ in rounds)
    words = f"audit {' '.join(options)}: wall/fsck {walls}; processors/fsck {cpus}; memory {memory} MiB"
    return words, min(audit.cpu_s for audit, _, _ in rounds)


def main() -> None:
    """Print two lines a size, and how the processor time grows from one size to the next."""
    seen: list[tuple[int, float]] = []
    for count in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "large.git"
            write_many(folder, count)
            verdict = json.loads(sound(sys.executable, "-m", "ledger", "audit", "--json", str(folder)).stdout)
            said = f"{verdict['verdict']} ({verdict['reason']}), {len(verdict['findings'])} findings"
            print(f"{count} seals + {count} measurements: {said}; load {os.getloadavg()[0]:.1f}", flush=True)
            words, _ = measure(folder)
            print(f"  {words}", flush=True)
            words, least = measure(folder, "--json")
            print(f"  {words}", flush=True)
            seen.append((count, least))
    for (few, short), (many, long) in pairwise(seen):
        each = (long - short) / (many - few) * 1000
        print(f"from {few} to {many}: {each:.2f} ms of processor time for each further seal and measurement")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
