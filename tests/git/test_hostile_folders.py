"""Tests that opening a stranger's repository runs nothing of it and waits for nothing in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from builders import EMPTY_GIT, honest

from ledger.errors import StateError
from ledger.evidence.audit import audit
from ledger.git.special_files import check_regular
from ledger.git.work_tree import WorkTree

PROGRAM = "#!/bin/sh\ntouch {canary}\nexit 1\n"


@pytest.fixture(autouse=True)
def only_this_configuration(monkeypatch: pytest.MonkeyPatch):
    for name, value in EMPTY_GIT.items():
        monkeypatch.setenv(name, value)


def drill(folder: Path) -> tuple[int, str]:
    """Return the exit code of a drill on a folder and what it says."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "ledger", "drill", "--from", str(folder), "--json", "--count", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def partial_clone(folder: Path, canary: Path) -> Path:
    """Return a repository that lacks the commit of HEAD and names a program that would fetch it."""
    ledger, _ = honest(folder)
    program = folder.parent / "evil.sh"
    program.write_text(PROGRAM.format(canary=canary))
    program.chmod(0o755)
    head = ledger.head
    settings = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(ledger.root),
        "remote.origin.uploadpack": f"{program} up",
    }
    for key, value in settings.items():
        ledger.git("config", key, value)
    (ledger.root / ".git/objects" / head[:2] / head[2:]).unlink()
    # GitPython cannot read it without the blank; git can.
    (ledger.root / ".git/HEAD").write_text("ref:refs/heads/main\n")
    return ledger.root


def test_a_missing_commit_is_not_fetched_by_the_program_of_a_partial_clone(tmp_path: Path):
    canary = tmp_path / "canary"
    root = partial_clone(tmp_path / "ledger", canary)
    # Where fetching is allowed the program runs: the repository is as hostile as it should be.
    subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD^{commit}"], capture_output=True, check=False)
    assert canary.exists()
    canary.unlink()
    code, said = drill(root)
    assert code == 2 and "no commit" in said and not canary.exists()
    assert audit(str(root)).verdict == "undetermined" and not canary.exists()


def test_a_git_that_knows_no_lazy_fetch_variable_fetches_by_no_protocol(tmp_path: Path, monkeypatch):
    root = partial_clone(tmp_path / "ledger", tmp_path / "canary")
    monkeypatch.setattr("ledger.git.work_tree._NO_PROTOCOL", {"GIT_NO_LAZY_FETCH": "0", "GIT_ALLOW_PROTOCOL": ""})
    assert WorkTree(root).head() is None
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("path", ["refs/heads/main", "HEAD", "config", "packed-refs", "objects/info/alternates"])
def test_a_pipe_in_the_git_folder_is_refused_at_once(tmp_path: Path, path: str):
    ledger, _ = honest(tmp_path / "ledger")
    pipe = ledger.root / ".git" / path
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(StateError, match=f"{path}: is a named pipe; expected a regular file"):
        WorkTree(ledger.root)
    result = audit(str(ledger.root))
    assert result.verdict == "undetermined" and "is a named pipe" in result.reason


def includes_of_includes(ledger, pipe: Path) -> None:
    ledger.git("config", "includeIf.gitdir:/.path", "more")
    (ledger.root / ".git/more").write_text('[include]\n\tpath = "even more"\n')
    (ledger.root / ".git/even more").write_text(f"[Include]\n\tPath = {pipe}\n[include]\n\tpath = more\n")


def alternate_of_an_alternate(ledger, pipe: Path) -> None:
    for name, named in (("a", "../b"), ("b", pipe.parent)):
        (ledger.root / ".git" / name / "info").mkdir(parents=True)
        (ledger.root / ".git" / name / "info/alternates").write_text(f"# a comment\n{named}\n")
    (ledger.root / ".git/objects/info/alternates").write_text("../a\n")


