"""Runs a command and tells what it took.

The command is started by a small process of its own: Linux counts among the memory of a process that of its parent at
the time of the fork, and a parent that has just built a ledger is larger than what it measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
_STARTER = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.run(sys.argv[2:], stderr=subprocess.DEVNULL).returncode
wall_s, use = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as told:
    json.dump([wall_s, use.ru_utime + use.ru_stime, use.ru_maxrss // 1024, code], told)
"""


@dataclass(frozen=True)
class Spent:
    """Hold what a command and its children took: seconds on the wall, of processors, MiB of the largest process."""

    wall_s: float
    cpu_s: float
    memory_mib: int
    code: int
    stdout: bytes


def spend(*command: str) -> Spent:
    """Run a command to its end, with this repository's package."""
    with tempfile.NamedTemporaryFile() as told:
        starter = [sys.executable, "-S", "-c", _STARTER, told.name, *command]
        done = subprocess.run(starter, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ROOT}, check=True)
        return Spent(*json.load(told), done.stdout)
