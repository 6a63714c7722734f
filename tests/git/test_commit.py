"""Tests that a ledger commit lands whole, in order, and touches nothing of the user's."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from builders import Ledger

from ledger.analysis.campaign import Request
from ledger.cli import main
from ledger.errors import StateError
from ledger.git import commit as repo_module
from ledger.git.clone import sanitised_clone
from ledger.git.commit import Repository
from ledger.kernel_files import kernel_closure
from ledger.workflow.doctor import examine
from ledger.workflow.seal import SealedCommit, draft, seal

IDENTITY = ("user.name=Ada", "user.email=ada@example.org")


@pytest.fixture(autouse=True)
def only_this_configuration(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    for setting in IDENTITY:
        made.git("config", *setting.split("=", 1))
    made.write("mine.txt", b"one\n")
    made.commit("begin")
    return made


def request(size: int = 64, pct: float = 10.0) -> Request:
    return Request(
        kernel="matmul",
        hardware="h200",
        dtype="fp16",
        shape={"M": size, "N": 64, "K": 64},
        regime="launch-bound",
        pct=pct,
    )


def seal_here(root: Path, size: int = 64, **options) -> SealedCommit:
    return seal(Repository(root), [draft(request(size), root=root)], **options)


def status(ledger: Ledger) -> str:
    return ledger.git("status", "--porcelain")


# What a seal leaves behind


def test_seal_is_one_commit_of_its_own_files(ledger):
    before = ledger.head
    made = seal_here(ledger.root)
    assert ledger.head == made.commit and made.note is None
    assert ledger.git("rev-parse", "HEAD^") == before
    added = ledger.git("show", "--name-status", "--format=", "HEAD").splitlines()
    assert {line.split("\t")[0] for line in added} == {"A"}
    # The seal, the profile, the manifest of the kernel's sources and each of these.
    assert len(added) == 3 + len(kernel_closure("matmul")[0].files)
    assert status(ledger) == ""
    assert f"Seal-Id: {made.id}" in ledger.git("log", "-1", "--format=%B")
    assert ledger.book().seals[0].id == made.id and not ledger.book().findings


def test_second_seal_follows_the_first(ledger):
    first, second = seal_here(ledger.root), seal_here(ledger.root, 128)
    assert second.prediction.previous == (first.id,)
    assert (first.prediction.sequence, second.prediction.sequence) == (1, 2)
    assert not ledger.book().findings


def test_staged_edited_and_new_files_of_the_user_stay_as_they_were(ledger):
    (ledger.root / "mine.txt").write_bytes(b"edited\n")
    ledger.write("staged.txt", b"staged\n")
    (ledger.root / "staged.txt").write_bytes(b"staged, then edited\n")
    (ledger.root / "new.txt").write_bytes(b"new\n")
    ledger.git("update-index", "--chmod=+x", "staged.txt")
    before, diff = status(ledger), ledger.git("diff", "--cached")
    seal_here(ledger.root)
    assert (status(ledger), ledger.git("diff", "--cached")) == (before, diff)
    assert (ledger.root / "mine.txt").read_bytes() == b"edited\n"


def test_the_users_next_commit_keeps_the_seal(ledger):
    ledger.write("staged.txt", b"staged\n")
    made = seal_here(ledger.root)
    ledger.commit("mine")
    ledger.git("commit", "--quiet", "--allow-empty", "--all", "-m", "all")
    assert ledger.git("ls-tree", "HEAD", "--", made.path)
    assert not ledger.book().findings


def test_an_ignored_folder_still_takes_the_seal(ledger):
    ledger.write(".gitignore", b"*.json\npredictions/\n")
    ledger.commit()
    made = seal_here(ledger.root)
    assert ledger.git("ls-files", "--", made.path) and status(ledger) == ""


def test_sealing_works_from_a_subfolder_and_inside_a_hook(ledger, monkeypatch):
    (ledger.root / "deep").mkdir()
    with monkeypatch.context() as hook:
        hook.setenv("GIT_INDEX_FILE", str(ledger.root / "other-index"))
        for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"):
            hook.setenv(name, "/nonexistent")
        seal(Repository(ledger.root / "deep"), [draft(request(), root=ledger.root)])
        assert os.environ["GIT_DIR"] == "/nonexistent"
    assert status(ledger) == "" and len(ledger.book().seals) == 1


def test_odd_entries_of_the_users_tree_stay_as_they_are(ledger):
    # Names outside UTF-8, names that sort otherwise as a folder, a link, a program, a submodule.
    blob, commit = ledger.git("rev-parse", "HEAD:mine.txt"), ledger.head
    entries = [(b"100644", blob, name) for name in (b"\xff\xe9.txt", b"\x80", "é".encode(), b"predictions.txt")]
    entries += [(b"120000", blob, b".mailmap"), (b"100755", blob, b"run me"), (b"160000", commit, b"predictions-old")]
    lines = b"".join(mode + b" " + name.encode() + b" 0\t" + path + b"\0" for mode, name, path in entries)
    command = ["git", "-C", str(ledger.root), "update-index", "--add", "-z", "--index-info"]
    subprocess.run(command, input=lines, check=True)
    ledger.git("commit", "--quiet", "-m", "odd")
    made = seal_here(ledger.root)
    changed = ledger.git("diff-tree", "-r", "--name-status", "HEAD~1", "HEAD").splitlines()
    assert {line.split("\t")[0] for line in changed} == {"A"} and f"A\t{made.path}" in changed
    ledger.git("fsck", "--strict")
    assert seal_here(ledger.root, 128).prediction.sequence == 2 and not ledger.book().findings


def test_packed_and_borrowed_objects_and_references_are_read(ledger, tmp_path):
    first = seal_here(ledger.root)
    ledger.git("gc", "--quiet", "--prune=now")
    second = seal_here(ledger.root, 128)
    ledger.git("clone", "--quiet", "--shared", str(ledger.root), str(tmp_path / "borrower"))
    for setting in IDENTITY:
        ledger.git("-C", str(tmp_path / "borrower"), "config", *setting.split("=", 1))
    third = seal_here(tmp_path / "borrower", 256)
    assert (second.prediction.previous, third.prediction.previous) == ((first.id,), (second.id,))


def test_a_repository_opened_before_git_packed_it_is_still_read(ledger):
    repository = Repository(ledger.root)
    first = seal(repository, [draft(request(), root=ledger.root)])
    ledger.git("gc", "--quiet", "--prune=now")
    assert repository.is_committed(first.path)
    assert seal(repository, [draft(request(128), root=ledger.root)]).prediction.previous == (first.id,)


def test_a_head_that_is_a_link_takes_a_seal(ledger):
    head = ledger.root / ".git" / "HEAD"
    target = head.read_text().removeprefix("ref: ").strip()
    head.unlink()
    head.symlink_to(target)
    made = seal_here(ledger.root)
    assert ledger.head == made.commit and head.is_symlink()


def test_a_branch_name_outside_utf8_takes_a_seal(ledger):
    subprocess.run(["git", "-C", str(ledger.root), "switch", "--quiet", "-c", b"\xff"], check=True)
    made = seal_here(ledger.root)
    assert ledger.head == made.commit and status(ledger) == ""


def test_a_replaced_tree_is_not_taken_for_the_real_one(ledger):
    real = ledger.git("rev-parse", "HEAD^{tree}")
    ledger.git("replace", real, ledger.git("mktree", "--missing"))
    made = seal_here(ledger.root)
    ledger.git("replace", "-d", real)
    assert ledger.git("ls-tree", "--name-only", made.commit, "mine.txt") == "mine.txt"


def test_a_commit_in_an_encoding_that_python_does_not_know_takes_a_seal(ledger):
    ledger.git("-c", "i18n.commitEncoding=x-own", "commit", "--quiet", "--allow-empty", "-m", "odd")
    assert b"encoding x-own" in ledger.git("cat-file", "commit", "HEAD").encode()
    assert seal_here(ledger.root).commit == ledger.head


def test_an_object_with_other_bytes_than_its_name_is_not_used(ledger):
    tree, head = ledger.git("rev-parse", "HEAD^{tree}"), ledger.head
    other = ledger.git("hash-object", "-w", "-t", "tree", os.devnull)
    objects = ledger.root / ".git" / "objects"
    target = objects / tree[:2] / tree[2:]
    target.chmod(0o644)
    target.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    with pytest.raises(StateError, match="git fsck"):
        seal_here(ledger.root)
    assert ledger.head == head


# States of the repository


def test_unborn_branch_takes_the_first_seal(tmp_path):
    fresh = Ledger(tmp_path / "fresh")
    for setting in IDENTITY:
        fresh.git("config", *setting.split("=", 1))
    made = seal_here(fresh.root)
    assert fresh.head == made.commit and status(fresh) == ""
    assert not fresh.book().findings


def test_detached_head_is_refused(ledger):
    ledger.git("checkout", "--quiet", "--detach")
    with pytest.raises(StateError, match="detached"):
        seal_here(ledger.root)


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick", "revert"])
def test_an_operation_in_progress_is_refused_and_left_alone(ledger, operation):
    ledger.switch("side", ledger.head)
    ledger.write("mine.txt", b"side\n")
    ledger.commit()
    ledger.switch("main")
    ledger.write("mine.txt", b"main\n")
    ledger.commit()
    ledger.write("mine.txt", b"later\n")
    ledger.commit()
    target = "HEAD~1" if operation == "revert" else "side"
    ledger.git(operation, target, check=False)
    before = status(ledger)
    with pytest.raises(StateError, match="in progress"):
        seal_here(ledger.root)
    assert status(ledger) == before != ""


def test_no_identity_is_refused(ledger):
    ledger.git("config", "--unset", "user.name")
    ledger.git("config", "--unset", "user.email")
    with pytest.raises(StateError, match=r"identity.*git config --global user\.name"):
        seal_here(ledger.root)


@pytest.mark.parametrize(
    ("date", "words"),
    [("garbage", "git: .*date.*expected a date that git knows"), ("@253402300800 +0000", "before the year 10000")],
)
def test_a_date_that_no_record_can_show_is_refused(ledger, monkeypatch, date, words):
    monkeypatch.setenv("GIT_COMMITTER_DATE", date)
    with pytest.raises(StateError, match=words):
        seal_here(ledger.root)


def test_a_folder_whose_name_is_not_utf8_is_audited(tmp_path):
    odd = Ledger(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")))
    odd.write("mine.txt", b"one\n")
    odd.commit("begin")
    with sanitised_clone(str(odd.root)) as clone:
        assert (clone.git_dir / "HEAD").is_file()


def test_no_repository_and_bare_repository_are_refused(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(StateError, match="git init"):
        Repository(tmp_path / "nothing")
    bare = Ledger(tmp_path / "bare.git", bare=True)
    with pytest.raises(StateError, match="bare"):
        Repository(bare.root)


def test_sha256_repository_is_answered_clearly(tmp_path):
    folder = tmp_path / "other"
    subprocess.run(["git", "init", "--quiet", "--object-format=sha256", str(folder)], check=True)
    with pytest.raises(StateError, match="SHA-256"):
        Repository(folder).check_can_commit()


def test_a_committed_file_is_never_replaced(ledger):
    made = seal_here(ledger.root)
    with pytest.raises(StateError, match="append-only"):
        Repository(ledger.root).commit(lambda _parent: ({made.path: b"{}"}, "bad"))
    assert ledger.head == made.commit


def test_a_file_where_a_folder_belongs_is_named(ledger):
    ledger.write("predictions", b"a file\n")
    ledger.commit()
    with pytest.raises(StateError, match="predictions"):
        seal_here(ledger.root)


# Settings


def test_gpgsign_signs_and_a_broken_signer_seals_nothing(ledger, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in (("commit.gpgsign", "true"), ("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub")):
        ledger.git("config", name, value)
    made = seal_here(ledger.root)
    assert "gpgsig" in ledger.git("cat-file", "commit", made.commit)
    assert not ledger.book().findings
    key.unlink()
    with pytest.raises(StateError, match="git commit-tree"):
        seal_here(ledger.root, 128)
    assert ledger.head == made.commit and status(ledger) == ""


@pytest.mark.parametrize("value", ["true", "input"])
def test_autocrlf_leaves_records_alone(ledger, value):
    ledger.git("config", "core.autocrlf", value)
    made = seal_here(ledger.root)
    assert status(ledger) == ""
    assert ledger.git("rev-parse", f"HEAD:{made.path}") == ledger.git("hash-object", "--no-filters", made.path)
    assert not ledger.book().findings


def test_commit_encoding_and_hooks_change_nothing(ledger):
    ledger.git("config", "i18n.commitEncoding", "latin1")
    for hook in ("pre-commit", "commit-msg", "prepare-commit-msg"):
        path = ledger.root / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    made = seal_here(ledger.root)
    assert ledger.head == made.commit
    assert "encoding" not in ledger.git("cat-file", "commit", "HEAD").split("\n\n")[0]


def test_linked_worktrees_seal_on_their_own_branches(ledger, tmp_path):
    ledger.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    first = seal_here(ledger.root)
    second = seal_here(tmp_path / "side", 128)
    assert second.prediction.previous == ()
    assert status(ledger) == "" and ledger.git("-C", str(tmp_path / "side"), "status", "--porcelain") == ""
    ledger.merge("side")
    third = seal_here(ledger.root, 256)
    assert third.prediction.previous == tuple(sorted((first.id, second.id)))
    assert not ledger.book().findings


# Crowds and crashes


def _writer(root: str, number: int, count: int, size: int) -> None:
    for turn in range(count):
        seal_here(Path(root), size or 64 + number * 100 + turn)


@pytest.mark.parametrize("size", [0, 64], ids=["different-cells", "same-cell"])
def test_concurrent_writers_all_land_in_one_line(ledger, size):
    jobs = [multiprocessing.Process(target=_writer, args=(str(ledger.root), n, 3, size)) for n in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120)
    assert [job.exitcode for job in jobs] == [0] * 4
    book = ledger.book()
    assert [s.prediction.sequence for s in book.seals] == list(range(1, 13))
    assert not book.findings and status(ledger) == ""


def test_a_branch_that_moves_meanwhile_makes_the_seal_chain_again(ledger, monkeypatch):
    original, calls = Repository._advance, []

    def slow(self, branch, commit, parent):
        if not calls:
            calls.append(parent)
            ledger.write("other.txt", b"x")
            ledger.commit("somebody else")
        return original(self, branch, commit, parent)

    monkeypatch.setattr(Repository, "_advance", slow)
    made = seal_here(ledger.root)
    assert ledger.git("rev-parse", "HEAD^") != calls[0]
    assert ledger.head == made.commit and status(ledger) == ""


@pytest.mark.parametrize("command", ["hash-object", "mktree"])
def test_a_git_that_gets_part_of_its_input_seals_nothing(ledger, monkeypatch, command):
    # As a failing read of a pipe looks to git: the input ends early, and git succeeds on the part.
    whole, head = Repository.git, ledger.git("rev-parse", "HEAD")

    def cut(self, *arguments, data=None, **more):
        if data is not None and command in arguments:
            ends = [place for place, byte in enumerate(data[:-1]) if byte == 0]
            data = data[: ends[-1] + 1] if ends else data[: len(data) // 2]
        return whole(self, *arguments, data=data, **more)

    monkeypatch.setattr(Repository, "git", cut)
    with pytest.raises(StateError, match="did not get all of its input"):
        seal_here(ledger.root)
    assert ledger.git("rev-parse", "HEAD") == head


def test_a_wish_to_sign_that_cannot_be_read_is_not_taken_for_none(ledger):
    head = ledger.head
    ledger.git("config", "commit.gpgsign", "perhaps")
    with pytest.raises(StateError, match="gpgsign"):
        seal_here(ledger.root)
    assert ledger.head == head


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("command", ["cat-file", "log", "rev-parse"])
def test_a_git_that_cannot_print_its_answer_shortens_no_tree_and_no_chain(ledger, monkeypatch, tmp_path, command):
    # To a pipe git would overlook the failed write and exit 0: a tree without the user's files, a chain without seals.
    seal_here(ledger.root, 32)
    head = ledger.head
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    fault = f"strace -o {os.devnull} -e trace=write -e inject=write:error=ENOSPC:when=1 {shutil.which('git')}"
    shim.write_text(
        f'#!/bin/sh\nif [ "$1" = {command} ]; then exec {fault} "$@"; fi\nexec {shutil.which("git")} "$@"\n'
    )
    shim.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
        with suppress(StateError):
            seal_here(ledger.root)
    assert (ledger.root / "mine.txt").exists() and ledger.git("ls-tree", "--name-only", "HEAD", "mine.txt")
    assert not ledger.book().findings and not status(ledger)
    assert seal_here(ledger.root, 128).prediction.sequence == 2 + (ledger.git("rev-parse", "HEAD~1") != head)


def test_a_seal_stands_though_its_mark_cannot_be_removed(ledger, monkeypatch):
    def unlink(path, missing_ok=False):
        if path.exists():
            raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        made = seal_here(ledger.root)
    assert made.commit == ledger.head and made.note is None
    assert seal_here(ledger.root, 128).prediction.sequence == 2
    assert not ledger.book().findings and not status(ledger)


def test_an_index_that_misses_the_seal_is_said(ledger, monkeypatch):
    whole = Repository.git

    def cut(self, *arguments, data=None, **more):
        return whole(self, *arguments, data=b"" if "--index-info" in arguments else data, **more)

    monkeypatch.setattr(Repository, "git", cut)
    assert "is not in the index" in (seal_here(ledger.root).note or "")


def test_a_held_index_lock_is_said_and_the_seal_stands(ledger, monkeypatch):
    monkeypatch.setattr(repo_module, "_PATIENCE_S", 0.2)
    lock = ledger.root / ".git" / "index.lock"
    lock.touch()
    made = seal_here(ledger.root)
    assert made.note is not None and "ledger doctor" in made.note
    assert ledger.head == made.commit
    assert any("index.lock" in c.what and c.state == "broken" for c in examine(ledger.root, repair=False))
    lock.unlink()
    second = seal_here(ledger.root, 128)
    assert second.note is None and status(ledger) == "" and second.prediction.previous == (made.id,)


def test_a_held_branch_lock_stops_the_seal_after_a_while(ledger, monkeypatch):
    monkeypatch.setattr(repo_module, "_PATIENCE_S", 0.2)
    (ledger.root / ".git" / "refs" / "heads" / "main.lock").touch()
    before = ledger.head
    with pytest.raises(StateError, match="ledger doctor"):
        seal_here(ledger.root)
    assert ledger.head == before and status(ledger) == ""


def _killed_between(ledger: Ledger, step: str) -> None:
    """Seal in a child that is killed when it reaches a step."""

    def child() -> None:
        setattr(Repository, step, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        seal_here(ledger.root)

    job = multiprocessing.get_context("fork").Process(target=child)
    job.start()
    job.join(60)
    assert job.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("step", ["_blob", "_tree", "_commit_object", "_advance"])
def test_killed_before_the_branch_moves_leaves_nothing(ledger, step):
    before = ledger.head
    _killed_between(ledger, step)
    assert ledger.head == before and status(ledger) == ""
    seal_here(ledger.root)
    assert status(ledger) == "" and len(ledger.book().seals) == 1


@pytest.mark.parametrize("heal", ["seal", "doctor", "recover"])
def test_killed_after_the_branch_moved_is_finished_by_the_next_one(ledger, heal):
    ledger.write("staged.txt", b"mine\n")
    _killed_between(ledger, "_check_out")
    assert len(ledger.book().seals) == 1
    assert "D  predictions" in status(ledger)
    if heal == "seal":
        seal_here(ledger.root, 128)
    elif heal == "doctor":
        assert any(condition.state == "broken" for condition in examine(ledger.root, repair=False))
        assert any(condition.state == "repaired" for condition in examine(ledger.root, repair=True))
    else:
        Repository(ledger.root).recover()
    assert status(ledger) == "A  staged.txt"
    assert not ledger.book().findings


def test_doctor_restores_records_that_git_lost_and_nothing_else(ledger):
    made = seal_here(ledger.root)
    (ledger.root / made.path).unlink()
    ledger.git("rm", "--quiet", "--cached", made.path)
    (ledger.root / "mine.txt").unlink()
    examine(ledger.root, repair=True)
    assert status(ledger) == "D mine.txt"
    assert (ledger.root / made.path).is_file()


def test_doctor_ends_with_2_where_something_is_broken(ledger, monkeypatch):
    monkeypatch.chdir(ledger.root)
    monkeypatch.setattr("sys.argv", ["ledger", "doctor"])
    made = seal_here(ledger.root)
    (ledger.root / made.path).unlink()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_doctor_judges_the_evidence_and_ends_with_3_where_it_is_refused(ledger, monkeypatch, capsys):
    monkeypatch.chdir(ledger.root)
    monkeypatch.setattr("sys.argv", ["ledger", "doctor"])
    made = seal_here(ledger.root)
    with suppress(SystemExit):
        main()
    assert "good     the evidence of 1 forecast holds" in capsys.readouterr().out
    (ledger.root / made.path).write_bytes(b"{}")
    ledger.git("commit", "--quiet", "--all", "--message", "tamper")
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 3
    assert "broken   the evidence is refused for" in said.out and "see ledger audit" in said.err


def test_doctor_names_a_folder_that_cannot_be_written(ledger, monkeypatch):
    made = tempfile.TemporaryFile

    def read_only(*arguments, **named):
        if "dir" in named:
            raise OSError(errno.EROFS, "Read-only file system")
        return made(*arguments, **named)

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    (found,) = [one for one in examine(ledger.root, repair=False) if "cannot be written" in one.what]
    assert found.state == "broken" and "Read-only file system" in found.what


def test_sealing_stays_quick_as_the_ledger_grows(ledger):
    durations = []
    for number in range(12):
        start = time.perf_counter()
        seal_here(ledger.root, 64 + number)
        durations.append(time.perf_counter() - start)
    assert min(durations[-4:]) < 3 * min(durations[:4])
