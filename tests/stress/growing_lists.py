"""Times lists and one more seal of a ledger of N seals and N measurements, beside those of an empty one.

python tests/stress/growing_lists.py 100000
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path[:0] = [
    str(Path(__file__).parent.parent),
    str(Path(__file__).parent.parent / "support"),
    str(Path(__file__).parent.parent.parent),
]

import builders
from large_ledger import sound
from many_records import Branch, records_of, write_many
from spent import Spent

ROUNDS = 5
LISTS = ("status", "log", "score")


def run(folder: Path, *words: str) -> Spent:
    """Run a command of ledger in a folder."""
    os.chdir(folder)
    return sound(sys.executable, "-m", "ledger", *words)


def told(what: str, spent: list[Spent]) -> str:
    """Return the medians and extremes of several runs as a line."""
    walls, cpus = ([getattr(one, name) for one in spent] for name in ("wall_s", "cpu_s"))
    wall, cpu = (f"{median(of):.2f} s ({min(of):.2f} to {max(of):.2f})" for of in (walls, cpus))
    return f"{what}: {wall}; processors {cpu}; load {os.getloadavg()[0]:.1f}"


def seal(folder: Path, number: int) -> Spent:
    """Seal a forecast of a case that was not sealed before."""
    case = ("matmul", "--hw", "t4", "--dtype", "fp16", "--shape", f"M={64 + number},N=64,K=64")
    return run(folder, "predict", *case, "--regime", "launch-bound", "--pct", "2")


def grow(folder: Path, files: dict[str, bytes]) -> None:
    """Commit one more record."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    subprocess.run(["git", "-C", str(folder), "add", *files], check=True)
    subprocess.run(["git", "-C", str(folder), "commit", "-q", "-m", "x"], check=True)


def time_lists(folder: Path, branch: Branch, count: int) -> None:
    """Print what each list takes at first, unchanged, and after one more seal or measurement."""
    print(told("first list, which judges all", [run(folder, "status")]), flush=True)
    for name in LISTS:
        run(folder, name)
        print(told(f"{name}, unchanged", [run(folder, name) for _ in range(ROUNDS)]), flush=True)
        spent: dict[str, list[Spent]] = {"seal": [], "measurement": []}
        for _ in range(ROUNDS):
            for what, files in zip(spent, records_of(count, branch), strict=True):
                grow(folder, files)
                spent[what].append(run(folder, name))
            count += 1
        for what, several in spent.items():
            print(told(f"{name}, after one more {what}", several), flush=True)


def main() -> None:
    """Print a line each."""
    builders.VERSION = 2
    os.environ.update(builders.EMPTY_GIT)
    # An installed command has its bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        large, empty = Path(name) / "large", Path(name) / "empty"
        branch = write_many(Path(name) / "large.git", count)
        subprocess.run(["git", "clone", "-q", f"{large}.git", str(large)], check=True)
        run(Path(name), "init", str(empty))
        time_lists(large, branch, count)
        for folder in (empty, large):
            seal(folder, 0)
            print(told(f"one more seal in {folder.name}", [seal(folder, 1 + n) for n in range(ROUNDS)]), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
