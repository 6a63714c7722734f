"""Injects EIO, ENOSPC, EROFS and SIGKILL at the system calls of a seal, one run each, by strace.

    python tests/stress/faults.py [every [at most so many seconds]]

A seal is ledger's own process and the git commands it starts. Every git command is met in turn: a program named git,
first on the PATH, runs the real one, and the one that is its turn under strace with the fault at one occurrence of one
call. The process itself is met by attaching strace once it is about to write. Afterwards the seal must be whole if it
was acknowledged, whole or absent otherwise; a next seal must work; the judge must find nothing; nothing of the user's
may have changed. With `every` = N only each Nth fault is tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from builders import Ledger

CALLS = ("openat", "write", "fsync", "rename", "link", "unlink", "mkdir", "close", "chmod", "read")
FAULTS = ("error=EIO", "error=ENOSPC", "error=EROFS", "signal=SIGKILL")
SEAL = f"""
import os, subprocess, sys; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
from pathlib import Path
from builders import KERNEL_SOURCE, forecast
from samples import TOY
import git
from ledger.repository.repo import Repository
from ledger.repository.sealing import Draft, seal
class Kernel: source = KERNEL_SOURCE
repository = Repository(Path(sys.argv[1]))
draft = Draft(forecast(B=int(sys.argv[2])), Kernel, TOY)
if len(sys.argv) > 3:
    trace = subprocess.Popen(["strace", "-qq", "-o", sys.argv[4], "-e", sys.argv[3], "-p", str(os.getpid())],
                             stderr=subprocess.PIPE)
    import time; time.sleep(0.15)
print(seal(repository, [draft]).path, flush=True)
os._exit(0)
"""
SHIM = """#!/bin/sh
n=$(($(cat "$FAULT_COUNT" 2>/dev/null || echo 0) + 1)); echo $n > "$FAULT_COUNT"
if [ "$n" = "$FAULT_TURN" ]; then exec strace -f -qq -o "$FAULT_LOG" -e "$FAULT" {git} "$@"; fi
exec {git} "$@"
"""


def fresh(folder: Path) -> Ledger:
    """Return a ledger of a user who has staged something."""
    ledger = Ledger(folder)
    for setting in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
        ledger.git("config", *setting)
    ledger.write("mine.txt", b"mine\n")
    ledger.commit()
    ledger.write("staged.txt", b"staged\n")
    return ledger


class Bench:
    """Hold what every run needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = fresh(folder / "template")
        real = shutil.which("git")
        (folder / "bin").mkdir()
        (folder / "bin" / "git").write_text(SHIM.format(git=real))
        (folder / "bin" / "git").chmod(0o755)

    def seal(
        self, root: Path, *more: str, turn: int = 0, fault: str = "trace=none"
    ) -> subprocess.CompletedProcess[str]:
        """Seal a forecast with a fault at the git command whose turn it is."""
        count = self.folder / "count"
        count.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAULT_COUNT": str(count),
            "FAULT_TURN": str(turn),
            "FAULT_LOG": str(self.folder / "log"),
            "FAULT": fault,
        }
        command = [sys.executable, "-c", SEAL, str(root), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)

    def calls(self) -> Counter[str]:
        """Return how often each call stands in the log."""
        counts: Counter[str] = Counter()
        for line in (self.folder / "log").read_text().splitlines():
            name = line.split(None, 1)[-1].split("(")[0] if line[:1].isdigit() else line.split("(")[0]
            counts[name] += name in CALLS
        return counts

    def plan(self) -> list[tuple[int, str]]:
        """Return every fault: the turn of the git command (0 for ledger's own process) and strace's words."""
        faults: list[tuple[int, str]] = []
        trace = f"trace={','.join(CALLS)}"
        turn = 0
        while True:
            root = shutil.copytree(self.template.root, self.folder / "probe")
            (self.folder / "log").write_text("")
            done = (
                self.seal(root, "2", trace, str(self.folder / "log"))
                if turn == 0
                else self.seal(root, "2", turn=turn, fault=trace)
            )
            shutil.rmtree(root)
            assert done.returncode == 0, done.stderr
            counts = self.calls()
            if turn and not counts:
                return faults
            for call in CALLS:
                for fault in FAULTS:
                    faults += [(turn, f"inject={call}:{fault}:when={when}") for when in range(1, counts[call] + 1)]
            turn += 1

    def check(self, turn: int, fault: str) -> tuple[str, str | None]:
        """Meet one fault; return what became of the seal and what is wrong, if anything."""
        root = shutil.copytree(self.template.root, self.folder / "turn")
        try:
            more = (fault, str(self.folder / "log")) if turn == 0 else ()
            done = self.seal(root, "2", *more, turn=turn, fault=fault)
            for lock in (root / ".git").rglob("*.lock"):
                lock.unlink()
            said = done.stdout.strip()
            again = self.seal(root, "3")
            ledger = Ledger(root)
            book = ledger.book()
            held = {sealed.path for sealed in book.seals}
            status = ledger.git("status", "--porcelain")
            whole = (not said or said in held) and again.returncode == 0 and again.stdout.strip() in held
            word = "acknowledged" if said else "whole, not acknowledged" if len(held) > 1 else "absent"
            if whole and not book.findings and status == "A  staged.txt":
                return word, None
            return (
                word,
                f"git {turn} {fault}: said {said!r}, next {again.returncode} {again.stderr[-200:]!r}, {status!r}",
            )
        finally:
            shutil.rmtree(root)


def main() -> None:
    """Try the faults and print what came of them."""
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    budget_s = float(sys.argv[2]) if len(sys.argv) > 2 else 24 * 3600.0
    outcome: Counter[str] = Counter()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        plan = bench.plan()
        start = time.perf_counter()
        for turn, fault in plan[::step]:
            if time.perf_counter() - start > budget_s:
                break
            word, wrong = bench.check(turn, fault)
            outcome[f"{fault.split(':')[1]}: {word}"] += 1
            if wrong:
                bad.append(wrong)
                print(wrong, flush=True)
    tried = sum(outcome.values())
    print(f"{tried} of {len(plan)} faults tried in {max(turn for turn, _ in plan)} git commands and ledger itself")
    print(dict(sorted(outcome.items())), f"{len(bad)} bad")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
