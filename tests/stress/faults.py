"""Injects EIO, ENOSPC, EROFS and SIGKILL at every system call of a seal, one seal for each fault, by strace.

    python tests/stress/faults.py [--log FILE] [--every N] [--seconds S] [--part K/N] [--again]

A seal is ledger's own process and the git commands it starts. Every git command is met in turn: the one that is its
turn is started by strace with the fault at one occurrence of one call, the dynamic loader's included. Ledger's own
process is a fork of this one, met by attaching strace before it opens the repository. SIGKILL is tried at every call
of any name, the errors at every call that names a file or a descriptor. Afterwards the seal must be whole if it was
acknowledged, whole or absent otherwise; a next seal must work; the judge must find nothing; nothing of the user's may
have changed. A repository that is, file for file, as it was before the seal is not sealed and judged again: that was
done once.

--log keeps the plan and every outcome, a line each, and goes on where it ended; --part K/N takes every Nth of what is
left, so that N processes can share a log; --again tries those anew that went wrong or did not come up. What is left
out: Python's own start, and what stands between its fork and the first call of a git command.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent)]

import git.cmd  # Loaded before the fork, as are all modules of a seal.
from builders import Ledger, toy_draft

import ledger.git.objects  # noqa: F401  (imported in functions only)
from ledger.errors import LedgerError
from ledger.git.commit import Repository
from ledger.workflow.seal import seal

FILE_CALLS = frozenset(
    "access chdir chmod close dup dup2 faccessat2 fchmod fcntl fdatasync flock fstat fsync ftruncate getcwd"
    " getdents64 ioctl lgetxattr link linkat listxattr lseek lstat mkdir newfstatat openat pread64 pwrite64 read"
    " readlink rename renameat rmdir sendfile stat statfs statx symlink unlink unlinkat utimensat write writev".split()
)
ERRORS = ("error=EIO", "error=ENOSPC", "error=EROFS")
KILL = "signal=SIGKILL"
# The waiting of this script for strace; the starting of a program, by strace itself; the end of one.
_NOT_OF_A_SEAL = ("rt_sigtimedwait", "execve", "exit_group", "exit")
PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Fault:
    """Name one fault: the turn of the git command (0 is ledger's own process), and what strace does to which call."""

    turn: int
    call: str
    what: str
    when: int

    @property
    def words(self) -> str:
        """Return the fault as strace's options: only its call is traced, so that its log holds nothing else."""
        return f"-e trace={self.call} -e inject={self.call}:{self.what}:when={self.when}"


@dataclass(frozen=True)
class Outcome:
    """Hold what became of a seal under a fault; `met` is false when the call did not come up this time."""

    word: str
    met: bool
    wrong: str | None


def fresh(folder: Path) -> Ledger:
    """Return a ledger of a user who has staged something, with one seal in it."""
    ledger = Ledger(folder)
    for setting in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
        ledger.git("config", *setting)
    ledger.write("mine.txt", b"mine\n")
    ledger.commit()
    seal_here(ledger.root, 1)
    ledger.write("staged.txt", b"staged\n")
    return ledger


def seal_here(root: Path, batch: int) -> str:
    """Seal a forecast in this process and return the path of the seal."""
    return seal(Repository(root), [toy_draft(B=batch)]).path


class Bench:
    """Hold what every run needs: a repository to copy, what its files are, and strace's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = fresh(folder / "template")
        self.log = folder / "log"
        self.before = files_of(self.template.root)
        untouched = Ledger(shutil.copytree(self.template.root, folder / "untouched"))
        assert files_of(untouched.root) == self.before
        assert _judged(self.template, untouched, "", "", met=True).wrong is None

    def seal(self, root: Path, turn: int, words: str, *, fast: bool) -> tuple[str, str]:
        """Seal in a fork of this process, strace being given `words` in one turn; return what it said and its error.

        fast: let the kernel filter the calls that strace stops at; strace injects no signal then.
        """
        self.log.write_text("")
        told, tell = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        child = os.fork()
        if child == 0:
            os.close(told)
            _start_by_strace(turn, ["-f", *(["--seccomp-bpf"] if fast else []), "-o", str(self.log), *words.split()])
            _play(root, tell)
        os.close(tell)
        if turn == 0:
            self._attach(child, words)
        os.kill(child, signal.SIGUSR1)
        with os.fdopen(told, "rb") as pipe:
            answer = pipe.read().decode()
        _wait_for_all()
        said, _, error = answer.partition("\n")
        return said, error

    def _attach(self, process: int, words: str) -> None:
        """Attach strace to a process that waits for a signal."""
        subprocess.Popen(["strace", "-q", "-o", str(self.log), *words.split(), "-p", str(process)])
        status = Path(f"/proc/{process}/status")
        while "TracerPid:\t0\n" in status.read_text():
            time.sleep(0.001)
        # Strace stops the process once more, to begin, after it became its tracer.
        time.sleep(0.01)

    def plan(self) -> list[Fault]:
        """Return every fault of a seal, from a trace of each of its processes."""
        faults: list[Fault] = []
        for turn in range(1000):
            root = shutil.copytree(self.template.root, self.folder / "probe")
            said, error = self.seal(root, turn, "-e trace=all", fast=False)
            shutil.rmtree(root)
            assert said, error
            counts = Counter(_calls(self.log.read_text()))
            if not counts:
                return faults
            for call in sorted(counts):
                whats = (*ERRORS, KILL) if call in FILE_CALLS else (KILL,)
                faults += [Fault(turn, call, what, when + 1) for what in whats for when in range(counts[call])]
        raise AssertionError("a seal takes more git commands than expected")

    def meet(self, fault: Fault) -> Outcome:
        """Seal under one fault and judge what is left."""
        root = shutil.copytree(self.template.root, self.folder / "turn")
        try:
            said, error = self.seal(root, fault.turn, fault.words, fast=fault.what != KILL)
            log = self.log.read_text()
            met = "(INJECTED)" in log or "killed by SIGKILL" in log
            # What doctor tells the user to do with the locks of a killed git.
            for lock in (root / ".git").rglob("*.lock"):
                lock.unlink()
            if not said and not error.startswith("traceback") and files_of(root) == self.before:
                return Outcome("absent", met, None)
            return _judged(self.template, Ledger(root), said, error, met)
        finally:
            shutil.rmtree(root)


def _start_by_strace(turn: int, options: list[str]) -> None:
    """Let strace start the git command whose turn it is, in this process; GitPython starts its own."""
    started = itertools.count(1)

    def counting(start: Any) -> Any:
        def counted(command: list[str], **given: Any) -> Any:
            if command[0] == "git" and next(started) == turn:
                command = ["strace", "-q", *options, *command]
            return start(command, **given)

        return counted

    subprocess.run = counting(subprocess.run)
    git.cmd.safer_popen = counting(git.cmd.safer_popen)


def files_of(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, and the mode of each, by path; of a folder its name alone."""
    found = {}
    for folder, folders, files in os.walk(root):
        found.update({str(Path(folder, name).relative_to(root)): b"" for name in folders})
        for name in files:
            path = Path(folder, name)
            found[str(path.relative_to(root))] = path.stat().st_mode.to_bytes(4, "big") + path.read_bytes()
    return found


def _play(root: Path, tell: int) -> None:
    """Be ledger's own process: wait to be attached, seal, say the seal's path or the error, and end."""
    signal.sigwait({signal.SIGUSR1})
    answer = ""
    try:
        answer = seal_here(root, 2) + "\n"
    except (LedgerError, OSError) as error:
        # The command line turns either into one sentence.
        answer = f"\n{error}"
    except Exception as error:  # noqa: BLE001 - whatever else comes out of a seal is told, as a defect
        answer = f"\ntraceback: {error!r}"
    finally:
        with suppress(OSError):
            os.write(tell, answer.encode())
        os._exit(0)


def _wait_for_all() -> None:
    """Wait for every process that this one started, directly or not."""
    deadline = time.monotonic() + PATIENCE_S
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)


