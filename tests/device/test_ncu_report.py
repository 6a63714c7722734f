"""Tests the reader of reports that users made, on the recorded reports of this repository, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from ledger_process import run_ledger
from stress import report_bits

from ledger.analysis.metric_readings import readings
from ledger.analysis.metrics import ROWS
from ledger.canonical import decode, encode
from ledger.device.ncu_report import check_device, read_hand_made
from ledger.errors import InputError, LedgerError, ParseError
from ledger.records import Counters, Measurement

ROOT = Path(__file__).parents[2]
CSV = ROOT / "tests" / "assets" / "ncu"
RECORDS = [
    decode(Measurement, path.read_bytes(), what=path.name)
    for path in sorted((ROOT / "verifications").glob("??/*.json"))
    if b'"ledger/measurement/1"' in path.read_bytes()
]
REPORTED = [record for record in RECORDS if any(a.name.endswith(".ncu-rep") for a in record.attachments)]
needs_package = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("ncu_report"), reason="needs the package ncu-report"
)


def report_of(record: Measurement, folder: Path) -> Path:
    """Return a recorded report under the name that a user would have given it."""
    digest = record.attachments[0].sha256
    path = folder / "mine.ncu-rep"
    path.write_bytes((ROOT / "verifications" / "objects" / digest[:2] / digest).read_bytes())
    return path


def counters(kernels) -> Counters:
    return Counters(tool="t", command="c", cache_control="all", clock_control="none", kernels=kernels)


@needs_package
@pytest.mark.parametrize("record", REPORTED, ids=lambda record: record.cell)
def test_values_agree_with_what_ncu_printed_of_the_same_report(record: Measurement, tmp_path: Path):
    found = read_hand_made(report_of(record, tmp_path), "9.0")
    assert record.counters is not None
    mine, theirs = readings(counters(found.kernels), "sm_90"), readings(record.counters, "sm_90")
    assert set(mine.values) >= set(theirs.values)
    assert len(theirs.values) > 30
    for name, value in theirs.values.items():
        # ncu prints two digits behind the point, so half of the last one may be lost.
        assert mine.values[name] == pytest.approx(value, abs=0.0051), ROWS[name]


@needs_package
def test_a_report_names_its_device_and_the_options_of_ncu(tmp_path: Path):
    found = read_hand_made(report_of(REPORTED[0], tmp_path), "9.0")
    assert (found.device, found.capability) == ("NVIDIA H200", "9.0")
    assert (found.cache_control, found.clock_control) == ("all", "none")


@needs_package
@pytest.mark.parametrize("keep", [3, 7, 200, 100_000, 1_300_000, -1])
def test_a_truncated_report_is_refused(tmp_path: Path, keep: int):
    path = report_of(REPORTED[0], tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ParseError):
        read_hand_made(path, "9.0")


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"NVR\0", b"NVR\0\xff\xff\xff\xff", b"\x89PNG\r\n\x1a\n"])
def test_a_foreign_report_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(LedgerError, match=r"x\.ncu-rep"):
        read_hand_made(path, "9.0")


def test_a_raw_page_is_read_with_its_capability():
    found = read_hand_made(CSV / "big_gemm.csv", "9.0")
    assert (found.capability, found.device) == ("9.0", None)
    assert readings(counters(found.kernels), "sm_90").values["tensor_percent"] > 60


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 3], "truncated|no unit row|holds no kernel|not CSV"),
        (lambda text: text.replace('"ID"', '"id"'), "no header row"),
        (lambda text: "kernel,time\nx,1\n", "no header row"),
    ],
)
def test_an_invalid_raw_page_is_refused(tmp_path: Path, change, words: str):
    path = tmp_path / "raw.csv"
    path.write_text(change((CSV / "big_gemm.csv").read_text()))
    with pytest.raises(ParseError, match=words):
        read_hand_made(path, "9.0")


def test_another_gpu_is_refused():
    found = read_hand_made(CSV / "big_gemm.csv", "9.0")
    with pytest.raises(InputError, match=r"compute capability is 9\.0; expected 7\.5"):
        check_device(found, capability="7.5", names=("Tesla T4",), what="raw.csv")


# The command


CELL = "rmsnorm_matmul-B32-H4096-O4096-fp16"


class Desk:
    """A clone at the seal, before anything was measured, and a folder with one measurement without counters."""

    def __init__(self, folder: Path) -> None:
        self.record = next(record for record in REPORTED if record.cell == CELL)
        self.root, self.results, self.files = folder / "clone", folder / "results", folder
        seal = f"predictions/{self.record.seal[:2]}/{self.record.seal}.json"
        sealed = git("log", "--diff-filter=A", "--format=%H", "--", seal, folder=ROOT).split()
        git("clone", "--quiet", "--shared", str(ROOT), str(self.root), folder=folder)
        git("checkout", "--quiet", "-B", "main", sealed[0], folder=self.root)
        self.results.mkdir()
        blocked = {"counters": None, "counters_missing": "no counters: closed to this user", "attachments": ()}
        self.result = self.results / f"{self.record.seal}.{CELL}.json"
        self.result.write_bytes(encode(self.record.model_copy(update=blocked)))
        self.before = self.result.read_bytes()

    def verify(self, report: Path, *more: str, cell: str = CELL) -> subprocess.CompletedProcess[str]:
        who = {f"GIT_{r}_{f}": "a@example.org" for r in ("AUTHOR", "COMMITTER") for f in ("NAME", "EMAIL")}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return run_ledger(
            "verify", "--from", str(self.results), "--ncu-report", str(report),
            "--cell", f"{self.record.seal[:10]}#{cell}", *more,
            cwd=self.root, env={**os.environ, **who, "PYTHONPATH": path, "COLUMNS": "200"}, safe_path=True,
        )  # fmt: skip

    @property
    def taken(self) -> list[Path]:
        return sorted((self.root / "verifications").glob("??/*.json"))


def git(*arguments: str, folder: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    return Desk(tmp_path)


@needs_package
def test_verify_ingests_counters_of_a_report(desk: Desk):
    done = desk.verify(report_of(desk.record, desk.files), "--keep-report")
    assert done.returncode == 0, done.stderr
    assert re.search(r"path: /\S+/kernels", done.stderr) and "command line: " in done.stderr
    assert "counters of" in done.stderr and "latency-bound" in done.stdout
    (path,) = desk.taken
    taken = json.loads(path.read_bytes())
    assert taken["counters"]["kernels"][0]["name"] == "rmsnorm_matmul_kernel"
    (kept,) = taken["attachments"]
    assert (desk.root / "verifications" / "objects" / kept["sha256"][:2] / kept["sha256"]).stat().st_size == kept[
        "bytes"
    ]
    assert desk.result.read_bytes() == desk.before, "the folder stays as it was"


def test_verify_ingests_counters_of_a_raw_page(desk: Desk):
    record = desk.record
    (kernel,) = record.counters.kernels
    columns = {"ID": ("", "0"), "Kernel Name": ("", kernel.name), "CC": ("", "9.0")}
    columns |= {name: (metric.unit, metric.value) for name, metric in kernel.metrics.items()}
    rows = [columns, [unit for unit, _ in columns.values()], [value for _, value in columns.values()]]
    path = desk.files / "raw.csv"
    path.write_text("\n".join(",".join(f'"{word}"' for word in row) for row in rows) + "\n")
    done = desk.verify(path)
    assert done.returncode == 0, done.stderr
    assert len(desk.taken) == 1
    assert json.loads(desk.taken[0].read_bytes())["attachments"] == [], "a report is kept on request only"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rmsnorm_matmul_kernel", "other_kernel", "holds kernel 'other_kernel'"),
        ('"9.0"', '"8.0"', "compute capability is 8.0; expected 9.0"),
        ('"ns"', '"us"', "unit is 'us'; expected"),
        ('"13376"', '"133760"', "took 133.76 µs, the timed call"),
    ],
)
def test_a_page_of_another_call_is_refused_and_nothing_is_lost(desk: Desk, old: str, new: str, words: str):
    (kernel,) = desk.record.counters.kernels
    columns = {"ID": ("", "0"), "Kernel Name": ("", kernel.name), "CC": ("", "9.0")}
    columns |= {name: (metric.unit, metric.value) for name, metric in kernel.metrics.items()}
    rows = [columns, [unit for unit, _ in columns.values()], [value for _, value in columns.values()]]
    text = "\n".join(",".join(f'"{word}"' for word in row) for row in rows) + "\n"
    assert old in text
    path = desk.files / "raw.csv"
    path.write_text(text.replace(old, new))
    done = desk.verify(path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not desk.taken and desk.result.read_bytes() == desk.before


def test_recorded_counters_are_not_replaced(desk: Desk):
    desk.result.write_bytes(encode(desk.record.model_copy(update={"attachments": ()})))
    done = desk.verify(CSV / "big_gemm.csv")
    assert done.returncode == 3 and "has counters already" in done.stderr
    assert not desk.taken


def test_a_cell_that_the_folder_lacks_is_an_error(desk: Desk):
    done = desk.verify(CSV / "big_gemm.csv", cell="rmsnorm_matmul-B1-H4096-O4096-fp16")
    assert done.returncode == 2 and "no measurement of it" in done.stderr
    assert not desk.taken


# Damaged reports


@needs_package
def test_flipped_bits_of_a_report_are_read_or_refused_without_a_crash(tmp_path: Path):
    drawn = random.Random(7)
    report = report_of(REPORTED[0], tmp_path)
    data, truth = report.read_bytes(), report_bits.said(read_hand_made(report, "9.0"))
    words: Counter[str] = Counter()
    for bit in drawn.sample(range(8 * len(data)), 40):
        report.write_bytes(report_bits.flipped(data, bit))
        words[report_bits.read_in_a_fork(report, truth)] += 1
    assert set(words) <= {"the same numbers", "other numbers", "a clear error"}
    assert words["a clear error"] and words["the same numbers"]


def test_flipped_bits_of_a_committed_report_are_refused(tmp_path: Path):
    digest, data = next(iter(report_bits.reports().items()))
    assert not report_bits.judged(data, digest)
    for bit in random.Random(8).sample(range(8 * len(data)), 40):
        assert report_bits.judged(report_bits.flipped(data, bit), digest) == {"object-altered"}
    at_once, later = report_bits.committed(tmp_path, data, 12_345)
    assert at_once == {"attachment-lost", "object-altered"} and later == at_once | {"edited"}


def test_a_report_with_an_endless_number_is_refused_at_once(tmp_path: Path):
    header = b"\xff" * 1_000_000
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"NVR\0" + bytes(4) + len(header).to_bytes(4, "little") + header)
    start = time.perf_counter()
    with pytest.raises(ParseError):
        read_hand_made(path, "9.0")
    assert time.perf_counter() - start < 5


# What NVIDIA's own rules wrote into the reports, which ncu prints on its details page

STALL_WORDS = {
    "waiting for sibling warps at a CTA barrier": "barrier",
    "waiting for a scoreboard dependency on a L1TEX": "long_scoreboard",
    "being stalled waiting on a fixed latency execution dependency": "wait",
    "waiting for a scoreboard dependency on an MIO": "short_scoreboard",
}


def rules_of(record: Measurement, folder: Path) -> dict[str, list[str]]:
    import ncu_report

    action = ncu_report.load_report(str(report_of(record, folder))).range_by_idx(0).action_by_idx(0)
    found: dict[str, list[str]] = {}
    for rule in action.rule_results_as_dicts():
        found.setdefault(rule["rule_identifier"], []).append((rule.get("rule_message") or {}).get("message") or "")
    return found


@needs_package
@pytest.mark.parametrize("record", REPORTED, ids=lambda record: f"{record.cell}-{record.seal[:4]}")
def test_conflicts_stalls_and_limiters_agree_with_ncu_s_own_rules(record: Measurement, tmp_path: Path):
    assert record.counters is not None
    seen, rules = readings(record.counters, "sm_90"), rules_of(record, tmp_path)

    limited = " ".join(rules.get("TheoreticalOccupancy", ()))
    words = {"registers": "required registers", "smem": "required amount of shared memory"}
    assert [name for name in words if words[name] in limited] == [n for n in seen.occupancy_limiters if n in words]
    assert limited, "each of these kernels is limited below the hardware's maximum"

    told = [message for message in rules.get("SharedMemoryConflicts", ()) if "bank conflict" in message]
    for way in ("load", "store"):
        shares = [re.search(r"represent ([\d.]+)% of the overall", m)[1] for m in told if f"shared {way}s" in m]
        share = seen.bank_conflict_share_of(way)
        assert share is not None
        if shares:
            assert 100 * share == pytest.approx(float(shares[0]), abs=0.006)
        else:
            # The rule speaks from 10% on.
            assert share < 0.10

    (stalled,) = [m for m in rules.get("CPIStall", ()) if m.startswith("On average")] or [""]
    if stalled:
        cycles = float(re.search(r"spends ([\d.]+) cycles", stalled)[1])
        (reason,) = [name for words, name in STALL_WORDS.items() if words in stalled]
        assert (reason, cycles) == (seen.top_stall[0], pytest.approx(seen.top_stall[1], abs=0.06))

    assert seen.get("threads_per_instruction") == pytest.approx(32, abs=0.5)
    assert "ThreadDivergence" not in rules
