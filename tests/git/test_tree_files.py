"""Tests that a commit's files come out as committed, and nothing else of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ledger.errors import InputError
from ledger.git import tree_files
from ledger.git.reader import Reader, quiet_environment
from ledger.git.tree_files import commit_of, write_files
from ledger.workflow.revisions import two_sides

WHO = {f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **WHO}, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "predictions").mkdir(parents=True)
    (folder / "mypkg").mkdir()
    (folder / "predictions" / "ab.json").write_text("{}")
    (folder / "mypkg" / "ops.py").write_bytes(b"x = 1\r\n")
    (folder / "large.bin").write_bytes(b"0" * (tree_files.MAX_FILE_BYTES + 1))
    (folder / "link.py").symlink_to("/etc/passwd")
    # A filter of the repository's configuration must not run.
    (folder / ".gitattributes").write_text("*.py filter=shout\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "filter.shout.smudge", "false")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def test_files_are_those_of_the_commit(repository: Path, tmp_path: Path):
    reader = Reader(repository / ".git", quiet_environment())
    commit = commit_of(reader, "main")
    (repository / "mypkg" / "ops.py").write_text("not committed")
    out = tmp_path / "out"
    out.mkdir()
    assert write_files(reader, commit, out) == ()
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        ".gitattributes",
        "mypkg/ops.py",
    }
    assert (out / "mypkg" / "ops.py").read_bytes() == b"x = 1\r\n"


def test_a_file_that_the_clone_lacks_is_left_out_and_named(repository: Path, tmp_path: Path):
    blob = Reader(repository / ".git", quiet_environment()).run("rev-parse", "main:mypkg/ops.py").decode().strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with two_sides(repository, "main", "main") as (side, _):
        assert side.missing == ("mypkg/ops.py",) and (side.root / ".gitattributes").is_file()
        assert "commit main: 1 file not in this clone, left out, such as mypkg/ops.py: git fetch" in side.missing_text


def test_a_revision_that_names_nothing_is_refused(repository: Path):
    reader = Reader(repository / ".git", quiet_environment())
    for name in ("nowhere", "--all", "main:mypkg"):
        with pytest.raises(InputError, match="names no commit"):
            commit_of(reader, name)


@pytest.mark.parametrize("path", ["../up.py", "/etc/x", ".git/config", "a/../../b"])
def test_a_path_that_leaves_the_folder_is_refused(path: str):
    with pytest.raises(InputError, match="inside the repository"):
        tree_files._checked(path, "0" * 40)
