"""Flips bits of the profiler reports of this repository's cells and checks that none of them passes for the report.

    python tests/stress/report_bits.py [FLIPS [COMMITTED [READ]]]

FLIPS of each report, one at a time, are given to the judge's check of objects: each must be refused. COMMITTED of each
are committed, in place of the report and as a later edit, and the ledger audited end to end: each must be refused.
READ of each are read as `ledger verify --ncu-report` reads a report that is not in the ledger yet: nothing binds it
there, so a flip may alter a number, but none may crash the reader, hang it, or come out as anything but an error of its
own. A report is read in a fork, so that a crash of NVIDIA's library would be seen and counted.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(ROOT)]

from builders import Ledger

from ledger.canonical import decode, object_id, object_path
from ledger.device.ncu_report import HandMade, read_hand_made
from ledger.errors import LedgerError
from ledger.evidence.audit import audit
from ledger.evidence.findings import Findings
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.history import History
from ledger.records import Measurement

PATIENCE_S = 30.0
REFUSALS = {"attachment-lost", "object-altered"}


def reports() -> dict[str, bytes]:
    """Return the committed .ncu-rep files of measured cells, by digest, each as its record names it."""
    found: dict[str, bytes] = {}
    for path in sorted((ROOT / "verifications").glob("??/*.json")):
        data = path.read_bytes()
        if b'"ledger/measurement/1"' not in data:
            continue
        for attachment in decode(Measurement, data, what=path.name).attachments:
            if attachment.name.endswith(".ncu-rep"):
                digest = attachment.sha256
                found[digest] = (ROOT / object_path("verifications", digest)).read_bytes()
                assert object_id(found[digest]) == digest
    return found


def flipped(data: bytes, bit: int) -> bytes:
    """Return bytes with one bit turned over."""
    return data[: bit // 8] + bytes((data[bit // 8] ^ 1 << bit % 8,)) + data[bit // 8 + 1 :]


def judged(data: bytes, digest: str) -> set[str]:
    """Return the codes with which the judge refuses bytes that lie where an attachment belongs."""
    path = object_path("verifications", digest)
    history = History("", (), (), (), {path: ("100644", "blob")})
    gathered = GatheredRecords(history, {}, Findings())
    sound = Objects(gathered, lambda _blob, _limit: data).sound("verifications", digest, "a record")
    codes = {finding.code for finding in gathered.findings.found if finding.severity == "refused"}
    assert sound != bool(codes)
    return codes


def committed(folder: Path, report: bytes, bit: int) -> tuple[set[str], set[str]]:
    """Return the codes of two audits: of a flip that was committed with the record, and of one that came later."""
    ledger = Ledger(folder / "ledger")
    ledger.write("README.md", b"a project\n")
    ledger.commit()
    sealed = ledger.seal()
    ledger.put_measurement(sealed, attachments={"cell.ncu-rep": report})
    path = object_path("verifications", object_id(report))
    ledger.commit()
    ledger.git("branch", "whole")
    ledger.write(path, flipped(report, bit))
    ledger.commit()
    later = audit(str(ledger.root))
    ledger.git("reset", "--quiet", "--soft", "HEAD~2")
    ledger.commit()
    at_once = audit(str(ledger.root))
    assert audit(str(ledger.root), revision="whole").verdict == "holds"
    assert (at_once.verdict, later.verdict) == ("refused", "refused")
    return {f.code for f in at_once.findings}, {f.code for f in later.findings}


def said(report: HandMade) -> tuple[object, ...]:
    """Return what a report says, without its bytes."""
    return report.kernels, report.device, report.capability, report.cache_control, report.clock_control


def read_in_a_fork(path: Path, truth: tuple[object, ...]) -> str:
    """Return what becomes of a report that is read: the same numbers, other numbers, an error, or what must not be."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            word = "the same numbers" if said(read_hand_made(path, "9.0")) == truth else "other numbers"
        except LedgerError:
            word = "a clear error"
        except BaseException as error:  # noqa: BLE001 - anything else is a defect, and is told as one
            word = f"TRACEBACK {error!r}"
        os.write(tell, word.encode())
        os._exit(0)
    os.close(tell)
    ready = select.select([told], [], [], PATIENCE_S)[0]
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(told, "rb") as pipe:
        word = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return word if word and not status else f"{'CRASH' if ready else 'HANG'} {status}"


def main() -> None:
    """Flip and count."""
    flips, ends, reads = (int(text) for text in (*sys.argv[1:], "10000", "12", "10000")[:3])
    drawn = random.Random(20261121)
    found = reports()
    assert found, "no report is attached to a measured cell of this repository"
    bad = 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        for digest, report in found.items():
            size = 8 * len(report)
            assert not judged(report, digest)
            refused = Counter(
                ",".join(sorted(judged(flipped(report, bit), digest))) for bit in drawn.sample(range(size), flips)
            )
            bad += refused[""]
            print(f"{digest[:12]} ({len(report)} bytes): {flips} flips judged: {dict(refused)}", flush=True)
            audits: Counter[str] = Counter()
            for place, bit in enumerate(drawn.sample(range(size), ends)):
                for codes in committed(Path(name) / f"{digest[:12]}-{place}", report, bit):
                    audits[",".join(sorted(codes))] += 1
                    bad += not codes & {*REFUSALS, "edited"}
            print(f"{digest[:12]}: {2 * ends} flips committed and audited: {dict(audits)}", flush=True)
            path = Path(name) / "report.ncu-rep"
            path.write_bytes(report)
            truth = said(read_hand_made(path, "9.0"))
            words: Counter[str] = Counter()
            for bit in drawn.sample(range(size), reads):
                path.write_bytes(flipped(report, bit))
                word = read_in_a_fork(path, truth)
                words[word] += 1
                if word[:1].isupper():
                    bad += 1
                    print(f"{digest[:12]} bit {bit}: {word}", flush=True)
            print(f"{digest[:12]}: {reads} flips read: {dict(words)}", flush=True)
    print(f"{len(found)} reports in {time.perf_counter() - start:.0f} s, {bad} bad")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