def _calls(log: str) -> Iterator[str]:
    """Yield the name of each call in strace's log."""
    for line in log.splitlines():
        words = line.split(None, 1)[-1] if line[:1].isdigit() else line
        name = words.split("(")[0]
        if name.isidentifier() and name not in _NOT_OF_A_SEAL and "resumed" not in words[:8]:
            yield name


def _judged(before: Ledger, ledger: Ledger, said: str, error: str, met: bool) -> Outcome:
    """Return what became of a seal, and what is wrong if anything."""
    again, words = "", ""
    try:
        again = seal_here(ledger.root, 3)
    except LedgerError as failure:
        words = f"; next seal: {failure}"
    book = ledger.book()
    held = {sealed.path for sealed in book.seals}
    status = ledger.git("status", "--porcelain")
    present = len(held) - 1 - bool(again)
    word = "acknowledged" if said else "whole, not acknowledged" if present else "absent"
    problems = [
        "acknowledged and lost" if said and said not in held else "",
        "next seal failed" if not again or again not in held else "",
        f"judge: {[(finding.code, finding.path) for finding in book.findings]}" if book.findings else "",
        f"status {status!r}" if status != "A  staged.txt" else "",
        "user's files changed" if (ledger.root / "mine.txt").read_bytes() != b"mine\n" else "",
        "" if _mine(ledger) == _mine(before) else "user's tree changed",
        "traceback" if error.startswith("traceback") else "",
    ]
    wrong = "; ".join(filter(None, problems))
    return Outcome(word, met, f"{wrong}; said {said!r}, {error[-300:]!r}{words}" if wrong else None)