@pytest.mark.parametrize(
    "name",
    [
        lambda ledger, pipe: ledger.git("config", "include.path", str(pipe)),
        lambda ledger, pipe: ledger.git("config", "include.path", os.path.relpath(pipe, ledger.root / ".git")),
        lambda ledger, pipe: ledger.git("config", "include.path", "~/pipe"),
        lambda ledger, pipe: ledger.git("config", "core.excludesFile", str(pipe)),
        lambda ledger, pipe: ledger.git("config", "core.attributesFile", "../objects/pipe"),
        includes_of_includes,
        alternate_of_an_alternate,
    ],
)
def test_a_pipe_that_the_git_folder_names_is_refused_at_once(tmp_path: Path, name, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    pipe = tmp_path / "objects/pipe"
    pipe.parent.mkdir()
    monkeypatch.setenv("HOME", str(pipe.parent))
    name(ledger, pipe)
    check_regular(ledger.root)
    os.mkfifo(pipe)
    with pytest.raises(StateError, match=r"pipe[:,] (is )?a named pipe; expected a regular file"):
        WorkTree(ledger.root)
    result = audit(str(ledger.root))
    assert result.verdict == "undetermined" and "a named pipe" in result.reason


def test_folders_that_name_each_other_in_many_ways_are_read_once_and_too_many_are_refused(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    alternates = ledger.root / ".git/objects/info/alternates"
    spelled = [f"../objects{'/../objects' * count}" for count in range(200)]
    alternates.write_text("\n".join([*spelled, "../nul\0", "../loop"]))
    (ledger.root / ".git/loop").symlink_to("loop")
    ledger.git("config", "include.path", "more")
    included = [f"[include]\npath = {'../.git/' * count}more\n" for count in range(200)]
    (ledger.root / ".git/more").write_text("".join(included))
    check_regular(ledger.root)
    alternates.write_text("".join(f"../{count}\n" for count in range(2000)))
    with pytest.raises(StateError, match="names more than 100 others"):
        check_regular(ledger.root)
    alternates.unlink()
    (ledger.root / ".git/more").write_text("".join(f"[include]\npath = {count}\n" for count in range(2000)))
    with pytest.raises(StateError, match="names more than 100 others"):
        check_regular(ledger.root)


def test_files_that_the_git_folder_names_may_be_missing_or_empty(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    ledger.git("config", "include.path", "nowhere")
    ledger.git("config", "core.excludesFile", os.devnull)
    (ledger.root / ".git/objects/info/alternates").write_text("nowhere\n")
    check_regular(ledger.root)


def test_a_drill_on_a_pipe_ends_with_2(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    (ledger.root / ".git/refs/heads/main").unlink()
    os.mkfifo(ledger.root / ".git/refs/heads/main")
    code, said = drill(ledger.root / "predictions")
    assert code == 2 and "refs/heads/main: is a named pipe" in said


def test_links_to_devices_and_pipes_in_linked_folders_are_refused(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    git_folder = ledger.root / ".git"
    (git_folder / "shallow").symlink_to("/dev/zero")
    with pytest.raises(StateError, match="shallow: is a device"):
        check_regular(ledger.root)
    (git_folder / "shallow").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.mkfifo(elsewhere / "pipe")
    (git_folder / "refs/heads/linked").symlink_to(elsewhere)
    with pytest.raises(StateError, match="linked/pipe: is a named pipe"):
        check_regular(ledger.root)


def test_a_linked_work_tree_is_looked_at_with_the_folder_that_it_shares(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    ledger.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    WorkTree(tmp_path / "side")
    os.mkfifo(ledger.root / ".git/refs/heads/pipe")
    with pytest.raises(StateError, match="refs/heads/pipe: is a named pipe"):
        WorkTree(tmp_path / "side")


def test_links_and_sockets_that_nobody_waits_for_are_let_be(tmp_path: Path):
    ledger, _ = honest(tmp_path / "ledger")
    (ledger.root / ".git/refs/heads/loop").symlink_to("..")
    (ledger.root / ".git/dangling").symlink_to("nowhere")
    # Not bound: the address of a socket is at most 107 bytes, whatever the folder of a test is called.
    os.mknod(ledger.root / ".git/fsmonitor--daemon.ipc", stat.S_IFSOCK | 0o600)
    (ledger.root / ".git/hooks").mkdir(exist_ok=True)
    os.mkfifo(ledger.root / ".git/hooks/pipe")
    check_regular(ledger.root)
