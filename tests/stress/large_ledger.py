"""Builds a ledger of N seals and N measurements with git fast-import and times `ledger audit` against git fsck.

python tests/stress/large_ledger.py 1000 3000 10000
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parent.parent),
    str(Path(__file__).parent.parent / "support"),
    str(Path(__file__).parent.parent.parent),
]

from builders import KERNEL_SOURCE, PROFILE, forecast, measurement, prediction, timing

from ledger.canonical import encode, object_id, object_path, record_id, record_path
from ledger.records import Measurement, Prediction

ROOT = str(Path(__file__).parent.parent.parent)
ROUNDS = 3


def build(folder: Path, count: int) -> None:
    """Import `count` seals and their measurements, a commit each, and pack them."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    command = ["git", "-C", str(folder), "fast-import", "--quiet", "--force"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        say = process.stdin.write

        def commit(files: dict[str, bytes], number: int) -> None:
            say(
                b"commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 1\nx\n"
                % (1_700_000_000 + number)
            )
            for path, data in files.items():
                say(b"M 100644 inline %s\ndata %d\n" % (path.encode(), len(data)))
                say(data + b"\n")

        tips: dict[str, int] = {}
        objects = {object_path("predictions", object_id(data)): data for data in (KERNEL_SOURCE, PROFILE)}
        for number in range(count):
            cell = forecast(B=1 + number // 100, H=64 + number % 100)
            record = prediction(cell, tips=tips)
            data = encode(record)
            identity = record_id(Prediction, data)
            commit({record_path("predictions", identity): data, **objects}, 2 * number)
            objects, tips = {}, {identity: record.sequence}
            rounds = tuple(2_000_000 + number + k for k in range(31))
            times = timing(2_000_015 + number, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
            measured = encode(measurement(cell, seal=identity, timing=times))
            commit({record_path("verifications", record_id(Measurement, measured)): measured}, 2 * number + 1)
    subprocess.run(["git", "-C", str(folder), "repack", "-q", "-a", "-d"], check=True)


@dataclass(frozen=True)
class Spent:
    """Hold what a command and its children took: seconds on the wall, seconds of processors, MiB at the most."""

    wall_s: float
    cpu_s: float
    memory_mib: int
    stdout: bytes


def spend(*command: str) -> Spent:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": ROOT}
        )
        _, status, use = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{' '.join(command)}: exit {process.returncode}"
        out.seek(0)
        return Spent(wall, use.ru_utime + use.ru_stime, use.ru_maxrss // 1024, out.read())


def measure(folder: Path, *options: str) -> tuple[str, float]:
    """Return a line about ROUNDS audits, each between two of git fsck, and the least processor time of an audit."""
    rounds = []
    for _ in range(ROUNDS):
        before = spend("git", "-C", str(folder), "fsck", "--full")
        audit = spend(sys.executable, "-m", "ledger", "audit", *options, str(folder))
        after = spend("git", "-C", str(folder), "fsck", "--full")
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
            build(folder, count)
            verdict = json.loads(spend(sys.executable, "-m", "ledger", "audit", "--json", str(folder)).stdout)
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
