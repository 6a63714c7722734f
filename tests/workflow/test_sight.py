"""Tests the sight that a forecast gets when it is sealed, by option, campaign, prompt and record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import builders
import pytest
from builders import Ledger, toy_draft
from desk import Desk

from ledger.git.commit import Repository
from ledger.workflow.sight import with_sights

CELL = "--hw cpu --dtype fp32 --regime hbm-bound --pct 30 --shape"


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


def told(ledger: Ledger, *drafts):
    found, lines = with_sights(Repository(ledger.root), drafts)
    return [(item.forecast.sight, item.forecast.known) for item in found], lines


def test_records_give_the_sight_that_the_author_did_not(ledger):
    path = ledger.measure(ledger.seal())
    said, lines = told(ledger, toy_draft(), toy_draft(B=8), toy_draft(B=64))
    assert [sight for sight, _ in said] == ["informed", "near", None]
    assert said[0][1].startswith(f"{path} holds a time of rmsnorm_matmul") and said[2][1] == ""
    assert len(lines) == 3 and lines[2].startswith("sight: 1 forecast undeclared")


def test_a_sight_that_records_disprove_is_sealed_as_declared_and_the_author_is_told(ledger):
    ledger.measure(ledger.seal())
    item = toy_draft()
    item = type(item)(item.forecast.model_copy(update={"sight": "blind"}), item.kernel, item.hardware, item.profile)
    said, lines = told(ledger, item)
    assert said == [("blind", "")]
    (line,) = lines
    assert "blind, yet verifications/" in line and line.endswith("it will count as informed")


def test_a_repository_without_a_commit_has_no_records(tmp_path):
    made = Ledger(tmp_path / "new")
    assert told(made, toy_draft())[0] == [(None, "")]


def sealed(desk: Desk, *arguments: str) -> list[tuple[str | None, str]]:
    (told,) = json.loads(desk.ledger("predict", *arguments, "--json"))
    record = json.loads((desk.root / told["path"]).read_bytes())
    return [(cell["sight"], cell["known"]) for cell in record["cells"]]


def test_options_declare_a_sight(desk: Desk):
    words = "matmul " + CELL
    known = ["--known", "M=48 took 90 µs"]
    assert sealed(desk, *words.split(), "M=64,N=64,K=64", "--sight", "near", *known) == [("near", "M=48 took 90 µs")]
    assert sealed(desk, *words.split(), "M=64,N=64,K=65", "--sight", "blind") == [("blind", "")]
    assert sealed(desk, *words.split(), "M=64,N=64,K=66") == [(None, "")]
    (first, *_) = json.loads(desk.ledger("status", "--json"))["cells"]
    assert (first["sight"], first["declared"], first["known"], first["blind"]) == (
        "near",
        "near",
        "M=48 took 90 µs",
        False,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--sight near", "expected a sentence on what had been timed"),
        ("--known something", "--known: without --sight"),
        ("--sight half", "expected one of: blind, near, informed"),
        ("--from x.yaml --sight blind", "given together with a single forecast"),
    ],
)
def test_a_sight_comes_with_a_sentence(desk: Desk, options: str, said: str):
    cell = "" if "--from" in options else f"matmul {CELL} M=64,N=64,K=64"
    done = desk.run(sys.executable, "-P", "-m", "ledger", "predict", *cell.split(), *options.split())
    assert done.returncode == 2 and said in " ".join(done.stderr.split())


def test_an_entry_of_a_campaign_overrides_its_sight(desk: Desk):
    entry = "shape: {M: %d, N: 64, K: 64}, regime: hbm-bound, pct: 30"
    top = "campaign: c\nkernel: matmul\nhardware: cpu\ndtype: fp32\nsight: near\nknown: M=48 was timed\ncells:\n"
    cells = [entry % 64, f"{entry % 100}, sight: informed, known: this one", f"{entry % 300}, sight: blind"]
    (desk.root / "c.yaml").write_text(top + "".join(f"  - {{{cell}}}\n" for cell in cells))
    assert sealed(desk, "--from", "c.yaml") == [
        ("near", "M=48 was timed"),
        ("informed", "this one"),
        ("blind", "M=48 was timed"),
    ]
