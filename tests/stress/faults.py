"""Injects EIO, ENOSPC, EROFS and SIGKILL at the system calls of a seal, one run each, by strace.

    python tests/stress/faults.py [every]

For each call that touches files (openat, write, fsync, rename, link, ...) and each of its occurrences, in ledger and in
the git commands it starts, one run meets the fault there. Afterwards the seal must be whole if it was acknowledged,
whole or absent otherwise, a next seal must work, and the judge must find nothing. With `every` = N only each Nth
occurrence is tried.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from builders import Ledger

CALLS = ("openat", "write", "fsync", "rename", "link", "unlink", "mkdir", "close", "chmod", "flock", "fdatasync")
FAULTS = ("error=EIO", "error=ENOSPC", "error=EROFS", "signal=SIGKILL")
SEAL = f"""
import sys; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
from pathlib import Path
from builders import KERNEL_SOURCE, forecast
from samples import TOY
from ledger.repo import Repository
from ledger.sealing import Draft, seal
class Kernel: source = KERNEL_SOURCE
open("/proc/self/comm", "w").write("ready")
print(seal(Repository(Path(sys.argv[1])), [Draft(forecast(B=int(sys.argv[2])), Kernel, TOY)]).path, flush=True)
"""


def run(root: Path, size: int, inject: str | None, log: Path) -> subprocess.CompletedProcess[str]:
    """Seal one forecast under strace; the fault hits each process of the seal at that occurrence."""
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}", "-P", str(root)]
    trace += [] if inject is None else ["-e", f"inject={inject}"]
    return subprocess.run(
        [*trace, sys.executable, "-c", SEAL, str(root), str(size)], capture_output=True, text=True, check=False
    )


def fresh(folder: Path) -> Ledger:
    """Return a ledger with one seal."""
    ledger = Ledger(folder)
    for setting in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
        ledger.git("config", *setting)
    ledger.write("mine.txt", b"mine\n")
    ledger.commit()
    ledger.write("staged.txt", b"staged\n")
    return ledger


def main() -> None:
    """Try every fault at every occurrence and print what came of it."""
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    outcome: Counter[str] = Counter()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = fresh(folder / "template")
        probe = run(shutil.copytree(template.root, folder / "probe"), 2, None, folder / "log")
        if probe.returncode:
            raise SystemExit(f"strace cannot trace here: {probe.stderr[-300:]}")
        counts: Counter[str] = Counter()
        for line in (folder / "log").read_text().splitlines():
            parts = line.split(None, 1)
            counts[parts[1].split("(")[0] if len(parts) > 1 else ""] += 1
        for call in CALLS:
            for fault in FAULTS:
                for when in range(1, counts[call] + 1, step):
                    root = folder / "turn"
                    shutil.copytree(template.root, root)
                    done = run(root, 2, f"{call}:{fault}:when={when}", folder / "log")
                    ledger = Ledger(root)
                    for lock in (root / ".git").rglob("*.lock"):
                        lock.unlink()
                    said = done.stdout.strip()
                    again = subprocess.run(
                        [sys.executable, "-c", SEAL, str(root), "3"], capture_output=True, text=True, check=False
                    )
                    book = ledger.book()
                    held = {sealed.path for sealed in book.seals}
                    status = ledger.git("status", "--porcelain")
                    whole = (not said or said in held) and again.returncode == 0 and again.stdout.strip() in held
                    if not whole or book.findings or status != "A  staged.txt" or "Traceback" in done.stdout:
                        bad.append(f"{call}:{fault}:when={when}: said {said!r} again {again.returncode} {status!r}")
                    word = "acknowledged" if said else "whole, not acknowledged" if len(held) > 1 else "absent"
                    outcome[f"{fault} {word}"] += 1
                    shutil.rmtree(root)
    print(dict(counts))
    print(dict(outcome), f"{sum(outcome.values())} faults, {len(bad)} bad")
    print("\n".join(bad[:20]))
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