def _mine(ledger: Ledger) -> str:
    """Return git's name of the user's file as committed, or nothing when it is not."""
    return ledger.git("rev-parse", "--verify", "--quiet", "HEAD:mine.txt", check=False)


class Log:
    """Keep the plan and the outcomes in a file, a JSON line each, so that a run can go on where one ended."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.plan: list[Fault] | None = None
        self.outcomes: dict[Fault, Outcome] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            held = json.loads(line)
            if "plan" in held:
                self.plan = [Fault(*fault) for fault in held["plan"]]
            else:
                self.outcomes[Fault(*held["fault"])] = Outcome(**held["outcome"])

    def write(self, line: dict[str, object]) -> None:
        """Add a line."""
        if self.path is not None:
            with self.path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")

    def keep(self, fault: Fault, outcome: Outcome) -> None:
        """Keep the outcome of a fault."""
        self.outcomes[fault] = outcome
        self.write({"fault": list(vars(fault).values()), "outcome": vars(outcome)})


def run(bench: Bench, log: Log, every: int, budget_s: float, part: str, again: bool) -> None:
    """Try the faults of the plan that have no outcome yet."""
    if log.plan is None:
        log.plan = bench.plan()
        log.write({"plan": [list(vars(fault).values()) for fault in log.plan]})
    settled = {fault for fault, outcome in log.outcomes.items() if not (again and (outcome.wrong or not outcome.met))}
    start = time.perf_counter()
    place, parts = map(int, part.split("/"))
    todo = [fault for fault in log.plan[::every] if fault not in settled][place - 1 :: parts]
    for number, fault in enumerate(todo):
        if time.perf_counter() - start > budget_s:
            break
        outcome = bench.meet(fault)
        log.keep(fault, outcome)
        if outcome.wrong:
            print(fault, outcome, flush=True)
        if number % 500 == 499:
            print(f"{number + 1} of {len(todo)}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Try the faults and print what came of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=24 * 3600.0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    # The git commands of a killed seal are waited for here, as an init would.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = Log(given.log)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        run(Bench(Path(name)), log, given.every, given.seconds, given.part, given.again)
    assert log.plan is not None
    outcomes = Counter(
        f"{fault.what.split('=')[1]}: {outcome.word}" if outcome.met else "call did not come up"
        for fault, outcome in log.outcomes.items()
    )
    turns = max(fault.turn for fault in log.plan)
    print(f"{len(log.outcomes)} of {len(log.plan)} faults tried in {turns} git commands and ledger itself")
    bad = sum(1 for outcome in log.outcomes.values() if outcome.wrong)
    print(dict(sorted(outcomes.items())), f"{bad} bad")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
