"""Tests what is found and masked of a machine's names, in text and in recorded profiler reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ledger.analysis.revealing import MachineNames, Revealed, in_file, in_record, masked_report, masked_text

ROOT = Path(__file__).parents[2]
NOBODY = MachineNames()
ADA = MachineNames(
    folders=("/srv/Ada Lovelace/secret project", "/home/adalovelace", "/tmp"),
    words=("adalovelace", "analytical-engine", "192.0.2.77", "vm"),
)
REPORTS = sorted((ROOT / "verifications" / "objects").glob("??/*"))


def kinds(found: list[Revealed]) -> set[tuple[str, str]]:
    return {(one.kind, one.text) for one in found}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("cannot open /home/adalovelace/kernels/x.py", "cannot open ~/kernels/x.py"),
        ("/srv/Ada Lovelace/secret project/x.cu(7): error", "~/x.cu(7): error"),
        ("/data/elsewhere/x.py: no", "~/x.py: no"),
        ("no route to analytical-engine (192.0.2.77) for adalovelace", "no route to ~ (~) for ~"),
        ("adalovelaces analytical-engines", "adalovelaces analytical-engines"),
        ("3.2 TB/s/SM, https://example.org/a/b, dtype=fp16", "3.2 TB/s/SM, https://example.org/a/b, dtype=fp16"),
        ("cannot open b\udcfd, µ and 😀", "cannot open b?, µ and 😀"),
    ],
)
def test_masked_text_keeps_what_names_nobody(text, masked):
    assert masked_text(text, ADA) == masked and len(masked) <= len(text)


def test_in_record_finds_each_kind_in_its_field():
    record = {
        "failure": "cannot open /home/eve/x.py from 192.0.2.9 on analytical-engine",
        "counters": {"command": "ncu --set full -o report python -m ledger.measure.ncu_target job.json"},
        "device": {"name": "NVIDIA H200", "driver": "580.159.04", "software": {"cuda": "13.0.1.2"}},
        "why": "The weights are read once; non-fused loads -- no reuse. See a/b/c and 3 TB/s.",
        "kernels": ["void gemm<float, 4>(T1 const*, int)"],
    }
    found = in_record(json.dumps(record).encode(), ADA)
    assert {(one.kind, one.where) for one in found} == {
        ("path", "failure"),
        ("address", "failure"),
        ("name", "failure"),
        ("command line", "counters.command"),
    }
    assert ("path", "/home/eve/x.py") in kinds(found)


def test_what_an_honest_record_of_a_cpu_holds_reveals_nothing():
    for path in sorted((ROOT / "tests" / "golden").rglob("verifications/??/*.json"))[:20]:
        assert in_record(path.read_bytes(), NOBODY) == []


def test_in_file_finds_what_the_recorded_reports_hold():
    found = kinds(in_file(REPORTS[0].read_bytes(), "x.ncu-rep", NOBODY))
    assert ("path", "/usr/bin/python3.12") in found
    assert [text for kind, text in found if kind == "path" and text.endswith("/kernels/rmsnorm_matmul.py")]
    assert [text for kind, text in found if kind == "command line" and "--target-processes" in text]
    assert not [text for kind, text in found if kind == "command line" and "performance" in text]
    assert [text for kind, text in found if kind == "address"]


def planted(data: bytes) -> bytes:
    """Return a recorded report as it would be on Ada's machine: other names of the same lengths."""
    folder = re.search(rb"(?:/[a-z]+)+/kernels(?=/[a-z_]+\.py)", data)
    assert folder and len(folder[0]) == len(b"/home/adalovelace/") and data.count(b"\x02vm0")
    data = data.replace(folder[0], b"/home/adalovelace/")
    return data.replace(b"/opt/torch/.venv/lib/python3.12", b"/srv/Ada Lovelace/secret projec")


def test_masked_report_holds_no_planted_name_and_the_same_counters(tmp_path):
    names = MachineNames((*ADA.folders, "/srv/Ada Lovelace/secret projec"), ADA.words)
    for number, path in enumerate(REPORTS):
        data = planted(path.read_bytes())
        assert b"adalovelace" in data and b"Ada Lovelace" in data
        masked = masked_report(data, names)
        assert len(masked) == len(data)
        for name in (b"adalovelace", b"Lovelace", b"\x02vm0", b"/tmp/"):
            assert name not in masked, name
        pytest.importorskip("ncu_report")
        from ledger.device.ncu_report import read_hand_made

        files = tmp_path / f"{number}-true.ncu-rep", tmp_path / f"{number}-masked.ncu-rep"
        for file, held in zip(files, (path.read_bytes(), masked), strict=True):
            file.write_bytes(held)
        true, read = (read_hand_made(file, "9.0") for file in files)
        assert (read.kernels, read.device, read.cache_control) == (true.kernels, true.device, true.cache_control)
        assert (read.clock_control, read.capability) == (true.clock_control, true.capability)


def test_masked_report_leaves_short_words_that_are_no_field():
    names = MachineNames(words=("vm", "gpu"))
    data = b"\x12\x02vm vm \x02vm \x12\x04gpu1 gpu__time"
    assert masked_report(data, names) == b"\x12\x02xx vm \x02vm \x12\x04gpu1 gpu__time"


@pytest.mark.parametrize("data", [b"", b"\0" * 1000, bytes(range(256)) * 100, b"/" * 10_000, b"a -" * 10_000])
def test_in_file_takes_any_bytes_quickly(data):
    assert isinstance(in_file(data, "x", ADA), list)
