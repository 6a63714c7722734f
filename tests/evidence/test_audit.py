"""Tests the audit as its users meet it: exit codes, the JSON contract, notes and bounds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from builders import Ledger, forecast, honest, honest_samples
from ledger_process import run_ledger

from ledger.canonical import object_path
from ledger.errors import InputError, StateError
from ledger.evidence.audit import audit
from ledger.evidence.audit_result import LEVELS
from ledger.evidence.challenge import anchor_of
from ledger.git import clone, reader
from ledger.git.history import read_history

ROOT = Path(__file__).parents[2]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, outside of any shadowing folder."""
    return run_ledger(*arguments, cwd=cwd or Path.cwd(), safe_path=True)


def test_exit_codes_and_json_of_the_three_verdicts(tmp_path):
    holds = honest(tmp_path / "holds")[0]
    refused = honest(tmp_path / "refused")[0]
    refused.git("rm", "-rq", "verifications")
    refused.commit()
    empty = Ledger(tmp_path / "empty")
    for ledger, code, verdict in ((holds, 0, "holds"), (refused, 3, "refused"), (empty, 2, "undetermined")):
        done = run("audit", "--json", str(ledger.root))
        document = json.loads(done.stdout)
        assert (done.returncode, document["verdict"]) == (code, verdict), done.stderr
        assert {"verdict", "findings", "levels", "predictions"} <= set(document)
        assert set(document["levels"]) == {str(level) for level in LEVELS}
        assert "Traceback" not in done.stderr
    assert {f["code"] for f in json.loads(run("audit", "--json", str(refused.root)).stdout)["findings"]} >= {"deleted"}


