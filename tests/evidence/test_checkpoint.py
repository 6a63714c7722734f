"""Tests audits that go on from a checkpoint: what is refused, what is found and what is recomputed."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import builders
import pytest
from builders import Ledger, forecast
from random_ledger import random_step

from ledger.errors import LedgerError, MachineError
from ledger.evidence import audit as audits
from ledger.evidence import recompute
from ledger.evidence.audit import audit as audit_alone
from ledger.evidence.audit_result import document
from ledger.evidence.checkpoint import CODE, read_checkpoint, write_checkpoint
from ledger.workflow.audit_index import AuditIndex
from ledger.workflow.index_file import opened_index


@pytest.fixture(params=[True, False], ids=["index", "no index"])
def indexed(request, tmp_path):
    """Return where the auditor keeps the index of a checkpoint, None where it is not kept."""
    return tmp_path / "seen.json" if request.param else None


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def ledger(request, tmp_path, monkeypatch, indexed):
    monkeypatch.setattr(builders, "VERSION", request.param)
    monkeypatch.setattr(Kept, "path", indexed)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    made.first = made.seal()
    made.measure(made.first)
    return made


class Kept:
    """Hold where the index of the test's checkpoint is kept."""

    path: Path | None = None


def audit(source, **options):
    """Audit as the command does: with an index beside the checkpoint."""
    if Kept.path is None:
        return audit_alone(source, **options)
    memory = AuditIndex(Kept.path if options.get("since") else None)
    result = audit_alone(source, memory=memory, **options)
    if result.checkpoint is not None:
        memory.write(Kept.path)
    return result


def checkpoint_of(ledger: Ledger, **options):
    found = audit(str(ledger.root), checkpointed=True, **options).checkpoint
    assert found is not None
    return found


def test_nothing_new_is_shown_as_nothing(ledger):
    result = audit(str(ledger.root), since=checkpoint_of(ledger))
    assert (result.verdict, result.findings) == ("holds", ())
    assert document(result)["predictions"] == []
    assert result.reason == "1 forecast: 1 measured"
    assert "0 records are new, 2 were audited before" in result.notes[0]


def test_only_new_records_are_shown(ledger):
    seen = checkpoint_of(ledger)
    later = ledger.seal(forecast(B=8))
    ledger.measure(later)
    found = document(audit(str(ledger.root), since=seen))
    assert [one["seal"] for one in found["predictions"]] == [later.id]


def test_an_old_cell_that_is_measured_again_is_shown(ledger):
    ledger.seal(forecast(B=8))
    seen = checkpoint_of(ledger)
    ledger.measure(ledger.first, run=1)
    found = document(audit(str(ledger.root), since=seen))
    assert [(one["seal"], len(one["measured"])) for one in found["predictions"]] == [(ledger.first.id, 2)]


