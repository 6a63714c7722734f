"""Kills sealing and recording at random moments, and checks that no acknowledged record is lost and none half visible.

    python tests/stress/kill_loop.py 1000 [at most so many seconds]

Each turn starts a writer that seals a forecast, or records a measurement of an earlier one, and prints the commit when
it returns; the writer is killed (SIGKILL to its whole process group) after a random delay. After each turn the next
writer must work; at the end everything acknowledged must be there, and the judge must find nothing.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent)]

from builders import Ledger, measurement, toy_draft

from ledger.canonical import decode_any, encode, record_id, record_path
from ledger.git.commit import Repository
from ledger.records import Prediction
from ledger.workflow.seal import chain_tips, seal


def writer(root: Path, number: int) -> None:
    """Write one record, say so, and end: forked, so that the interpreter's start takes no part."""
    repository = Repository(root)
    if number % 2 == 0:
        made = seal(repository, [toy_draft(B=1 + number % 50, H=64 + number)])
        os.write(1, f"{made.path} {made.commit}\n".encode())
        return
    head = repository.head()
    assert head is not None
    tips = chain_tips(repository, head)
    identity = next(iter(tips))
    prediction = decode_any(repository.show(head, record_path("predictions", identity)), what="tip")
    assert isinstance(prediction, Prediction)
    record = measurement(prediction.cells[0], seal=identity, device_ms=number)
    data = encode(record)
    path = record_path("verifications", record_id(type(record), data))
    written = repository.commit(lambda _parent: ({path: data}, "Measure\n"))
    os.write(1, f"{path} {written.commit}\n".encode())


def turn(root: Path, number: int, delay_s: float | None) -> tuple[str, bool]:
    """Run one writer, killed after a delay; return what it acknowledged and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.dup2(writing, 1)
        status = 1
        try:
            writer(root, number)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    if delay_s is not None:
        time.sleep(delay_s)
        for kill in (lambda: os.killpg(child, signal.SIGKILL), lambda: os.kill(child, signal.SIGKILL)):
            try:
                kill()
            except ProcessLookupError:
                pass
    _, status = os.waitpid(child, 0)
    # Grandchildren (git) may outlive their parent for a moment; they hold no promise.
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode()
    killed = os.WIFSIGNALED(status)
    if delay_s is None and status != 0:
        raise SystemExit(f"turn {number}: the writer after a kill failed with {status}")
    return said, killed


def main() -> None:
    """Run the loop and print what came of it."""
    count, budget_s = int(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 3600)
    random.seed(20260101)
    with tempfile.TemporaryDirectory() as name:
        ledger = Ledger(Path(name) / "ledger")
        for setting in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
            ledger.git("config", *setting)
        ledger.write("mine.txt", b"mine\n")
        ledger.commit()
        start = time.perf_counter()
        turn(ledger.root, 0, None)
        whole_s = time.perf_counter() - start
        acknowledged: list[str] = []
        outcome: Counter[str] = Counter()
        number, kills, stale = 2, 0, 0
        while kills < count and time.perf_counter() - start < budget_s:
            said, killed = turn(ledger.root, number, random.uniform(0, 1.2 * whole_s))
            kills += killed
            outcome["killed, acknowledged" if killed and said else "killed" if killed else "finished first"] += 1
            acknowledged += said.splitlines()
            folder = ledger.root / ".git"
            for lock in (*folder.glob("*.lock"), *(folder / "refs").rglob("*.lock")):
                # What a person does after a killed git, and what ledger doctor tells them to do.
                lock.unlink()
                stale += 1
            number += 1
            if number % 10 == 0:
                said, _ = turn(ledger.root, number + number % 2, None)
                acknowledged += said.splitlines()
                number += 2
        turn(ledger.root, number + number % 2, None)
        book = ledger.book()
        tree = set(ledger.git("ls-tree", "-r", "--name-only", "HEAD").splitlines())
        commits = set(ledger.git("rev-list", "HEAD").splitlines())
        lost = [line for line in acknowledged if line.split()[0] not in tree or line.split()[1] not in commits]
        status = ledger.git("status", "--porcelain")
        fsck = subprocess.run(["git", "-C", str(ledger.root), "fsck", "--full"], capture_output=True, check=False)
        print(dict(outcome))
        print(
            f"{kills} kills over seal and record (a whole one takes {1000 * whole_s:.0f} ms), {len(acknowledged)} "
            f"acknowledged, {len(lost)} lost, {len(book.refused)} findings, status {status or 'clean'!r}, "
            f"fsck {fsck.returncode}, {stale} stale git locks removed, {len(book.seals)} seals, "
            f"{len(book.records)} records"
        )
        if lost or book.refused or status or fsck.returncode:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