def test_json_of_a_prediction(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    document = json.loads(run("audit", "--json", "--recompute", str(ledger.root)).stdout)
    (cell,) = document["predictions"]
    assert (cell["seal"], cell["state"], cell["levels"], cell["blind"]) == (sealed.id, "measured", [0, 1], True)
    assert cell["samples"] == "recomputed"
    assert document["levels"]["1"]["provided"] and not document["levels"]["3"]["provided"]
    assert document["commit"] == ledger.head and document["not_proven"]


def test_open_seals_hold_and_are_listed(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    ledger.seal()
    done = run("audit", "--json", cwd=ledger.root)
    assert done.returncode == 0
    assert [cell["state"] for cell in json.loads(done.stdout)["predictions"]] == ["open"]


def test_printed_audit_names_commit_verdict_and_what_is_not_proven(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    text = run("audit", str(ledger.root)).stdout
    assert text.splitlines()[0].startswith(f"audited commit {ledger.head}")
    for words in (sealed.id[:10], "verdict: holds", "not provided", "Nobody can prove", "self-declared"):
        assert words in text


@pytest.mark.parametrize("source", ["--upload-pack=touch x", "ext::sh -c true", "fd::7", "/nonexistent", "a\0b"])
def test_odd_sources_are_refused(source):
    with pytest.raises(InputError):
        audit(source)


def test_a_folder_that_is_no_repository_is_refused(tmp_path):
    with pytest.raises(InputError, match="not in a git repository"):
        audit(str(tmp_path))


def test_sources_of_many_kinds(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "with space 'quote\" and ünïcode")
    ledger.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    subprocess.run(["git", "clone", "-q", "--bare", str(ledger.root), str(tmp_path / "bare.git")], check=True)
    ledger.git("checkout", "--quiet", "--detach")
    for source in (ledger.root, ledger.root / "predictions", tmp_path / "side", tmp_path / "bare.git"):
        assert audit(str(source)).verdict == "holds", source
    assert audit(f"file://{tmp_path}/bare.git").verdict == "holds"
    monkeypatch.chdir(ledger.root / "predictions")
    assert audit(".").verdict == "holds"


def test_another_revision(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    good = ledger.head
    ledger.git("tag", "good")
    ledger.git("rm", "-rq", "verifications")
    ledger.commit()
    assert audit(str(ledger.root)).verdict == "refused"
    assert audit(str(ledger.root), revision="good").verdict == "holds"
    assert audit(str(ledger.root), revision=good).book.head == good
    for revision in ("nowhere", "--all", "HEAD:predictions"):
        found = audit(str(ledger.root), revision=revision)
        assert found.verdict == "undetermined" and "names no commit here" in found.reason


def test_other_refs_and_uncommitted_work_are_noted_and_not_judged(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    ledger.switch("side", ledger.head)
    ledger.seal(forecast(B=2))
    ledger.switch("main")
    (ledger.root / sealed.path).write_bytes(b"edited")
    (ledger.root / "predictions" / "new.json").write_bytes(b"new")
    result = audit(str(ledger.root))
    notes = "\n".join(result.notes)
    assert result.verdict == "holds"
    assert "refs/heads/side" in notes and sealed.path in notes and "new.json" in notes


def test_many_uncommitted_files_are_counted(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    for number in range(50):
        (ledger.root / "predictions" / f"{number}.txt").touch()
    assert any("30 more" in note for note in audit(str(ledger.root)).notes)


def test_odd_files_in_the_work_tree_do_not_hang(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    os.mkfifo(ledger.root / "predictions" / "pipe")
    (ledger.root / "predictions" / "loop").symlink_to(".")
    assert audit(str(ledger.root)).verdict == "holds"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
def test_a_repository_of_another_user_is_audited(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    subprocess.run(["chown", "-R", "65534:65534", str(ledger.root)], check=True)
    assert audit(str(ledger.root)).verdict == "holds"


def test_sha256_repository_is_audited(tmp_path):
    folder = tmp_path / "ledger"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", str(folder)], check=True)
    ledger = Ledger(folder)
    ledger.measure(ledger.seal())
    result = audit(str(folder))
    assert result.verdict == "holds" and len(result.book.head) == 64


def test_large_objects_are_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.evidence.object_checks.MAX_OBJECT_BYTES", 1000)
    ledger = Ledger(tmp_path / "ledger")
    ledger.measure(ledger.seal(), attachments={"big": b"x" * 5000, "small": b"y"})
    result = audit(str(ledger.root))
    assert {finding.code for finding in result.findings} == {"object-too-large", "attachment-lost"}


def test_answers_of_git_are_bounded_in_size_and_time(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    ask = reader.Reader(ledger.root / ".git", reader.quiet_environment())
    monkeypatch.setattr(reader, "_MAX_ANSWER_BYTES", 50)
    with pytest.raises(StateError):
        read_history(ask)
    monkeypatch.setattr(reader, "_MAX_ANSWER_BYTES", 2**30)
    monkeypatch.setattr(reader, "_MAX_ANSWER_S", 0.2)
    with pytest.raises(StateError):
        ask.run("-c", "alias.slow=!sleep 3", "slow")


def test_a_tree_without_end_is_undetermined_in_bounded_memory(tmp_path, monkeypatch):
    """Build the tree bomb: ten names for one tree, nine levels deep, a thousand million paths from a few objects."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.seal()
    blob = ledger.git("hash-object", "-w", "--stdin", data=b"x")
    tree, kind, mode = blob, "blob", "100644"
    for _ in range(9):
        listing = "".join(f"{mode} {kind} {tree}\tf{number}\n" for number in range(10))
        tree, kind, mode = ledger.git("mktree", data=listing.encode()), "tree", "040000"
    ledger.git("read-tree", "--empty")
    root = ledger.git("mktree", data=f"040000 tree {tree}\tpredictions\n".encode())
    ledger.git("update-ref", "HEAD", ledger.git("commit-tree", root, "-p", "HEAD", "-m", "bomb"))
    monkeypatch.setattr(reader, "_MAX_ANSWER_BYTES", 50 * 2**20)
    assert audit(str(ledger.root)).verdict == "undetermined"


def test_a_clone_that_takes_too_long_is_undetermined(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    monkeypatch.setattr(clone, "CLONE_TIMEOUT_S", 0.0)
    assert audit(str(ledger.root)).verdict == "undetermined"


def test_altered_object_names_its_path(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    sealed = ledger.put_seal()
    path = object_path("predictions", sealed.forecast.kernel_sha256)
    ledger.write(path, b"another")
    ledger.commit()
    assert [(f.code, f.path) for f in audit(str(ledger.root)).findings] == [("object-altered", path)]


def test_a_challenge_is_answered_by_a_measurement_made_after_it(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    handed = json.loads(run("challenge", "--json").stdout)
    before = run("audit", "--challenge", handed["challenge"], str(ledger.root))
    assert before.returncode == 1 and "no measurement answers the challenge" in before.stderr
    fresh = ledger.measure(sealed, run=1, anchor=handed["anchor"])
    done = run("audit", "--json", "--challenge", handed["challenge"], str(ledger.root))
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["challenge"]
    assert (answer["run"], answer["proven"], answer["record"]) == (1, True, Path(fresh).stem)
    assert answer["cell"] == f"{sealed.id[:10]}#{sealed.forecast.cell}"
    assert "computed after the challenge was given" in run(
        "audit", "--challenge", f" {handed['challenge']}\n", str(ledger.root)
    ).stdout.replace("\n", " ")
    other = json.loads(run("challenge", "--json").stdout)
    assert other != handed and run("audit", "--challenge", other["challenge"], str(ledger.root)).returncode == 1


def test_a_run_made_before_a_challenge_cannot_claim_it(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    anchor = anchor_of("a text that nobody knew before")
    old = honest_samples(sealed.forecast, seal=sealed.id, run=1)
    ledger.measure(sealed, run=1, anchor=anchor, samples=old)
    result = audit(str(ledger.root), challenge="a text that nobody knew before")
    assert result.verdict == "refused" and {f.code for f in result.findings} >= {"binding-broken"}
    ledger, sealed = honest(tmp_path / "placed")
    placed = honest_samples(sealed.forecast, seal=sealed.id, run=1, anchor=anchor)
    ledger.measure(sealed, run=1, anchor=anchor, samples=placed.model_copy(update={"bits": old.bits}))
    result = audit(str(ledger.root), challenge="a text that nobody knew before")
    assert result.verdict == "refused" and {f.code for f in result.findings} == {"samples-disagree"}
    assert [answer.proven for answer in result.answers or ()] == [False]


def test_a_challenge_of_an_operation_unknown_here_proves_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    known = forecast()
    sealed = ledger.seal(known.model_copy(update={"operation": "mystery/1"}))
    anchor = anchor_of("a text that nobody knew before")
    ledger.measure(sealed, anchor=anchor, samples=honest_samples(known, seal=sealed.id, anchor=anchor))
    result = audit(str(ledger.root), challenge="a text that nobody knew before")
    assert [answer.proven for answer in result.answers or ()] == [False]
    assert run("audit", "--challenge", "a text that nobody knew before", str(ledger.root)).returncode == 1


@pytest.mark.parametrize("text", ["", "short", "x" * 401, "   fifteen chars   "])
def test_a_challenge_that_is_none_is_bad_input(tmp_path, text):
    done = run("audit", "--challenge", text, str(honest(tmp_path / "ledger")[0].root))
    assert done.returncode == 2 and "--challenge" in done.stderr


def test_second_implementation_reads_the_same_history(tmp_path):
    """Read with dulwich, which shares no code with git: the same commits, parents and blobs."""
    dulwich = pytest.importorskip("dulwich.repo")
    ledger = Ledger(tmp_path / "ledger")
    base = ledger.commit("begin")
    for branch, size in (("left", 2), ("right", 3)):
        ledger.switch(branch, base)
        ledger.measure(ledger.seal(forecast(B=size)))
    ledger.switch("main")
    ledger.merge("left", "right")
    history = read_history(reader.Reader(ledger.root / ".git", reader.quiet_environment()))
    with dulwich.Repo(str(ledger.root)) as other:
        seen = {entry.commit.id.decode(): entry.commit for entry in other.get_walker()}
        parents = {
            commit.sha: {history.commits[p].sha for p in above}
            for commit, above in zip(history.commits, history.parents, strict=True)
        }
        assert parents == {sha: {p.decode() for p in commit.parents} for sha, commit in seen.items()}
        tree = other[other.head()].tree
        blobs = {
            entry.path.decode(): (f"{entry.mode:o}", entry.sha.decode())
            for entry in other.object_store.iter_tree_contents(tree)
        }
        assert {
            path: held for path, held in blobs.items() if path.split("/")[0] in ("predictions", "verifications")
        } == dict(history.tree)
        introduced = {(history.commits[c.position].sha, c.path) for c in history.changes}
        second = set()
        for sha, commit in seen.items():
            sides = [other[parent].tree for parent in commit.parents] or [None]
            changes = [
                {(c.new or c.old).path.decode() for c in other.object_store and _diff(other, side, commit.tree)}
                for side in sides
            ]
            second |= {(sha, path) for path in set.intersection(*changes)}
        assert introduced == second


def _diff(repository, old, new):
    from dulwich.diff_tree import tree_changes

    return tree_changes(repository.object_store, old, new)
