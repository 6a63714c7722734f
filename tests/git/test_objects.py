"""Compares the bytes and names of objects with those that git computes."""

from __future__ import annotations

import subprocess

import pytest

from ledger.errors import StateError
from ledger.git.commit import Repository
from ledger.git.objects import Entry, object_name, tree_bytes, tree_entries

BLOB = "8ab686eafeb1f44702738c8b0f24f2567c36da6d"
NAMES = ["a", "a.b", "a-b", "a0", "b c", "é", "z\n", "\udcff", "\udc80", "\uffff", "\U0001f600"]


@pytest.mark.parametrize("mode", [0o100644, 0o100755, 0o120000, 0o160000, 0o040000])
def test_tree_bytes_and_names_are_those_of_git(tmp_path, mode):
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path)], check=True)
    entries = {name: Entry(mode if number % 2 else 0o100644, BLOB) for number, name in enumerate(NAMES)}
    listing = b"".join(
        f"{entry.mode:06o} {entry.kind} {entry.hexsha}\t".encode() + name.encode("utf-8", "surrogateescape") + b"\0"
        for name, entry in entries.items()
    )
    command = ["git", "-C", str(tmp_path)]
    made = subprocess.run([*command, "mktree", "-z", "--missing"], input=listing, capture_output=True, check=True)
    name = made.stdout.decode().strip()
    data = subprocess.run([*command, "cat-file", "tree", name], capture_output=True, check=True).stdout
    assert tree_bytes(entries) == data
    assert object_name("tree", data) == name
    assert tree_entries(data) == entries


def test_a_tree_that_ends_early_is_refused():
    data = tree_bytes({"a": Entry(0o100644, BLOB)})
    with pytest.raises(StateError, match="git fsck"):
        tree_entries(data[:-1])


def test_the_process_that_reads_objects_ends_with_the_repository(tmp_path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    repository = Repository(tmp_path)
    assert not repository.is_committed("mine.txt")
    process = repository._repo.git.cat_file_all.proc
    assert process.poll() is None
    del repository
    assert process.poll() is not None
