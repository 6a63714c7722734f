"""Tests that a ledger is made whole or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from builders import EMPTY_GIT

from ledger.errors import InputError, StateError
from ledger.workflow.init import ATTRIBUTES, FOLDERS, found

FILES = {".gitattributes", *(f"{folder}/.gitkeep" for folder in FOLDERS)}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in EMPTY_GIT.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "new"


@pytest.fixture
def nameless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_", "EMAIL"))]:
        monkeypatch.delenv(name)


def test_a_new_ledger_is_committed(folder: Path):
    found(folder)
    assert set(git(folder, "ls-files").splitlines()) == FILES
    assert git(folder, "status", "--porcelain") == ""
    assert "nothing to do" in found(folder)[-1]


@pytest.mark.usefixtures("nameless")
@pytest.mark.parametrize("repository", [False, True], ids=["no repository", "a repository"])
def test_without_an_identity_nothing_is_written(folder: Path, repository: bool):
    if repository:
        folder.mkdir()
        git(folder, "init", "--quiet")
    with pytest.raises(StateError, match="git config"):
        found(folder)
    assert [path.name for path in folder.glob("*")] == ([".git"] if repository else [])
    assert folder.exists() is repository


@pytest.mark.parametrize("there", sorted(FILES))
def test_files_that_were_written_and_never_committed_are_committed(folder: Path, there: str):
    folder.mkdir()
    git(folder, "init", "--quiet")
    for path in FILES:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(ATTRIBUTES if path == ".gitattributes" else "")
    git(folder, "add", *(FILES - {there}))
    git(folder, "commit", "--quiet", "-m", "some")
    assert found(folder)[-1] == f"committed {there} alone"
    assert git(folder, "status", "--porcelain") == ""


def test_a_file_of_the_users_own_stays_as_it_is(folder: Path):
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / ".gitattributes").write_text("*.png binary\n")
    (folder / "predictions").mkdir()
    (folder / "predictions" / ".gitkeep").write_text("mine\n")
    told = found(folder)
    assert [line for line in told if ".gitattributes lacks 'predictions/** -text'" in line]
    assert (folder / "predictions" / ".gitkeep").read_text() == "mine\n"
    assert set(git(folder, "ls-files").splitlines()) == FILES - {".gitattributes", "predictions/.gitkeep"}


def test_a_detached_head_gets_nothing(folder: Path):
    found(folder)
    git(folder, "checkout", "--quiet", "--detach")
    (folder / "hardware" / ".gitkeep").unlink()
    (folder / "hardware").rmdir()
    with pytest.raises(StateError, match="detached"):
        found(folder)
    assert not (folder / "hardware").exists()


def test_a_file_in_the_way_is_named(folder: Path):
    folder.write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        found(folder / "ledger")


def test_a_folder_inside_a_repository_is_refused_with_its_top(folder: Path, monkeypatch: pytest.MonkeyPatch):
    found(folder)
    for inside in (folder / "tools" / "perf", folder / "kernels"):
        with pytest.raises(InputError, match=f"is inside the repository {folder}.*run: ledger init {folder}"):
            found(inside)
    assert not (folder / "tools").exists()
    monkeypatch.chdir(folder)
    assert "nothing to do" in found(Path())[-1]