def test_a_copy_of_old_evidence_is_found(ledger):
    rounds = tuple(range(2_000_000, 2_000_031))
    times = builders.timing(2_000_015, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
    ledger.measure(ledger.seal(forecast(B=8)), timing=times)
    seen = checkpoint_of(ledger)
    ledger.measure(ledger.seal(forecast(B=16)), timing=times)
    result = audit(str(ledger.root), since=seen)
    assert result.verdict == "refused" and "evidence-copied" in {one.code for one in result.findings}


def test_a_branch_that_contradicts_the_sight_of_an_old_seal_is_found(ledger):
    if builders.VERSION == 1:
        pytest.skip("version 1 declares no sight")
    old = ledger.seal(
        forecast(B=8).model_copy(update={"sight": "blind", "known": "nothing"}), when="2026-01-02T00:00:00Z"
    )
    seen = checkpoint_of(ledger)
    ledger.switch("side", "HEAD~1")
    ledger.measure(ledger.seal(forecast(B=8)))
    ledger.switch("main")
    ledger.merge("side")
    result = audit(str(ledger.root), since=seen)
    assert old.id in {one["seal"] for one in document(result)["predictions"]}
    assert "informed" in {cell.sight for cell in result.book.cells if cell.sealed.id == old.id}
    assert {one.path for one in result.findings if one.code == "sight-contradicted"} == {old.path}


def rewritten(ledger):
    ledger.git("commit", "--quiet", "--amend", "--no-edit", "-m", "another message")


def removed(ledger):
    path = next((ledger.root / "verifications").glob("??/*.json"))
    ledger.git("rm", "-q", str(path))
    ledger.commit("remove")


@pytest.mark.parametrize(("change", "code"), [(rewritten, CODE), (removed, "deleted")], ids=["rewritten", "removed"])
def test_a_history_that_lost_what_was_audited_is_refused(ledger, change, code):
    seen = checkpoint_of(ledger)
    assert audit(str(ledger.root), since=seen).verdict == "holds"
    change(ledger)
    result = audit(str(ledger.root), since=seen)
    assert result.verdict == "refused" and code in {one.code for one in result.findings}


def test_a_checkpoint_of_other_files_is_refused(ledger):
    seen = checkpoint_of(ledger).model_copy(update={"digest": "0" * 64})
    (found,) = audit(str(ledger.root), since=seen).findings
    assert found.code == CODE and "not those of the checkpoint" in found.message


@pytest.mark.parametrize("before", [True, False], ids=["recomputed", "not recomputed"])
def test_samples_are_recomputed_once(ledger, monkeypatch, before):
    seen = checkpoint_of(ledger, recomputed=before)
    path = ledger.measure(ledger.seal(forecast(B=8)))
    asked = []
    disagreement = recompute.disagreement
    monkeypatch.setattr(recompute, "disagreement", lambda *args: asked.append(args) or disagreement(*args))
    result = audit(str(ledger.root), recomputed=True, since=seen, checkpointed=True)
    assert len(asked) == (1 if before else 2)
    assert result.checkpoint.recomputed
    shown = {run.recorded.path: cell.levels for cell in result.book.cells for run in cell.runs}
    assert shown[path] == (0, 1)


def test_a_checkpoint_is_read_as_it_was_written(ledger, tmp_path):
    seen = checkpoint_of(ledger)
    write_checkpoint(tmp_path / "seen.json", seen)
    assert read_checkpoint(tmp_path / "seen.json") == seen


@pytest.mark.parametrize(
    "text", [None, "", "{}", '{"schema": "ledger/seal/1"}', "[" * 100], ids=lambda text: repr(text)[:9]
)
def test_what_is_no_checkpoint_is_bad_input(tmp_path, text):
    path = tmp_path / "seen.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LedgerError, match=r"seen\.json"):
        read_checkpoint(path)


def test_no_checkpoint_is_made_of_an_audit_that_does_not_hold(ledger):
    removed(ledger)
    assert audit(str(ledger.root), checkpointed=True).checkpoint is None


def test_the_command_writes_and_follows_a_checkpoint(ledger, monkeypatch, capsys):
    from ledger.cli.app import app

    monkeypatch.chdir(ledger.root)
    for options in (["--checkpoint", "../seen.json"], ["--since", "../seen.json", "--json"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app(["audit", ".", *options])
        assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["predictions"] == []


def shown(result):
    """Return what an audit says; of findings and cells the order is not told apart."""
    told = document(result)
    told["findings"].sort(key=repr)
    return {key: value for key, value in told.items() if key not in ("notes", "levels")}


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_are_audited_since_a_checkpoint_as_without_an_index(ledger, monkeypatch, seed):
    if Kept.path is None:
        pytest.skip("compares with an index")
    judged = []
    judge = audits.judge
    monkeypatch.setattr(audits, "judge", lambda *args, **more: judged.append(0) or judge(*args, **more))
    drawn, seals, seen, alone = random.Random(seed), [ledger.first], checkpoint_of(ledger), 0
    for _ in range(10):
        for _ in range(drawn.choice((1, 2, 3))):
            random_step(ledger, drawn, seals)
        judged.clear()
        result = audit(str(ledger.root), since=seen, checkpointed=True)
        alone += not judged
        whole = audit_alone(str(ledger.root), since=seen, checkpointed=True)
        assert shown(result) == shown(whole)
        if result.checkpoint is None:
            ledger.git("reset", "--quiet", "--hard", seen.commit)
            seals = [one for one in seals if (ledger.root / one.path).exists()]
            seen = checkpoint_of(ledger)
        else:
            unlike = {"findings": ()}
            assert result.checkpoint.model_copy(update=unlike) == whole.checkpoint.model_copy(update=unlike)
            assert set(whole.checkpoint.findings) <= set(result.checkpoint.findings)
            seen = result.checkpoint
    assert alone >= 4


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_without_its_index_a_checkpoint_has_all_judged_again(ledger, damage):
    seen = checkpoint_of(ledger)
    if Kept.path is not None:
        index = Kept.path.with_name(f"{Kept.path.name}.index")
        data = index.read_bytes()
        index.write_bytes(data[: len(data) // 2] if damage == "cut" else b"no database")
        if damage == "missing":
            index.unlink()
    ledger.seal(forecast(B=8))
    result = audit(str(ledger.root), since=seen)
    assert (result.verdict, result.reason) == ("holds", "2 forecasts: 1 measured, 1 open")


def test_an_audit_that_has_no_room_for_its_index_says_so(ledger, monkeypatch):
    if Kept.path is None:
        pytest.skip("compares with an index")
    for size in range(2, 14):
        ledger.seal(forecast(B=size))

    def full(name):
        with closing(sqlite3.connect(name)) as small:
            small.executescript("pragma page_size = 512; vacuum")
        connection = opened_index(name)
        connection.execute("pragma max_page_count = 1")
        return connection

    monkeypatch.setattr("ledger.workflow.audit_index.opened_index", full)
    with pytest.raises(MachineError, match=r"disk is full; expected room .*; free some, or set TMPDIR"):
        audit(str(ledger.root), checkpointed=True)
