"""Lets 50 processes seal 20 forecasts each, at once, and checks that all are there, in one line.

python tests/stress/crowd.py 50 20
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent)]

from builders import Ledger, toy_draft

from ledger.git.commit import Repository
from ledger.workflow.seal import seal


def write(root: str, writer: int, count: int) -> None:
    """Seal forecasts; every fifth is of a cell that all writers share."""
    repository = Repository(Path(root))
    for turn in range(count):
        cell = toy_draft(B=1, H=64) if turn % 5 == 0 else toy_draft(B=1 + writer, H=64 + turn)
        seal(repository, [cell])


def main() -> None:
    """Start the writers and print what came of it."""
    writers, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        ledger = Ledger(Path(name) / "ledger")
        for setting in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
            ledger.git("config", *setting)
        ledger.write("mine.txt", b"mine\n")
        ledger.commit()
        ledger.write("staged.txt", b"staged\n")
        start = time.perf_counter()
        jobs = [multiprocessing.Process(target=write, args=(str(ledger.root), w, count)) for w in range(writers)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        took = time.perf_counter() - start
        book = ledger.book()
        present = len(book.seals)
        linear = [s.prediction.sequence for s in book.seals] == list(range(1, writers * count + 1))
        merges = ledger.git("rev-list", "--count", "--merges", "HEAD")
        status = ledger.git("status", "--porcelain")
        print(
            f"{writers} writers x {count} seals: {present} of {writers * count} present, linear {linear}, "
            f"merges {merges}, {len(book.refused)} findings, status {status!r}, {took:.0f} s, "
            f"exits {sorted({j.exitcode for j in jobs})}"
        )
        if not linear or book.refused or status != "A  staged.txt":
            raise SystemExit(1)


if __name__ == "__main__":
    main()
